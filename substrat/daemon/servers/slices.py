"""Long answers, made in slices: between two of them other requests are answered."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TypeVar

import trio

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

T = TypeVar("T")

PAGE_BYTES = 1024 * 1024
"""A page ends with the event or the turn that exceeds it: small enough that encoding it is a matter of milliseconds."""
OBJECTS = 16
"""How many objects a slice has: as many agents, with the members that are looked up, take a few milliseconds."""


def sliced(objects: Sequence[T], size: int = OBJECTS) -> Iterator[Sequence[T]]:
    """Cut a sequence into slices."""
    for start in range(0, len(objects), size):
        yield objects[start : start + size]


_ENCODER = json.JSONEncoder(separators=(",", ":"))
"""Made once, because `json.dumps` makes an encoder for each value that is written with these separators."""


def encoded(value: object) -> bytes:
    """Return a value as the JSON text that stands in answers."""
    return _ENCODER.encode(value).encode()


async def encode_list(slices: Iterable[Iterable[object]]) -> list[bytes]:
    """Encode an array slice by slice, with a checkpoint after each.

    Args:
        slices: the array's members; those of a slice are made when the one before has been encoded.

    Returns:
        The array's JSON text, in pieces.
    """
    pieces = [b"["]
    for members in slices:
        if len(pieces) > 1:
            pieces.append(b",")
            await trio.lowlevel.checkpoint()
        # One text for all of a slice, without its brackets: sixteen encodings would cost twice as much.
        pieces.append(encoded(list(members))[1:-1])
    return [*pieces, b"]"]
