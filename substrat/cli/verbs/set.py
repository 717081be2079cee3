"""`set`: changes an agent's name, model, network, priority, limits or variables, from its next turn on."""

from __future__ import annotations

import os

from substrat.cli import budgets, output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMITS = ("time_limit", "silence_limit")
_ALONE = ("name", "workspace", "budget")
_KEYS = ("program", "model", "network", "allow", "priority", *_LIMITS, "check", "retries", "env.NAME", *_ALONE)
_CHOICES = {"network": ("none", "filtered", "host"), "priority": ("high", "normal", "low")}

COMMAND = Command(
    "set",
    "NAME KEY=VALUE...",
    notes=(
        "program=cursor|claude|codex, between turns (a new chat begins, with the program's model and hosts unless others "
        "are given), model=SLUG, network=none|filtered|host, allow=HOST[,HOST]... (in place of the list that it has; "
        "'allow' adds to it), priority=high|normal|low, time_limit=SECONDS and silence_limit=SECONDS (0: no limit), "
        "check=COMMAND and retries=N as with 'spawn', env.NAME=VALUE; "
        "name=NEW, alone, gives the agent another name, and moves the refs of its clone below refs/substrat along; while a "
        "turn or a command runs in its sandbox the agent keeps its name, so suspend it first; "
        "budget=K=N[,K=N], alone, limits what it may use with its descendants ('help budget'); "
        "workspace=DIR, alone, goes on where the repository was moved to that its clone is of; KEY= goes back to the "
        "default, and env.NAME alone takes the variable away. It counts from the next turn on; a running turn is held to a "
        "changed list at once, and keeps its network, so suspend it before you change that. No event and no other command "
        "shows a variable's value. A parent's children lose the rights that it loses."
    ),
)


def run(arguments: Arguments) -> int:
    """Change the settings and return the exit status."""
    name, *changes = arguments.words
    if (given := _alone("budget", changes)) is not None:
        return _set_budget(arguments, name, given)
    new = _alone("name", changes)
    if new == "":
        raise COMMAND.wrong("name= has no default: give the agent's new name")
    wanted = _read(changes) if new is None else {"name": new}
    with Connection() as connection:
        method = "agent.rename" if "name" in wanted else "agent.set"
        agent = connection.call_object(method, agent=name, **wanted)
    if arguments.json:
        output.put_json(agent)
    elif "name" in wanted:
        print(f"{output.text_of(name)} is called {output.text_of(agent['name'])} now")
    else:
        chat = ", with a new chat" if "program" in wanted and agent["session_id"] is None else ""
        print(f"{output.text_of(agent['name'])} is set, from its next turn on{chat}")
    return 0


def _alone(key: str, changes: Sequence[str]) -> str | None:
    """Return the value of a key that stands alone, because a method of its own changes it; None: it isn't there."""
    found = [change.partition("=")[2] for change in changes if change.startswith(f"{key}=")]
    if found and len(changes) > 1:
        raise COMMAND.wrong(f"{key}= stands alone: set the other keys by a command of their own")
    return found[0] if found else None


def _set_budget(arguments: Arguments, name: str, given: str) -> int:
    with Connection() as connection:
        wanted: dict[str, object] = {"limits": budgets.limits([given])} if given else {"clear": True}
        found = connection.call_object("agent.budget", agent=name, **wanted)
    if arguments.json:
        output.put_json(found)
    else:
        print(f"{output.text_of(found['agent'])}: {budgets.told(found) or 'no budget'}")
    return 0


def _read(changes: Sequence[str]) -> dict[str, object]:
    """Return the parameters of `agent.set`."""
    wanted: dict[str, object] = {}
    variables: list[str] = []
    without: list[str] = []
    defaults: list[str] = []
    for change in changes:
        key, is_given, value = change.partition("=")
        if key.startswith("env."):
            (variables if is_given else without).append(change.removeprefix("env."))
        elif key not in _KEYS or not is_given:
            problem = "is no KEY=VALUE" if key in _KEYS or not is_given else "is no key"
            raise COMMAND.wrong(f"{key!r} {problem}; the keys are {', '.join(_KEYS)}")
        elif key in wanted or key in defaults:
            raise COMMAND.wrong(f"{key} came twice; give it once")
        elif not value:
            defaults.append(key)
        elif key in _LIMITS:
            wanted[key] = COMMAND.seconds(key, value)
        elif key == "retries":
            wanted[key] = COMMAND.whole(key, value)
        elif value not in _CHOICES.get(key, (value,)):
            raise COMMAND.wrong(f"{key} can be {', '.join(_CHOICES[key])}, not {value!r}")
        elif key == "workspace":
            wanted[key] = os.path.abspath(os.path.expanduser(value))
        else:
            wanted[key] = [host for host in value.split(",") if host] if key == "allow" else value
    return {**wanted, "env": variables or None, "without": without or None, "defaults": defaults or None}
