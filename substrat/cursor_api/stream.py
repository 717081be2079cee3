"""The blocking stream of an answer's events, which can be cancelled."""

from __future__ import annotations

import signal as signals
from typing import TYPE_CHECKING

from substrat.cursor_api.answer import Answer, Response
from substrat.cursor_api.shell import finish

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from substrat.cursor_api.model import AgentEvent


class StreamingResponse(Response):
    """An answer under way: iterate over it for its events.

    Iterating goes on where the last iteration stopped, as with a file; `events` keeps all that was received. A stream
    that is read to its end, cancelled, or left through its `with` statement has given up its process and descriptors;
    one that is merely dropped is stopped when it is collected.

    Args:
        answer: the answer; it is started at once.
    """

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer)
        finish(answer.start())

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> AgentEvent:
        event = finish(self.answer.next())
        if event is None:
            raise StopIteration
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, traceback: TracebackType | None
    ) -> None:
        finish(self.answer.leave(problem))

    def cancel(self, signal: int = signals.SIGTERM) -> None:
        """Stop the answer; returns when its process is gone. Another thread may call it while one iterates.

        Args:
            signal: the first signal to the process and everything under it; SIGKILL follows if that isn't enough. A
                sandboxed run is interrupted by the daemon in its own way.
        """
        finish(self.answer.cancel(int(signal)))

    def settle(self) -> None:
        """Let a run whose result was received come to its end by itself; otherwise do nothing."""
        finish(self.answer.settle())

    def close(self) -> None:
        """Stop the run if it goes on, and close the stream's descriptors; may be called again."""
        finish(self.answer.close())
