"""Describes verbs' command lines as data, parses command lines by it, and makes the help text from it.

Not argparse, for two reasons. Options may stand anywhere between the words (`spawn NAME -w DIR PROMPT`), and a prompt
after `--` must be left alone; argparse's intermixed mode gets one of the two wrong, differently in each Python. And
completion scripts, help and parser come from one description. The rules are getopt's.
"""

from __future__ import annotations

from substrat import errors
from substrat.cli.table import COMMAND_NAME, VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

_HELP_COLUMN = 28  # where the options' descriptions begin: wide enough for most options with their values
_ALIKE = 0.72
"""From this likeness on a known word is suggested: for `spwan` it is 0.8, for `login` and `logs` 0.67."""
_RENAMED = {"--worktree": "--clone"}
"""Options' names of before, and those of now."""
_HELP_WIDTH = 80
"""A terminal of 80 columns breaks no line of the help."""


class Option:
    """One option of a verb.

    Args:
        names: its spellings, the long one first.
        about: its effect, for the help text.
        value: its value's name in the help text, for example `DIR`; None for an option without a value.
        choices: the values it may have; empty: any.
        is_optional: whether the value may be left out; it stands behind `=` then, for example `--clone=fix`.
    """

    __slots__ = ("about", "choices", "is_optional", "key", "names", "value")

    def __init__(
        self,
        *names: str,
        about: str,
        value: str | None = None,
        choices: Sequence[str] = (),
        is_optional: bool = False,
    ) -> None:
        self.names = names
        self.key = names[0].lstrip("-")
        self.about = about
        self.value = value
        self.choices = choices
        self.is_optional = is_optional

    @property
    def value_text(self) -> str:
        """The value as the help shows it behind the option's names: ` DIR`, `[=BRANCH]`, or nothing."""
        if not self.value:
            return ""
        return f"[={self.value}]" if self.is_optional else f" {self.value}"


JSON = Option("--json", about="one JSON document on standard output (one object a line for streams)")
HELP = Option("--help", "-h", about="show this text")
VERSION = Option("--version", about="show the version of this program")
COMMON = (JSON, HELP, VERSION)
WAIT = Option("--wait", about="wait for the turn; the exit status is its verdict (0, 5, 6: it needs you, 124: --timeout)")
TIMEOUT = Option("--timeout", value="S", about="with --wait: give up waiting after S seconds; the turn goes on")


class Command:
    """The description of a verb: its arguments, its options and its help; `VERBS` has the line about it.

    Args:
        name: the verb.
        words: its arguments without a dash as the help text spells them, such as `NAME [PROMPT]`: one or two words.
        options: its own options; the common ones are added.
        notes: more paragraphs for the help text, one a line.
    """

    __slots__ = ("least", "most", "name", "notes", "options", "words")

    def __init__(self, name: str, words: str = "", options: Iterable[Option] = (), notes: str = "") -> None:
        self.name = name
        self.words = words
        self.least = _least(words)
        self.most = None if "..." in words else len(words.split())
        self.options = (*options, *COMMON)
        self.notes = notes

    @property
    def about(self) -> str:
        """One line about it."""
        return VERBS[self.name]

    def wrong(self, why: str) -> errors.UsageError:
        """Make the error for a command line that this verb can't use, with the reason and the way to the help."""
        return errors.UsageError(f"{self.name}: {why} (see '{COMMAND_NAME} {self.name} --help')")

    def seconds(self, name: str, given: str) -> float:
        """Read a number of seconds that was given under a name.

        Raises:
            UsageError: it isn't one.
        """
        try:
            number = float(given)
        except ValueError:
            number = -1.0
        if not 0 <= number < 1e9:
            raise self.wrong(f"{name} must be a number of seconds, not {given!r}")
        return number

    def whole(self, name: str, given: str) -> int:
        """Read an integer that was given under a name.

        Raises:
            UsageError: it isn't one.
        """
        try:
            return int(given)
        except ValueError:
            raise self.wrong(f"{name} must be a whole number, not {given!r}") from None


class Arguments:
    """A command line that was read.

    Args:
        command: the verb's description.
        words: the arguments without a dash.
        given: the values of each option that was there, by its key.
        verbatim: the words that came after `--`; `-` among them isn't standard input.
    """

    __slots__ = ("_given", "command", "verbatim", "words")

    def __init__(
        self, command: Command, words: list[str], given: dict[str, list[str]], verbatim: Sequence[str] = ()
    ) -> None:
        self.command = command
        self.verbatim = verbatim
        self.words = words
        self._given = given

    @property
    def json(self) -> bool:
        """Whether the output is to be JSON."""
        return self.flag("json")

    def flag(self, key: str) -> bool:
        """Return whether an option was there."""
        return key in self._given

    def value(self, key: str) -> str | None:
        """Return an option's last value, or None when it wasn't there."""
        values = self._given.get(key)
        return values[-1] if values else None

    def values(self, key: str) -> list[str]:
        """Return all the values an option was given."""
        return self._given.get(key, [])

    def seconds(self, key: str) -> float | None:
        """Return an option's value as a number of seconds.

        Raises:
            UsageError: it isn't one.
        """
        given = self.value(key)
        return None if given is None else self.command.seconds(f"--{key}", given)

    def whole(self, key: str) -> int | None:
        """Return an option's value as an integer.

        Raises:
            UsageError: it isn't one.
        """
        given = self.value(key)
        return None if given is None else self.command.whole(f"--{key}", given)


