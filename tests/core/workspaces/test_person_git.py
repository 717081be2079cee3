"""Which of a person's git settings hold in a sandbox, and how they are written: compared with git itself."""

import os
import subprocess

from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.workspaces.git_config import Setting, parse
from substrat.core.workspaces.person_git import ATTRIBUTES, EXCLUDES, Layer, Rules, absent_filters, files, holds_inside
from tests.support.cases import each

CASES = {
    "[core] autocrlf = input": True,
    "[core] eol = crlf": True,
    "[user] email = a@b.c": True,
    "[pull] rebase = true": True,
    "[gc] auto = 0": True,
    "[init] defaultBranch = trunk": True,
    "[alias] co = checkout": True,
    "[alias] x = !make": False,
    "[core] pager = less": False,
    "[core] editor = vim": False,
    "[core] fsmonitor = true": False,
    "[core] hooksPath = ~/hooks": False,
    "[credential] helper = store": False,
    "[commit] gpgSign = true": False,
    "[tag] gpgSign = true": False,
    "[log] showSignature = true": False,
    "[color] ui = always": False,
    '[remote "o"] url = https://me:secret@host/x': False,
    "[fetch] bundleURI = https://me:secret@host/x": False,
    '[url "https://me:secret@host/"] insteadOf = h': False,
    "[http] extraHeader = Authorization: secret": False,
    "[sendemail] smtpPass = secret": False,
}


@each(("text", "expected"), CASES.items())
def test_what_holds_inside(text, expected):
    (setting,) = parse(text.encode()).settings
    assert holds_inside(setting) is expected


def read_by_git(tmp_path, written):
    for name, content in written.items():
        (tmp_path / name).write_bytes(content)
    command = ("git", "config", "--file", tmp_path / "person", "--includes", "--list", "-z")
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent"}
    return subprocess.run(command, env=environment, capture_output=True, check=True, cwd="/").stdout.split(b"\0")[:-1]


@settings(max_examples=30)
@given(st.text(st.characters(exclude_characters="\0\r", exclude_categories=["Cs"])))
def test_values_are_written_as_git_reads_them(tmp_path_factory, value):
    odd = (Setting("user", None, "name", value), Setting("a", 'su"b\\', "key", "\udcff"), Setting("a", None, "flag", None))
    found = read_by_git(tmp_path_factory.mktemp("written"), files("person", Layer(odd), "/", {}, {}))
    assert found == [b"user.name\n" + value.encode(), b'a.su"b\\.key\n\xff', b"a.flag"]


LAYER = Layer(
    (
        Rules(EXCLUDES, b"*.key"), Rules(ATTRIBUTES, b""), Setting("filter", "lfs", "clean", "git-lfs clean -- %f"),
        Layer((Setting("core", None, "eol", "crlf"), Rules(EXCLUDES, b"*.pem\n")), "gitdir:/w/"),
    )
)  # fmt: skip


def test_rules_and_conditions_have_files_of_their_own(tmp_path):
    written = files("person", LAYER, "/there", {}, {})
    assert written["person-0"] == b"*.key"
    assert written["person-3-1"] == b"*.pem\n"
    assert b'[includeIf "gitdir:/w/"]\n\tpath = "/there/person-3"\n' in written["person"]
    assert b"eol" in written["person-3"]
    assert b"git-lfs" in written["person"]
    assert b"git-lfs" not in files("person", LAYER, "/there", {"lfs": "git-lfs"}, {})["person"]


def test_further_rules_come_after_each_of_the_persons(tmp_path):
    written = files("ours", LAYER, "/there", {}, {EXCLUDES: b"/mine\n", ATTRIBUTES: b""})
    assert written["ours-0"] == b"*.key\n/mine\n"
    assert written["ours-3-1"] == b"*.pem\n\n/mine\n"
    assert b"eol" not in written["ours-3"]


COMMANDS = {
    "git-lfs clean -- %f": True,
    "git-lfs-elsewhere clean": False,
    "cat /seen/x": True,
    "cat /hidden/x": False,
    "cat ~/x": False,
    "cat $HOME/x": False,
    "cat x | cat": False,
    "PATH=~/bin:$PATH git-lfs": False,
    "'open": False,
}


@each(("command", "can_run"), COMMANDS.items())
def test_a_filter_is_there_if_all_that_it_names_is(command, can_run):
    seen = {"git-lfs", "cat", "/seen/x"}
    layer = Layer((Layer((Setting("filter", "x", "smudge", command), Setting("filter", "x", "required", "true")), "c:"),))
    assert absent_filters(layer, seen.__contains__) == ({} if can_run else {"x": command})
