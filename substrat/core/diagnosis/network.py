"""Judges the network of a running turn: one finding for each part of it that traffic passes on its way to the daemon. Pure.

`substrat.netdoctor` reads the facts, this module compares them with the form that the network should have. Example: a link
`lo` that is down gives `CheckResult("links", "broken", "lo is down: nothing reaches the relay", …)`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER, CheckResult
from substrat.core.netfilter import names

LOOPBACK = "lo"
LOCAL_TABLE = 255
"""The routing table of this machine's own addresses (rtnetlink(7), RT_TABLE_LOCAL)."""
_DIAGNOSIS_REMEDY = "boot a kernel with CONFIG_INET_DIAG, CONFIG_INET_TCP_DIAG and CONFIG_INET_UDP_DIAG"
_ANYWHERE = {"IPv4": "0.0.0.0/0", "IPv6": "::/0"}


class NetworkLink(NamedTuple):
    """A network interface: its name, and whether it is up."""

    name: str
    up: bool


class Address(NamedTuple):
    """An address of an interface, with the length of its prefix in bits."""

    link: str | None
    address: str
    prefix: int

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix} on {self.link}"


class Route(NamedTuple):
    """A route.

    Args:
        family: `IPv4` or `IPv6`.
        kind: `unicast`, `local`, `broadcast` and so on (ip-route(8)).
        to: the destination, such as `0.0.0.0/0`.
        link: the interface it leads to.
        gateway: the router it leads through.
        table: the number of its routing table.
    """

    family: str
    kind: str
    to: str
    link: str | None
    gateway: str | None
    table: int | None

    def __str__(self) -> str:
        through = f" via {self.gateway}" if self.gateway else ""
        return f"{self.kind} {self.to}{through} dev {self.link or '-'} table {self.table}"


class RoutingRule(NamedTuple):
    """A rule that says which routing table is asked (ip-rule(8)).

    Args:
        family: `IPv4` or `IPv6`.
        priority: its place in the order; 0 is asked first.
        selects: whether it applies to some packets only.
        action: `to_tbl` where a table is asked.
        table: the number of that table.
    """

    family: str
    priority: int
    selects: bool
    action: str
    table: int | None

    def __str__(self) -> str:
        which = "some" if self.selects else "all"
        return f"{self.family} {self.priority}: from {which} {self.action} {self.table}"


class Socket(NamedTuple):
    """A socket that listens (`tcp`) or is bound (`udp`)."""

    protocol: str
    address: str
    port: int

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.protocol} {address}:{self.port}"


class Namespace(NamedTuple):
    """A network namespace as the kernel reports it.

    Args:
        links: its interfaces.
        addresses: theirs.
        routes: those of all tables.
        rules: in the order in which the kernel applies them; None: this kernel has no rules.
        sockets: listening and bound ones; None: this kernel doesn't list them.
        ipv6: whether it has IPv6.
    """

    links: tuple[NetworkLink, ...]
    addresses: tuple[Address, ...]
    routes: tuple[Route, ...]
    rules: tuple[RoutingRule, ...] | None
    sockets: tuple[Socket, ...] | None
    ipv6: bool


class NetworkPlan(NamedTuple):
    """The form that a turn's network should have.

    Args:
        agent: the agent's name, for remedies.
        transparent: whether every address leads to the daemon; else there is only the relay of the proxy form.
        addresses: those of `lo`, beside the addresses that the kernel gives it.
        sockets: where the daemon or the relay listens; those of IPv6 count only where the namespace has it.
    """

    agent: str
    transparent: bool
    addresses: tuple[str, ...]
    sockets: tuple[Socket, ...]

    @property
    def goal(self) -> str:
        """The first thing that traffic must reach: the daemon or the relay."""
        return "the daemon" if self.transparent else "the relay"

    @property
    def renew(self) -> str:
        """The command that gives the agent a new network."""
        return f"substratctl suspend {self.agent} && substratctl resume {self.agent}"


def judge(found: Namespace, plan: NetworkPlan, allow: tuple[str, ...], denials: tuple[str, ...]) -> tuple[CheckResult, ...]:
    """Judge each part of a network.

    Args:
        found: the network as it is.
        plan: the network as it should be.
        allow: the allow-list in force, in canonical form.
        denials: this turn's refusals, oldest first, as `NAME:PORT: why[; remedy]`.
    """
    return (
        _links(found, plan),
        _addresses(found, plan),
        _routes(found, plan),
        _rules(found, plan),
        _sockets(found, plan),
        _allow(allow, plan),
        _denials(denials, plan),
    )


def _links(found: Namespace, plan: NetworkPlan) -> CheckResult:
    up = {link.name: link.up for link in found.links}
    if LOOPBACK not in up:
        return CheckResult("links", BROKEN, f"there is no lo: nothing reaches {plan.goal}", plan.renew)
    if not up[LOOPBACK]:
        return CheckResult("links", BROKEN, f"lo is down: nothing reaches {plan.goal}", plan.renew)
    others = [name for name, is_up in up.items() if is_up and name != LOOPBACK]
    if others:
        detail = f"{', '.join(others)} is up beside lo: traffic may leave past the allow-list"
        return CheckResult("links", BROKEN, detail, plan.renew)
    return CheckResult("links", GOOD, "lo is up, and no other link is")


