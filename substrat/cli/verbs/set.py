"""`set`: changes an agent's model, network, priority, limits or variables, from its next turn on."""

from __future__ import annotations

import os

from substrat.cli import output
from substrat.cli.connection import Connection
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_LIMITS = ("time_limit", "silence_limit")
_KEYS = ("model", "network", "allow", "priority", *_LIMITS, "env.NAME", "workspace")
_LATER = ("budget",)
_CHOICES = {"network": ("none", "filtered", "host"), "priority": ("high", "normal", "low")}

COMMAND = Command(
    "set",
    VERBS["set"],
    "NAME KEY=VALUE...",
    least=2,
    most=None,
    notes=(
        "model=SLUG, network=none|filtered|host, allow=HOST[,HOST]... (in place of the list that it has; 'allow' adds "
        "to it), priority=high|normal|low, time_limit=SECONDS and silence_limit=SECONDS (0: no limit), env.NAME=VALUE; "
        "workspace=DIR, alone, goes on where the repository was moved to that its clone is of; "
        "KEY= goes back to the default, and env.NAME alone takes the variable away. It counts from the "
        "next turn on; a running turn is held to a changed list at once, and keeps its network, so suspend it before you "
        "change that. No event and no other command shows a variable's value. A parent's children lose the rights that "
        "it loses."
    ),
)


def run(arguments: Arguments) -> int:
    """Change the settings and return the exit status."""
    name, *changes = arguments.words
    wanted = _read(changes)
    with Connection() as connection:
        agent = connection.call_object("agent.set", agent=name, **wanted)
    if arguments.json:
        output.put_json(agent)
    else:
        print(f"{output.text_of(agent['name'])} is set, from its next turn on")
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
        elif key in _LATER:
            raise COMMAND.wrong(f"{key} can't be set yet; the keys are {', '.join(_KEYS)}")
        elif key not in _KEYS or not is_given:
            problem = "is no KEY=VALUE" if key in _KEYS or not is_given else "is no key"
            raise COMMAND.wrong(f"{key!r} {problem}; the keys are {', '.join(_KEYS)}")
        elif key in wanted or key in defaults:
            raise COMMAND.wrong(f"{key} came twice; give it once")
        elif not value:
            defaults.append(key)
        elif key in _LIMITS:
            wanted[key] = COMMAND.seconds(key, value)
        elif value not in _CHOICES.get(key, (value,)):
            raise COMMAND.wrong(f"{key} can be {', '.join(_CHOICES[key])}, not {value!r}")
        elif key == "workspace":
            wanted[key] = os.path.abspath(os.path.expanduser(value))
        else:
            wanted[key] = [host for host in value.split(",") if host] if key == "allow" else value
    return {**wanted, "env": variables or None, "without": without or None, "defaults": defaults or None}
