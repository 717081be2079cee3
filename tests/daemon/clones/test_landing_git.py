"""Git's part of a landing, with a person's real repository: what is previewed, and what moves."""

import os
from dataclasses import replace

import pytest

from substrat.core.workspaces.clones import PastLandings
from substrat.core.workspaces.drivers import Programs
from substrat.core.workspaces.landing import LandingMode
from substrat.daemon.clones import host_git
from substrat.daemon.clones.host_git import Move
from substrat.daemon.clones.landing_git import Conflicting
from substrat.errors import Conflict, Refused

NOTHING_RUNS = Programs(lambda _: False)


async def preview(room, mode=LandingMode.MERGE):
    """The commit that the branch would move to."""
    return (await room.preview(mode)).commit


async def refusal(room):
    """Why git on the host can't write the files of the agent's head."""
    selected = (await room.changes()).selected
    return await room.landing_git.refusal(room.clone, await room.persons_git(), room.head, selected)


async def move(room, commit):
    """Move the branch where it is checked out."""
    checkout = await room.checkout()
    programs = (await room.persons_git()).programs
    await room.host_git.move(room.clone, room.landing(), Move(commit, room.tip(), programs), checkout)


def merged_by_git(room):
    """The tree that the person's own git makes of the two, in a checkout beside his."""
    beside = room.top.parent / "beside"
    room.git("worktree", "add", "-q", "--detach", str(beside), "main")
    room.git("merge", "-q", "--no-edit", str(room.clone.kept.head), at=beside)
    return room.git("rev-parse", "HEAD^{tree}", at=beside)


async def test_a_branch_that_has_not_moved_takes_the_head_itself_and_else_a_commit_of_the_persons(room):
    head = room.agent_commits({"a.txt": "a"}, {"b.txt": "b"})
    assert await preview(room) == head
    mine = room.commit({"mine.txt": "mine"})
    merged, squashed = await preview(room), await preview(room, LandingMode.SQUASH)
    assert room.git("log", "-1", "--format=%P %an %s", merged) == f"{mine} {head} Me Merge substrat/fix"
    assert room.git("log", "-1", "--format=%P %an %s", squashed) == f"{mine} Me Squash substrat/fix"
    assert room.git("ls-tree", "--name-only", squashed).split() == ["README", "a.txt", "b.txt", "mine.txt"]
    with pytest.raises(Refused, match="merge without --ff-only"):
        await preview(room, LandingMode.FF_ONLY)


@pytest.mark.parametrize("mode", [LandingMode.MERGE, LandingMode.SQUASH])
@pytest.mark.parametrize("has_moved", [False, True], ids=["at its base", "moved"])
async def test_a_preview_knows_how_the_work_stands_after_the_move_as_a_look_then_does(room, mode, has_moved):
    room.agent_commits({"a.txt": "a"}, {"b.txt": "b"})
    if has_moved:
        room.commit({"mine.txt": "mine"})
    found = await room.preview(mode)
    room.git("update-ref", "refs/heads/main", found.commit)
    landed = replace(room.clone, landings=PastLandings(landed_head=room.head, landed_commit=found.commit))
    state = await room.repositories.state(landed)
    assert (found.ahead, found.behind, True) == (state.ahead, state.behind, state.is_landed)


async def test_a_look_at_the_checkout_and_a_move_run_nothing_that_the_repository_names(room):
    """Hooks and a monitor are the person's own; a daemon runs them for nobody."""
    mark = room.top.parent / "mark"
    hook = room.top / ".git" / "evil"
    hook.write_text(f"#!/bin/sh\necho >> {mark}\n")
    hook.chmod(0o755)
    for name in ("post-merge", "post-checkout", "post-index-change", "reference-transaction"):
        (room.top / ".git" / "hooks").mkdir(exist_ok=True)
        (room.top / ".git" / "hooks" / name).symlink_to(hook)
    head = room.agent_commits({"a.txt": "a"})
    room.git("config", "core.fsmonitor", str(hook))
    mark.unlink()
    index = (room.top / ".git" / "index").read_bytes()
    (room.top / "README").touch()
    await room.landing_git._check_clean(room.clone, await room.persons_git())
    assert (room.top / ".git" / "index").read_bytes() == index, "a look writes no index"
    await move(room, head)
    assert not mark.exists()
    room.git("-c", "core.fsmonitor=false", "commit", "-q", "--allow-empty", "-m", "the control")
    assert mark.exists()


