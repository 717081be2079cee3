"""Brings host names into one canonical form, and holds the allow-list: the hosts that an agent may reach. Pure.

Decisions compare canonical names only: lower case, ASCII (IDNA for other scripts), no trailing dot. A text without a
canonical form is no name and matches no entry. Example: `PyPI.org.` is `pypi.org`.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from functools import cached_property

from substrat.core.netfilter import addresses
from substrat.core.netfilter.presets import PRESETS, preset_of
from substrat.errors import InvalidParams

_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_LONGEST_NAME = 253  # RFC 1035, 2.3.4: 255 octets with the length bytes
_DEFAULT_PORTS = (443, 80)  # https and http
_MOST_PORTS = 64
"""The most ports that a list may name: each costs its sandbox two listeners, and one message carries 253 of them."""
_PRIVATE = "=private"
_LOCALHOST = ("127.0.0.1", "::1")  # RFC 6761, 6.3: the name stands for nothing else


class NoName(InvalidParams, ValueError):
    """A text is no host name; the message says why, without the name."""

    wire_name = InvalidParams.__name__


def canonical(host: str) -> str:
    """Return a host name's canonical form.

    Args:
        host: as a person, a DNS query or a TLS client wrote it.

    Raises:
        NoName: it has none.
    """
    # One trailing dot is the root's (RFC 1034, 3.1). Only text that isn't ASCII needs IDNA; names on the wire are ASCII.
    name = host.removesuffix(".")
    if not name.isascii():
        import idna

        try:
            name = idna.encode(name, uts46=True).decode("ascii")
        except (idna.IDNAError, UnicodeError):
            raise NoName("it isn't a valid internationalised name") from None
    name = name.lower()
    labels = name.split(".")
    if not name or len(name) > _LONGEST_NAME:
        raise NoName("it is empty" if not name else f"it is longer than {_LONGEST_NAME} characters")
    if not all(_LABEL.fullmatch(label) for label in labels):
        raise NoName("a part of it is empty, longer than 63 characters, or has characters that names don't have")
    if _NUMBER.fullmatch(labels[-1]):
        # Resolvers take `127.1`, `0x7f.1` and `2130706433` for addresses (url.spec.whatwg.org, "ends in a number").
        raise NoName("it ends in a number, so it would be an address in an odd spelling")
    return name


def listed(data: bytes, most: int) -> list[str] | None:
    """Read canonical names, one a line; None when a line is no such name, or there are more than `most`.

    A last line without its line end was cut while it was written, and doesn't count.
    """
    try:
        *names, cut = data.decode("ascii").split("\n")
        sound = len(names) <= most and len(cut) <= _LONGEST_NAME and all(canonical(name) == name for name in names)
    except (UnicodeDecodeError, NoName):
        return None
    return names if sound else None


@dataclass(frozen=True, slots=True)
class Pattern:
    """One entry of an allow-list, in canonical form.

    Args:
        host: a canonical name, an address or a network (`10.20.0.0/16`) as `ipaddress` writes it.
        wildcard: whether it stands for the subdomains of `host`, at any depth, and not for `host` itself.
        port: the one port, or None for 443 and 80.
        private: whether the name may lead to private addresses, as a company's own hosts do.
        network: the network that `host` is, if it is one.
    """

    host: str
    wildcard: bool = False
    port: int | None = None
    private: bool = False
    network: ipaddress.IPv4Network | ipaddress.IPv6Network | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = f":{self.port}" if self.port is not None else ""
        return f"{'*.' if self.wildcard else ''}{host}{port}{_PRIVATE if self.private else ''}"

    @property
    def ports(self) -> tuple[int, ...]:
        """The ports it stands for."""
        return _DEFAULT_PORTS if self.port is None else (self.port,)

    def names(self, host: str) -> bool:
        """Say whether it stands for a canonical name or address, at some port."""
        if self.network is not None:
            return _address(host) is not None and ipaddress.ip_address(host) in self.network
        return host.endswith("." + self.host) if self.wildcard else host == self.host

    def includes(self, other: Pattern) -> bool:
        """Say whether every host of another pattern is one of its own, whatever the ports."""
        if other.private and not self.private:
            return False
        if self.network is not None:
            # A network doesn't include a single address: a named one is reached whatever its kind, one of a network only
            # if it is public or private.
            return other.network is not None and addresses.is_within(other.network, self.network)
        if other.network is not None:
            return False
        if other.wildcard:
            return self.wildcard and (other.host == self.host or self.names(other.host))
        return self.names(other.host)


def pattern(text: str) -> Pattern:
    """Read `HOST[:PORT][=private]`.

    HOST is a name, `*.` and a name, an address, or a network as `10.20.0.0/16`; an IPv6 address with a port is in brackets.
    `=private` lets a name lead to private addresses; an address or network needs no such mark.
    Examples: `*.example.com`, `git.corp.example:22=private`, `10.20.0.0/16`, `[2001:db8::1]:8080`.

    Raises:
        NoName: the text has another form.
    """
    private = text.endswith(_PRIVATE)
    host, port = _split_port(text.removesuffix(_PRIVATE))
    network = _network(host)
    address = _address(host)
    if private and (network is not None or address is not None):
        raise NoName("only a name takes =private: a listed address may be private anyway")
    if network is not None:
        return Pattern(str(network), port=port, network=network)
    if address is not None:
        return Pattern(address, port=port)
    wildcard = host.startswith("*.")
    if "*" in (rest := host[2:] if wildcard else host):
        raise NoName("'*' may only stand in front, as in '*.example.com'")
    return Pattern(canonical(rest), wildcard, port, private)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Read a network; None when there is no slash in the text.

    Raises:
        NoName: it isn't a network, or its address has bits behind the prefix.
    """
    if "/" not in text:
        return None
    try:
        found = ipaddress.ip_network(text, strict=False)
    except ValueError:
        raise NoName("it is neither a host nor a network, as '10.20.0.0/16' is") from None
    if _address(text.partition("/")[0]) != str(found.network_address):
        raise NoName(f"the network of that length is {found}")
    return found


