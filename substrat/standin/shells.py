"""The actions that run shell commands, and how cursor-agent shows them."""

from __future__ import annotations

import os
import re
import time

from substrat.standin import ids, places
from substrat.standin.errors import MalformedActionError
from substrat.standin.processes import ShellCommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.standin.stream import Json, ToolCall
    from substrat.standin.turn import TurnContext

_SEPARATOR = r"\|\||&&|[;|&\n]"
_ENOUGH_FOR_A_TITLE = 60
# More bytes of output than this are kept in a file too; of them the result has the two ends.
_LONG_OUTPUT = 40_000
_SHOWN_AT_EACH_END = 2_000


def shell(turn: TurnContext, text: str) -> None:
    """`/shell COMMAND`: run it with sh in the workspace and show its output and exit code."""
    _run_together(turn, [_required(text)])


def parallel(turn: TurnContext, text: str) -> None:
    """`/parallel COMMAND ;; COMMAND …`: run commands at once, shown interleaved."""
    _run_together(turn, [_required(part) for part in text.split(";;")])


def background(turn: TurnContext, text: str) -> None:
    """`/background COMMAND`: the turn goes on, and its result waits for the command."""
    command = _required(text)
    call = _announce(turn, command, in_background=True)
    if _refuse(turn, call, command):
        return

    def ended() -> None:
        output = started.interleaved.decode("utf-8", "replace")
        places.write_file(os.path.join(turn.places.project, "terminals", f"{shell_id}.txt"), output.encode())
        status = "completed" if started.exit_code == 0 else "failed"
        turn.stream.event("system", "task_notification", {"task_id": task_id, "status": status, "title": _title(command)})
        turn.stream.next_model_call()

    try:
        started = ShellCommand(turn.reactor, command, _environ(turn), turn.workspace, ended)
    except OSError as error:
        call.complete({"spawnError": {"error": str(error)}})
        return
    shell_id = started.pid
    task_id = str(shell_id)
    turn.background.append(started)
    fields = _success(turn, command, started, 0) | {"exitCode": 0, "signal": "", "stdout": "", "stderr": ""}
    fields |= {"interleavedOutput": "", "shellId": shell_id, "pid": started.pid}
    fields["backgroundReason"] = "SHELL_BACKGROUND_REASON_USER_REQUEST"
    terminals = os.path.join(turn.places.project, "terminals")
    call.complete({"success": fields}, beside={"isBackground": True, "terminalsFolder": terminals})
    turn.stream.next_model_call()


def _run_together(turn: TurnContext, commands: list[str]) -> None:
    """Announce all, then run all; each completes when it ends."""
    calls = [(command, _announce(turn, command, in_background=False)) for command in commands]
    running: list[ShellCommand] = []
    for command, call in calls:
        if not _refuse(turn, call, command):
            _start(turn, command, call, running)
    turn.reactor.run_until(lambda: all(command.status is not None for command in running))
    turn.stream.next_model_call()


def _start(turn: TurnContext, text: str, call: ToolCall, running: list[ShellCommand]) -> None:
    began = time.monotonic()

    def ended() -> None:
        milliseconds = int((time.monotonic() - began) * 1000)
        fields = _success(turn, text, command, milliseconds) | _long_output(turn, bytes(command.interleaved))
        arm = "success" if command.exit_code == 0 else "failure"
        call.complete({arm: fields if arm == "success" else fields | {"aborted": False}})

    try:
        command = ShellCommand(turn.reactor, text, _environ(turn), turn.workspace, ended)
    except OSError as error:
        call.complete({"spawnError": {"command": text, "workingDirectory": turn.workspace, "error": str(error)}})
        return
    running.append(command)


def _announce(turn: TurnContext, command: str, *, in_background: bool) -> ToolCall:
    call_id = turn.stream.next_call_id()
    turn.record_tool("Shell", {"command": command})
    args = arguments(turn, command, call_id, in_background=in_background)
    return turn.stream.start_tool(call_id, "shell", args, str(args["description"]))


def _refuse(turn: TurnContext, call: ToolCall, command: str) -> bool:
    if not turn.may_act:
        about: Json = {"command": command, "workingDirectory": turn.workspace, "reason": "", "isReadonly": False}
        call.complete({"rejected": about}, with_args=False)
    return not turn.may_act


def simple_commands(command: str) -> list[list[str]]:
    """A command line's simple commands as words; a rough reading that knows no quotes."""
    return [words for part in re.split(_SEPARATOR, command) if (words := part.split())]


def arguments(turn: TurnContext, command: str, call_id: str, *, in_background: bool) -> Json:
    """The arguments of a shellToolCall."""
    parsed = simple_commands(command)
    return {
        "command": command,
        "workingDirectory": "",
        "timeout": 0 if in_background else 30000,
        "toolCallId": call_id,
        "simpleCommands": [words[0] for words in parsed],
        "hasInputRedirect": "<" in command,
        "hasOutputRedirect": ">" in command,
        "parsingResult": {
            "parsingFailed": False,
            "executableCommands": [
                {
                    "name": name,
                    "args": [{"type": "word", "value": word} for word in rest],
                    "fullText": " ".join((name, *rest)),
                }
                for name, *rest in parsed
            ],
            "hasRedirects": "<" in command or ">" in command,
            "hasCommandSubstitution": "$(" in command or "`" in command,
            "redirects": [],
        },
        "fileOutputThresholdBytes": str(_LONG_OUTPUT),
        "isBackground": in_background,
        "skipApproval": False,
        "timeoutBehavior": "TIMEOUT_BEHAVIOR_BACKGROUND",
        "hardTimeout": 86400000,
        "description": f"Run {_title(command)}",
        "closeStdin": True,
        "conversationId": turn.stream.session_id,
        "adminCommandDenylist": [],
        "requestId": turn.stream.request_id,
    }


def _success(turn: TurnContext, text: str, command: ShellCommand, milliseconds: int) -> Json:
    return {
        "command": text,
        "workingDirectory": turn.workspace,
        "exitCode": command.exit_code,
        "signal": command.signal_name,
        "stdout": command.stdout.decode("utf-8", "replace"),
        "stderr": command.stderr.decode("utf-8", "replace"),
        "executionTime": milliseconds,
        "interleavedOutput": command.interleaved.decode("utf-8", "replace"),
        "localExecutionTimeMs": milliseconds,
    }


def _long_output(turn: TurnContext, output: bytes) -> Json:
    """The further fields of a result whose output is long, which is then in a file."""
    if len(output) <= _LONG_OUTPUT:
        return {}
    path = os.path.join(turn.places.project, "agent-tools", f"{ids.new_uuid()}.txt")
    places.write_file(path, output)
    text = output.decode("utf-8", "replace")
    return {
        "outputLocation": {"filePath": path, "sizeBytes": str(len(output)), "lineCount": str(output.count(b"\n"))},
        "outputHead": text[:_SHOWN_AT_EACH_END],
        "outputTail": text[-_SHOWN_AT_EACH_END:],
        "elidedChars": len(text) - 2 * _SHOWN_AT_EACH_END,
    }


def _environ(turn: TurnContext) -> dict[str, str]:
    own = {"CURSOR_AGENT": "1", "CURSOR_INVOKED_AS": "cursor-agent", "CURSOR_CONVERSATION_ID": turn.chat.id}
    return dict(turn.environ) | own


def _title(command: str) -> str:
    return command if len(command) <= _ENOUGH_FOR_A_TITLE else command[:_ENOUGH_FOR_A_TITLE] + "…"


def _required(text: str) -> str:
    if not text.strip():
        raise MalformedActionError("COMMAND is missing")
    return text.strip()
