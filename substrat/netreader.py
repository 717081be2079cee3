"""Reads the network namespace of a process with pyroute2: a program of its own, run by path; imports nothing of ours.

`netreader.py PID` enters the network namespace of process PID and prints one JSON object about it: `links`, `addresses`,
`routes`, `rules` (null where the kernel has none), `sockets` (listening TCP, bound UDP; null where the kernel doesn't list
them) and `ipv6` (whether the namespace has IPv6). On failure it prints one line to stderr and exits with `FAILED`, or with
`NO_LIBRARY` where pyroute2 isn't installed. It changes nothing.

It is a process of its own because only a process with one thread can enter a user namespace (setns(2)), and because it
can't return from there. The caller needs no more privilege than for making the sandbox: it owns the user namespace that
the network namespace belongs to (ioctl_ns(2), NS_GET_USERNS; user_namespaces(7)).

This is the only importer of pyroute2: its import takes a fifth of a second, and everything that runs before a turn uses
netlink by hand (`sandbox/netlaunch.py`), which the tests check with this program.
"""

import ctypes
import errno
import fcntl
import json
import os
import socket
import sys
from typing import Any

FAILED = 125
"""The exit status when a namespace can't be read; 126 and 127 are the shell's."""
NO_LIBRARY = 124  # the number before FAILED; Python's own failures exit with 1 or 2

CLONE_NEWNET = 0x40000000  # linux/sched.h, as CLONE_NEWUSER
CLONE_NEWUSER = 0x10000000
NS_GET_USERNS = 0xB701  # linux/nsfs.h
IFF_UP = 1  # linux/if.h
_FAMILIES = {socket.AF_INET: "IPv4", socket.AF_INET6: "IPv6"}
_LISTENING = "0A"  # TCP_LISTEN as /proc/net/tcp writes it (proc(5))


def main(arguments: list[str]) -> int:
    """Print the facts about the network namespace of the process that the arguments name."""
    try:
        import pyroute2  # noqa: F401 - imported while this process still has the host's namespaces
    except ImportError as problem:
        os.write(2, f"substrat: no pyroute2: {problem}\n".encode())
        return NO_LIBRARY
    try:
        enter(int(arguments[0]))
        facts = read()
    except OSError as problem:
        os.write(2, f"{problem.filename or 'netlink'}: {problem.strerror or problem}\n".encode())
        return FAILED
    sys.stdout.write(json.dumps(facts, separators=(",", ":")) + "\n")
    return 0


def enter(pid: int) -> None:
    """Enter a process's network namespace, and the user namespace that owns it first.

    Raises:
        OSError: the process is gone, it shares this one's network, or the kernel doesn't allow it.
    """
    namespace = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    here, there = os.stat("/proc/self/ns/net"), os.fstat(namespace)
    if (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino):
        raise OSError(0, "this command has the same network", f"/proc/{pid}/ns/net")
    owner = fcntl.ioctl(namespace, NS_GET_USERNS)
    ours, theirs = os.stat("/proc/self/ns/user"), os.fstat(owner)
    if (ours.st_dev, ours.st_ino) != (theirs.st_dev, theirs.st_ino):
        _set_namespace(owner, CLONE_NEWUSER)
    _set_namespace(namespace, CLONE_NEWNET)


def _set_namespace(descriptor: int, kind: int) -> None:
    """Call setns(2), which Python has from 3.12 on."""
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, kind) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "setns")


def read() -> dict[str, object]:
    """Return the facts about this process's own network namespace.

    Raises:
        OSError: the kernel refused a question.
    """
    from pyroute2 import DiagSocket, IPRoute
    from pyroute2.netlink.exceptions import NetlinkError

    try:
        with IPRoute() as route:
            names = {link["index"]: link.get("ifname") for link in route.get_links()}
            facts: dict[str, object] = {
                "links": [{"name": names[link["index"]], "up": bool(link["flags"] & IFF_UP)} for link in route.get_links()],
                "addresses": [_address(found, names) for found in route.get_addr()],
                "routes": [_route(found, names) for family in _FAMILIES for found in route.get_routes(family=family)],
                "rules": _rules(route),
                "ipv6": has_ipv6(),
            }
        with DiagSocket() as diagnosis:
            facts["sockets"] = _sockets(diagnosis)
    except NetlinkError as problem:
        raise OSError(problem.code, os.strerror(problem.code), "netlink") from None
    return facts


def _address(found: Any, names: dict[int, str]) -> dict[str, object]:
    # IPv4 tells the interface's own address apart from its peer's (rtnetlink(7), IFA_LOCAL); they differ on tunnels only.
    address = found.get("local") or found.get("address")
    return {"link": names.get(found["index"]), "address": address, "prefix": found["prefixlen"]}


def _route(found: Any, names: dict[int, str]) -> dict[str, object]:
    from pyroute2.netlink.rtnl import rt_type

    family = _FAMILIES[found["family"]]
    destination = found.get("dst") or ("0.0.0.0" if family == "IPv4" else "::")  # noqa: S104 - no address to bind
    return {
        "family": family,
        "kind": rt_type.get(found["type"], str(found["type"])),
        "to": f"{destination}/{found['dst_len']}",
        "link": names.get(found.get("oif")),
        "gateway": found.get("gateway"),
        "table": found.get("table"),
    }


def _rules(route: Any) -> list[dict[str, object]] | None:
    """Return the rules of both families in the order in which the kernel applies them, None where it has no rules."""
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.rtnl.fibmsg import FR_ACT_VALUES

    rules = []
    for family, name in _FAMILIES.items():
        try:
            dump = list(route.get_rules(family=family))
        except NetlinkError as problem:
            if problem.code in {errno.EOPNOTSUPP, errno.EAFNOSUPPORT}:
                continue  # CONFIG_IP_MULTIPLE_TABLES is off: the kernel asks the local table, then the main one
            raise
        for found in dump:
            action = FR_ACT_VALUES.get(found["action"], str(found["action"]))
            selects = bool(found["dst_len"] or found["src_len"] or found.get("fwmark") or found.get("iifname"))
            rules.append({
                "family": name, "priority": found.get("priority") or 0, "selects": selects,
                "action": action.removeprefix("FR_ACT_").lower(), "table": found.get("table"),
            })  # fmt: skip
    return rules or None


def _sockets(diagnosis: Any) -> list[dict[str, object]] | None:
    """Return the listening and bound sockets; None if there are some but the kernel can't list them (CONFIG_INET_DIAG)."""
    from pyroute2.netlink.diag import SS_CLOSE, SS_LISTEN

    kinds = (("tcp", socket.IPPROTO_TCP, SS_LISTEN), ("udp", socket.IPPROTO_UDP, SS_CLOSE))
    found = [
        {"protocol": name, "address": one["idiag_src"], "port": one["idiag_sport"]}
        for name, protocol, state in kinds
        for family in _FAMILIES
        for one in diagnosis.get_sock_stats(family=family, states=1 << state, protocol=protocol)
    ]
    # Without CONFIG_INET_DIAG pyroute2 yields no sockets (it can't tell the error from a socket of IPv4).
    return found if found or not _listens() else None


def _listens() -> bool:
    for name in ("tcp", "tcp6"):
        if os.path.exists(f"/proc/self/net/{name}"):
            with open(f"/proc/self/net/{name}", encoding="ascii") as file:
                if any(line.split()[3] == _LISTENING for line in file):
                    return True
    return False


def has_ipv6() -> bool:
    """Say whether this process's network namespace has IPv6."""
    try:
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", encoding="ascii") as file:
            return file.read().strip() == "0"
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
