"""git's configuration: the parser against git itself, and the settings that count as harmless."""

import os
import re
import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from substrat.core.workspaces import git_config
from substrat.core.workspaces.git_config import Setting

PIECES = st.sampled_from([
    "[core]", "[a.b]", '[a "x y"]', '[a "q\\"z"]', '[A.B "c"]', "[", "]", "[]", "\n", "\n", " ", "\t", "x", "Fs-1", "=",
    "= ", " = ", '"', "\\", "\\n", "\\\n", "#", ";", "true", "v w  z", "\r\n", "é", "1", '"a # b"', "\ufeff",
])  # fmt: skip
texts = st.lists(PIECES, max_size=16).map(lambda pieces: "".join(pieces).encode())


def listed_by_git(path):
    """What git reads, as (name, value); None when it stops with an error."""
    environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    done = subprocess.run(
        ["git", "config", "-z", "--list", "--file", path], capture_output=True, env=environment, check=False
    )
    if done.returncode:
        return None
    entries = [entry.decode().partition("\n") for entry in done.stdout.split(b"\0")[:-1]]
    return [(name, value if line else None) for name, line, value in entries]


def plain(settings_):
    """Names and values, with white space inside values as one: versions of git keep it or make it spaces."""
    return [(name, value if value is None else re.sub(r"\s+", " ", value)) for name, value in settings_]


