"""The actions of the script by name, and the simplest of them; every line of a prompt ends in one of these."""

from __future__ import annotations

import os
import signal
import sys

from substrat.standin import processes, recorded, shells, tools
from substrat.standin.errors import LeaveError, MalformedActionError
from substrat.standin.script import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from substrat.standin.script import PromptLine
    from substrat.standin.turn import TurnContext

# The real one ends after about five idle minutes.
_WORKER = "import time; time.sleep(300)"


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


def do(turn: TurnContext, text: str) -> None:
    """`/do PATH`: the lines of a file, as if they stood here, so that a command can decide what comes next."""
    try:
        with open(turn.path(text), encoding="utf-8") as file:
            lines = file.read()
    except OSError as problem:
        raise MalformedActionError(f"{text} can't be read: {problem.strerror}") from None
    perform(turn, parse(lines, ACTIONS))


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
    recorded.say_on_stderr(text)


def leave(_turn: TurnContext, text: str) -> None:
    """`/exit CODE`: end at once without a result."""
    if not text.strip().isdecimal() or int(text) > 255:
        raise MalformedActionError("CODE must be a number from 0 to 255")
    raise LeaveError(int(text))


def hang(turn: TurnContext, _text: str) -> None:
    """`/hang`: print the result and never exit."""
    turn.finish()
    turn.reactor.run_until(lambda: False)


def garbage(turn: TurnContext, text: str) -> None:
    """`/garbage [TEXT]`: a line that is no JSON and one that is no UTF-8, on stdout."""
    line(turn, text or "Using worktree: /nowhere")
    turn.stream.raw(b'{"type":"\xff\xfe"\n')


def line(turn: TurnContext, text: str) -> None:
    """`/line TEXT`: a line of stdout that is exactly TEXT, as another build might print it."""
    turn.stream.raw(text.encode("utf-8", "replace") + b"\n")


def worker(turn: TurnContext, _text: str) -> None:
    """`/worker`: leave a detached `worker-server` behind, which outlives this process by up to five minutes."""
    path = os.path.join(turn.places.project, "worker.log")
    log = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    argv = (sys.executable, "-I", "-S", "-c", _WORKER, "cursor-agent-standin", "worker-server", turn.workspace)
    try:
        processes.spawn(argv, turn.environ, "/", (null, log, log), new_session=True)
    finally:
        os.close(log)
        os.close(null)


def ignore_signals(_turn: TurnContext, _text: str) -> None:
    """`/ignore-signals`: SIGINT and SIGTERM do nothing from here on, as in a process that is stuck."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _script(name: str) -> Callable[[TurnContext, str], None]:
    def perform(turn: TurnContext, text: str) -> None:
        recorded.play(turn, name, text)

    perform.__doc__ = recorded.table("scripts")[name][0]
    return perform


ACTIONS: dict[str, Callable[[TurnContext, str], None]] = {
    "say": say,
    "do": do,
    "think": think,
    "shell": shells.shell,
    "write": tools.write,
    "tool": tools.tool,
    "sleep": sleep,
    "emit": emit,
    "recall": recall,
    "stderr": stderr,
    "exit": leave,
    "hang": hang,
    "fail": recorded.fail,
    "background": shells.background,
    "parallel": shells.parallel,
    "tool-twice": tools.tool_twice,
    "tool-timeout": tools.tool_timeout,
    "background-timeout": tools.background_timeout,
    "show": recorded.show,
    "garbage": garbage,
    "line": line,
    "worker": worker,
    "ignore-signals": ignore_signals,
    **{name: _script(name) for name in recorded.table("scripts")},
}


def help_lines() -> list[str]:
    """The script's actions, one a line."""
    texts = [(perform.__doc__ or "").partition("\n")[0] for perform in ACTIONS.values()]
    return ["  " + text.replace("`", "") for text in texts]