@pytest.mark.parametrize("holding", ["rebase", "rebase --apply", "rebase --update-refs", "bisect"])
async def test_a_branch_that_is_being_rebased_or_bisected_is_not_moved(room, holding):
    """As `git branch --force` refuses it; at the end of a rebase git would put the branch back without the landing."""
    head = room.agent_commits({"a.txt": "a"})
    before = room.commit({"README": "mine\n"})
    command = holding.split()
    if command[0] == "bisect":
        room.git("bisect", "start", "HEAD", "HEAD~1")
        room.git("checkout", "-q", "--detach", "HEAD~1")
    else:
        room.git("checkout", "-q", "-b", "side", "HEAD~1")
        room.commit({"README": "side\n"})
        if "--update-refs" in command:
            room.git("checkout", "-q", "-b", "above", "main")
            room.commit({"more": "more\n"})
        else:
            room.git("checkout", "-q", "main")
        assert room.refuses(*command, "side"), "they conflict"
    assert room.refuses("branch", "-f", "main", head)
    with pytest.raises(Conflict, match=f"a {command[0]} of main is under way in .*status` shows how to end it"):
        await move(room, head)
    assert room.tip() == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
async def test_gits_own_words_where_the_checkout_is_another_users(room):
    head = room.agent_commits({"a.txt": "a"})
    checkout, before = await room.checkout(), room.tip()
    os.lchown(room.top, 12345, 12345)
    os.lchown(room.top / ".git", 12345, 12345)
    with pytest.raises(Conflict, match=r"git refuses to move main in .*dubious ownership"):
        await room.host_git.move(room.clone, room.landing(), Move(head, before, NOTHING_RUNS), checkout)
    assert not [name for name in os.listdir(room.top / ".git") if "lock" in name or "substrat" in name]


async def test_histories_that_have_nothing_in_common(room):
    room.agent_commits({"a.txt": "a"})
    room.git("checkout", "-q", "--orphan", "anew")
    room.commit({"README": "anew\n"})
    room.git("branch", "-f", "main")
    with pytest.raises(Refused, match="have no commit in common any more"):
        await preview(room)


LINES = "".join(f"{number}\n" for number in range(9))


async def test_a_merge_obeys_the_attributes_that_the_branch_has(room):
    """As `git merge` in a checkout of it does: those in directories below too, and not those that the agent adds."""
    room.commit(
        {".gitattributes": "log merge=union\n", "sub/.gitattributes": "lock -merge\n", "log": "0\n", "sub/lock": LINES}
    )
    room.branch_again()
    room.agent_commits({"log": "0\ntheirs\n"})
    room.commit({"log": "0\nmine\n"})
    merged = await preview(room)
    assert room.git("show", f"{merged}:log") == "0\nmine\ntheirs"
    assert room.git("rev-parse", f"{merged}^{{tree}}") == merged_by_git(room)
    room.agent_commits({"sub/lock": LINES + "theirs\n", "sub/.gitattributes": "lock merge=union\n"})
    room.commit({"sub/lock": f"mine\n{LINES}"})
    with pytest.raises(Conflicting) as conflict:
        await preview(room)
    assert conflict.value.files == ("sub/lock",)


async def test_a_file_for_which_another_program_would_run_is_refused_and_none_runs_in_the_move(room):
    """git refreshes its index before it merges, and runs the filters of all files whose times have changed."""
    mark = room.top.parent / "mark"
    room.commit(
        {".gitattributes": "*.txt filter=evil\n", "mine.txt": "mine\n", "tool": f"#!/bin/sh\necho >> {mark}; cat\n"}
    )
    room.branch_again()
    for key in ("clean", "smudge"):
        room.git("config", f"filter.evil.{key}", "sh tool")
    room.git("config", "filter.evil.required", "true")
    assert room.agent_commits({"a.md": "a"})
    assert await refusal(room) is None
    (room.top / "mine.txt").touch()
    await move(room, str(room.clone.kept.head))
    assert (room.git("log", "-1", "--format=%s"), mark.exists()) == ("add a.md", False)
    room.agent_commits({"b.txt": "b"})
    assert "b.txt selects your git's filter evil, 'sh tool', which is neither git-lfs's nor" in str(await refusal(room))
    room.git("config", "filter.evil.clean", "cat")
    room.git("config", "filter.evil.smudge", "cat")
    assert await refusal(room) is None
    room.agent_commits({".gitattributes": "big filter=lfs\n", "big": "content\n", "b.txt": ""})
    assert "big would land unfiltered" in str(await refusal(room))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8\n"
    room.agent_commits({"big": pointer})
    assert await refusal(room) is None


