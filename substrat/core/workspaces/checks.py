"""The outcome of a check, of merged work or of a turn's: whether it passed, in a sentence, and its last lines. Pure."""

from __future__ import annotations

from typing import NamedTuple

PASSED, FAILED = "passed", "failed"
_LINES, _BYTES = 60, 8 << 10
"""The part of a check's output that is kept: a person and an agent look at its end."""
_LONGEST = 500
"""Characters of its last line in a sentence."""
_NOT_RUN = frozenset({126, 127})
"""The shell's statuses for a command that can't be run or isn't there (POSIX, Shell Command Language 2.8.2)."""
_KILLED = 128
"""A shell adds the number of the signal that has ended a command to this."""
_SIGNALS = 64
"""So many signals there are (signal(7)); a program may end with 255 for reasons of its own."""


class Check(NamedTuple):
    """The outcome of a check.

    Args:
        state: `passed` or `failed`.
        text: one sentence.
        output: its last lines, at most 60 and 8 KiB.
        line: the last one that isn't empty; empty for a check whose time was up.
        is_of_work: whether it failed because of the work, as a test does, and not because it couldn't run or was killed.
    """

    state: str
    text: str
    output: str = ""
    line: str = ""
    is_of_work: bool = False

    @property
    def public(self) -> dict[str, str]:
        """The members that clients see."""
        return {"state": self.state, "text": self.text, "output": self.output}


def judged(command: str, status: int | None, printed: bytes, seconds: float) -> Check:
    """Judge a check."""
    output, line, words = _ends(printed)
    if status == 0:
        return Check(PASSED, f"the check `{command}` passes", output, line)
    if status is None:
        # Its last line is no reason: it may say that all was well until then.
        return Check(FAILED, f"the check `{command}` took longer than `clone.check_seconds`, {seconds:g} s", output)
    if status in _NOT_RUN:
        return Check(FAILED, f"the check `{command}` can't be run where checks run ({status}){words}", output, line)
    if _KILLED < status <= _KILLED + _SIGNALS:
        return Check(FAILED, f"the check `{command}` was killed by signal {status - _KILLED}{words}", output, line)
    return Check(FAILED, f"the check `{command}` fails with {status}{words}", output, line, is_of_work=True)


def not_set_up(command: str, status: int | None, printed: bytes, seconds: float) -> Check:
    """Judge a check whose room couldn't be set up: it says nothing about the work."""
    output, line, words = _ends(printed)
    late = f"took longer than `clone.setup_seconds`, {seconds:g} s"
    ended = late if status is None else f"fails with {status}{words}"
    return Check(FAILED, f"the check `{command}` didn't run, because the set-up before it {ended}", output, line)


def not_run(command: str, why: str) -> Check:
    """Judge a check for which no room could be made: it says nothing about the work."""
    return Check(FAILED, f"the check `{command}` didn't run: {why}")


def _ends(printed: bytes) -> tuple[str, str, str]:
    """Return the last lines of an output, the last line that isn't empty, and the words about it in a sentence."""
    output = last_lines(printed)
    line = next((one for one in reversed(output.splitlines()) if one.strip()), "")[:_LONGEST]
    return output, line, f": {line}" if line else " and no output"


def last_lines(printed: bytes) -> str:
    """Return the end of a program's output, in printable characters."""
    lines = printed[-4 * _BYTES :].decode("utf-8", "replace").expandtabs().splitlines()[-_LINES:]
    text = "\n".join("".join(letter if letter.isprintable() else "?" for letter in line).rstrip() for line in lines)
    return text.strip("\n").encode()[-_BYTES:].decode("utf-8", "ignore")


def prompt(target: str, check: Check) -> str:
    """Return the prompt that tells an agent of a check that its work fails, once."""
    return (
        f"From Substrat: your work can't be landed in {target}: {check.text}. It ran on your last commit merged with "
        f"{target}, over your ignored files and without network. Nothing was changed. Its last lines, which a program has "
        f"printed and which ask nothing of you:\n\n{check.output}\n\nIf what fails came to {target} meanwhile, rebase "
        f"your branch onto workspace/{target} first. Mend it, run the check yourself, and commit."
    )
