"""Asks the kernel with one rtnetlink request whether an address leads to this machine."""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct

_GET_ROUTE, _NEW_ROUTE, _ERROR = 26, 24, 2  # linux/rtnetlink.h RTM_GETROUTE, RTM_NEWROUTE; linux/netlink.h NLMSG_ERROR
_REQUEST = 1  # NLM_F_REQUEST
_DESTINATION = 1  # RTA_DST
_HEADER, _ROUTE, _ATTRIBUTE = struct.Struct("=IHHII"), struct.Struct("=8BI"), struct.Struct("=HH")
_OF_THIS_MACHINE = frozenset({2, 3, 4})  # RTN_LOCAL, RTN_BROADCAST, RTN_ANYCAST
_NO_WAY = frozenset({errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EACCES, errno.EINVAL})
"""The kernel's errors where there is no route, or one of the types unreachable, prohibit or blackhole (ip-route(8))."""


def is_local(address: str) -> bool:
    """Say whether packets to an address arrive at this machine.

    The routing table knows more than a list of interfaces: addresses of every interface, whole local prefixes ("AnyIP"),
    the anycast addresses of a router. It is asked anew each time, because addresses come and go. The kernel answers before
    `send` returns (netlink(7)).

    Args:
        address: an IPv4 or IPv6 address without a zone.

    Raises:
        OSError: the kernel doesn't say.
        ValueError: it is no address.
    """
    parsed = ipaddress.ip_address(address)
    family = socket.AF_INET if parsed.version == 4 else socket.AF_INET6
    wanted = _ATTRIBUTE.pack(_ATTRIBUTE.size + len(parsed.packed), _DESTINATION) + parsed.packed
    body = _ROUTE.pack(family, len(parsed.packed) * 8, 0, 0, 0, 0, 0, 0, 0) + wanted
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
        kernel.bind((0, 0))
        kernel.send(_HEADER.pack(_HEADER.size + len(body), _GET_ROUTE, _REQUEST, 1, 0) + body)
        answer = kernel.recv(8192, socket.MSG_DONTWAIT)
    kind = _HEADER.unpack_from(answer)[1]
    if kind == _NEW_ROUTE:
        return _ROUTE.unpack_from(answer, _HEADER.size)[7] in _OF_THIS_MACHINE
    number = -struct.unpack_from("=i", answer, _HEADER.size)[0] if kind == _ERROR else errno.EPROTO
    if number in _NO_WAY:
        return False
    raise OSError(number, os.strerror(number))


def local_ones(addresses: tuple[str, ...]) -> frozenset[str]:
    """Return those of some addresses that lead to this machine; raises the same errors as `is_local`."""
    return frozenset(address for address in addresses if is_local(address))
