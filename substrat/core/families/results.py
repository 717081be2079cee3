"""Says what came of an agent's turn for those who gave it the task: the outcome in words, and the text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from substrat.core.agents.records import Completion, Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from substrat.core.agents.records import Item, Turn

EMPTY = "empty"
"""The outcome of a turn that came to its end without a word: it has told nothing, so it isn't called a success."""
UNFIT = "its result doesn't fit the schema that it must have"
"""The outcome of a turn whose agent had to give a result in a certain form and didn't."""


def outcome_of(
    turn: Turn | None, awaited: Sequence[str] = (), question: Item | None = None, *, refused: str | None = None
) -> str:
    """Name a turn's outcome: `success` only where the agent came to its end, said something and didn't call it failed.

    Args:
        turn: the turn with its result; None: the agent has had none.
        awaited: the names of the agents that its agent waits for: its work isn't done then.
        question: a question to the operator that its agent waits for likewise.
        refused: why its check refuses the work (`turn_check.refusal`).
    """
    if turn is None:
        return "no turn yet"
    if turn.outcome is None:
        return "still running"
    if turn.outcome is not Outcome.SUCCESS:
        return turn.outcome.value
    if question is not None:
        return f"not done, it waits for the operator's answer to its question {question.id}"
    if awaited:
        return f"not done, it waits for {', '.join(awaited)}"
    if refused is not None:
        return f"not done, {refused}"
    if turn.completion is Completion.UNFIT:
        return UNFIT
    if turn.completion is Completion.FAILED:
        return Completion.FAILED.value
    return turn.outcome.value if _said(turn).strip() else EMPTY


def text_of(turn: Turn | None, question: Item | None = None) -> str:
    """Return the words of a turn that succeeded, else the sentence that says why it didn't.

    Words that the agent gave to `complete` before its turn failed come after that sentence, and an open question of its
    agent's after all.
    """
    if turn is None:
        return ""
    if turn.outcome is Outcome.SUCCESS or not turn.error:
        return _said(turn) if question is None else f"{_said(turn)}\n\nQuestion {question.id}: {question.text}".strip()
    return f"{turn.error}\n\nBefore that it gave this result: {turn.report}" if turn.completion else turn.error


def _said(turn: Turn) -> str:
    """Return an agent's report; turns of earlier versions have only their result."""
    return (turn.report if turn.report is not None else turn.result) or ""
