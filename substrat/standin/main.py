"""The stand-in's way in: one command line becomes one turn, or a failure; `actions` performs a turn.

The order of visible acts is the contract: failures before the session leave stdout empty, the first line is out
before databases and servers are opened, and the turn is on disk before its result is out.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import sys

from substrat.standin import flags, ids, models, places, recorded, script, stream
from substrat.standin.errors import LeaveError, RefusalError, StopHandler, StopSignal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from substrat.standin.flags import ParsedFlags
    from substrat.standin.store import OpenChat
    from substrat.standin.stream import Stream
    from substrat.standin.turn import TurnContext

# Linux refuses a longer argument; one that is passed from inside Python is refused here.
_LONGEST_ARGUMENT = 128 * 1024
# Above this the real program ends with status 0 and prints nothing at all.
_LONGEST_COMMAND_LINE = 465 * 1000


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; returns its exit status.

    Args:
        argv: The command line without the program's name; that of the process if it is left out.
    """
    stop = StopHandler()
    signal.signal(signal.SIGINT, stop)
    signal.signal(signal.SIGTERM, stop)
    try:
        _open_standard_descriptors()
        return _run(sys.argv[1:] if argv is None else argv, os.environ, stop)
    except flags.BadCommandLine as error:
        _complain(str(error))
        return 1
    except RefusalError as error:
        _complain(error.text)
        return error.code
    except LeaveError as error:
        return error.code
    except BrokenPipeError:
        return 1  # the reader is gone
    except OSError as error:
        _complain(f"Error: {error}")
        return 1
    except StopSignal as request:
        if request.number == signal.SIGINT:
            _complain("Aborting operation...")
        return 128 + request.number


def _open_standard_descriptors() -> None:
    """Put /dev/null where stdin, stdout or stderr was closed, or the next file that is opened would take its place."""
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


def _complain(text: str) -> None:
    try:
        stream.write_all(2, text.encode("utf-8", "replace") + b"\n")
    except OSError:
        return  # stderr is closed or full; the exit status still tells


def _run(argv: Sequence[str], environ: Mapping[str, str], stop: StopHandler) -> int:
    sizes = [len(os.fsencode(argument)) + 1 for argument in argv]
    if sum(sizes) >= _LONGEST_COMMAND_LINE:
        return 0
    if max(sizes, default=0) > _LONGEST_ARGUMENT:
        raise RefusalError("Error: Argument list too long")
    arguments = flags.parse(argv)
    # Everything but a run of a prompt is rare and not worth its import.
    if arguments.command or arguments.has("version") or arguments.has("help"):
        from substrat.standin import subcommands

        subcommands.run(arguments)
        return 0
    plan = CheckedRun(arguments, environ)
    from substrat.standin import store

    chat = store.OpenChat(os.path.join(plan.places.chats, plan.chat_id), plan.places.workspace)
    try:
        _perform(plan, chat, stop)
        if arguments.words:
            _wait_for_stdin()
    finally:
        chat.close()
    return 0


class CheckedRun:
    """A run of a prompt, which refuses the requests that the real program refuses before it prints anything.

    Args:
        arguments: The command line.
        environ: The process's environment.

    Raises:
        RefusalError: The run fails.
        LeaveError: It fails without a word.
    """

    def __init__(self, arguments: ParsedFlags, environ: Mapping[str, str]) -> None:
        self.arguments: Final = arguments
        self.environ: Final = environ
        _check_mode(arguments)
        self.places: Final = places.Places(environ, _workspace(arguments), arguments.text("data-dir"))
        trusted = any(arguments.has(key) for key in ("trust", "force", "yolo"))
        places.prepare_project(self.places, trusted=trusted)
        recorded.check((), self.places, "", environ.get("STANDIN_FAIL", ""))
        if not trusted:
            raise recorded.refusal("trust", workspace=self.places.workspace)
        model = arguments.text("model", models.DEFAULT_MODEL)
        if not models.is_known(model):
            raise recorded.refusal("model", model=model)
        self.chat_id: Final = _choose_chat(arguments)
        self.prompt: Final = _read_prompt(arguments)
        recorded.check(script.parse(self.prompt, ("fail",)), self.places, self.chat_id, "")
        self.settings: Final = places.CliConfig(self.places)


