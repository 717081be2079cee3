"""Moves that git doesn't end: killed after each file, out of disk, with the branch locked; nothing stays half done.

git is a script first on the search path that lets git write small files only (`ulimit -f`): at a large one the kernel kills
git in the midst of it (SIGXFSZ), or, where that signal is ignored, git finds the disk full and goes on with the next file.
"""

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from substrat.core.workspaces.drivers import Programs
from substrat.daemon.clones import moving
from substrat.daemon.clones.host_git import HostGit, Move
from substrat.daemon.clones.repository import RefMoved
from substrat.daemon.kernel import helper
from substrat.errors import Conflict
from substrat.inside.branch.job import Job

PLAIN = Programs(lambda name: name == "tr", frozenset())
LARGE = "large\n" * 40_000
KILLED = "ulimit -f 64"
FULL = "trap '' XFSZ; ulimit -f 64"
GOES_ON = 'exec {git} "$@"'
DIES = '{git} "$@"; kill -9 $PPID; exit 1'
"""The program that started git is killed after it."""
STAGED = "M README\nA  mine"
FILTERS = {"filter.up.clean": "tr A-Z a-z", "filter.up.smudge": "tr a-z A-Z"}

BEFORE = {
    ".gitattributes": "*.up filter=up\n", "a": "a\n", "d/a": "a\n", "d/b": "b\n", "e": "e\n",
    "mode": "#!/bin/sh\n", "x.crlf": "x\n", "x.up": "LOW\n",
    "z": "z\n",
}  # fmt: skip
"""What stands there before; the agent's changes come from `AFTER`."""
AFTER = {
    ".gitattributes": "*.up filter=up\n*.crlf text eol=crlf\n", "a": "a, changed\n", "b": "new\n", "d/a": None, "d/b": None,
    "d": "a file\n", "e": None, "e/f/g": "below\n", "m/new": "new\n", "x.crlf": "x\ny\n", "x.up": "higher\n", "z": None,
}  # fmt: skip


def state(room):
    """All that a person sees of his checkout."""
    files = {
        path.relative_to(room.top).as_posix(): (path.read_bytes(), path.stat().st_mode)
        for path in room.top.rglob("*") if path.is_file() and ".git" not in path.relative_to(room.top).parts
    }  # fmt: skip
    left = sorted(entry for entry in os.listdir(room.top / ".git") if "lock" in entry or "substrat" in entry)
    return (files, room.git("ls-files", "-s")), room.git("status", "--porcelain"), room.tip(), left


def prepare(room):
    """Make a repository of a person who has uncommitted changes."""
    for key, program in FILTERS.items():
        room.git("config", key, program)
    room.commit(BEFORE)
    room.git("checkout", "-q", "--", ".")
    (room.top / "mine").write_text("staged\n")
    room.git("add", "mine")
    (room.top / "README").write_text("edited\n")
    room.branch_again()


def begun(room, large=None):
    """Make a repository and an agent's work in it, of which one file is too large for git."""
    prepare(room)
    work = {name: LARGE if name == large and content is not None else content for name, content in AFTER.items()}
    head = room.agent_commits(work)
    return head, state(room)


async def places_of(room):
    return await room.repositories.places(str(room.top))


async def move(room, head, how=HostGit.move, **about):
    landing, what = replace(room.landing(), **about), Move(head, room.clone.base, PLAIN)
    if how is HostGit.move:
        await room.host_git.move(room.clone, landing, what, await places_of(room))
    else:
        await room.host_git.settle(landing, what, await places_of(room))


async def dies_in(room, head, script):
    """Let git and the program that runs it be killed together, as when the machine goes down."""
    room.git_is(script)
    job = Job(-1, "1", str(room.top), str(room.top / ".git"), "main", room.clone.base or "", head)
    assert await room.mover._run_once("move", job, room.host_git._environment(str(room.top), FILTERS)) is None
    await room.mover.end_of_earlier(1)
    room.git_is_well()


@pytest.mark.parametrize("limit", [KILLED, FULL])
@pytest.mark.parametrize("large", ["a", "b", "d", "x.up"])
async def test_a_git_that_is_killed_or_out_of_disk_in_a_file_leaves_all_as_it_was(room, large, limit):
    head, before = begun(room, large)
    room.git_is(f"{limit}; {GOES_ON}")
    with pytest.raises(Conflict, match=r"killed by signal|unable to write|File too large"):
        await move(room, head)
    assert state(room) == before
    room.git_is_well()
    await move(room, head)
    assert state(room)[1:] == (STAGED, room.tip(), [])
    assert room.tip() == head


@pytest.mark.parametrize("large", ["d", "m/new"])
async def test_what_was_killed_with_its_starter_is_settled_by_the_next_daemon(room, large):
    head, before = begun(room, large)
    await dies_in(room, head, f"{KILLED}; {DIES}")
    assert state(room) != before
    for _ in range(2):  # the second one has nothing to do
        await move(room, head, HostGit.settle)
        assert state(room) == before