def _least(words: str) -> int:
    """Count the words that a usage asks for: in brackets, and where an option may stand for them, they may be left out."""
    least = depth = 0
    for word in words.split():
        is_optional = depth or "|--" in word or (word[0] == "[" and word.rstrip(".").endswith("]"))
        depth += word.count("[") - word.count("]")
        least += not (is_optional or depth)
    return least


def parse(command: Command, line: Sequence[str]) -> Arguments:
    """Read a verb's command line.

    Args:
        command: the verb's description.
        line: the arguments.

    Raises:
        UsageError: the line doesn't fit.
    """
    known = {name: option for option in command.options for name in option.names}
    words: list[str] = []
    verbatim: list[str] = []
    given: dict[str, list[str]] = {}
    rest = iter(line)
    for argument in rest:
        if argument == "--":
            verbatim = list(rest)
            words.extend(verbatim)
        elif not _is_option(argument):
            words.append(argument)
        else:
            name, value = _split(argument)
            option = known.get(name)
            if option is None:
                raise command.wrong(_unknown(name, known, command))
            if option.value is not None and value is None and not option.is_optional:
                value = next(rest, None)
            given.setdefault(option.key, []).append(_checked(command, option, value))
    found = Arguments(command, words, given, verbatim)
    if not found.flag("help") and not found.flag("version"):
        _check_words(command, words)
    return found


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` probably stands for, for example `spawn` for `spwan`."""
    import difflib

    bare = {one.lstrip("-"): one for one in known if len(one.lstrip("-")) > 1}
    found = difflib.get_close_matches(word.lstrip("-"), list(bare), n=1, cutoff=_ALIKE)
    return bare[found[0]] if found else None


def help_text(command: Command) -> str:
    """Describe a verb: its usage, its options, its notes."""
    own = [option for option in command.options if option not in COMMON]
    usage = " ".join(part for part in (COMMAND_NAME, command.name, "[options]" if own else "", command.words) if part)
    lines = [f"usage: {usage}", "", f"{command.about[:1].upper()}{command.about[1:]}.", "", "options:"]
    for option in command.options:
        names = ", ".join(reversed(option.names)) + option.value_text
        about = option.about + (f": {', '.join(option.choices)}" if option.choices else "")
        lines += _columns(names, about)
    if command.notes:
        lines += ["", _filled(command.notes)]
    return "\n".join(lines) + "\n"


def overview() -> str:
    """List the commands and the exit statuses."""
    lines = [f"usage: {COMMAND_NAME} [--json] COMMAND ...", "", "commands:"]
    lines += [f"  {verb:<12}{about}" for verb, about in VERBS.items()]
    lines += [
        "",
        f"'{COMMAND_NAME} help COMMAND' or '{COMMAND_NAME} COMMAND --help' says more.",
        "Exit status: 0 done, 1 failed, 2 usage, 3 no daemon, 4 no such thing,",
        "5 the turn failed, 6 it needs you, 124 timed out.",
    ]
    return "\n".join(lines) + "\n"


def _filled(notes: str) -> str:
    """Wrap each line of a verb's notes as a paragraph of its own."""
    import textwrap

    return "\n".join(textwrap.fill(line, _HELP_WIDTH, break_on_hyphens=False) for line in notes.split("\n"))


def _columns(left: str, right: str) -> list[str]:
    import textwrap

    indent = " " * _HELP_COLUMN
    lines = textwrap.wrap(right, _HELP_WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    if len(left) >= _HELP_COLUMN - 3:
        return [f"  {left}", *lines]
    return [f"  {left:<{_HELP_COLUMN - 2}}{lines[0].lstrip()}", *lines[1:]]


def _is_option(argument: str) -> bool:
    # "-" is standard input, and "- buy milk" is a prompt: options' names have no white space.
    name = argument.partition("=")[0]
    return len(argument) > 1 and argument[0] == "-" and not any(letter.isspace() for letter in name)


def _split(argument: str) -> tuple[str, str | None]:
    if argument.startswith("--"):
        name, equals, value = argument.partition("=")
        return name, value if equals else None
    return argument[:2], argument[2:] or None


def _checked(command: Command, option: Option, value: str | None) -> str:
    name = option.names[0]
    if option.value is None:
        if value is not None:
            raise command.wrong(f"{name} takes no value, but got {value!r}")
        return ""
    if value is None and option.is_optional:
        return ""
    if not value:
        raise command.wrong(f"{name} needs a value, {option.value}")
    if option.choices and value not in option.choices:
        raise command.wrong(f"{name} must be one of {', '.join(option.choices)}, not {value!r}")
    return value


def _unknown(name: str, known: Collection[str], command: Command) -> str:
    if (new := _RENAMED.get(name, "")) in known:
        return f"{name} is called {new} now"
    hint = f"; did you mean {close!r}?" if (close := nearest(name, known)) else ""
    if not hint and any(words in command.words for words in ("PROMPT", "COMMAND", "TEXT")):
        hint = "; put '--' before words that begin with a dash"
    return f"there is no option {name!r}{hint}"


def _check_words(command: Command, words: list[str]) -> None:
    if len(words) < command.least:
        raise command.wrong(f"it takes {command.words}, and got {' '.join(words) or 'none'}")
    if command.most is not None and len(words) > command.most:
        takes = f"it takes {command.words}" if command.words else "it takes no arguments"
        quote = "; quote a prompt of several words" if "PROMPT" in command.words else ""
        raise command.wrong(f"{words[command.most]!r} is one argument too many, {takes}{quote}")
