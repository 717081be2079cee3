"""The subcommands that scripts ask cursor-agent for, and the texts of `--version` and `--help`."""

from __future__ import annotations

import json
import os

from substrat.standin import flags, ids, models, stream
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from substrat.standin.flags import ParsedFlags

VERSION = "2026.10.01-standin"
_EMAIL = "standin@example.invalid"
_NO_TERMINAL = """\
ERROR Raw mode is not supported on the current process.stdin, which Ink uses as input stream by default.
Read about how to prevent this error on https://github.com/vadimdemedes/ink/#israwmodesupported"""


def run(arguments: ParsedFlags, environ: Mapping[str, str]) -> None:
    """Perform one of the options that only print something, or else the subcommand.

    Raises:
        RefusalError: The subcommand fails, or is one that the stand-in doesn't have.
    """
    asked = [key for key in _OPTIONS if arguments.has(key)]
    if asked:
        _OPTIONS[asked[0]](arguments, environ)
    elif arguments.command in flags.REFUSED_COMMANDS:
        raise RefusalError(f"Error: the subcommand {arguments.command} is not part of the stand-in")
    else:
        _COMMANDS[arguments.command](arguments, environ)


def _say(text: str) -> None:
    stream.write_all(1, text.encode() + b"\n")


def _version(_arguments: ParsedFlags, _environ: Mapping[str, str]) -> None:
    _say(f"{VERSION} (a scripted stand-in for cursor-agent, not Cursor's program)")


def _help(_arguments: ParsedFlags, _environ: Mapping[str, str]) -> None:
    from substrat.standin import actions, recorded

    lines = [
        "Usage: cursor-agent-standin [options] [command] [prompt...]",
        "",
        "A scripted stand-in for cursor-agent, for demos and tests without an account. It is not Cursor's program and",
        "has no model: it performs the lines of the prompt that start with / and speaks the others back, so also the",
        "quoted lines of a task that it is to go on with, and the answers and messages that others send it.",
        "",
        "Options:",
        *flags.help_lines(),
        "",
        "Commands:",
        f"  {', '.join(flags.COMMANDS)}",
        "",
        "Script (a line of the prompt each):",
        *actions.help_lines(),
        "",
        f"Failures before the session: {', '.join(recorded.table('before'))}",
        f"Failures within it: {', '.join(recorded.table('within'))}",
        f"Tool calls to show: {', '.join(recorded.table('shapes'))}",
        "",
        "STANDIN_FAIL=NAME in the environment fails every run as /fail NAME does.",
    ]
    _say("\n".join(lines))


def _status(arguments: ParsedFlags, environ: Mapping[str, str]) -> None:
    # Exit status 0 in both cases, as the real one.
    logged_in = environ.get("STANDIN_FAIL") != "auth"
    message = f"Logged in as {_EMAIL}" if logged_in else "Not logged in"
    if arguments.text("format") != "json":
        _say(message)
        return
    fields: dict[str, object] = {
        "status": "authenticated" if logged_in else "unauthenticated",
        "isAuthenticated": logged_in,
    }
    fields |= {"hasAccessToken": logged_in, "hasRefreshToken": logged_in}
    if logged_in:
        fields["userInfo"] = {"email": _EMAIL}
    _say(json.dumps(fields | {"message": message}, indent=2))


def _about(arguments: ParsedFlags, environ: Mapping[str, str]) -> None:
    system = os.uname()
    fields = {
        "cliVersion": VERSION,
        "isStandIn": True,
        "model": models.display_name(models.DEFAULT_MODEL),
        "os": f"{system.sysname.lower()} ({system.machine})",
        "shell": os.path.basename(environ.get("SHELL", "")),
        "userEmail": _EMAIL,
    }
    if arguments.text("format") == "json":
        _say(json.dumps(fields, indent=2))
    else:
        _say("\n".join(f"{key:<12} {value}" for key, value in fields.items()))


def _models(_arguments: ParsedFlags, _environ: Mapping[str, str]) -> None:
    _say("\n".join(["Available models", "", *(f"{slug} - {models.display_name(slug)}" for slug in models.CATALOGUE)]))


def _list_chats(_arguments: ParsedFlags, _environ: Mapping[str, str]) -> None:
    raise RefusalError(_NO_TERMINAL)


def _create_chat(_arguments: ParsedFlags, _environ: Mapping[str, str]) -> None:
    """Print an id and never end, writing nothing, as the real one mostly does."""
    import signal

    _say(ids.new_uuid())
    while True:
        signal.pause()


_OPTIONS: dict[str, Callable[[ParsedFlags, Mapping[str, str]], None]] = {
    "version": _version,
    "help": _help,
    "list-models": _models,
}

_COMMANDS: dict[str, Callable[[ParsedFlags, Mapping[str, str]], None]] = {
    "status": _status,
    "whoami": _status,
    "about": _about,
    "models": _models,
    "ls": _list_chats,
    "resume": _list_chats,
    "create-chat": _create_chat,
}
