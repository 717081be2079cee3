"""Tries a sandbox's network from inside, as its programs would: a program of its own, which `netdoctor` starts.

`python -m substrat.netprobe PID FORM HOST PORT` enters the network namespace of process PID and prints one JSON object:
why the name HOST isn't resolved (`name`), why HOST:PORT isn't reached (`connection`), why an address that no list lets
through isn't refused (`refusal`), each null where all is well, and the links and routes that lead past the daemon
(`ways_out`; null where pyroute2 isn't installed). HOST may be empty. If the namespace can't be entered, one line goes to
stderr, and the status is `FAILED`.

It is a process of its own because only a process with one thread can enter a user namespace (setns(2)), and because it
can't return from there. The caller needs no more privilege than for making the sandbox. No other module imports pyroute2.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import sys
from typing import TYPE_CHECKING

from sandbox import netlaunch, netrelay
from substrat.inside import netjoiner

if TYPE_CHECKING:
    from collections.abc import Callable

FAILED = 125
"""The exit status when a namespace can't be entered; 126 and 127 are the shell's."""
NOWHERE = "240.0.0.1"
"""An address of the reserved class E (RFC 1112, 4), which no network of an allow-list lets through."""
_PORT = 443  # the daemon listens there whatever the list says
_AT_ONCE = 5.0
"""Seconds for an answer of the daemon's own."""
_OUTSIDE = 30.0
"""Seconds for a host's answer: a look-up may take 10, and each address of a name 5."""
_QUESTION = bytes.fromhex("0001 0100 0001 0000 0000 0000")  # RFC 1035, 4.1.1: one question, recursion desired
_A_IN = bytes.fromhex("00 0001 0001")


def main(arguments: list[str]) -> int:
    """Try the network of the process that the arguments name, and print the answers."""
    pid, form, host, port = arguments
    try:
        import pyroute2  # noqa: F401 - imported while this process still has the host's namespaces
    except ImportError:
        has_library = False
    else:
        has_library = True
    try:
        netjoiner.enter(os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as problem:
        os.write(2, f"{problem.filename or 'setns'}: {problem.strerror or problem}\n".encode())
        return FAILED
    ask, connect = (find_relay, through_relay) if form == "proxy" else (look_up, directly)
    name = problem_of(lambda: ask(host)) if host else None
    found = {
        "name": name,
        "connection": problem_of(lambda: connect(host, int(port), _OUTSIDE)) if host and name is None else None,
        "refusal": problem_of(lambda: be_refused(connect)) if name is None else None,
        "ways_out": ways_out() if has_library else None,
    }
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


def problem_of(probe: Callable[[], object]) -> str | None:
    """Return the reason for which a probe failed; None: it didn't."""
    try:
        probe()
    except OSError as problem:
        return problem.strerror or str(problem)
    return None


def look_up(host: str) -> str:
    """Return the address that the daemon gives to a name; an address is its own.

    Raises:
        OSError: the daemon gives none.
    """
    if ":" in host or host.replace(".", "").isdigit():
        return host
    name = b"".join(bytes((len(label),)) + label for label in host.encode().split(b"."))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(_AT_ONCE)
        asked.connect((netlaunch.NAMESERVER, netlaunch.DNS_PORT))
        asked.send(_QUESTION + name + _A_IN)
        answer = asked.recv(4096)
    # RFC 1035, 4.1: the code is in the header's fourth byte; the one record ends with the address.
    if answer[3] & 0xF or not answer[7]:
        raise OSError(0, f"the daemon answers with the code {answer[3] & 0xF}")
    return socket.inet_ntoa(answer[-4:])


def directly(host: str, port: int, seconds: float) -> None:
    """Connect in the transparent form, and wait until the host says something or ends the connection.

    Raises:
        OSError: there is no connection; the daemon resets those that it doesn't make.
    """
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection((look_up(host), port), timeout=_AT_ONCE) as connection:
        connection.settimeout(seconds)
        try:
            context.wrap_socket(connection, server_hostname=host).close()
        except ssl.SSLError:
            return  # no TLS: but the host has answered


def find_relay(_host: str) -> None:
    """Connect to the relay, through which the daemon resolves names in the proxy form.

    Raises:
        OSError: there is none, for example because the agent has ended it.
    """
    try:
        socket.create_connection((netrelay.LISTENING_AT, netrelay.PORT), timeout=_AT_ONCE).close()
    except OSError as problem:
        raise OSError(0, f"no relay listens in the sandbox ({problem.strerror or problem})") from None


def through_relay(host: str, port: int, seconds: float) -> None:
    """Connect in the proxy form.

    Raises:
        OSError: there is no relay or no connection.
    """
    with socket.create_connection((netrelay.LISTENING_AT, netrelay.PORT), timeout=seconds) as connection:
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        connection.sendall(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode())
        answer = connection.recv(4096).decode(errors="replace")
    if " 200 " not in answer.partition("\r\n")[0]:
        raise ConnectionRefusedError(0, answer.rpartition("\r\n\r\n")[2].strip() or "the daemon doesn't answer")


def be_refused(connect: Callable[[str, int, float], None]) -> None:
    """Try to reach `NOWHERE`.

    Raises:
        OSError: nothing refuses that.
    """
    try:
        connect(NOWHERE, _PORT, _AT_ONCE)
    except TimeoutError:
        raise OSError(0, "nothing refuses it") from None
    except OSError:
        return
    raise OSError(0, "it answers")


def ways_out() -> list[str]:
    """Return the links and routes of this process's network that lead out of it."""
    from pyroute2 import IPRoute

    with IPRoute() as route:
        names = {link["index"]: str(link.get("ifname")) for link in route.get_links()}
        links = [names[link["index"]] for link in route.get_links() if link["flags"] & netlaunch.IFF_UP]
        routes = [
            f"a route to {found.get('dst') or 'everywhere'} over {names.get(found.get('oif'))}"
            for family in (socket.AF_INET, socket.AF_INET6)
            for found in route.get_routes(family=family)
            if found["type"] != netlaunch.RTN_LOCAL and names.get(found.get("oif")) != "lo"
        ]
    return [f"the link {name}" for name in links if name != "lo"] + routes


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
