"""Plays what was recorded of cursor-agent: refusals, failures, its occasional oddities and calls of every tool.

`recorded.json` has them. A failure in `before` is a text on stderr and a status; one in `within`, like each entry of
`scripts`, is a list of steps, which are methods of `_Player`; `shapes` has each tool's arguments and results, of builds up
to 2026.10, empty where none was recorded. `$workspace`, `$text` and other names with a dollar stand for a run's values.
"""

from __future__ import annotations

import functools
import json
import os
import signal

from substrat.standin import models, places, shells, stream
from substrat.standin.errors import LeaveError, MalformedActionError, RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from substrat.standin.places import Places
    from substrat.standin.script import PromptLine
    from substrat.standin.stream import Json
    from substrat.standin.turn import TurnContext


@functools.cache
def table(name: str) -> Any:
    """One of the tables of `recorded.json`."""
    with open(os.path.join(os.path.dirname(__file__), "recorded.json"), "rb") as file:
        return json.load(file)[name]


def refusal(name: str, **values: str) -> Exception:
    """The failure of `before` with that name; the values are those that its text has places for.

    Returns:
        The exception for the run to raise: a `RefusalError`, or a `LeaveError` for one that says nothing.
    """
    text, code = table("before")[name]
    known = {"model": "no-such-model", "models": ", ".join(models.CATALOGUE), **values}
    return LeaveError(code) if text is None else RefusalError(str(_placed(text, known)), code)


def check(steps: Sequence[PromptLine], run_places: Places, chat_id: str, asked: str) -> None:
    """Raise the first failure that comes before the session, wherever in the script its line stands.

    Args:
        steps: The script.
        run_places: The run's directories.
        chat_id: The chat.
        asked: The failure that the environment asks for, or nothing.

    Raises:
        RefusalError: There is one.
        LeaveError: There is one that says nothing.
    """
    for text in (asked, *(step.text for step in steps if step.action == "fail")):
        try:
            name, times = parse(text)
        except MalformedActionError:
            continue  # said when the script gets there
        if name in table("before") and _is_due(run_places, text, times):
            raise refusal(name, workspace=run_places.workspace, chat=chat_id, short=chat_id[:8])


def fail(turn: TurnContext, text: str) -> None:
    """`/fail NAME [TIMES]`: fail in the way that is named; with TIMES only so many runs in this workspace."""
    name, times = parse(text)
    if name in table("within") and _is_due(turn.places, text, times):
        _play(turn, table("within")[name], "")


def parse(text: str) -> tuple[str, int | None]:
    """The name and the number of times in the text after `/fail`.

    Raises:
        MalformedActionError: There is no such failure, or the number is none.
    """
    name, _, times = text.strip().partition(" ")
    names = (*table("before"), *table("within"))
    if name not in names:
        raise MalformedActionError(f"NAME must be one of {', '.join(names)}")
    if times and not times.isdecimal():
        raise MalformedActionError("TIMES must be a whole number")
    return name, int(times) if times else None


def show(turn: TurnContext, text: str) -> None:
    """`/show KIND [ARM]`: a tool call of that kind with that result, only shown and not performed."""
    kind, _, arm = text.strip().partition(" ")
    if kind not in table("shapes"):
        raise MalformedActionError(f"KIND must be one of {', '.join(table('shapes'))}")
    args, arms = table("shapes")[kind]
    arm = arm.strip() or next(iter(arms))
    if arm not in arms:
        raise MalformedActionError(f"ARM must be one of {', '.join(arms)}")
    player = _Player(turn, "")
    if kind == "shell":
        args = shells.arguments(turn, "make", player.call_id, in_background=False)
    player.start(kind, args)
    # A call that was refused comes back without its arguments.
    player.complete({arm: arms[arm]}, with_args=arm not in {"rejected", "permissionDenied"})


def play(turn: TurnContext, name: str, text: str) -> None:
    """Perform an entry of `scripts`; the turn goes on after it."""
    _, *steps = table("scripts")[name]
    _play(turn, steps, text)


def say_on_stderr(text: str) -> None:
    """One line on stderr."""
    stream.write_all(2, text.encode("utf-8", "replace") + b"\n")


def _is_due(run_places: Places, text: str, times: int | None) -> bool:
    """Whether this run of the line fails; counted in the project's folder, which outlives the run."""
    if times is None:
        return True
    path = os.path.join(run_places.project, "standin-failures.json")
    value = places.read_json(path)
    counts = value if isinstance(value, dict) else {}
    so_far = counts.get(text, 0)
    places.write_file(path, json.dumps(counts | {text: so_far + 1}).encode())
    return bool(so_far < times)


def _play(turn: TurnContext, steps: Sequence[list[Any]], text: str) -> None:
    player = _Player(turn, text)
    for step, *arguments in steps:
        getattr(player, step)(*arguments)


class _Player:
    """The steps of one script; those that belong to a tool call share its id."""

    def __init__(self, turn: TurnContext, text: str) -> None:
        self._turn = turn
        self._stream = turn.stream
        self._text = text
        self.flush = turn.stream.flush
        self.speak = turn.stream.speak
        self.event = turn.stream.event
        self.stderr = say_on_stderr

    @functools.cached_property
    def call_id(self) -> str:
        return self._stream.next_call_id()

    def start(self, kind: str, args: Json) -> None:
        self._call = self._stream.start_tool(self.call_id, kind, self._place(args))

    def unstarted(self, kind: str) -> None:
        self._call = stream.ToolCall(self._stream, self.call_id, kind, {}, None)

    def complete(self, result: Json, with_args: bool) -> None:
        self._call.complete(self._place(result), with_args=with_args)
        self._stream.next_model_call()

    def ask(self, kind: str, query: Json, response: Json) -> None:
        """The user is asked, and answered for."""
        number, self._turn.queries = self._turn.queries, self._turn.queries + 1
        name = {"query_type": f"{kind}Query"}
        asked = {"id": number, f"{kind}Query": self._place(query)}
        self._stream.event("interaction_query", "request", {**name, "query": asked})
        answered = {"id": number, f"{kind}Response": response}
        self._stream.event("interaction_query", "response", {**name, "response": answered})

    def play(self, name: str) -> None:
        _play(self._turn, table(name), "")

    def raw(self, text: str) -> None:
        self._stream.raw(text.encode())

    def hang(self) -> None:
        self._stream.final_flush()
        self._turn.reactor.run_until(lambda: False)

    def refuse(self, text: str, code: int = 1) -> None:
        raise RefusalError(text, code)

    def leave(self, code: int) -> None:
        raise LeaveError(code)

    def die(self, name: str) -> None:
        import resource

        # A death that was asked for should not fill the disk with core files.
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        os.kill(os.getpid(), signal.Signals[name])

    def _place(self, shape: Json) -> Json:
        placed: Json = _placed(shape, {"text": self._text, "call": self.call_id, "workspace": self._turn.workspace})
        return placed


def _placed(shape: Any, values: dict[str, str]) -> Any:
    """A shape with the values in their places."""
    if isinstance(shape, dict):
        return {_placed(key, values): _placed(value, values) for key, value in shape.items()}
    if isinstance(shape, list):
        return [_placed(item, values) for item in shape]
    if not isinstance(shape, str) or "$" not in shape:
        return shape
    if shape[1:] in values:
        return values[shape[1:]]  # a `$` in the value itself stays
    # The longest name first: `$models` begins with another one.
    for name in sorted(values, key=len, reverse=True):
        shape = shape.replace(f"${name}", values[name])
    return shape
