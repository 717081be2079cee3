"""`run`: starts a family of agents from a file, shows how it goes, and prints its result."""

from __future__ import annotations

import json
import os
import sys

from substrat import errors
from substrat.cli import outage, output
from substrat.cli.connection import Connection, as_object
from substrat.cli.options import Arguments, Command, Option

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.core.families.plans import Member, Plan

COMMAND = Command(
    "run",
    "FILE",
    options=(
        Option("--set", value="K=V", about="give a variable of the file another value; may be repeated"),
        Option("--workspace", "-w", value="DIR", about="the directory that the family works on; default: this one"),
        Option("--detach", about="return as soon as it is started; 'runs' shows it"),
        Option("--dry-run", about="print the order and the most turns it can take, and start nothing"),
    ),
    notes=(
        "The file is TOML: docs/families.md has an example and all keys. The exit status is 0 when the family "
        "has succeeded, 5 when it has failed or its budget is used up, 6 when it needs you, 124 when its time is over. "
        "A run that isn't over goes on by itself, also after Ctrl-C."
    ),
)

_STATUSES = {
    "succeeded": errors.DONE, "failed": errors.TURN_FAILED, "needs-you": errors.NEEDS_YOU,
    "out-of-budget": errors.TURN_FAILED, "timeout": errors.TIMED_OUT, "detached": errors.DONE,
}  # fmt: skip
_WORDS = {
    "failed": "has failed", "needs-you": "needs you", "out-of-budget": "waits for its budget", "timeout": "took too long",
}  # fmt: skip
_UP, _TO_LINE_END, _TO_END = "\x1b[{}A", "\x1b[K", "\x1b[J"
"""xterm's control sequences, as terminfo names them: cuu, el, ed."""

Run = dict[str, object]


def run(arguments: Arguments) -> int:
    """Start the family, follow it and return the exit status."""
    (path,) = arguments.words
    directory = os.path.abspath(arguments.value("workspace") or ".")
    plan = _read(path, directory, arguments.values("set"))
    if arguments.flag("dry-run"):
        return _dry_run(arguments, plan)
    from dataclasses import asdict

    with Connection() as connection:
        wanted = {"plan": json.dumps(asdict(plan)), "file": os.path.abspath(path), "workspace": directory}
        unknown = "'runs' shows whether it was started"
        found = as_object("run.start", outage.ask_once(connection, unknown, lambda: connection.call("run.start", **wanted)))
        if arguments.flag("detach"):
            return _detached(arguments, found)
        rows = _Rows(quiet=arguments.json)
        try:
            found = _follow(connection, found, rows)
        except KeyboardInterrupt:
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                output.note(f"{_name(found)} goes on: 'runs {_name(found)}' shows it")
                raise
            if not _is_to_end(_name(found)):
                return _detached(arguments, found)
            found = connection.call_object("run.end", run=_name(found))
    return _tell(arguments, found)


def _read(path: str, directory: str, given: list[str]) -> Plan:
    """Read a family's file and those of its roles, which lie below the directory that it works on."""
    from substrat.core.families import family_file

    values = {}
    for text in given:
        key, is_given, value = text.partition("=")
        if not is_given:
            raise COMMAND.wrong(f"--set {text!r} is no KEY=VALUE")
        values[key] = value
    try:
        return family_file.read(_text_of(path), values, lambda role: _role_of(directory, role))
    except errors.InvalidParams as problem:
        raise errors.UsageError(f"{path}: {problem.message}") from None


def _role_of(directory: str, path: str) -> str:
    """Return the text of a role's file: one of the workspace, whatever its links are, because it goes to a model."""
    found, root = os.path.realpath(os.path.join(directory, path)), os.path.realpath(directory)
    if not found.startswith(f"{root}/"):
        raise errors.UsageError(f"lies outside of {root}: a role is a file of the workspace")
    return _text_of(found)


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except UnicodeDecodeError:
        raise errors.UsageError(f"{path} is no UTF-8 text") from None
    except OSError as problem:
        raise errors.UsageError(f"{path} can't be read: {problem.strerror}") from None


def _dry_run(arguments: Arguments, plan: Plan) -> int:
    """Print the order and the most turns."""
    from substrat.core.families import plans

    order, most = plans.ordered(plan), plans.most_turns(plan)
    if arguments.json:
        output.put_json({"family": plan.name, "order": [member.name for member in order], "most_turns": most})
        return errors.DONE
    for number, member in enumerate(order, 1):
        after = f" after {', '.join(member.needs)}" if member.needs else " first" if number == 1 else ""
        print(output.one_line(f"{number}. {plan.name}.{member.name}{after}{_more_of(member)}"))
    limits = ", ".join(f"{key}={number:g}" for key, number in plan.budget.items())
    print(f"at most {most} turns, and those that messages start" + (f"; budget {limits}" if limits else ""))
    return errors.DONE