@settings(max_examples=150)
@given(texts)
def test_it_reads_what_git_reads(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / f"config-{os.getpid()}"
    path.write_bytes(data)
    theirs, ours = listed_by_git(path), git_config.parse(data)
    assert ours.is_whole == (theirs is not None)
    if theirs is not None:
        assert plain((one.name, one.value) for one in ours.settings) == plain(theirs)


@given(st.binary(max_size=200))
def test_it_reads_anything(data):
    parsed = git_config.parse(data)
    assert list(git_config.references(parsed.settings)) is not None
    assert all(git_config.is_harmless(one) in {True, False} for one in parsed.settings)


BASE = b'[core]\n\tbare = false\n[remote "origin"]\n\turl = https://example.invalid/x\n'
HARMLESS = [
    b'[remote "other"]\n\turl = git@example.invalid:x\n\tfetch = +refs/heads/*:refs/remotes/other/*\n',
    b'[branch "main"]\n\tremote = origin\n\tmerge = refs/heads/main\n',
    b"[user]\n\tname = Somebody\n\temail = a@b\n",
    b"[color]\n\tui = true\n",
    # As VS Code and GitHub's extension write them, and git gui at its end.
    b'[branch "main"]\n\tvscode-merge-base = origin/main\n\tgithub-pr-owner-number = "a#b#1"\n',
    b"[gui]\n\twmstate = normal\n\tgeometry = 887x427+10+10 171 192\n",
    b"[maintenance]\n\tauto = false\n\tstrategy = incremental\n",
    b"[alias]\n\tco = checkout\n\tlg = log --oneline --graph\n[core]\n\teditor = code --wait\n",
    b"[gc]\n\tauto = 0\n[diff]\n\talgorithm = histogram\n",
    # `git lfs install --local`, with `--skip-smudge`, `git sparse-checkout set`, GitLens, `git config`.
    b'[lfs]\n\trepositoryformatversion = 0\n[filter "lfs"]\n\tclean = git-lfs clean -- %f\n\trequired = true\n',
    b'[filter "lfs"]\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n',
    b'[filter "lfs"]\n\tsmudge = git-lfs smudge --skip -- %f\n\tprocess = git-lfs filter-process --skip\n',
    b"[extensions]\n\tworktreeConfig = true\n[core]\n\tsparseCheckout = true\n\tsparseCheckoutCone = true\n",
    b'[branch "main"]\n\tgk-merge-base = origin/main\n\tgk-last-accessed = 2026-01-02T03:04:05.678Z\n',
    b"[core]\n\tfsmonitor = true\n\tuntrackedCache = true\n",
    b'[gpg]\n\tformat = ssh\n[gpg "ssh"]\n\tallowedSignersFile = ~/.ssh/allowed_signers\n',
    b"[merge]\n\ttool = nvimdiff2\n[mergetool]\n\tkeepBackup = false\n",
    b"[diff]\n\ttool = meld\n[difftool]\n\tprompt = false\n",
]
DANGEROUS = [
    b"[core]\n\tfsmonitor = evil\n",
    b"[core]\n\thooksPath = /tmp/x\n",
    b"[core]\n\tsshCommand = evil\n",
    b"[include]\n\tpath = /tmp/x\n",
    b'[includeIf "gitdir:/"]\n\tpath = /tmp/x\n',
    b'[filter "x"]\n\tclean = evil\n',
    b"[alias]\n\tst = !evil\n",
    b'[diff "x"]\n\ttextconv = evil\n',
    b"[credential]\n\thelper = !evil\n",
    b'[remote "origin"]\n\turl = ext::sh -c evil\n',
    b'[remote "origin"]\n\turl = --upload-pack=evil\n',
    b'[remote "origin"]\n\tuploadpack = evil\n',
    b'[url "https://evil.invalid/"]\n\tinsteadOf = https://\n',
    b'[filter "lfs"]\n\tclean = tools/git-lfs clean -- %f\n',
    b'[filter "lfs"]\n\tprocess = "git-lfs filter-process; evil"\n',
    b'[filter "lfs"]\n\tsmudge = git-lfs smudge -- %f\\nevil\n',
    b'[filter "lfs2"]\n\tclean = git-lfs clean -- %f\n',
    b'[filter "lfs.clean"]\n\tclean = evil\n',
    b"[core]\n\tfsmonitor = true \\\n; evil\n",
    b'[core]\n\tfsmonitor = "true\\n"\n',
    b"[core]\n\tfsmonitor = ./true\n",
    b"[core]\n\tfsmonitor = TRUE\n",
    b"[extensions]\n\tworktreeConfig = true\n[core]\n\tworktree = /x\n",
    b'[branch "gk-x"]\n\tevil = x\n',
    b"[gpg]\n\tformat = evil\n",
    b'[gpg "ssh"]\n\tprogram = ssh-keygen\n',
    b'[gpg "ssh"]\n\tallowedSignersFile = allowed_signers\n',
    b"[merge]\n\ttool = ../../../w/evil\n",
    b"[diff]\n\ttool = evil\n",
    b'[mergetool "meld"]\n\tpath = evil\n',
    b'[difftool "meld"]\n\tcmd = evil\n',
    b"[gpg]\n\tprogram = evil\n",
    b"[something]\n\tnew = evil\n",
    b"[alias]\n\tst = -c core.fsmonitor=evil status\n",
    b"[alias]\n\tst = rebase -x evil\n",
    b"[core]\n\teditor = sh\n",
    b'[core]\n\tpager = "less; evil"\n',
    b"[gc]\n\trecentObjectsHook = evil\n",
    b'[submodule "x"]\n\tupdate = !evil\n',
    b"[core\n",
    b"\0",
]


def is_harmless(data):
    parsed = git_config.parse(data)
    return parsed.is_whole and all(map(git_config.is_harmless, parsed.settings))


def test_what_ordinary_commands_write_runs_nothing():
    for more in HARMLESS:
        assert is_harmless(BASE + more)


def test_what_names_a_program_is_noticed():
    for more in DANGEROUS:
        assert not is_harmless(BASE + more)


REFERENCES = {
    "hooks": ("core", None, "hookspath", "tools/hooks", [("tools/hooks", "hooks")]),
    "include": ("include", None, "path", "../x", [("../x", "config")]),
    "fsmonitor": ("core", None, "fsmonitor", "true", []),
    "a program": ("core", None, "fsmonitor", "tools/monitor --fast", [("tools/monitor", "command")]),
    "an interpreter": ("filter", "x", "clean", "python3 'tools/a b.py' %f",
                       [("python3", "program"), ("tools/a b.py", "script"), ("tools/a b.py", "program"),
                        ("%f", "program")]),
    "a module": ("filter", "x", "clean", "python3 -m nbstripout",
                 [("python3", "program"), (".", "modules"), ("nbstripout", "program")]),
    "an isolated module": ("filter", "x", "clean", "python3 -Im nbstripout",
                           [("python3", "program"), ("nbstripout", "program")]),
    "a nested command": ("filter", "x", "clean", "sh -c 'tools/clean %f'",
                         [("sh", "program"), ("tools/clean %f", "program"), ("tools/clean", "command"), ("%f", "program")]),
    "another tool": ("difftool", "meld", "path", "tools/meld", [("tools/meld", "command")]),
    "a transfer": ("lfs", "customtransfer.x", "path", "tools/t", [("tools/t", "command")]),
    "anything else": ("something", "x", "new", "tools/t", [("tools/t", "value")]),
    "a drive": ("mergetool", "x", "path", "C:/x/y", [("C:/x/y", "program")]),
    "a shell": ("alias", None, "x", "!cd sub && ./run", [("cd", "program"), ("sub", "program"), ("./run", "program")]),
    "an alias": ("alias", None, "st", "status", []),
    "an open quote": ("diff", "x", "command", "sh 'x", [("sh", "program"), ("x", "program")]),
    "a variable": ("core", None, "editor", "EDITOR=tools/e vim", [("tools/e", "command"), ("vim", "program")]),
    "an address": ("remote", "o", "url", "https://x", []),
}  # fmt: skip


@pytest.mark.parametrize(("section", "subsection", "key", "value", "expected"), REFERENCES.values(), ids=REFERENCES)
def test_the_places_a_setting_names(section, subsection, key, value, expected):
    found = git_config.references([Setting(section, subsection, key, value)])
    assert [(one.path, one.kind) for one in found] == expected
