"""The command line that starts a sandbox, and the seam where the `filtered` network enters; it starts nothing.

For `none` and `host` bubblewrap is the whole command. For `filtered` a launcher will stand in front of it: it unshares a
user and a network namespace, brings `lo` up with the AnyIP route, opens the listeners, hands them to the daemon, and
executes bubblewrap inside, which then keeps the network it finds.
"""

from __future__ import annotations

from sandbox import bwrap
from sandbox.spec import Network, Spec

AVAILABLE_NETWORKS = (Network.NONE, Network.HOST)


def command(program: str, spec: Spec) -> tuple[str, ...]:
    """Return the command that starts a sandbox.

    Args:
        program: bubblewrap's path.
        spec: the sandbox; its network must be one of `AVAILABLE_NETWORKS`.

    Raises:
        ValueError: the network isn't available.
    """
    if spec.network not in AVAILABLE_NETWORKS:
        raise ValueError(f"the network {spec.network.value!r} has no launcher")
    return (program, *bwrap.arguments(spec))
