"""`keep_clone` brings the index of the last keep up to date: nothing that the agent does to its own index hides a file."""

import hashlib
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from substrat.inside.clone.git import Failed
from tests.inside.clones import SETTINGS, Clone

NAMES = st.sampled_from(("a", "d/x", "d/y", "e/f/g", "k.tmp", "lib/p"))
MARKS = st.sampled_from(("--skip-worktree", "--no-skip-worktree", "--assume-unchanged", "--no-assume-unchanged"))


class Agent(RuleBasedStateMachine):
    """What an agent does with files, its index and branches; after each step its work is kept."""

    def __init__(self):
        super().__init__()
        self.directory = tempfile.TemporaryDirectory()
        self.clone = Clone(Path(self.directory.name))
        self.clone.git("branch", "other")

    def teardown(self):
        self.directory.cleanup()

    @rule(name=NAMES, text=st.sampled_from(("1\n", "2\n", "33\n", None)))
    def write(self, name, text):
        self.clone.write(name, text)

    @rule(name=NAMES)
    def remove(self, name):
        self.clone.remove(name)

    @rule(name=NAMES)
    def put_a_file_in_the_place_of_a_directory(self, name):
        self.clone.write(name.split("/")[0], "a file\n")

    @rule(name=NAMES, words=st.sampled_from(("add -f", "add -N -f", "rm -q --cached", "add -A")))
    def stage(self, name, words):
        self.clone.git(*words.split(), name, fails=True)

    @rule(name=NAMES, mark=MARKS)
    def mark(self, name, mark):
        self.clone.git("update-index", mark, name, fails=True)

    @rule(words=st.sampled_from(("commit -qam work", "stash", "merge --abort")))
    def put_aside(self, words):
        self.clone.git(*words.split(), fails=True)

    @rule(branch=st.sampled_from(("main", "other")), words=st.sampled_from(("checkout -q", "merge -q", "checkout -qf")))
    def move(self, branch, words):
        self.clone.git(*words.split(), branch, fails=True)

    @rule(text=st.sampled_from(("*.tmp\n", "", "d/\n")))
    def ignore(self, text):
        self.clone.write(".gitignore", text)

    @invariant()
    def a_keep_gives_what_a_first_keep_would(self):
        kept, anew = self.clone.keep(), self.clone.keep_anew()
        del kept.paths
        assert (vars(kept) | {"packed": True}) == (vars(anew) | {"packed": True})


def test_the_last_keeps_index_changes_no_answer():
    run_state_machine_as_test(Agent, settings=settings(max_examples=8, stateful_step_count=8))


def test_a_change_in_the_tick_in_which_git_added_the_file_is_kept(tmp_path):
    clone = Clone(tmp_path)
    # git goes by times that a program can set, in place of the time of the last change, which none can.
    number = int(SETTINGS["GIT_CONFIG_COUNT"])
    setting = {f"GIT_CONFIG_KEY_{number}": "core.trustctime", f"GIT_CONFIG_VALUE_{number}": "false"}
    clone.repository = clone.repository.given(GIT_CONFIG_COUNT=str(number + 1), **setting)
    tick = 10**18
    for text in ("1\n", "2\n"):
        (clone.tree / "a").write_text(text)
        os.utime(clone.tree / "a", ns=(tick, tick))
        if text == "1\n":
            clone.git("-c", "core.trustctime=false", "add", "a")
            os.utime(clone.tree / ".git" / "index", ns=(tick, tick))
    found = clone.keep()
    assert clone.git("show", f"{found.wip}:a") == "2\n"


def of_another_name(index):
    """A file of the index becomes one of git's own."""
    body = index[:-20].replace(b"dgit/config", b".git/config")
    return body + hashlib.sha1(body).digest()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda index: b"",
        lambda index: b"not an index",
        lambda index: index[:100],
        lambda index: index[:4] + b"\xff" * 8 + index[12:],
        lambda index: index[:-20] + bytes(20),
        lambda index: index[:60] + b"\xff" + index[61:],
        of_another_name,
    ],
    ids=["empty", "text", "cut", "countless", "checksum", "entry", "git's own"],
)
def test_an_index_that_git_can_not_read_hides_no_file(tmp_path, spoil):
    clone = Clone(tmp_path)
    clone.write("dgit/config", "[core]\n")
    clone.git("add", "-A")
    clone.git("commit", "-qm", "two")
    clone.keep()
    index = clone.tree / ".git" / "index"
    index.write_bytes(spoil(index.read_bytes()))
    os.utime(index, (2**32, 2**32))  # git trusts the times of entries that are older than the index
    clone.write("a", "edited\n")
    clone.write("new", "work\n")
    found = clone.keep()
    assert clone.git("show", f"{found.wip}:a") == "edited\n"
    assert {"a", "b", "new", "dgit/config"} <= found.paths


def test_an_index_that_is_no_file_is_refused(tmp_path):
    clone = Clone(tmp_path)
    (clone.tree / ".git" / "index").unlink()
    os.mkfifo(clone.tree / ".git" / "index")
    with pytest.raises(Failed, match="its index is no file"):
        clone.keep()