async def test_a_starter_alone_that_is_killed_is_settled_at_once(room):
    head, before = begun(room, "m/new")
    room.git_is(f"{KILLED}; {DIES}")
    with pytest.raises(Conflict, match=r"git was killed$"):
        await move(room, head)
    assert state(room) == before


@pytest.mark.parametrize("has_lock", [True, False])
async def test_a_move_whose_branch_has_moved_is_finished(room, has_lock):
    """The index is behind the branch then; a person who obeys git removes the lock before the next daemon starts."""
    head, _ = begun(room)
    await dies_in(room, head, DIES)
    assert room.tip() == head
    assert "landing 1" in (room.top / ".git/index.lock").read_text()
    if not has_lock:
        (room.top / ".git/index.lock").unlink()
    await move(room, head, HostGit.settle)
    assert state(room)[1:] == (STAGED, head, [])


@pytest.mark.parametrize("name", ["refs/heads/main.lock", "HEAD.lock"])
async def test_where_another_git_holds_the_branch_files_and_index_go_back(room, name):
    head, before = begun(room)
    room.git_is(f"touch {room.top}/.git/{name}; {GOES_ON}")
    with pytest.raises(Conflict, match=r"lock"):
        await move(room, head)
    (room.top / ".git" / name).unlink()
    assert state(room) == before


async def test_what_a_person_has_changed_since_stays_and_is_named(room):
    head, _ = begun(room, "x.crlf")
    changes = {"a": "mine\n", "b": "mine\n", "d": "mine\n", "e/f/g": "mine\n"}
    written = "; ".join(f"printf '%s' {shlex.quote(text)} > {room.top}/{name}" for name, text in changes.items())
    room.git_is(f'{KILLED}; {{git}} "$@"; {written}; kill -9 $$')
    with pytest.raises(
        Conflict, match=r"a, b, d, e/f/g, d/a and 2 more can't be taken back, because of changes there: `git -C"
    ):
        await move(room, head)
    assert {name: (room.top / name).read_text() for name in changes} == changes
    assert room.tip() == room.clone.base
    assert not (room.top / "m").exists()


OWN = {
    "an untracked file with the agent's content": lambda room: (room.top / "b").write_text(AFTER["b"]),
    "an ignored file with the agent's content": lambda room: (
        (room.top / ".git/info/exclude").write_text("b\n"), (room.top / "b").write_text(AFTER["b"])
    ),
    "an edit that is the agent's": lambda room: (room.top / "a").write_text(AFTER["a"]),
    "a staged edit that is the agent's": lambda room: ((room.top / "a").write_text(AFTER["a"]), room.git("add", "a")),
    "a staged deletion that is the agent's": lambda room: room.git("rm", "-q", "z"),
    "a deletion that is the agent's": lambda room: (room.top / "z").unlink(),
    "an edit with which the agent's begins": lambda room: (room.top / "a").write_text(""),
}  # fmt: skip


@pytest.mark.parametrize("limit", [KILLED, FULL])
@pytest.mark.parametrize("own", OWN)
async def test_what_a_person_has_made_before_stays_though_it_is_what_the_agent_makes(room, own, limit):
    """git refuses some of it, and else is killed; it mustn't be taken for git's own work in either case."""
    head, _ = begun(room, "m/new")
    OWN[own](room)
    before = state(room)
    room.git_is(f"{limit}; {GOES_ON}")
    with pytest.raises(Conflict):
        await move(room, head)
    assert state(room) == before
    await dies_in(room, head, f"{KILLED}; {DIES}")
    await move(room, head, HostGit.settle)
    assert state(room) == before


async def test_a_file_that_git_was_told_not_to_look_at_is_named(room):
    head, _ = begun(room, "m/new")
    room.git("update-index", "--assume-unchanged", "a")
    room.git_is(f"{KILLED}; {GOES_ON}")
    with pytest.raises(Conflict, match=r"a can't be taken back"):
        await move(room, head)


@pytest.mark.parametrize("name", ["index.substrat-look.lock", "index.substrat.lock", "index.substrat"])
async def test_what_an_agent_has_left_at_the_mover_s_own_names_refuses_the_move(room, name):
    head, _ = begun(room)
    (room.top / ".git" / name).mkdir()
    with pytest.raises(Conflict, match=name):
        await move(room, head)
    assert not (room.top / ".git/index.lock").exists()


async def test_a_fault_after_the_branch_has_moved_is_no_refusal(room):
    """For example a disk that breaks: here the copy of the index becomes a directory."""
    head, _ = begun(room)
    room.git_is('{git} "$@"; rm $GIT_INDEX_FILE; mkdir $GIT_INDEX_FILE')
    told = await room.host_git.move(room.clone, room.landing(), Move(head, room.clone.base, PLAIN), await places_of(room))
    assert room.tip() == head
    assert "main has moved, and git's index in" in told
    assert f"`git -C {room.top} reset` mends it" in told
    assert not (room.top / ".git/index.lock").exists()


