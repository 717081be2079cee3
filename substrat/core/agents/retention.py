"""Decides which old turns are compressed and which are dropped, from their sizes, the limits and the time. Pure.

Three kinds of turn are never touched: one that runs; the newest of an agent that hasn't ended, because resuming looks
back at it; and an *unread* one. Unread is a turn whose end is to be reported to the agent that asked for it while that
report still waits in that agent's inbox: it may want to look at the work. (A person reads whenever they like and
leaves no trace, so for them only the limits count.)

Limits count bytes on disk, those of turns that can't be touched included. Where one is exceeded, everything that may be
is compressed first, because that loses nothing; only as much as is still over the limits is dropped, oldest first. How much
compressing saves shows only afterwards, so `decide` is asked again until it has nothing more to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class OnDisk(NamedTuple):
    """A turn that has a directory.

    Args:
        agent: its agent's id.
        turn: its id.
        number: its place among its agent's turns.
        ended_at: seconds since the epoch; None while it runs.
        size: its bytes on disk.
        packed: whether compressing it can't save anything any more.
        current: whether it is the newest turn of an agent that hasn't ended.
        unread: whether the report of its end still waits to be delivered.
    """

    agent: str
    turn: str
    number: int
    ended_at: float | None
    size: int
    packed: bool = False
    current: bool = False
    unread: bool = False

    @property
    def protected(self) -> bool:
        """Whether nothing may be done to it."""
        return self.ended_at is None or self.current or self.unread


class RetentionLimits(NamedTuple):
    """The limits on old output; 0 means without limit, except for `compress_after`.

    Args:
        agent: bytes of one agent's turns.
        state: bytes of all turns.
        compress_after: seconds after its end until a turn is compressed.
        keep: seconds after its end until a turn is dropped.
    """

    agent: int
    state: int
    compress_after: float
    keep: float


class Compress(NamedTuple):
    """Compress a turn's output."""

    turn: OnDisk


class Drop(NamedTuple):
    """Delete a turn's files and the events that stand for its lines."""

    turn: OnDisk
    reason: str


def decide(turns: Iterable[OnDisk], limits: RetentionLimits, now: float) -> list[Compress | Drop]:
    """Return the next actions, in order; none: all limits hold, or only protected turns are left.

    Args:
        turns: every turn that has a directory.
        limits: the limits.
        now: seconds since the epoch.
    """
    everything = list(turns)
    free = sorted(
        (turn for turn in everything if not turn.protected), key=lambda turn: (_end(turn), turn.agent, turn.number)
    )
    expired = [turn for turn in free if limits.keep and _end(turn) + limits.keep < now]
    gone = {turn.turn for turn in expired}
    free = [turn for turn in free if turn.turn not in gone]
    left = [turn for turn in everything if turn.turn not in gone]
    sizes = _by_agent(left)
    excess = {agent: size - limits.agent for agent, size in sizes.items() if limits.agent and size > limits.agent}
    too_much = sum(sizes.values()) - limits.state if limits.state else 0
    squeezed = [
        turn
        for turn in free
        if not turn.packed and (_end(turn) + limits.compress_after <= now or turn.agent in excess or too_much > 0)
    ]
    return [
        *(Drop(turn, "it is older than disk.keep allows") for turn in expired),
        *(Compress(turn) for turn in squeezed),
        *_overflow(free, excess, too_much, {turn.agent for turn in squeezed}),
    ]


def _overflow(free: list[OnDisk], excess: dict[str, int], too_much: int, pending: set[str]) -> Iterator[Drop]:
    """Drop the oldest until the limits hold; turns that wait to be compressed are looked at again afterwards."""
    for turn in free:
        over_own = excess.get(turn.agent, 0) > 0 and turn.agent not in pending
        over_all = too_much > 0 and not pending
        if over_own or over_all:
            excess[turn.agent] = excess.get(turn.agent, 0) - turn.size
            too_much -= turn.size
            which = "its agent's turns have" if over_own else "all turns together have"
            key = "disk.agent" if over_own else "disk.state"
            yield Drop(turn, f"{which} more bytes than {key} allows")


def _by_agent(turns: list[OnDisk]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for turn in turns:
        sizes[turn.agent] = sizes.get(turn.agent, 0) + turn.size
    return sizes


def _end(turn: OnDisk) -> float:
    return turn.ended_at or 0.0
