"""`show`: prints everything about agents, each with its newest turn; `logs` has their events."""

from __future__ import annotations

import os
import stat
import sys
import time

from substrat import errors
from substrat.cli import attention, budgets, many, output, waiting
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from substrat.cli.output import Agent

COMMAND = Command("show", "NAME...", notes=many.JSON_NOTE)
_HEAD = (
    "name", "id", "state", "session_id", "workspace", "program", "model", "network", "parent", "created_at", "unread",
)  # fmt: skip
_RESULT_LENGTH = 400  # some five lines; `transcript` has all of a result
_WHOLE = 5
"""Git directories that are named: with many repositories, most of them are read-only."""
_DIFFERENCE_LINES = 40
"""Of each finding; `--json` gives all of it."""
_PROXY = "filtered (proxy: only for programs that heed HTTPS_PROXY; `substratctl doctor` says why)"
_HOST = "host (shares this machine's network; `--network filtered` does not)"


def run(arguments: Arguments) -> int:
    """Print the agents and return the exit status."""
    with Connection() as connection:
        agents, status = many.ask_objects(connection, "agent.show", arguments.words)
        waiting.explain(connection, agents)
        if arguments.json:
            many.put_json(arguments, agents, status)
            return status
        wanted = any(agent.get("parent") or agent.get("state") == "running" for agent in agents)
        names, heard = _others(connection, agents) if wanted else ({}, {})
        filtered = [str(agent["id"]) for agent in agents if agent.get("network") == "filtered"]
        answers = connection.each([("agent.network", {"agent": agent}) for agent in filtered])
    # An agent that was removed meanwhile is shown as it was.
    networks = {
        agent: found for agent, found in zip(filtered, answers, strict=True) if not isinstance(found, errors.SubstratError)
    }
    for number, agent in enumerate(agents):
        network = networks.get(str(agent["id"]))
        sys.stdout.write("\n" if number else "")
        shown = {**agent, "heard_at": heard.get(str(agent["id"]))}
        _print(shown, names.get(str(agent.get("parent"))), network if isinstance(network, dict) else {})
    return status


def _print(agent: Agent, parent: str | None, network: dict[str, object]) -> None:
    colour = output.has_colour(sys.stdout)
    columns, height = output.terminal_width(sys.stdout), output.terminal_height(sys.stdout)
    taken = 0
    for title, text in describe(agent, parent, network, time.time()):
        # The lines of a difference have no title, and stay as they are.
        value = output.wrapped(text, 12, columns) if title else text
        state, space, rest = value.partition(" ") if title == "state" else ("", "", value)
        print(output.paint(f"{title:<12}", output.BOLD, on=colour) + output.paint_state(state, on=colour) + space + rest)
        taken += 1 + value.count("\n")
    if height is not None and taken >= height and attention.command(agent):
        # The head, which says it too, has scrolled off the top.
        print("\n" + output.wrapped(attention.need(agent), 0, columns))


def describe(
    agent: Agent, parent: str | None = None, network: dict[str, object] | None = None, now: float = 0.0
) -> Iterator[tuple[str, str]]:
    """Give an agent object's lines: a title and harmless text.

    Args:
        agent: the agent object.
        parent: its parent's name; the parent's id by default.
        network: the answer of `agent.network` for a `filtered` network.
        now: seconds since the epoch, from which silence is counted.
    """
    for key in _HEAD:
        value = (output.local if key == "created_at" else output.text_of)(agent.get(key))
        if key == "network" and value == "host":
            value = _HOST
        if key == "network" and network and network.get("form") == "proxy":
            value = _PROXY
        if key == "parent" and parent:
            value = f"{parent} ({value})"
        if key == "state" and output.is_frozen(agent):
            value = f"{value} (frozen: its turn is stopped in memory, and 'resume' goes on with it)"
        yield key.removesuffix("_id").removesuffix("_at"), value
        if key == "state":
            yield from _attention(agent)
            yield from _doing(agent, now)
        if key == "network" and network:
            yield from _network(network)
    yield from _work(agent)
    yield from _check(agent)
    if used := budgets.told(agent.get("budget")):
        yield "budget", used
    yield from _places(agent)
    yield from _without(agent)
    turn = output.turn_of(agent)
    if turn is None:
        yield "turn", "none yet"
        return
    yield "turn", f"{output.turn_summary(agent)} (id {output.text_of(turn.get('id'))})"
    yield "  started", output.local(turn.get("started_at"))
    yield "  ended", output.local(turn.get("ended_at"))
    if isinstance(use := agent.get("use"), dict):
        yield "  uses", _use(use)
    yield "  exit code", output.text_of(turn.get("exit_code"))
    usage = turn.get("usage")
    if isinstance(usage, dict):
        yield "  usage", ", ".join(f"{output.text_of(key)} {output.text_of(value)}" for key, value in usage.items())
    yield from _words(agent, turn)


