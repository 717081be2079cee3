"""The `filtered` network's launcher: a program of its own, run by path with `python -I -S`; imports nothing of ours.

`netlaunch.py launch CHANNEL PORTS PROGRAM ARGUMENTS…` enters a new network namespace (as an ordinary user in a new user
namespace, which owns it), brings up `lo` so that every address there is is local, opens the listeners, hands them over
and becomes PROGRAM, which keeps the namespace, the pid and the start time. `netlaunch.py enter CHANNEL PORTS PID` opens the
listeners again in the namespaces of a running sandbox, for a new daemon, and ends; `more` opens those of further ports.

Every connection made inside then arrives at one of the listeners, for any address: the routes are `ip route add local
0.0.0.0/0 dev lo` and its IPv6 counterpart ("AnyIP"; ip-route(8), the type `local`). Ports without a listener are refused
by the kernel. The listeners go to the descriptor CHANNEL, a Unix socket, in one message (unix(7), SCM_RIGHTS); CHANNEL `-`
means that they are closed.

It stands before each turn's start, so it imports only small C modules; netlink(7) by hand is cheaper than any library.
"""

import _signal  # type: ignore[import-not-found]  # signal itself takes a while to import
import _socket
import posix
import sys

NAMESERVER = "198.18.0.1"
"""Where DNS is answered: the pool of the addresses given to names begins behind it (RFC 2544's range, never routed)."""
OWN_V6 = "fd53:7562:7374::1"
DNS_PORT = 53
BACKLOG = 128
REFUSED = 125
"""The exit status when there is no network to be had; 126 and 127 are the shell's."""

CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
SOL_IPV6 = 41
IPV6_V6ONLY = 26
AF_NETLINK = 16
NETLINK_ROUTE = 0
NLM_F_REQUEST = 0x1
NLM_F_ACK = 0x4
NLM_F_CREATE = 0x400
NLMSG_ERROR = 2
RTM_NEWLINK = 16
RTM_NEWADDR = 20
RTM_NEWROUTE = 24
IFA_ADDRESS = 1
IFA_LOCAL = 2
IFA_F_NODAD = 2
RTA_OIF = 4
RT_TABLE_LOCAL = 255
RTPROT_BOOT = 3
RT_SCOPE_HOST = 254
RTN_LOCAL = 2
IFF_UP = 1
LOOPBACK = 1  # the first interface of every network namespace is its lo


def main(arguments: list[str]) -> int:
    """Carry the arguments out; on failure print one line to stderr and return `REFUSED`."""
    verb, channel, ports, *rest = arguments
    numbers = [int(port) for port in ports.split(",") if port]
    try:
        if verb == "launch":
            isolate()
            bring_up()
        else:
            enter(int(rest[0]))
        listeners = ([] if verb == "more" else answer_names()) + listen(numbers)
    except OSError as problem:
        posix.write(2, f"substrat: no filtered network: {problem.filename or 'netlaunch'}: {problem.strerror}\n".encode())
        return REFUSED
    hand_over(channel, listeners)
    if verb == "launch":
        # Python ignores these, and an ignored signal stays ignored in the program (execve(2)).
        for number in (_signal.SIGPIPE, _signal.SIGXFSZ):
            _signal.signal(number, _signal.SIG_DFL)
        # Every descriptor opened here is closed by this: Python makes them so (PEP 446).
        posix.execv(rest[0], rest)
    return 0


def isolate() -> None:
    """Enter a new network namespace, and keep the uid and the gid."""
    uid, gid = posix.geteuid(), posix.getegid()
    if uid == 0:
        _call("unshare", CLONE_NEWNET)
        return
    _call("unshare", CLONE_NEWUSER | CLONE_NEWNET)
    # One's own ids only: that is all an ordinary user may map (user_namespaces(7)).
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{uid} {uid} 1")
    _write("/proc/self/gid_map", f"{gid} {gid} 1")


def enter(pid: int) -> None:
    """Enter the namespaces of a process; the user namespace first, because it owns the other (setns(2))."""
    for name, kind in (("user", CLONE_NEWUSER), ("net", CLONE_NEWNET)):
        path = f"/proc/{pid}/ns/{name}"
        if posix.readlink(path) == posix.readlink(f"/proc/self/ns/{name}"):
            if name == "net":
                raise OSError(0, "it has this one's network", path)
            continue
        descriptor = posix.open(path, posix.O_RDONLY | posix.O_CLOEXEC)
        try:
            _call("setns", descriptor, kind)
        finally:
            posix.close(descriptor)


