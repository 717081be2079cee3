"""`help`: the list of commands, or all about one, as `--help` shows it."""

from __future__ import annotations

import importlib
import sys

from substrat.cli import habits, options
from substrat.cli.options import Arguments, Command
from substrat.cli.table import VERBS

COMMAND = Command("help", "[COMMAND]")


def run(arguments: Arguments) -> int:
    """Print the help and return the exit status."""
    if arguments.json:
        raise COMMAND.wrong("it prints text for people, so there is no --json")
    if not arguments.words:
        sys.stdout.write(options.overview())
        return 0
    verb = arguments.words[0]
    if verb not in VERBS:
        raise habits.unknown(verb)
    sys.stdout.write(options.help_text(importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND))
    return 0