def _more_of(member: Member) -> str:
    """Say how many agents a member stands for, what checks it, and whom its result goes back to."""
    many = f", {member.count} agents" if member.count is not None else ""
    many += f", one agent for each line of {member.each}" if member.each is not None else ""
    check = f", checked by {member.check}" if member.check else ""
    check += f", sent back {member.retries} times at most" if member.check and member.retries else ""
    back = f", sends {member.returns_to} back {member.rounds - 1} times at most" if member.returns_to is not None else ""
    return f"{many}{check}{back}"


def _detached(arguments: Arguments, run: Run) -> int:
    if arguments.json:
        output.put_json({**_without_seen(run), "outcome": "detached"})
    else:
        print(f"{_name(run)}  goes on: 'runs {_name(run)}' shows it")
    return errors.DONE


def _is_to_end(name: str) -> bool:
    """Ask whether a run is to be ended; a second Ctrl-C says that it isn't."""
    try:
        return output.agrees(f"end {name} and its agents? They go on otherwise.")
    except KeyboardInterrupt:
        return False


def _follow(connection: Connection, run: Run, rows: _Rows) -> Run:
    """Show a run until it doesn't go on by itself, and return it as it is then; a restart of the daemon is waited for."""
    gone = outage.Outage(connection, rows.forget)
    while True:
        rows.show(run)
        if run.get("outcome") is not None:
            return run
        params = {"run": _name(run), **({"seen": run["seen"]} if "seen" in run else {})}
        try:
            run = connection.call_object("run.show", **params)
        except errors.ConnectionLost:
            gone.reconnect()
        else:
            gone.over()


class _Rows:
    """A row for each agent: drawn anew on a terminal, a line for each change elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._drawn = 0
        self._told: dict[str, str] = {}

    def show(self, run: Run) -> None:
        """Draw the rows, or print those that have changed."""
        if self._quiet:
            return
        agents = agents_of(run)
        wide = max((len(output.text_of(agent.get("name"))) for agent in agents), default=0)
        lines = [f"{output.text_of(agent.get('name')):{wide}}  {words_of(agent)}" for agent in agents]
        columns = output.terminal_width(sys.stdout)
        if columns and output.has_colour(sys.stdout):
            most = (output.terminal_height(sys.stdout) or 24) - 1
            if len(lines) > most:
                lines[most - 1 :] = [f"… and {len(lines) - most + 1} more"]
            up = _UP.format(self._drawn) if self._drawn else ""
            drawn = "".join(f"{output.shortened(line, columns)}{_TO_LINE_END}\n" for line in lines)
            sys.stdout.write(f"{up}{drawn}{_TO_END}")
            self._drawn = len(lines)
        else:
            for agent, line in zip(agents, lines, strict=True):
                name, now = output.text_of(agent.get("name")), f"{agent.get('state')} {agent.get('outcome')}"
                if self._told.get(name) != now and agent.get("agent") is not None:
                    print(line)
                self._told[name] = now
        sys.stdout.flush()

    def forget(self) -> None:
        """Draw the next rows below the last line of the terminal."""
        self._drawn = 0


def agents_of(run: Run) -> list[Mapping[str, object]]:
    """Return the agents of a run's object."""
    found = run.get("agents")
    return [agent for agent in found if isinstance(agent, dict)] if isinstance(found, list) else []


def words_of(agent: Mapping[str, object]) -> str:
    """Say how an agent of a run stands: `queued: its clone is being made`."""
    if agent.get("agent") is None:
        return "not started"
    outcome = agent.get("outcome")
    state = output.text_of(agent.get("state") if outcome in {None, "working"} else outcome)
    text = output.in_local_time(output.text_of(agent.get("text")))
    return state if outcome == "succeeded" or not text else output.one_line(f"{state}: {text}")


def _without_seen(run: Run) -> Run:
    return {name: value for name, value in run.items() if name != "seen"}


def _name(run: Run) -> str:
    return output.text_of(run.get("family"))


def _tell(arguments: Arguments, run: Run) -> int:
    """Print the result of a run, name those that keep it from success, and return the exit status."""
    outcome = output.text_of(run.get("outcome"))
    if arguments.json:
        output.put_json(_without_seen(run))
        return _STATUSES.get(outcome, errors.FAILED)
    if outcome == "succeeded":
        print(output.neutralise(output.text_of(run.get("result"))))
    if run.get("why"):
        output.note(f"{_name(run)}: {run['why']}")
    if outcome == "succeeded":
        return errors.DONE
    for agent in agents_of(run):
        if agent.get("agent") is not None and agent.get("outcome") in {"failed", "needs-you", "out-of-budget"}:
            output.note(f"{agent.get('name')}: {agent.get('outcome')}: {agent.get('text')}")
    output.note(f"{_name(run)} {_WORDS.get(outcome, outcome)}: 'runs {_name(run)}' shows it")
    return _STATUSES.get(outcome, errors.FAILED)
