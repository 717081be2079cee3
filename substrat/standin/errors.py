"""The ways a run ends early, as exceptions; what each one prints and returns is decided in `main`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final


class RefusalError(Exception):
    """The run fails: a sentence goes to stderr, and no result is printed.

    Args:
        text: What stderr shows, without the final newline.
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
