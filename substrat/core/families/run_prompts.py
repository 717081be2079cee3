"""Makes the prompts of a family's agents: a file's words filled with values, and what other agents have done. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.agents import excerpts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.core.families.plans import Member
    from substrat.core.families.runs import Run

_PLACEHOLDER = re.compile(r"\\?\{\{\s*([^{}]*?)\s*\}\}")
_MOST = 32 * 1024
"""Bytes of what all the agents say that one needs: as much as a delivery of messages may have."""
_MOST_OF_ONE = 4 * 1024


class Done(NamedTuple):
    """What an agent has done that another one needs.

    Args:
        name: its name.
        outcome: how its turn came out, in words of ours.
        work: what is in its clone (`work.describe`); empty: nothing.
        words: its result.
    """

    name: str
    outcome: str
    work: str
    words: str


def filled(text: str, value_of: Callable[[str, str], str | None]) -> str:
    r"""Return a text with values in the place of its `{{WORD}}`; `\{{WORD}}` stands for itself, and values stay as such.

    Args:
        text: the text.
        value_of: returns the value of a word, which stands there in braces as the second argument; None: it has none.
    """

    def value(match: re.Match[str]) -> str:
        if match[0].startswith("\\"):
            return match[0][1:]
        found = value_of(match[1], match[0])
        return match[0] if found is None else found

    return _PLACEHOLDER.sub(value, text)


def task(run: Run, member: Member, needed: Sequence[Done], name_of: Callable[[str], str]) -> str:
    """Return the task of a member: its prompt, then what those have done that it needs.

    Args:
        run: the run.
        member: the member.
        needed: what those have done.
        name_of: returns the name of a member's agent.
    """
    own = {name.lower(): value for name, value in run.plan.variables}
    own |= {"n": str(member.number)} if member.number is not None else {}
    own |= {"item": member.item} if member.item is not None else {}

    def value(word: str, _: str) -> str | None:
        kind, _, name = word.partition(".")
        if kind != "agent":
            return own.get(word.lower())
        meant = (name_of(one.name) for one in run.plan.members if name in {one.name, one.group})
        return ", ".join(meant) or "nobody"

    most = min(_MOST_OF_ONE, _MOST // max(1, len(needed)))
    return "\n\n".join([filled(member.prompt, value), *(_told(f"{one.name}: {one.outcome}.", one, most) for one in needed)])


def returned(reviewer: Done, number: int, rounds: int) -> str:
    """Return the task of an agent whose work another one doesn't agree with.

    Args:
        reviewer: the other one, with its result.
        number: how many results it has given now.
        rounds: how many it may give.
    """
    head = f"{reviewer.name} doesn't agree with your work yet, in round {number} of {rounds}: do what is left to do."
    return _told(head, reviewer)


def _told(head: str, done: Done, most: int | None = None) -> str:
    """Return what an agent has done and said, quoted, because the rest of the prompt is the operator's."""
    parts = [done.work] if done.work else []
    said = "\n\n".join([*parts, excerpts.shortened(done.words, most) if most is not None else done.words]).strip()
    what = "Its work, and what it said" if done.work else "It said"
    return f"{head} {what}:\n\n{excerpts.quoted(said)}" if said else head
