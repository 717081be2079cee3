"""`forward`: makes ports of an agent's sandbox reachable on this machine, at an address of the agent's own."""

from __future__ import annotations

import sys

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

COMMAND = Command(
    "forward",
    "NAME [LOCAL:]PORT...",
    notes=(
        "It listens at 127.0.77.N, where N is the agent's own while it lives, and never at 127.0.0.1, because a browser "
        "gives the cookies of one port to all others of an address. Connections go to the agent's running turn, else "
        "to its commands of 'exec', and are refused while none runs. It goes on until Ctrl-C, between turns and across "
        "restarts of the daemon. --json prints an object for each port and goes on."
    ),
)
_LAST = 65535


def run(arguments: Arguments) -> int:
    """Forward the ports until the agent has ended."""
    # Imported here because no other verb relays connections.
    from substrat.cli.forwarding import Forwarder

    name, *words = arguments.words
    ports = [_read(word) for word in words]
    if len({local for local, _ in ports}) < len(ports):
        raise COMMAND.wrong("one port here can't be two of the agent's; use LOCAL:PORT")
    with Connection() as connection:
        agent = connection.call_object("agent.show", agent=name)
        found = connection.call_object("agent.forward", agent=agent["id"])
        forwarder = Forwarder(connection, str(agent["id"]), ports)
        try:
            forwarder.listen(str(found["address"]))
            _tell(arguments, found, ports)
            forwarder.show({**found, "sandboxes": []})
            forwarder.show(found)
            forwarder.serve()
        finally:
            forwarder.close()
    return 0


def _read(word: str) -> tuple[int, int]:
    """Read `[LOCAL:]PORT`."""
    local, colon, port = word.rpartition(":")
    numbers = [text for text in (local, port) if text or colon]
    if not all(text.isascii() and text.isdigit() and 0 < int(text) <= _LAST for text in numbers):
        raise COMMAND.wrong(f"{word!r} is no port: use PORT or LOCAL:PORT, each from 1 to {_LAST}")
    return int(local or port), int(port)


def _tell(arguments: Arguments, found: dict[str, object], ports: list[tuple[int, int]]) -> None:
    for local, port in ports:
        listen, name = f"{found['address']}:{local}", found["agent"]
        if arguments.json:
            output.put_json({"agent": name, "listen": listen, "port": port})
        else:
            print(f"{listen} is port {port} of {output.text_of(name)}")
    sys.stdout.flush()
