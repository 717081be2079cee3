"""Chooses the probes of a running turn's network, and judges the answers. Pure.

`substrat.netprobe` tries it. Example: an address that isn't refused gives `CheckResult("refusal", "broken", …)`.
"""

from __future__ import annotations

from typing import NamedTuple

from substrat.core.diagnosis.machine import BROKEN, GOOD, WEAKER, CheckResult
from substrat.core.netfilter.names import AllowList

_TLS_PORT = 443


class NetworkProbes(NamedTuple):
    """The answers of a turn's network; a text says why a probe failed, None: it didn't.

    Args:
        name: the host's name is resolved; if it isn't, nothing else is tried.
        connection: the host is reached.
        refusal: an address that no list lets through is refused.
        ways_out: the links and routes that lead past the daemon; None: pyroute2 isn't there to look for them.
    """

    name: str | None
    connection: str | None
    refusal: str | None
    ways_out: tuple[str, ...] | None


def host_to_try(allow: tuple[str, ...]) -> tuple[str, int] | None:
    """Return the first host and port of an allow-list, one with TLS if there is one; None: no entry names a host."""
    hosts = [
        (entry.host, _TLS_PORT if entry.port is None else entry.port)
        for entry in AllowList.of(allow).patterns
        if not entry.wildcard and entry.network is None
    ]
    return next((host for host in hosts if host[1] == _TLS_PORT), hosts[0] if hosts else None)


def judge(agent: str, target: tuple[str, int] | None, found: NetworkProbes, denial: str | None) -> tuple[CheckResult, ...]:
    """Judge the answers to the probes.

    Args:
        agent: the agent's name, for remedies.
        target: the host and port that were tried; None: the list names none.
        found: the answers.
        denial: the reason that the daemon has recorded for not reaching the host, if it has.
    """
    renew = f"substratctl suspend {agent} && substratctl resume {agent}"
    findings = []
    if target is None:
        allowing = f"substratctl allow {agent} HOST"
        findings.append(CheckResult("connection", WEAKER, "the allow-list names no host to try", allowing))
    elif found.name is not None:
        detail = f"{target[0]} isn't resolved: {found.name}"
        findings.append(CheckResult("name", BROKEN, detail, renew))
    elif found.connection is not None:
        detail = denial or f"{target[0]}:{target[1]} isn't reached: {found.connection}"
        findings.append(CheckResult("connection", BROKEN, detail, f"substratctl logs {agent}"))
    else:
        findings += [
            CheckResult("name", GOOD, f"{target[0]} is resolved"),
            CheckResult("connection", GOOD, f"{target[0]}:{target[1]} answers"),
        ]
    if found.refusal is not None:
        detail = f"an address that isn't on the list isn't refused: {found.refusal}"
        findings.append(CheckResult("refusal", BROKEN, detail, renew))
    elif found.name is None:
        findings.append(CheckResult("refusal", GOOD, "an address that isn't on the list is refused"))
    if found.ways_out:
        detail = f"{', '.join(found.ways_out)} may lead past the allow-list"
        findings.append(CheckResult("ways out", BROKEN, detail, renew))
    elif found.ways_out is not None:
        findings.append(CheckResult("ways out", GOOD, "no link and no route leads past the daemon"))
    return tuple(findings)
