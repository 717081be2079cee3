"""Parses cursor-agent's command line by a table; other modules act on the flags. Pure.

argparse is not used: its import costs more than the whole parse, and its abbreviations and texts differ from what
the real program (commander) accepts and prints.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Final

    Value = bool | str

FLAG, VALUE, OPTIONAL = "flag", "value", "optional"


class Flag:
    """One option of the table; `names` are in the order commander prints them."""

    def __init__(
        self,
        names: str,
        kind: str,
        metavar: str = "",
        *,
        choices: tuple[str, ...] = (),
        text: str = "",
        hidden: bool = False,
    ) -> None:
        self.names: Final = tuple(names.split(", "))
        self.kind: Final = kind
        self.metavar: Final = metavar
        self.choices: Final = choices
        self.text: Final = text
        self.hidden: Final = hidden

    @property
    def key(self) -> str:
        """The long name without dashes, by which the parsed value is found."""
        return next(name for name in self.names if name.startswith("--"))[2:]

    @property
    def usage(self) -> str:
        """The option as help and error texts spell it."""
        return ", ".join(self.names) + (f" {self.metavar}" if self.metavar else "")


# fmt: off
OPTIONS = (
    Flag("-v, --version", FLAG, text="say which stand-in this is"),
    Flag("-h, --help", FLAG, text="this text"),
    Flag("-p, --print", FLAG, text="print the answer and exit; also on when stdin or stdout is no terminal"),
    Flag("--output-format", VALUE, "<format>", choices=("text", "json", "stream-json"), text="default: text"),
    Flag("--stream-partial-output", FLAG, text="assistant text in small pieces, with stream-json"),
    Flag("--resume", OPTIONAL, "[chatId]", text="continue a chat of this workspace"),
    Flag("--continue", FLAG, text="refused"),
    Flag("--model", VALUE, "<model>", text="the model's name; remembered in cli-config.json"),
    Flag("--list-models", FLAG, text="refused"),
    Flag("--mode", VALUE, "<mode>", choices=("plan", "ask"), text="refuse to change anything"),
    Flag("--plan", FLAG, text="the same as --mode plan"),
    Flag("-f, --force", FLAG, text="perform everything that is not denied; also trusts the workspace"),
    Flag("--yolo", FLAG, text="the same as --force"),
    Flag("--auto-review", FLAG, text="accepted, without effect"),
    Flag("--trust", FLAG, text="trust the workspace, in print mode"),
    Flag("--sandbox", VALUE, "<mode>", choices=("enabled", "disabled"), text="accepted, without effect"),
    Flag("--approve-mcps", FLAG, text="use the MCP servers of the project's .cursor/mcp.json"),
    Flag("--workspace", VALUE, "<path>", text="the directory to work in; default: the current one"),
    Flag("--add-dir", VALUE, "<path>", text="accepted, without effect"),
    Flag("--plugin-dir", VALUE, "<path>", text="accepted, without effect"),
    Flag("-w, --worktree", OPTIONAL, "[name]", text="refused"),
    Flag("--worktree-base", VALUE, "<branch>", text="accepted, without effect"),
    Flag("--skip-worktree-setup", FLAG, text="accepted, without effect"),
    Flag("-n, --name", VALUE, "<name>", text="the chat's name"),
    Flag("-c, --cloud", FLAG, text="refused"),
    Flag("--api-key", VALUE, "<key>", text="accepted, never sent anywhere"),
    Flag("--auth-token", VALUE, "<token>", text="accepted, never sent anywhere"),
    Flag("-H, --header", VALUE, "<header>", text="accepted, never sent anywhere"),
    Flag("-e, --endpoint", VALUE, "<url>", text="accepted, never contacted"),
    Flag("-k, --insecure", FLAG, text="accepted, without effect"),
    Flag("--allowed-tools", VALUE, "<tools>", hidden=True),
    Flag("--exclude-tools", VALUE, "<tools>", hidden=True),
    Flag("--new-session-id", VALUE, "<uuid>", hidden=True),
    Flag("--single-turn", FLAG, hidden=True),
    Flag("--background-shell-timeout", VALUE, "<seconds>", hidden=True),
    Flag("--show-thinking", FLAG, hidden=True),
    Flag("--data-dir", VALUE, "<path>", hidden=True),
    Flag("--printenv", FLAG, hidden=True),
    Flag("--harness", VALUE, "<name>", hidden=True),
    Flag("--conversation-history-file", VALUE, "<path>", hidden=True),
    Flag("--system-prompt", VALUE, "<text>", hidden=True),
    Flag("--exclude-workspace-context", FLAG, hidden=True),
    Flag("--disable-auto-update", FLAG, hidden=True),
    # Options of subcommands; commander would refuse them elsewhere, which no caller is known to rely on.
    Flag("--format", VALUE, "<format>", choices=("text", "json"), hidden=True),
)
# fmt: on

# The options that the stand-in doesn't perform, though without them a run would be another one.
REFUSED = ("cloud", "continue", "list-models", "new-session-id", "worktree")
# The names that begin a subcommand instead of a prompt; the stand-in has none of them.
COMMANDS = (
    "status", "models", "about",
    "create-chat", "ls", "resume", "whoami", "login", "logout", "mcp", "update", "acp", "persist", "sandbox",
    "worker", "generate-rule", "install-shell-integration",
)  # fmt: skip

_BY_NAME = {name: option for option in OPTIONS for name in option.names}


class BadCommandLine(Exception):
    """The command line is not one of cursor-agent's; the text is commander's."""


class ParsedFlags:
    """A parsed command line.

    Args:
        values: The values given, by the option's key.
        words: The positional words, those after `--` included.
        command: The first word if it names a subcommand, which no word after `--` does; else nothing.
    """

    def __init__(self, values: dict[str, Value], words: tuple[str, ...], command: str) -> None:
        self._values: Final = values
        self.words: Final = words
        self.command: Final = command

    def has(self, key: str) -> bool:
        """Whether the option was given."""
        return key in self._values

    def text(self, key: str, default: str = "") -> str:
        """The value of an option that takes one; an option with an optional value may give the default."""
        value = self._values.get(key, default)
        return value if isinstance(value, str) else default


def parse(argv: Sequence[str]) -> ParsedFlags:
    """Read a command line.

    Raises:
        BadCommandLine: An option is unknown, lacks its value or has one that is not allowed.
    """
    values: dict[str, Value] = {}
    words: list[str] = []
    literal: list[str] = []
    rest = list(argv)
    while rest:
        given = rest.pop(0)
        if given == "--":
            literal = rest
            break
        if given == "-" or not given.startswith("-"):
            words.append(given)
            continue
        for name, attached in _split(given):
            _take(name, attached, rest, values)
    is_command = bool(words) and words[0] in COMMANDS
    return ParsedFlags(values, (*words, *literal), words[0] if is_command else "")


def _split(given: str) -> Iterator[tuple[str, str | None]]:
    """`--name=value`, `-xvalue` and `-xyz` as names, each with the value that is attached to it, if any."""
    if given.startswith("--"):
        name, equals, value = given.partition("=")
        yield name, value if equals else None
        return
    letters = given[1:]
    while letters:
        name, letters = "-" + letters[0], letters[1:]
        option = _BY_NAME.get(name)
        if option is None:
            raise BadCommandLine(f"error: unknown option '{given}'")
        if option.kind != FLAG and letters:
            yield name, letters
            return
        yield name, None


def _take(name: str, attached: str | None, rest: list[str], values: dict[str, Value]) -> None:
    option = _BY_NAME.get(name)
    if option is None:
        raise BadCommandLine(f"error: unknown option '{name}'")
    if option.kind == FLAG:
        values[option.key] = True
        return
    if attached is None and rest and (option.kind != OPTIONAL or not rest[0].startswith("-")):
        attached = rest.pop(0)
    if attached is None:
        if option.kind != OPTIONAL:
            raise BadCommandLine(f"error: option '{option.usage}' argument missing")
        values[option.key] = True
        return
    if option.choices and attached not in option.choices:
        allowed = ", ".join(option.choices)
        raise BadCommandLine(
            f"error: option '{option.usage}' argument '{attached}' is invalid. Allowed choices are {allowed}."
        )
    values[option.key] = attached


def help_lines() -> list[str]:
    """The options that help shows, one a line."""
    return [f"  {option.usage:<34} {option.text}" for option in OPTIONS if not option.hidden]
