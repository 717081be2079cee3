"""Gathers the facts about a running turn's network, and has `core.diagnosis.network` judge them; it changes nothing.

`netreader`, a program of its own, enters the turn's network namespace and reads it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from sandbox import netlaunch, netrelay
from substrat import errors
from substrat.core.diagnosis import network as network_diagnosis
from substrat.core.diagnosis.machine import BROKEN, CheckResult
from substrat.core.diagnosis.network import Address, Namespace, NetworkLink, NetworkPlan, Route, RoutingRule, Socket
from substrat.core.netfilter import names

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["BROKEN", "CheckResult", "NetworkReport", "examine", "facts", "look"]

_PROGRAM = os.path.join(os.path.dirname(os.path.realpath(__file__)), "netreader.py")
_NO_LIBRARY = 124  # netreader.NO_LIBRARY; the module isn't imported, since it is a program
_PATIENCE = 30.0
"""Seconds for reading a namespace: it takes half a second, and longer on a machine that swaps."""
_MOST_DENIALS = 10
"""As many as fit on a screen beside the rest; `substratctl logs` has all."""


class NetworkReport(NamedTuple):
    """The facts and findings about a turn's network.

    Args:
        mode: `transparent` or `proxy`.
        found: its network namespace.
        allow: the allow-list in force.
        denials: the turn's last refusals, oldest first: `time` and `text`.
        findings: the verdicts.
    """

    mode: str
    found: Namespace
    allow: tuple[str, ...]
    denials: tuple[Mapping[str, str], ...]
    findings: tuple[CheckResult, ...]


def examine(agent: Mapping[str, object], network: Mapping[str, object]) -> NetworkReport:
    """Look at the network of an agent's running turn.

    Args:
        agent: the agent object.
        network: the answer of `agent.network` for it.

    Raises:
        NotFound: pyroute2 isn't installed.
        Refused: the agent has another network than `filtered`, or runs no turn.
        SandboxFailed: the turn's network can't be entered.
    """
    name = str(agent["name"])
    pid = _process(name, agent, network)
    transparent = network["form"] == "transparent"
    allow = tuple(map(str, _list(network["allow"])))
    found = look(name, pid)
    denials = _denials(agent, network)
    plan = expected(name, names.AllowList.of(allow).ports, transparent=transparent)
    findings = network_diagnosis.judge(found, plan, allow, tuple(denial["text"] for denial in denials))
    return NetworkReport(str(network["form"]), found, allow, denials, findings)


def facts(report: NetworkReport) -> dict[str, tuple[str, ...]]:
    """Return the facts behind a report's findings as lines for people, by the finding's name."""
    denials = tuple(f"{denial['time']} {denial['text']}" for denial in report.denials)
    return {**network_diagnosis.facts(report.found), "denials": denials}


def _process(name: str, agent: Mapping[str, object], network: Mapping[str, object]) -> int:
    """Return the first process of the agent's sandbox.

    Raises:
        Refused: there is none, or its network isn't a filtered one.
    """
    kind = network["network"]
    if kind == "none":
        raise errors.Refused(f"{name} has the network 'none': no connection is possible, so there is nothing to examine")
    if kind != "filtered":
        raise errors.Refused(f"{name} has the network {kind!r}, which is this machine's own: look at it with `ip` and `ss`")
    if "process" not in network:
        raise errors.Refused("the daemon is older than this command: restart it, turns go on meanwhile")
    turn = agent.get("turn")
    if not isinstance(turn, dict) or turn.get("ended_at") is not None:
        raise errors.Refused(f"{name} runs no turn, and has a network only while one runs: ask again during its next turn")
    pid = network["process"]
    if not isinstance(pid, int) or network["form"] is None:
        raise errors.Refused(f"{name}'s turn is only starting or just ending: ask again in a moment")
    return pid


def expected(agent: str, ports: tuple[int, ...], *, transparent: bool) -> NetworkPlan:
    """Return the form that a network should have, as `sandbox.netlaunch` and `sandbox.netrelay` make it.

    Args:
        agent: the agent's name.
        ports: those of its allow-list.
        transparent: whether it has the transparent form; else it has the proxy form.
    """
    if not transparent:
        relay = Socket("tcp", netrelay.LISTENING_AT, netrelay.PORT)
        return NetworkPlan(agent, False, (netrelay.LISTENING_AT,), (relay,))
    dns = [Socket(protocol, netlaunch.NAMESERVER, netlaunch.DNS_PORT) for protocol in ("udp", "tcp")]
    web = [Socket("tcp", address, port) for port in ports for address in ("0.0.0.0", "::")]  # noqa: S104 - compared only
    return NetworkPlan(agent, True, (netlaunch.NAMESERVER, netlaunch.OWN_V6), (*dns, *web))


def look(name: str, pid: int) -> Namespace:
    """Read the network namespace of a process.

    Args:
        name: the agent's name.
        pid: the process.

    Raises:
        NotFound: pyroute2 isn't installed.
        SandboxFailed: the namespace can't be entered.
    """
    # `-P` keeps the program's directory off sys.path: our `errors` and `client` there could shadow other modules.
    command = [sys.executable, "-P", _PROGRAM, str(pid)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        raise errors.SandboxFailed(f"{name}'s network can't be read: the kernel gave no answer; try again") from None
    if done.returncode == _NO_LIBRARY:
        raise errors.NotFound(
            "the extra 'net' (pyroute2) isn't installed: pipx inject substrat pyroute2, "
            f"or {sys.executable} -m pip install pyroute2"
        )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise errors.SandboxFailed(
            f"{name}'s network can't be read ({reason}): ask as the user that the daemon runs as, while the turn runs"
        )
    return _namespace(json.loads(done.stdout))


def _namespace(facts: dict[str, Any]) -> Namespace:
    rules, sockets = facts["rules"], facts["sockets"]
    return Namespace(
        links=tuple(NetworkLink(**row) for row in facts["links"]),
        addresses=tuple(Address(**row) for row in facts["addresses"]),
        routes=tuple(Route(**row) for row in facts["routes"]),
        rules=tuple(RoutingRule(**row) for row in rules) if rules is not None else None,
        sockets=tuple(Socket(**row) for row in sockets) if sockets is not None else None,
        ipv6=facts["ipv6"],
    )


def _denials(agent: Mapping[str, object], network: Mapping[str, object]) -> tuple[Mapping[str, str], ...]:
    """Return the last refusals of the running turn; all times have one format, so they compare as text."""
    turn = agent["turn"]
    since = str(turn["started_at"]) if isinstance(turn, dict) else ""
    found = [
        {"time": str(decision["time"]), "text": str(decision["text"])}
        for decision in _list(network["decisions"])
        if isinstance(decision, dict) and decision["allowed"] is False and str(decision["time"]) >= since
    ]
    return tuple(found[-_MOST_DENIALS:])


def _list(found: object) -> list[object]:
    return found if isinstance(found, list) else []