def bring_up() -> None:
    """Make every address of both families local to this namespace."""
    netlink = _socket.socket(AF_NETLINK, _socket.SOCK_RAW, NETLINK_ROUTE)
    netlink.bind((0, 0))
    up = bytes(4) + LOOPBACK.to_bytes(4, sys.byteorder) + IFF_UP.to_bytes(4, sys.byteorder) * 2
    _request(netlink, RTM_NEWLINK, up, "lo")
    device = _attribute(RTA_OIF, LOOPBACK.to_bytes(4, sys.byteorder))
    for family, address in ((_socket.AF_INET, NAMESERVER), (_socket.AF_INET6, OWN_V6)):
        if family == _socket.AF_INET6 and not has_ipv6():
            continue
        # With nothing but 127.0.0.1, programs that ask for usable families only (AI_ADDRCONFIG) would find none.
        packed = _socket.inet_pton(family, address)
        # Else a busy kernel looks for duplicates of an IPv6 address first, and nothing can be sent from it meanwhile.
        flags = IFA_F_NODAD if family == _socket.AF_INET6 else 0
        own = bytes((family, 8 * len(packed), flags, 0)) + LOOPBACK.to_bytes(4, sys.byteorder)
        _request(netlink, RTM_NEWADDR, own + _attribute(IFA_LOCAL, packed) + _attribute(IFA_ADDRESS, packed), "address")
        route = bytes((family, 0, 0, 0, RT_TABLE_LOCAL, RTPROT_BOOT, RT_SCOPE_HOST, RTN_LOCAL)) + bytes(4)
        _request(netlink, RTM_NEWROUTE, route + device, "route")
    netlink.close()


def _attribute(kind: int, value: bytes) -> bytes:
    return (4 + len(value)).to_bytes(2, sys.byteorder) + kind.to_bytes(2, sys.byteorder) + value


def has_ipv6() -> bool:
    """Say whether this namespace has IPv6 at all; where it hasn't, nothing can be reached through it."""
    try:
        with open("/proc/sys/net/ipv6/conf/all/disable_ipv6", "rb", buffering=0) as file:
            return file.read().strip() == b"0"
    except FileNotFoundError:
        return False


def answer_names() -> list[_socket.socket]:
    """Open the listeners of DNS, over UDP and TCP at `NAMESERVER`."""
    resolver = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM)
    resolver.bind((NAMESERVER, DNS_PORT))
    return [resolver, _listener(_socket.AF_INET, NAMESERVER, DNS_PORT)]


def listen(ports: list[int]) -> list[_socket.socket]:
    """Open the listeners at each port, at every address of both families."""
    listeners = []
    for port in ports:
        listeners.append(_listener(_socket.AF_INET, "", port))
        if has_ipv6():
            listeners.append(_listener(_socket.AF_INET6, "", port))
    return listeners


def _listener(family: int, address: str, port: int) -> _socket.socket:
    listener = _socket.socket(family, _socket.SOCK_STREAM)
    try:
        listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
        if family == _socket.AF_INET6:
            listener.setsockopt(SOL_IPV6, IPV6_V6ONLY, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, f"port {port}") from None
    return listener


def hand_over(channel: str, listeners: list[_socket.socket]) -> None:
    """Send the listeners; a daemon that has gone meanwhile is no reason to stop: the next one opens them again."""
    if channel == "-":
        return
    rights = b"".join(listener.fileno().to_bytes(4, sys.byteorder) for listener in listeners)
    sender = _socket.socket(fileno=int(channel))
    try:  # noqa: SIM105 - contextlib takes a while to import
        sender.sendmsg([b"listeners"], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)], _socket.MSG_NOSIGNAL)
    except ConnectionError:
        pass
    sender.close()


def _request(netlink: _socket.socket, kind: int, body: bytes, what: str) -> None:
    """Send one request of rtnetlink(7) and wait for its acknowledgement; that it was so already is fine."""
    flags = NLM_F_REQUEST | NLM_F_ACK | (0 if kind == RTM_NEWLINK else NLM_F_CREATE)
    order = sys.byteorder
    head = (16 + len(body)).to_bytes(4, order) + kind.to_bytes(2, order) + flags.to_bytes(2, order)
    netlink.send(head + (1).to_bytes(4, order) + bytes(4) + body)
    answer = netlink.recv(4096)
    code = -int.from_bytes(answer[16:20], order, signed=True)
    if int.from_bytes(answer[4:6], order) != NLMSG_ERROR:
        raise OSError(0, "netlink gave no answer", what)
    if code != 0:
        raise OSError(code, posix.strerror(code), what)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library that returns -1 when it fails; Python has these two from 3.12 on."""
    known = getattr(posix, name, None)
    try:
        if known is not None:
            known(*arguments)
        elif not _called(name, arguments):
            _call_slowly(name, arguments)
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, name) from None


def _called(name: str, arguments: tuple[int, ...]) -> bool:
    """Call it through the C half of ctypes, which loads in a fraction of the time of the whole, but knows no `errno`."""
    try:
        import _ctypes
    except ImportError:
        raise OSError(0, "this Python has no ctypes: use another, or Python 3.12", name) from None
    function = _ctypes.dlsym(_ctypes.dlopen("libc.so.6", 0), name)
    return bool(_ctypes.call_function(function, arguments) == 0)


def _call_slowly(name: str, arguments: tuple[int, ...]) -> None:
    """Repeat a call that has just failed, to learn why."""
    import ctypes

    if ctypes.CDLL(None, use_errno=True)[name](*arguments) != 0:
        raise OSError(ctypes.get_errno(), posix.strerror(ctypes.get_errno()))


def _write(path: str, text: str) -> None:
    descriptor = posix.open(path, posix.O_WRONLY)
    try:
        posix.write(descriptor, text.encode())
    except OSError as problem:
        raise OSError(problem.errno, problem.strerror, path) from None
    finally:
        posix.close(descriptor)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
