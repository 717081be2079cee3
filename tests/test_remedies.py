"""Remedies that are pasted into a shell run what they say and nothing of a name's that an agent has chosen."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

from substrat.core.diagnosis import machine
from substrat.core.workspaces import landing
from substrat.daemon.clones import checkouts
from substrat.daemon.state import database
from substrat.daemon.workspaces import checking
from substrat.daemon.workspaces.user import User
from substrat.errors import WorkspaceUnusable
from tests.support.cases import each

ROOT = Path(__file__).parents[1]
HARMLESS = {"name", "number", "worker", "UNIT", "command", "part", "options", "state", "parent"}
"""Names of agents, which `substrat.names` limits, numbers, a person's own words, and texts that are quoted already."""

HOSTILE = [
    "a$(touch PWN)", "a`touch PWN`", "a; touch PWN #", "a' ; touch PWN; '", 'a" ; touch PWN; "', "a\ntouch PWN\n",
    "a && touch PWN", "a | touch PWN", "a > PWN", "-a --b", "*", "~", "a\\",
]  # fmt: skip


def commands_with_names():
    """The values that stand between backticks in the sentences of the code."""
    for package in ("substrat", "sandbox"):
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.JoinedStr):
                    yield from ((path, value) for value in between_backticks(node))


def between_backticks(node):
    is_inside = False
    for part in node.values:
        if isinstance(part, ast.Constant):
            is_inside ^= str(part.value).count("`") % 2 == 1
        elif is_inside:
            yield part.value


def is_quoted(value):
    words = ast.unparse(value)
    return words.startswith(("shlex.quote(", "shlex.join(")) or words.rpartition(".")[2] in HARMLESS


def test_every_value_in_a_command_is_quoted_or_harmless():
    left_out = {"standin", "demo", "generate.py"}  # neither is a remedy
    found = [(path, value) for path, value in commands_with_names() if not left_out & set(path.parts)]
    assert len(found) > 30
    unquoted = [
        f"{path.relative_to(ROOT)}:{value.lineno}: {ast.unparse(value)}" for path, value in found if not is_quoted(value)
    ]
    assert [place for place in unquoted if "holder.phase" not in place] == []


def remedies(name):
    """Remedies of different parts for a file, directory or branch of that name, each with the argument that names it."""
    place = f"/work/{name}"
    held = (landing.Suspect(name, "its reason"),)
    mine = os.stat_result((0o040500, 1, 1, 1, 1000, 1000, 0, 0, 0, 0))
    with pytest.raises(WorkspaceUnusable) as refused:
        checking._check_owner(place, mine, User("me", 1000, 1000, "/home/me"))
    yield refused.value.message.partition("enter it: `")[2].removesuffix("`"), place
    yield machine.chats(place, place, "somebody", writable=False).remedy, place
    yield landing.conflict_prompt(name, []).partition("(`")[2].partition("`), resolve")[0], f"workspace/{name}"
    for argument in (name if name.isprintable() else ".", place):
        yield (
            checkouts._held_text("anna", place, held).partition("shows them, `")[2].removesuffix("` makes the copy"),
            argument,
        )
    damaged = database.damaged_state(f"{place}/substrat.db", "a reason").message
    yield damaged.partition("begin anew with `")[2].partition("`, which keeps")[0], place


@pytest.fixture
def paste(tmp_path):
    """Pastes a command into sh in an empty directory, where the programs of remedies only say what they were given."""
    programs, here = tmp_path / "programs", tmp_path / "here"
    programs.mkdir()
    here.mkdir()
    for name in ("chmod", "cp", "sudo", "git", "substratctl", "substratd"):
        (programs / name).write_text('#!/bin/sh\nfor word in "$@"; do printf "%s\\0" "$word"; done\n')
        (programs / name).chmod(0o755)

    def paste(command):
        environment = {"PATH": f"{programs}:{os.environ['PATH']}"}
        done = subprocess.run(["sh", "-c", command], cwd=here, env=environment, capture_output=True, check=True)
        assert list(here.iterdir()) == [], command
        return done.stdout.decode().split("\0")

    return paste


@each("name", HOSTILE)
def test_a_remedy_that_is_pasted_runs_nothing_of_a_name(paste, name):
    for command, argument in remedies(name):
        assert argument in paste(command), command