def _check_mode(arguments: ParsedFlags) -> None:
    if not arguments.has("print") and os.isatty(0) and os.isatty(1):
        raise RefusalError("Error: the stand-in has no interactive mode; pass --print")
    for key in flags.REFUSED:
        if arguments.has(key):
            raise RefusalError(f"Error: --{key} is not part of the stand-in")
    seconds = arguments.text("background-shell-timeout", "0")
    if not seconds.replace(".", "", 1).isdecimal():
        raise RefusalError(f"Error: --background-shell-timeout is not a number: {seconds}")


def _workspace(arguments: ParsedFlags) -> str:
    """The physical path of the workspace, which decides where everything is kept."""
    path = os.path.realpath(arguments.text("workspace", "."))
    if not os.path.isdir(path):
        raise RefusalError(f"Error: the workspace {path} is not a directory")
    return path


def _choose_chat(arguments: ParsedFlags) -> str:
    """The id of the chat to continue or to begin; an unknown id begins a chat."""
    if not arguments.has("resume"):
        return ids.new_uuid()
    chat_id = arguments.text("resume")
    if not ids.is_uuid(chat_id):
        raise recorded.refusal("chat-id", short=chat_id)
    return chat_id


def _read_prompt(arguments: ParsedFlags) -> str:
    """The words of the command line, or stdin to its end."""
    if arguments.words:
        data = os.fsencode(" ".join(arguments.words))
    elif os.isatty(0):
        data = b""
    else:
        chunks = []
        while chunk := _read_stdin():
            chunks.append(chunk)
        data = b"".join(chunks)
    prompt = data.decode("utf-8", "replace")
    if not prompt.strip():
        raise RefusalError("Error: No prompt provided for print mode")
    return prompt


def _read_stdin() -> bytes:
    while True:
        try:
            return os.read(0, 1 << 20)
        except BlockingIOError:
            poll = select.poll()
            poll.register(0, select.POLLIN)
            poll.poll()


def _wait_for_stdin() -> None:
    """A prompt in the command line and a stdin that somebody holds open: the real program never exits either."""
    mode = os.fstat(0).st_mode
    if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
        while _read_stdin():
            pass


def _perform(plan: CheckedRun, chat: OpenChat, stop: StopHandler) -> None:
    """Show the turn's beginning, perform its script and end it."""
    given = plan.arguments
    model = plan.settings.remember_model(given.text("model"))
    output = stream.Stream(
        1,
        given.text("output-format", "text"),
        partial=given.has("stream-partial-output"),
        session_id=chat.id,
        two_part_ids=models.has_two_part_call_ids(model),
    )
    output.init(plan.places.workspace, models.display_name(model))
    output.user(plan.prompt)
    from substrat.standin import actions

    turn = _open_turn(plan, chat, output, model, stop)
    refused_by_the_server = ("system-prompt", "exclude-workspace-context")
    asked_for = [plan.environ.get("STANDIN_FAIL", ""), *(key for key in refused_by_the_server if given.has(key))]
    failing = [script.PromptLine("fail", name, f"/fail {name}") for name in asked_for if name]
    actions.perform(turn, (*failing, *script.parse(plan.prompt, actions.ACTIONS)))
    turn.finish()
    turn.servers.stop()


def _open_turn(plan: CheckedRun, chat: OpenChat, output: Stream, model: str, stop: StopHandler) -> TurnContext:
    """Everything the actions use; the servers connect while the script already runs."""
    from substrat.standin import mcp, mcpconfig, reactor, turn

    given = plan.arguments
    chat.open(given.text("name"), model)
    loop = reactor.Reactor(stop.check)
    warn = places.logger(plan.places)
    configs = mcpconfig.find(plan.places, plan.environ, approved=given.has("approve-mcps"), warn=warn)
    servers = mcp.Servers(configs, loop, warn)
    servers.start(plan.environ)
    return turn.TurnContext(plan, output, chat, reactor=loop, servers=servers)


if __name__ == "__main__":
    sys.exit(main())
