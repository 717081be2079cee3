"""The ways a run ends early, as exceptions, and the signals that raise one; `main` prints them and returns their status."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Final


class RefusalError(Exception):
    """The run fails: a sentence goes to stderr, and no result is printed.

    Args:
        text: The text on stderr, without the final newline.
        code: The exit status.
    """

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.text: Final = text
        self.code: Final = code


class LeaveError(Exception):
    """The script asks for the end of the process, at once and without a result."""

    def __init__(self, code: int) -> None:
        super().__init__(f"exit {code}")
        self.code: Final = code


class MalformedActionError(Exception):
    """A known action was written with arguments that it cannot use; nothing was done."""


class StopSignal(BaseException):
    """SIGINT or SIGTERM arrived. Not an `Exception`, so that no handler of errors takes it for one."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number: Final = number


class StopHandler:
    """The handler of SIGINT and SIGTERM: the first one ends the run, wherever that is.

    Python drops an exception that is raised inside some callbacks (those of an import among them), so code that is about to
    wait asks again with `check`.
    """

    def __init__(self) -> None:
        self._number: int | None = None

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        """Handle the signal.

        Raises:
            StopSignal: Always.
        """
        # The first request decides; a second one must not break into the cleaning up.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        self._number = number
        raise StopSignal(number)

    def check(self) -> None:
        """Say a request again that was dropped.

        Raises:
            StopSignal: There was one.
        """
        if self._number is not None:
            raise StopSignal(self._number)
