"""The subcommands that scripts ask cursor-agent for, and the texts of `--version` and `--help`."""

from __future__ import annotations

import json

from substrat.standin import flags, models, stream
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from substrat.standin.flags import ParsedFlags

VERSION = "2026.10.01-standin"
_EMAIL = "standin@example.invalid"


def run(arguments: ParsedFlags, environ: Mapping[str, str]) -> None:
    """Perform one of the options that only print something, or else the subcommand.

    Raises:
        RefusalError: The subcommand fails, or is one that the stand-in doesn't have.
    """
    asked = next((key for key in ("version", "help", "list-models") if arguments.has(key)), arguments.command)
    as_json = arguments.text("format") == "json"
    if asked == "version":
        _say(f"{VERSION} (a scripted stand-in for cursor-agent, not Cursor's program)")
    elif asked == "help":
        _say(_help())
    elif asked in {"models", "list-models"}:
        _say("\n".join(["Available models", "", *(f"{slug} - {models.display_name(slug)}" for slug in models.CATALOGUE)]))
    elif asked == "status":
        _say(_status(logged_in=environ.get("STANDIN_FAIL") != "auth", as_json=as_json))
    else:
        raise RefusalError(f"Error: the subcommand {asked} is not part of the stand-in")


def _say(text: str) -> None:
    stream.write_all(1, text.encode() + b"\n")


def _help() -> str:
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
    return "\n".join(lines)


def _status(*, logged_in: bool, as_json: bool) -> str:
    # Exit status 0 in both cases, as the real one.
    message = f"Logged in as {_EMAIL}" if logged_in else "Not logged in"
    if not as_json:
        return message
    fields: dict[str, object] = {"status": "authenticated" if logged_in else "unauthenticated"}
    fields |= dict.fromkeys(("isAuthenticated", "hasAccessToken", "hasRefreshToken"), logged_in)
    if logged_in:
        fields["userInfo"] = {"email": _EMAIL}
    return json.dumps(fields | {"message": message}, indent=2)
