"""Makes the man pages `substratctl(1)` and `substratd(8)` from the definitions of the programs' help.

`python -m substrat.manpages man` writes them; a test compares the files with this module's output. Pure but for `main`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from substrat.cli import options
from substrat.cli.table import COMMAND_NAME, VERBS
from substrat.daemon import main as daemon

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_STATUSES = (
    ("0", "done"),
    ("1", "failed"),
    ("2", "the command line is wrong"),
    ("3", "no daemon answers"),
    ("4", "there is no such agent, session or message"),
    ("5", "the turn failed"),
    ("6", "an agent that was waited for needs you: a line says why, and what to type"),
    ("124", "the awaited state or end didn't come in time"),
)
_ENVIRONMENT = (
    ("SUBSTRAT_SOCKET", "the operator socket that substratctl connects to"),
    ("SUBSTRAT_STATE_DIR", "where the daemon keeps agents"),
    ("SUBSTRAT_RUNTIME_DIR", "where its sockets are"),
    ("SUBSTRAT_CONFIG", "its configuration file"),
    ("SUBSTRAT_AGENT_BINARY", "the agent program, a path or a name on PATH"),
)


def substratctl() -> str:
    """Return the page of `substratctl`."""
    commands = [line for verb in VERBS for line in _command(importlib.import_module(f"substrat.cli.verbs.{verb}").COMMAND)]
    return _page("substratctl", "1", "User Commands", "drives the daemon that runs agents in sandboxes", {
        "SYNOPSIS": [f".B {COMMAND_NAME}", r"[\-\-json] COMMAND ..."],
        "DESCRIPTION": [
            _text("Talks to substratd(8): creates agents, sends them prompts, shows their work, stops and resumes them. "
                  "Options may stand anywhere; words after -- are taken as they are.")
        ],
        "COMMANDS": commands,
        "OPTIONS": ["These go with every command.", *_options(options.COMMON)],
        "EXIT STATUS": _terms(_STATUSES),
        "ENVIRONMENT": _terms(_ENVIRONMENT[:1]),
        "SEE ALSO": [".BR substratd (8)"],
    })  # fmt: skip


def substratd() -> str:
    """Return the page of `substratd`."""
    parser = daemon.parser()
    service = _text("It runs in the foreground; `substratctl service install` makes it a systemd user service.")
    return _page("substratd", "8", "System Administration", "runs agents in bubblewrap sandboxes", {
        "SYNOPSIS": [".B substratd", "[OPTION]..."],
        "DESCRIPTION": [_text(parser.description or ""), service],
        "OPTIONS": _arguments(parser),
        "ENVIRONMENT": _terms(_ENVIRONMENT[1:]),
        "SEE ALSO": [".BR substratctl (1)"],
    })  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    """Write both pages into a directory, the one argument."""
    (directory,) = sys.argv[1:] if arguments is None else arguments
    os.makedirs(directory, exist_ok=True)
    for name, text in (("substratctl.1", substratctl()), ("substratd.8", substratd())):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as file:
            file.write(text)
    return 0


def _page(name: str, section: str, manual: str, about: str, sections: Mapping[str, Iterable[str]]) -> str:
    lines = [f'.TH {name.upper()} {section} "" Substrat "{manual}"', ".SH NAME", rf"{name} \- {_text(about)}"]
    for title, body in sections.items():
        lines += [f".SH {title}", *body]
    return "\n".join(lines) + "\n"


def _command(command: options.Command) -> Iterator[str]:
    own = [option for option in command.options if option not in options.COMMON]
    yield f".SS {_text(' '.join(filter(None, (command.name, command.words))))}"
    yield _text(f"{command.about[:1].upper()}{command.about[1:]}.")
    yield from _options(own)
    if command.notes:
        yield ".PP"
        for number, paragraph in enumerate(command.notes.split("\n")):
            yield from [".br"] if number else []
            yield _text(paragraph)


def _options(given: list[options.Option] | tuple[options.Option, ...]) -> Iterator[str]:
    for option in given:
        names = ", ".join(reversed(option.names)) + option.value_text
        about = option.about + (f": {', '.join(option.choices)}" if option.choices else "")
        yield from _terms([(names, about)])


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:  # noqa: SLF001 - argparse has no public list of them
        if action.help == argparse.SUPPRESS:
            continue
        value = f" {action.dest.upper()}" if action.nargs is None else ""
        yield from _terms([(", ".join(action.option_strings) + value, action.help or "")])


def _terms(terms: list[tuple[str, str]] | tuple[tuple[str, str], ...]) -> Iterator[str]:
    for term, about in terms:
        yield ".TP"
        yield rf"\fB{_text(term)}\fR"
        yield _text(about)


def _text(text: str) -> str:
    r"""Escape text for roff (groff_char(7)): backslashes, dashes that are typed, a control character first in a line."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("'", r"\(aq").replace("`", r"\(ga")
    return rf"\&{escaped}" if escaped.startswith(".") else escaped


if __name__ == "__main__":
    sys.exit(main())
