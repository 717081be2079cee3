"""The entry point of `substratctl`: finds the verb, imports its file, turns failures into one line and a status."""

from __future__ import annotations

import importlib
import os
import sys

from substrat import __version__, errors
from substrat.cli import alike, options, output
from substrat.cli.table import COMMAND_NAME, VERBS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# The status that a shell reports for a program that SIGINT or SIGPIPE ended: 128 and the signal's number.
INTERRUPTED = 130
PIPE_CLOSED = 141


def main(line: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        line: the arguments; by default the process's own.

    Returns:
        The exit status.
    """
    _tolerate_any_text()
    try:
        status = _run(list(sys.argv[1:] if line is None else line))
        sys.stdout.flush()
    except KeyboardInterrupt:
        _give_up_output()
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_output()
        return PIPE_CLOSED
    except OSError as problem:
        _give_up_output()
        where = f" {problem.filename}" if problem.filename else " standard output"
        return output.complain(errors.SubstratError(f"can't use{where}: {problem.strerror or problem}"))
    return status


def _run(line: list[str]) -> int:
    try:
        _check_encoding(line)
        verb, rest = _find_verb(line)
        if verb is None:
            return 0
        module = importlib.import_module(f"substrat.cli.verbs.{verb}")
        arguments = options.parse(module.COMMAND, rest)
        if arguments.flag("help"):
            sys.stdout.write(options.help_text(module.COMMAND))
            return 0
        if arguments.flag("version"):
            return _show_version()
        return int(module.run(arguments))
    except errors.SubstratError as problem:
        return output.complain(alike.hinted(problem))


def _find_verb(line: list[str]) -> tuple[str | None, list[str]]:
    """Split a command line into the verb and the rest; without a verb, print the help or the version if asked to."""
    before: list[str] = []
    for position, argument in enumerate(line):
        if argument in options.HELP.names:
            sys.stdout.write(options.overview())
            return None, []
        if argument in options.VERSION.names:
            _show_version()
            return None, []
        if argument in options.JSON.names:
            before.append(argument)
        elif argument.startswith("-"):
            raise errors.UsageError(f"there is no option {argument!r} before the command; see '{COMMAND_NAME} --help'")
        elif argument in VERBS:
            return argument, before + line[position + 1 :]
        else:
            # Imported here because most command lines have no unknown word.
            from substrat.cli import habits

            raise habits.unknown(argument)
    raise errors.UsageError(f"a command is missing; '{COMMAND_NAME} --help' lists them")


def _show_version() -> int:
    sys.stdout.write(f"{COMMAND_NAME} {__version__}\n")
    return 0


def _check_encoding(line: list[str]) -> None:
    for argument in line:
        try:
            argument.encode()
        except UnicodeEncodeError:
            raise errors.UsageError(f"the argument {argument!a} isn't UTF-8; only UTF-8 can be sent") from None


def _tolerate_any_text() -> None:
    """Let text that the locale can't encode come out escaped, and text for a closed stream go nowhere."""
    # Python has no object for a descriptor that was closed by the caller (`>&-`).
    sys.stdout = sys.stdout or os.fdopen(os.open(os.devnull, os.O_RDWR), "w")
    sys.stderr = sys.stderr or os.fdopen(os.open(os.devnull, os.O_RDWR), "w")
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


def _give_up_output() -> None:
    """Point standard output to nowhere, so that the interpreter's last flush has nothing to complain about."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