def _split_port(text: str) -> tuple[str, int | None]:
    if "://" in text:
        raise NoName("it is a URL: give its host alone, and ':PORT' if the port is neither 80 nor 443")
    bracketed = re.fullmatch(r"\[([^\]]*)\](?::(.*))?", text)
    if bracketed is not None:
        host, port = bracketed.groups()
    elif text.count(":") == 1:
        host, port = text.split(":")
    else:
        host, port = text, None
    if port is None:
        return host, None
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= 65535:
        raise NoName("its port isn't a number from 1 to 65535")
    if int(port) == 53:
        raise NoName("port 53 can't be let through: it is the port for looking names up")
    return host, int(port)


def _address(text: str) -> str | None:
    try:
        return str(ipaddress.ip_address(text))
    except ValueError:
        return None


@dataclass(frozen=True)
class AllowList:
    """The hosts and ports that an agent may reach: the union of its patterns."""

    patterns: tuple[Pattern, ...]

    @classmethod
    def of(cls, texts: tuple[str, ...]) -> AllowList:
        """Read a list of patterns, in which `@NAME` stands for those of a preset.

        Raises:
            NoName: one of them can't be read; the message names it.
        """
        patterns: list[Pattern] = []
        for text in texts:
            try:
                patterns.extend(map(pattern, _expanded(text)))
            except NoName as problem:
                raise NoName(f"{text!r} can't be allowed: {problem}") from None
        made = cls(tuple(dict.fromkeys(patterns)))
        if len(made.ports) > _MOST_PORTS:
            raise NoName(f"{len(made.ports)} ports can't be allowed: {_MOST_PORTS} is the most")
        return made

    @classmethod
    def asked_for(cls, texts: tuple[str, ...]) -> AllowList:
        """Read a list that a person or an agent writes: an entry that lets nothing through is an error here.

        Raises:
            NoName: one of them can't be read, or is such a network.
        """
        made = cls.of(texts)
        for entry in made.patterns:
            if entry.network is not None and (kind := addresses.closed_network(entry.network)) is not None:
                raise NoName(
                    f"'{entry}' can't be allowed: each address there is {kind}, which no network lets through; "
                    "name the addresses that you mean one by one"
                )
        return made

    @property
    def texts(self) -> tuple[str, ...]:
        """The patterns as people write them, in canonical form."""
        return tuple(map(str, self.patterns))

    @cached_property
    def ports(self) -> tuple[int, ...]:
        """The ports of all patterns, and always those of the web, so that refusals there are recorded."""
        return tuple(sorted({*_DEFAULT_PORTS, *(port for pattern in self.patterns for port in pattern.ports)}))

    def mentions(self, name: str) -> bool:
        """Say whether a canonical name is allowed at any port, so that DNS gives it an address."""
        return any(pattern.names(name) for pattern in self.patterns)

    def allows(self, name: str, port: int) -> bool:
        """Say whether a canonical name is allowed at a port."""
        return any(pattern.names(name) and port in pattern.ports for pattern in self.patterns)

    def names_address(self, address: str, port: int) -> bool:
        """Say whether the list itself names an address (or `localhost`, for this machine's own) at a port."""
        names = (address, "localhost") if address in _LOCALHOST else (address,)
        return any(not pattern.wildcard and pattern.host in names and port in pattern.ports for pattern in self.patterns)

    def allows_address(self, address: str, port: int) -> bool:
        """Say whether an address may be dialled at a port: one that the list names, or that lies in a network on it.

        A network stands for its public and private addresses. Loopback, link-local and metadata addresses must be named
        one by one. Whether an address is this machine's, `addresses.refusal` judges.
        """
        if self.names_address(address, port):
            return True
        is_listed = any(
            pattern.network is not None and pattern.names(address) and port in pattern.ports for pattern in self.patterns
        )
        return is_listed and addresses.refusal(address, may_be_private=True) is None

    def may_be_private(self, name: str, port: int) -> bool:
        """Say whether a canonical name may lead to private addresses at a port."""
        return any(pattern.private and pattern.names(name) and port in pattern.ports for pattern in self.patterns)

    def changed(self, add: tuple[str, ...], remove: tuple[str, ...]) -> AllowList:
        """Return the list with the patterns `remove` taken off and the patterns `add` put on.

        Raises:
            NoName: a text is no pattern, or a pattern to take off isn't on the list.
        """
        gone = AllowList.of(remove).patterns
        for text in remove:
            missing = [str(entry) for entry in AllowList.of((text,)).patterns if entry not in self.patterns]
            # Of a preset, a part may have been taken off before.
            if missing and (len(missing) == len(_expanded(text))):
                raise NoName(f"{text!r} can't be taken off the list: it isn't on it")
        kept = tuple(str(entry) for entry in self.patterns if entry not in gone)
        return AllowList.of((*kept, *AllowList.asked_for(add).texts))

    def within(self, above: AllowList) -> AllowList:
        """Return the part of this list that another one covers."""
        return AllowList(tuple(entry for entry in self.patterns if above.covers(AllowList((entry,)))))

    def covers(self, other: AllowList) -> bool:
        """Say whether everything that another list allows is allowed here."""
        return all(
            any(mine.includes(theirs) and port in mine.ports for mine in self.patterns)
            for theirs in other.patterns
            for port in theirs.ports
        )


def _expanded(text: str) -> tuple[str, ...]:
    """Return the patterns that a text stands for: those of a preset, or itself.

    Raises:
        NoName: there is no such preset.
    """
    if not text.startswith("@"):
        return (text,)
    if (hosts := PRESETS.get(text[1:])) is None:
        raise NoName(f"there is no such preset; there are {', '.join(f'@{name}' for name in PRESETS)}")
    return hosts


def remedy(host: str, port: int, *, preset: bool = True) -> str:
    """Return the entry that would let a host through at a port, for example `@python` for `pypi.org`, 443.

    A name without a dot has its port, so that `substratctl allow` doesn't take it for a mistyped agent.

    Args:
        host: a canonical name or an address.
        port: the port.
        preset: whether the entry may be a preset.
    """
    is_web = port in _DEFAULT_PORTS
    if preset and is_web and (known := preset_of(host)) is not None:
        return known
    is_word = not re.search(r"[.:]", host) and host != "localhost"
    return str(Pattern(host, port=None if is_web and not is_word else port))