def _words(agent: Agent, turn: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Give the lines about what came of its newest turn: the error, what it gave to `complete`, and its last words."""
    if turn.get("error"):
        yield "  error", output.one_line(str(turn["error"]))
    if isinstance(completed := agent.get("completed"), dict):
        given = f"{output.text_of(completed.get('status'))}: {completed.get('text')}"
        yield "  completed", output.one_line(given, _RESULT_LENGTH)
    if turn.get("result"):
        yield "  result", output.one_line(str(turn["result"]), _RESULT_LENGTH)


def _limit(seconds: object) -> str:
    return f"{seconds:g} s" if isinstance(seconds, int | float) and seconds else "unlimited"


def _work(agent: Agent) -> Iterator[tuple[str, str]]:
    """Give the lines about git's unfinished work, and about the work in an agent's clone, as of its last keep."""
    unfinished = agent.get("unfinished")
    for sentence in unfinished if isinstance(unfinished, list) else ():
        yield "git", output.text_of(sentence)
    work = agent.get("clone")
    if not isinstance(work, dict):
        return
    base = f", which began at {output.text_of(work['base'])[:12]}" if work.get("base") else ""
    yield "branch", f"{output.text_of(work.get('branch'))} in a clone of its own{base}"
    record = work.get("work")
    nothing = "nothing yet" if work.get("head") == work.get("base") else "nothing that isn't landed"
    made = output.text_of(record["text"]) if isinstance(record, dict) else nothing
    behind = f" · {output.text_of(work['behind'])} behind" if work.get("behind") else ""
    yield "work", f"{made}{behind}"


def _check(agent: Agent) -> Iterator[tuple[str, str]]:
    """Give the line about the command that says whether its work is done."""
    if not isinstance(check := agent.get("check"), dict):
        return
    state, tries = output.text_of(check.get("state")), check.get("tries")
    failed = f", failed {_counted(tries, 'time', 'times')} in a row" if tries and state != "passed" else ""
    said = check.get("text") if state == "failed" else f"{check.get('command')} ({state}{failed})"
    yield "check", output.one_line(str(said), _RESULT_LENGTH)


def _counted(number: object, one: str, more: str) -> str:
    return f"{output.text_of(number)} {one if number == 1 else more}"


def _places(agent: Agent) -> Iterator[tuple[str, str]]:
    """Give the lines about its limits, variables and binds, and about the places that it shares with other agents."""
    if "time_limit" in agent and "silence_limit" in agent:
        yield "limits", f"time {_limit(agent['time_limit'])}, silence {_limit(agent['silence_limit'])}"
    binds, shares, variables = agent.get("binds"), agent.get("shares"), agent.get("environment")
    if isinstance(variables, list) and variables:
        yield "variables", ", ".join(map(output.text_of, variables))
    if agent.get("ssh_agent") is not None:
        place = str(agent["ssh_agent"])
        can = "it can list its keys and sign with them" if _is_socket(place) else "it is gone, so nothing is signed"
        yield "ssh-agent", f"{output.text_of(place)}: {can}"
    if isinstance(whole := agent.get("read_only"), list) and whole:
        # There are more repositories than can be protected file by file.
        listed = ", ".join(map(output.text_of, whole[:_WHOLE]))
        more = f" and {len(whole) - _WHOLE} more" if len(whole) > _WHOLE else ""
        yield "read-only", f"{_counted(len(whole), 'git directory', 'git directories')}, as wholes: {listed}{more}"
    for bind in binds if isinstance(binds, list) else ():
        yield "bind", f"{output.text_of(bind['path'])} ({'read-write' if bind['writable'] else 'read-only'})"
    for share in shares if isinstance(shares, list) else ():
        with_whom = f"{output.text_of(share['agent'])} (network {output.text_of(share['network'])})"
        yield "shares", f"{output.text_of(share['path'])} with {with_whom}"


def _without(agent: Agent) -> Iterator[tuple[str, str]]:
    """Give the lines about the parts of the person's git configuration that don't hold in its sandbox."""
    without = agent.get("without")
    for text in without if isinstance(without, list) else ():
        yield "without", output.text_of(text)


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.lstat(path).st_mode)
    except OSError:
        return False


def _attention(agent: Agent) -> Iterator[tuple[str, str]]:
    """Give the lines about why an agent needs a person, and about the findings in its workspace."""
    yield "attention", attention.said(agent)
    if command := attention.command(agent, is_shown=True):
        yield "  to do", f"substratctl {command}"
    findings = agent.get("findings")
    for finding in findings if isinstance(findings, list) else ():
        yield f"  finding {output.text_of(finding.get('number'))}", output.text_of(finding.get("text"))
        lines = str(finding.get("difference") or "").splitlines()
        for line in lines[:_DIFFERENCE_LINES]:
            yield "", "  " + output.one_line(line)
        if len(lines) > _DIFFERENCE_LINES:
            # The important lines may come after many others.
            name = output.text_of(agent["name"])
            more = output.lines_more(len(lines) - _DIFFERENCE_LINES)
            yield "", f"  … {more}: 'substratctl show {name} --json' has them all"


def _doing(agent: Agent, now: float) -> Iterator[tuple[str, str]]:
    """Give the lines about an agent's activity, its silence, and why it waits."""
    activity = agent.get("activity")
    if isinstance(activity, dict):
        title = "doing" if agent.get("state") == "running" or output.is_frozen(agent) else "did last"
        yield title, f"{output.text_of(activity.get('text'))} (since {output.local(activity.get('since'))})"
    if agent.get("heard_at") is not None:
        yield "silent for", f"{output.age(agent['heard_at'], now)} (since {output.local(agent['heard_at'])})"
    waits = output.in_local_time(output.text_of(agent.get("reason"), ""))
    if waits and waits not in attention.said(agent):
        yield "waits", waits


def _use(use: dict[str, object]) -> str:
    """Return a sandbox's present use of memory, processes and processor time, as far as it is counted."""
    memory, seconds, processes = use.get("memory"), use.get("cpu_seconds"), use.get("processes")
    parts = (
        f"{memory / (1 << 20):.0f} MiB of memory" if isinstance(memory, int) else "",
        f"{processes} processes and threads" if isinstance(processes, int) else "",
        f"{seconds:.1f} s of processor time" if isinstance(seconds, int | float) else "",
    )
    return ", ".join(filter(None, parts)) or "-"


def _network(network: dict[str, object]) -> Iterator[tuple[str, str]]:
    """Give the lines about a `filtered` network's allow-list and its decisions, each decision once."""
    allow, decisions = network.get("allow"), network.get("decisions")
    if isinstance(allow, list):
        yield "  allows", ", ".join(map(output.text_of, allow)) or "nothing"
    found = [entry for entry in decisions if isinstance(entry, dict)] if isinstance(decisions, list) else []
    for title, wanted in (("  passed", True), ("  refused", False)):
        for text in dict.fromkeys(output.text_of(entry.get("text")) for entry in found if entry.get("allowed") is wanted):
            yield title, output.one_line(text)


def _others(connection: Connection, agents: list[Agent]) -> tuple[dict[str, str], dict[str, object]]:
    """Return the names of agents and their parents, and the times of running agents' last events, by their ids."""
    ids = list({str(agent[key]) for agent in agents for key in ("id", "parent") if agent.get(key)})
    found = connection.call_list("agent.list", fields=["id", "name", "heard_at"], names=ids)
    names = {str(agent["id"]): output.text_of(agent["name"]) for agent in found}
    return names, {str(agent["id"]): agent.get("heard_at") for agent in found}