async def test_an_index_that_is_no_plain_file_is_not_waited_for(room):
    head, _ = begun(room, "m/new")
    await dies_in(room, head, f"{KILLED}; {DIES}")
    index = room.top / ".git/index"
    index.unlink()
    os.mkfifo(index)
    with pytest.raises(Conflict, match=r"index is no plain file: put one in its place"):
        await move(room, head, HostGit.settle)


async def test_a_person_who_has_removed_the_lock_and_gone_on_loses_nothing(room):
    head, _ = begun(room, "m/new")
    await dies_in(room, head, f"{KILLED}; {DIES}")
    (room.top / ".git/index.lock").unlink()
    (room.top / "a").write_text("mine\n")
    room.git("add", "a")
    await move(room, head, HostGit.settle)
    assert room.git("show", ":a") == "mine" == (room.top / "a").read_text().strip()
    assert room.tip() == room.clone.base


async def test_another_gits_lock_stays(room):
    head, _ = begun(room, "m/new")
    await dies_in(room, head, f"{KILLED}; {DIES}")
    lock = room.top / ".git/index.lock"
    lock.unlink()
    lock.touch()
    with pytest.raises(Conflict, match=r"index.lock is there: a git works there"):
        await move(room, head, HostGit.settle)
    assert lock.read_bytes() == b""


ODD = {
    "a sparse checkout": lambda room: room.git("sparse-checkout", "set", "d", "m"),
    "a split index": lambda room: (room.git("config", "core.splitIndex", "true"),
                                   room.git("update-index", "--split-index")),
    "names of no UTF-8": lambda room: room.commit({os.fsdecode(b"n\xff"): "n\n"}),
    "a submodule": lambda room: (room.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib"),
                                 room.git("commit", "-qm", "lib"), (room.top / "lib").mkdir()),
}  # fmt: skip


@pytest.mark.parametrize("odd", ODD)
async def test_odd_checkouts_too(room, odd):
    prepare(room)
    room.git("reset", "-q", "mine")
    ODD[odd](room)
    room.branch_again()
    head = room.agent_commits(
        {"m/new": LARGE, os.fsdecode(b"m/\xff"): "n\n", "a": "a, changed\n", "d/a": None, "out/b": "b\n"}
    )
    before = state(room)
    room.git_is(f"{KILLED}; {GOES_ON}")
    with pytest.raises(Conflict, match=r"killed by signal 25$"):
        await move(room, head)
    assert state(room) == before
    room.git_is_well()
    await move(room, head)
    assert room.tip() == head
    assert "m/new" not in room.git("status", "--porcelain")


async def test_a_branch_without_a_commit_too(room):
    head, _ = begun(room, "m/new")
    room.git("checkout", "-q", "-f", "--orphan", "none")
    room.git("rm", "-rqf", ".")
    room.git("branch", "-D", "main")
    room.git("symbolic-ref", "HEAD", "refs/heads/main")
    room.clone = replace(room.clone, base=None)
    room.git_is(f"{KILLED}; {GOES_ON}")
    with pytest.raises(Conflict, match="died of signal 25"):
        await move(room, head)
    assert [path.name for path in room.top.iterdir() if path.is_file()] == []
    assert room.git("ls-files") == ""
    room.git_is_well()
    await move(room, head)
    assert room.tip() == head


async def test_a_program_that_is_ready_and_gets_no_job_ends_and_leaves_the_landing_free(room):
    head, before = begun(room)
    async with room.mover.ready(1) as ready:
        with pytest.raises(Conflict, match="can't be started"):
            await room.mover.ready(1).__aenter__()  # another one of the same landing
    assert ready.program.child.returncode is not None
    assert not list(Path(room.trees).glob("landing-*"))
    assert state(room) == before
    async with room.mover.ready(1) as ready:
        await room.host_git.move(
            room.clone, room.landing(), Move(head, room.clone.base, PLAIN), await places_of(room), ready
        )
    assert room.tip() == head


async def test_a_job_that_a_killed_daemon_has_begun_to_give_moves_nothing(room):
    head, before = begun(room)
    job = Job(-1, "1", str(room.top), str(room.top / ".git"), "main", room.clone.base or "", head)
    whole = moving._written("move", job, room.host_git._environment(str(room.top), FILTERS))
    for size in (0, len(whole) // 2, len(whole) - 1):
        async with room.mover.ready(1) as ready:
            ready.has_job = True
            done = await helper.finish(ready.program, whole[:size])
            os.close(ready.lock)
        assert done.returncode == 1
        assert state(room) == before


async def test_an_index_that_is_written_while_the_program_looks_is_looked_at_again(room):
    head, before = begun(room)
    room.git_is('{git} "$@"; {git} -C ' + shlex.quote(str(room.top)) + " reset -q -- mine; exit 0", "status")
    with pytest.raises(RefMoved):
        await move(room, head)
    room.git_is_well()
    assert (room.tip(), before[-1]) == (before[2], state(room)[-1])
    await move(room, head)
    assert (room.tip(), (room.top / "mine").read_text()) == (head, "staged\n")
