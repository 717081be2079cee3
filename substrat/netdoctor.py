"""Has a running turn's network tried from inside by `netprobe`, and the answers judged by `core.diagnosis.network`."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, NamedTuple

from substrat import errors
from substrat.core.diagnosis import network as network_diagnosis
from substrat.core.diagnosis.machine import BROKEN, CheckResult
from substrat.core.diagnosis.network import NetworkProbes

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["BROKEN", "CheckResult", "NetworkReport", "examine"]

_PATIENCE = 90.0
"""Seconds for all probes: the longest takes 30 (`netprobe`), and a machine that swaps needs some more."""


class NetworkReport(NamedTuple):
    """The findings about a turn's network.

    Args:
        form: `transparent` or `proxy`.
        findings: the verdicts.
    """

    form: str
    findings: tuple[CheckResult, ...]


def examine(name: str, network: Callable[[], dict[str, object]]) -> NetworkReport:
    """Try the network of an agent's running turn.

    Args:
        name: the agent's name.
        network: gives the answer of `agent.network` for it, anew each time.

    Raises:
        Refused: the agent has another network than `filtered`, or runs no turn.
        SandboxFailed: the turn's network can't be entered.
    """
    before = network()
    pid = _process(name, before)
    form = str(before["form"])
    target = network_diagnosis.host_to_try(tuple(map(str, _list(before["allow"]))))
    found = _try(name, pid, form, target)
    denial = None
    if target is not None and found.connection is not None:
        decided = [one for one in _list(network()["decisions"]) if isinstance(one, dict) and not one["allowed"]]
        about = [str(one["text"]) for one in decided if str(one["text"]).startswith(f"{target[0]}:{target[1]}: ")]
        denial = about[-1] if about else None
    return NetworkReport(form, network_diagnosis.judge(name, target, found, denial))


def _process(name: str, network: dict[str, object]) -> int:
    """Return the first process of the agent's sandbox.

    Raises:
        Refused: there is none, or its network isn't a filtered one.
    """
    kind, pid = network["network"], network["process"]
    if kind == "none":
        raise errors.Refused(f"{name} has the network 'none': no connection is possible, so there is nothing to examine")
    if kind != "filtered":
        raise errors.Refused(f"{name} has the network {kind!r}, which is this machine's own: look at it with `ip` and `ss`")
    if not isinstance(pid, int) or network["form"] is None:
        raise errors.Refused(f"{name} runs no turn, and has a network only while one runs: ask again during its next turn")
    return pid


def _try(name: str, pid: int, form: str, target: tuple[str, int] | None) -> NetworkProbes:
    """Have the network of a process tried; raises `SandboxFailed` if it can't be entered."""
    host, port = target or ("", 0)
    # `-P` keeps the directory in which the person stands off sys.path.
    command = [sys.executable, "-P", "-m", "substrat.netprobe", str(pid), form, host, str(port)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise errors.SandboxFailed(f"{name}'s network can't be tried: there was no answer in time; try again") from None
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise errors.SandboxFailed(
            f"{name}'s network can't be entered ({reason}): ask as the user that the daemon runs as, while the turn runs"
        )
    found = json.loads(done.stdout)
    ways_out = found["ways_out"]
    return NetworkProbes(
        found["name"], found["connection"], found["refusal"], None if ways_out is None else tuple(ways_out)
    )


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []
