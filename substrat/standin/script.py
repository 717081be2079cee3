"""Turns a prompt into the steps to perform; pure text work, it performs nothing."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection
    from typing import Final


class PromptLine:
    """One line of the prompt.

    Args:
        action: The action's name without its slash; `say` for a line that is to be spoken back.
        text: The text after the name.
        line: The whole line, for messages about it.
    """

    def __init__(self, action: str, text: str, line: str) -> None:
        self.action: Final = action
        self.text: Final = text
        self.line: Final = line


def parse(prompt: str, actions: Collection[str]) -> tuple[PromptLine, ...]:
    """The steps of a prompt, in order.

    A line that starts with `/` and a name among `actions` is that action; every other line that is not blank is
    spoken back as it is, also one with an unknown name.
    """
    lines = (line.removesuffix("\r") for line in prompt.split("\n"))
    return tuple(_step(line, actions) for line in lines if line.strip())


def _step(line: str, actions: Collection[str]) -> PromptLine:
    if line.startswith("/"):
        name, _, text = line[1:].partition(" ")
        if name in actions:
            return PromptLine(name, text, line)
    return PromptLine("say", line, line)
