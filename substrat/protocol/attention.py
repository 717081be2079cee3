"""The kinds of attention and what a person types for each: one vocabulary for `substratctl` and for notifications.

Standard library only: `substratctl ls` imports this at every start.
"""

from __future__ import annotations

KINDS = (
    "answer", "unsafe", "unkept", "failed", "stuck", "budget", "merge", "held", "suspended", "working", "waiting",
    "checking", "queued", "idle", "done",
)  # fmt: skip
"""Why an agent is shown where it is, the weightiest first: `attention.kind` in docs/protocol.md."""
COMMANDS = {
    "answer": "answer {name} TEXT",
    "unsafe": "show {name}, then accept {name}",
    "frozen": "show {name}, then resume {name}",
    "unkept": "exec {name} git status",
    "failed": "resume {name}, or accept {name}",
    "stuck": "interrupt {name}",
    "budget": "budget {name}",
    "merge": "merge {name}",
    "unlandable": "send {name} TEXT, or accept {name}",
    "held": "queue",
    "suspended": "resume {name}",
}
"""What a person types next, by the kind, or by what makes it so."""


def command(kind: str, name: str, item: object = None, *, frozen: bool) -> str:
    """Return what a person types next for an agent, without the program's name; empty where nothing has to be done.

    Args:
        kind: the kind of its attention.
        name: its name.
        item: the question to answer, where the agent has asked several.
        frozen: whether a turn that is frozen, because protected paths were replaced, makes it `unsafe`.
    """
    if kind == "answer" and isinstance(item, int):
        return f"answer {item} TEXT"
    return COMMANDS.get("frozen" if frozen else kind, "").format(name=name)
