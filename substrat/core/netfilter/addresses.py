"""Decides which addresses may be dialled: those of the public internet that are not this machine's. Pure.

The tables follow the IANA special-purpose address registries (iana.org/assignments/iana-ipv4-special-registry and
iana-ipv6-special-registry), with the clouds' metadata addresses added. Example: `10.1.2.3` is "a private address", so an
allowed name that leads to it is refused.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    _Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_V4 = tuple(
    (ipaddress.IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "an address of this network"),
        ("10.0.0.0/8", "a private address"),
        ("100.100.100.200/32", "a metadata address"),  # Alibaba's
        ("100.64.0.0/10", "a provider's private address"),  # RFC 6598
        ("127.0.0.0/8", "a loopback address"),
        ("168.63.129.16/32", "a metadata address"),  # Azure's, the one that looks public
        ("169.254.0.0/16", "a link-local or metadata address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmarking address"),  # also the sandbox's own pool
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("240.0.0.0/4", "a reserved or broadcast address"),
    )
)
_V6 = tuple(
    (ipaddress.IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", "a loopback address"),
        ("fd00:42::/32", "a metadata address"),  # Scaleway's: fd00:42::42
        ("fd00:c1::/32", "a metadata address"),  # Oracle's: fd00:c1::a9fe:a9fe
        ("fd00:ec2::/32", "a metadata address"),  # Amazon's: its instances' metadata, clock and name server
        ("fd00:a9fe:a9fe::/48", "a metadata address"),  # Linode's: fd00:a9fe:a9fe::1
        ("fd20:ce::/32", "a metadata address"),  # Google's: fd20:ce::254
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a private address"),  # site-local, RFC 3879
        ("ff00::/8", "a multicast address"),
        ("2001::/23", "a reserved address"),  # Teredo (2001::/32) and ORCHID among them
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),  # RFC 9637
    )
)
_SPECIAL: tuple[tuple[_Network, str], ...] = (*_V4, *_V6)
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052
_NAT64_LOCAL = ipaddress.IPv6Network("64:ff9b:1::/48")  # RFC 8215: its operator chooses the translation

_PRIVATE = frozenset({
    "a private address", "a provider's private address", "a documentation address", "a benchmarking address",
})  # fmt: skip
"""What an entry of a list may let through: a laboratory uses the last two as private ones."""
MADE_UP = "198.18.0.0/15"
"""Of these addresses resolvers that belong to a proxy make one up for each name ("fake IP")."""


def refusal(address: str, local: Collection[str] = (), *, may_be_private: bool = False) -> str | None:
    """Say why an address may not be dialled, or None when it may.

    An IPv6 address that stands for an IPv4 one (mapped, NAT64, 6to4) is judged as that one.

    Args:
        address: as a resolver wrote it.
        local: those of the addresses that `leads_to` gives which lead to this machine, as the kernel says.
        may_be_private: whether private addresses may be dialled.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return "no address"
    special = _special(parsed)
    if special is not None and not (may_be_private and special in _PRIVATE):
        return special
    return "an address of this machine" if any(one in local for one in leads_to(address)) else None


def is_made_up(address: str) -> bool:
    """Say whether an address may stand for a name that a proxy's resolver was asked for."""
    return plain(address).count(".") == 3 and ipaddress.ip_address(plain(address)) in ipaddress.ip_network(MADE_UP)


def closed_network(network: _Network) -> str | None:
    """Say what a network's addresses are if no list lets it through, for example "a loopback address"; else None."""
    kind = next((kind for special, kind in _SPECIAL if is_within(network, special)), None)
    return None if kind in _PRIVATE else kind


def is_within(network: _Network, other: _Network) -> bool:
    """Say whether a network is a part of another one, or that itself."""
    if isinstance(network, ipaddress.IPv4Network):
        return isinstance(other, ipaddress.IPv4Network) and network.subnet_of(other)
    return isinstance(other, ipaddress.IPv6Network) and network.subnet_of(other)


def leads_to(address: str) -> tuple[str, ...]:
    """Return an address, and the IPv4 address that it stands for if it does: where its packets may arrive.

    Example: `64:ff9b::102:304` leads to itself and, by a translator, to `1.2.3.4`. An address with a zone
    (`fe80::1%eth0`) leads nowhere, like any text that is no address.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return ()
    if isinstance(parsed, ipaddress.IPv4Address):
        return (str(parsed),)
    inner = _embedded(parsed)
    if parsed.scope_id is not None:
        return ()
    return (str(parsed),) if inner is None else (str(parsed), str(inner))


def _special(parsed: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str | None:
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = _embedded(parsed)
        return _refusal_v6(parsed) if inner is None else _refusal_v4(inner)
    return _refusal_v4(parsed)


def plain(address: str) -> str:
    """Return an address in its one spelling: `::ffff:1.2.3.4` is `1.2.3.4`; other text comes back unchanged."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    mapped = parsed.ipv4_mapped if isinstance(parsed, ipaddress.IPv6Address) else None
    return str(mapped or parsed)


def _embedded(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.sixtofour


def _refusal_v4(address: ipaddress.IPv4Address) -> str | None:
    return next((kind for network, kind in _V4 if address in network), None)


def _refusal_v6(address: ipaddress.IPv6Address) -> str | None:
    if address.scope_id is not None:
        return "a link-local address"
    known = next((kind for network, kind in _V6 if address in network), None)
    if known is not None or address in _GLOBAL_UNICAST:
        return known
    return "a translated private address" if address in _NAT64_LOCAL else "a reserved address"