def _addresses(found: Namespace, plan: NetworkPlan) -> CheckResult:
    there = {address.address for address in found.addresses if address.link == LOOPBACK}
    missing = [address for address in plan.addresses if address not in there and (found.ipv6 or ":" not in address)]
    if missing:
        goal = f"{plan.goal} isn't where programs look for it"
        return CheckResult("addresses", BROKEN, f"lo hasn't got {', '.join(missing)}: {goal}", plan.renew)
    without = "" if found.ipv6 else "; this machine has no IPv6"
    return CheckResult(
        "addresses", GOOD, f"lo has {' and '.join(plan.addresses) if found.ipv6 else plan.addresses[0]}{without}"
    )


def _routes(found: Namespace, plan: NetworkPlan) -> CheckResult:
    out = [route for route in found.routes if route.kind == "unicast" and route.link != LOOPBACK]
    if out:
        return CheckResult("routes", BROKEN, f"{out[0]}: it leads out past the allow-list", plan.renew)
    if not plan.transparent:
        return CheckResult("routes", GOOD, "none leads out; programs reach the relay on lo")
    missing = [
        family
        for family, to in _ANYWHERE.items()
        if (family == "IPv4" or found.ipv6)
        and not any(
            (route.kind, route.to, route.link, route.table) == ("local", to, LOOPBACK, LOCAL_TABLE)
            for route in found.routes
        )
    ]
    if missing:
        said = " and no ".join(f"local {_ANYWHERE[family]} dev lo" for family in missing)
        detail = f"there is no {said}: {' and '.join(missing)} connections don't reach the daemon"
        return CheckResult("routes", BROKEN, detail, plan.renew)
    return CheckResult("routes", GOOD, "every address leads to the daemon, none leads out")


def _rules(found: Namespace, plan: NetworkPlan) -> CheckResult:
    if found.rules is None:
        return CheckResult("rules", GOOD, "this kernel has none: it always asks the local table first")
    for family in ("IPv4", "IPv6") if found.ipv6 else ("IPv4",):
        first = next((rule for rule in found.rules if rule.family == family), None)
        if first is None or (first.action, first.table, first.selects) != ("to_tbl", LOCAL_TABLE, False):
            problem = (
                f"there is no {family} rule"
                if first is None
                else f"the first {family} rule isn't the local table's ({first})"
            )
            detail = f"{problem}: connections may miss {plan.goal}"
            return CheckResult("rules", BROKEN, detail, plan.renew)
    return CheckResult("rules", GOOD, "the local table is asked first")


def _sockets(found: Namespace, plan: NetworkPlan) -> CheckResult:
    if found.sockets is None:
        return CheckResult("sockets", WEAKER, "this kernel doesn't list listening sockets", _DIAGNOSIS_REMEDY)
    wanted = [one for one in plan.sockets if found.ipv6 or ":" not in one.address]
    missing = [one for one in wanted if one not in found.sockets]
    if missing:
        if plan.transparent:
            problem = f"the daemon doesn't listen at {', '.join(map(str, missing))}: connections there are refused"
        else:
            problem = f"the relay doesn't listen at {missing[0]}: programs find no proxy (the agent can end its relay)"
        return CheckResult("sockets", BROKEN, problem, plan.renew)
    return CheckResult("sockets", GOOD, f"{plan.goal} listens at {', '.join(map(str, wanted))}")


def _allow(allow: tuple[str, ...], plan: NetworkPlan) -> CheckResult:
    if not allow:
        return CheckResult("allow-list", WEAKER, "it is empty: everything is refused", _allowing("HOST", plan))
    return CheckResult("allow-list", GOOD, ", ".join(allow))


def _denials(denials: tuple[str, ...], plan: NetworkPlan) -> CheckResult:
    if not denials:
        return CheckResult("denials", GOOD, "this turn's network has refused nothing")
    broken = [text for text in denials if text.startswith(_OWN_TROUBLE)]
    if broken:
        return CheckResult("denials", BROKEN, broken[-1], plan.renew)
    wanted = list(dict.fromkeys(entry for text in denials if (entry := _missing_entry(text)) is not None))
    remedy = _allowing(" ".join(wanted), plan) if wanted else f"substratctl logs {plan.agent}"
    return CheckResult("denials", WEAKER, f"the last thing refused was {_REMEDY.sub('', denials[-1])}", remedy)


def _allowing(entries: str, plan: NetworkPlan) -> str:
    return f"substratctl allow {plan.agent} {entries}"


_OWN_TROUBLE = ("everything: ", "ports ")
"""The beginnings of the daemon's own failures among the refusals; a target has no space and always a port."""
_REMEDY = re.compile(r"; substratctl allow \S+ (?P<entry>\S+?)( \(\d+ times\))?$")
"""The end of a refusal that an entry of the list would have let through."""


def _missing_entry(text: str) -> str | None:
    """Return the entry of an allow-list that a refusal names as its remedy, None if it names none.

    The text holds names that an agent chose, so only an entry gets into a command to paste, and none for many hosts.
    """
    found = _REMEDY.search(text)
    if found is None or "*" in found["entry"]:
        return None
    try:
        names.AllowList.of((found["entry"],))
    except names.NoName:
        return None
    return found["entry"]


def facts(found: Namespace) -> dict[str, tuple[str, ...]]:
    """Return the facts behind the findings as lines for people, by the finding's name."""
    return {
        "links": tuple(f"{link.name} {'up' if link.up else 'down'}" for link in found.links),
        "addresses": tuple(map(str, found.addresses)),
        "routes": tuple(map(str, found.routes)),
        "rules": tuple(map(str, found.rules or ())),
        "sockets": tuple(map(str, found.sockets or ())),
    }
