"""A stand-in for the daemon's file workers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, TypeVar

from substrat.daemon.kernel.files import Files

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class FilesHere(Files):
    """Calls functions in the test's own process; what they are given and return can be pickled, as for a worker."""

    def __init__(self) -> None:
        """It needs no server."""

    async def run(self, place: str, function: Callable[..., T], *arguments: object, given: tuple[int, ...] = ()) -> T:
        found: T = pickle.loads(pickle.dumps(function(*pickle.loads(pickle.dumps(arguments)), *given)))
        return found

    async def open(self, place: str, function: Callable[..., tuple[int, ...]], *arguments: object) -> tuple[int, ...]:
        return function(*pickle.loads(pickle.dumps(arguments)))