async def test_who_has_made_the_commits_that_a_branch_lacks(room):
    room.agent_commits({"a.md": "a"})
    work = room.top.parent / "work"
    room.git("commit", "-q", "--allow-empty", "--author", "Mallory <m@x>", "-m", "x", at=work)
    room.agent_commits()
    assert list((await room.changes()).people) == [
        "Mallory <m@x>", "Me <me@example.invalid>", "Me <me@example.invalid>", "Me <me@example.invalid>",
    ]  # fmt: skip


async def test_a_program_that_is_configured_after_the_look_runs_neither(room):
    """Landings wait for turns in a checkout, and people go on working meanwhile."""
    mark = room.top.parent / "mark"
    head = room.agent_commits({"a.txt": "a", ".gitattributes": "*.txt filter=late\n"})
    programs = (await room.persons_git()).programs
    room.git("config", "filter.late.smudge", f"touch {mark}; cat")
    checkout = await room.checkout()
    await room.host_git.move(room.clone, room.landing(), Move(head, room.tip(), programs), checkout)
    assert ((room.top / "a.txt").read_text(), mark.exists()) == ("a", False)
    copy = room.top.parent / "copy"
    await room.host_git.add_worktree(room.clone, programs, str(copy), head, has_begun=False)
    assert ((copy / "a.txt").read_text(), mark.exists()) == ("a", False)
    assert room.git("status", "--porcelain", at=copy) == ""


async def test_a_working_copy_that_cannot_be_made_is_taken_away_and_one_that_was_begun_is_finished(room):
    head, copy = room.agent_commits({"a.txt": "a\n" * 100_000}), room.top.parent / "copy"
    room.git_is("ulimit -f 64; trap '' XFSZ; exec {git} \"$@\"", "reset")
    with pytest.raises(Conflict, match="can't make"):
        await room.host_git.add_worktree(room.clone, NOTHING_RUNS, str(copy), head, has_begun=False)
    assert (copy.exists(), len(room.git("worktree", "list").splitlines())) == (False, 1)
    begun = ("--no-checkout", "--detach", "--lock", "--reason", host_git._BEING_MADE)
    room.git("worktree", "add", "-q", *begun, str(copy), head)
    (copy / "mine").write_text("mine\n")
    room.git_is_well()
    assert not await room.host_git.has_begun(room.clone, str(copy), str(room.clone.base))
    assert await room.host_git.has_begun(room.clone, str(copy), head)
    await room.host_git.add_worktree(room.clone, NOTHING_RUNS, str(copy), head, has_begun=True)
    assert room.git("status", "--porcelain", at=copy) == "?? mine"
    assert "locked" not in room.git("worktree", "list")


async def test_no_directory_of_a_checkout_decides_which_program_runs(room):
    for entry in ("./bin", str(room.top / "bin"), ""):
        room.host_git._environ["PATH"] = f"{entry}:{room.environ['PATH']}"
        assert room.host_git._path_for(str(room.top)) == room.environ["PATH"]


async def test_commits_of_other_repositories_are_shown_whatever_the_configuration_says(room):
    room.git("config", "diff.ignoreSubmodules", "all")
    work = room.top.parent / "work"
    room.agent_commits({"a.txt": "a"})
    room.git("update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},lib", at=work)
    room.git("commit", "-qm", "x", at=work)
    head = room.agent_commits()
    changed = {file.path for file in (await room.changes()).files}
    assert changed == {"a.txt", "lib"}
    room.git("cherry-pick", f"{head}^")
    assert not (await room.standing()).has_content
