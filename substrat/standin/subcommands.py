"""The texts of `--version` and `--help`, and the refusal of subcommands."""

from __future__ import annotations

from substrat.standin import flags, stream
from substrat.standin.errors import RefusalError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from substrat.standin.flags import ParsedFlags

VERSION = "2026.10.01-standin"


def run(arguments: ParsedFlags) -> None:
    """Print the version or the help.

    Raises:
        RefusalError: A subcommand is asked for.
    """
    if arguments.has("version"):
        _say(f"{VERSION} (a scripted stand-in for cursor-agent, not Cursor's program)")
    elif arguments.has("help"):
        _say(_help())
    else:
        raise RefusalError(f"Error: the subcommand {arguments.command} is not part of the stand-in")


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
