"""The actions of the script by name, and the simplest of them; every line of a prompt ends in one of these."""

from __future__ import annotations

from substrat.standin import failures, oddities, samples, shells, tools
from substrat.standin.errors import LeaveError, MalformedActionError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.standin.script import PromptLine
    from substrat.standin.turn import TurnContext


def perform(turn: TurnContext, steps: Sequence[PromptLine]) -> None:
    """Perform a script in order.

    Raises:
        RefusalError: A step fails the run.
        LeaveError: A step ends the process.
    """
    for step in steps:
        try:
            ACTIONS[step.action](turn, step.text)
        except MalformedActionError as error:
            turn.stream.speak(f"{step.line} (not performed: {error})")


def say(turn: TurnContext, text: str) -> None:
    """`/say TEXT`: assistant text, like every line that is no action."""
    turn.stream.speak(text)


def think(turn: TurnContext, text: str) -> None:
    """`/think TEXT`: thinking."""
    turn.stream.think(text)


def sleep(turn: TurnContext, text: str) -> None:
    """`/sleep SECONDS`: say nothing for that long."""
    turn.reactor.sleep(tools.seconds(text))


def emit(turn: TurnContext, text: str) -> None:
    """`/emit COUNT BYTES`: write COUNT assistant deltas of BYTES each."""
    words = text.split()
    if len(words) != 2 or not all(word.isdecimal() for word in words):
        raise MalformedActionError("COUNT and BYTES must be whole numbers")
    count, size = map(int, words)
    # A recognisable text rather than one letter, so that a lost or doubled piece can be seen.
    turn.stream.emit(("0123456789" * (size // 10 + 1))[:size], count)


def recall(turn: TurnContext, _text: str) -> None:
    """`/recall`: say how many earlier turns the chat holds and their prompts, one a line."""
    prompts = turn.chat.prompts()
    noun = "turn" if len(prompts) == 1 else "turns"
    lines = [f"{number}. {prompt.replace(chr(10), ' ⏎ ')}" for number, prompt in enumerate(prompts, 1)]
    turn.stream.speak("\n".join([f"I remember {len(prompts)} earlier {noun}{':' if prompts else '.'}", *lines]))


def stderr(_turn: TurnContext, text: str) -> None:
    """`/stderr TEXT`: a line on stderr."""
    oddities.say_on_stderr(text)


def leave(_turn: TurnContext, text: str) -> None:
    """`/exit CODE`: end at once without a result."""
    if not text.strip().isdecimal() or int(text) > 255:
        raise MalformedActionError("CODE must be a number from 0 to 255")
    raise LeaveError(int(text))


def hang(turn: TurnContext, _text: str) -> None:
    """`/hang`: print the result and never exit."""
    turn.finish()
    turn.reactor.run_until(lambda: False)


ACTIONS: dict[str, Callable[[TurnContext, str], None]] = {
    "say": say,
    "think": think,
    "shell": shells.shell,
    "read": tools.read,
    "write": tools.write,
    "tool": tools.tool,
    "sleep": sleep,
    "emit": emit,
    "recall": recall,
    "stderr": stderr,
    "exit": leave,
    "hang": hang,
    "fail": failures.fail,
    "background": shells.background,
    "parallel": shells.parallel,
    "tool-twice": tools.tool_twice,
    "tool-timeout": tools.tool_timeout,
    "background-timeout": tools.background_timeout,
    "show": samples.show,
    "web": oddities.web,
    "ask": oddities.ask,
    "plan": oddities.plan,
    "completed-without-started": oddities.completed_without_started,
    "reconnect": oddities.reconnect,
    "new-events": oddities.new_events,
    "garbage": oddities.garbage,
    "line": oddities.line,
    "long-line": oddities.long_line,
    "worker": oddities.worker,
    "ignore-signals": oddities.ignore_signals,
}


def help_lines() -> list[str]:
    """The script's actions, one a line."""
    texts = [(perform.__doc__ or "").partition("\n")[0] for perform in ACTIONS.values()]
    return ["  " + text.replace("`", "") for text in texts]
