"""How the refs of agents that are over stand to a person's branches, with real git."""

import pytest

from substrat.core.workspaces.left_refs import LeftRefs, going, noted
from substrat.daemon.clones import refs_look
from substrat.daemon.clones.repository import RefMoved

AT = "refs/substrat/fix"


class Refs:
    """The refs of one agent, as keeps make them.

    Args:
        room: the repository, and the agent's commits.
    """

    def __init__(self, room):
        self.room = room
        self.left = LeftRefs(str(room.top / ".git"), "fix", str(room.top), "main")

    def keep(self, head, files=None, *, turn):
        """Keep a head with uncommitted files at the end of a turn."""
        git, work = self.room.git, self.room.top.parent / "work"
        git("checkout", "-q", "--detach", head, at=work)
        self.room.commit(files or {}, "Uncommitted files", at=work)
        git("fetch", "-q", str(work), "HEAD")
        wip = git("rev-parse", "FETCH_HEAD")
        for name, commit in (("head", head), ("wip", wip), (f"turns/{turn}", wip)):
            git("update-ref", f"{AT}/{name}", commit)
        git("checkout", "-q", "--detach", head, at=work)
        return wip

    async def names(self):
        found = await refs_look.refs_by_name(self.room.repositories, self.left.git_dir)
        return found["fix"]

    async def look(self):
        """Look, and note what was found."""
        found = await refs_look.look(self.room.repositories, self.left.git_dir, [self.left])
        self.left = noted(self.left, found["fix"], 1.0)
        return found["fix"]

    async def going(self):
        found = going(await self.names(), await self.look(), has_clone=False, unlanded=False)
        return {ref.removeprefix(f"{AT}/") for ref in found}


@pytest.fixture
def refs(room):
    return Refs(room)


async def test_commits_that_a_branch_has_let_all_refs_go(room, refs):
    refs.keep(room.agent_commits({"a": "1\n"}), turn=1)
    refs.keep(head := room.agent_commits({"b": "1\n"}), turn=2)
    look = await refs.look()
    assert (look.landed, look.commits, look.files, look.asides) == (False, 2, 0, 0)
    assert await refs.going() == set()
    room.git("merge", "-q", head)
    assert await refs.going() == {"head", "wip", "turns/1", "turns/2"}


async def test_a_squash_counts_also_once_its_files_have_changed_and_until_it_is_taken_back(room, refs):
    refs.keep(room.agent_commits({"a": "1\n"}), turn=1)
    refs.keep(head := room.agent_commits({"a": "1\n2\n"}), turn=2)
    room.git("merge", "-q", "--squash", head)
    room.git("commit", "-qm", "all of fix")
    assert await refs.going() == {"head", "wip", "turns/1", "turns/2"}
    room.commit({"a": "quite other\n"})
    assert (await refs.look()).landed, "it was noted"
    room.git("reset", "-q", "--hard", "HEAD~2")
    assert not (await refs.look()).landed


async def test_a_branch_that_is_gone_is_replaced_by_the_one_that_is_checked_out(room, refs):
    refs.keep(head := room.agent_commits({"a": "1\n"}), turn=1)
    refs.left = LeftRefs(refs.left.git_dir, "fix", refs.left.repository, "gone")
    room.git("cherry-pick", head)
    assert await refs.going() == {"head", "wip", "turns/1"}


async def test_uncommitted_files_stay_until_a_branch_has_them(room, refs):
    refs.keep(head := room.agent_commits({"a": "1\n"}), {"new": "new\n"}, turn=1)
    room.git("merge", "-q", head)
    look = await refs.look()
    assert (look.landed, look.commits, look.files) == (False, 0, 1)
    assert await refs.going() == set()
    room.commit({"new": "new\n"})
    assert await refs.going() == {"head", "wip", "turns/1"}


async def test_other_branches_and_stashes_stay(room, refs):
    wip = refs.keep(head := room.agent_commits({"a": "1\n"}), turn=1)
    room.git("merge", "-q", head)
    side = room.git("commit-tree", "-p", head, "-m", "side", f"{head}^{{tree}}")
    room.git("update-ref", f"{AT}/asides", room.git("commit-tree", "-p", wip, "-p", side, "-m", "x", f"{wip}^{{tree}}"))
    assert (await refs.look()).asides == 1
    assert await refs.going() == set()
    room.git("branch", "side", side)
    assert await refs.going() == {"asides", "head", "wip", "turns/1"}


async def test_a_turn_stays_whose_file_came_nowhere_and_earlier_states_of_files_go(room, refs):
    head = room.agent_commits({"a": "1\n"})
    refs.keep(head, {"draft": "draft\n"}, turn=1)
    refs.keep(head, {"b": "half\n"}, turn=2)
    refs.keep(head := room.agent_commits({"b": "whole\n"}), turn=3)
    room.git("merge", "-q", head)
    assert (await refs.look()).holding == {f"{AT}/turns/1"}
    assert await refs.going() == {"head", "wip", "turns/2", "turns/3"}
    room.commit({"elsewhere": "draft\n"})
    assert "turns/1" in await refs.going()


async def test_a_state_before_a_restore_stays_by_itself(room, refs):
    room.git("update-ref", f"{AT}/before-restore/1", refs.keep(room.agent_commits({"a": "1\n"}), {"b": "b\n"}, turn=1))
    refs.keep(str(room.clone.base), turn=2)
    assert await refs.going() == {"head", "wip", "turns/2"}
    assert (await refs.look()).holding == {f"{AT}/turns/1", f"{AT}/before-restore/1"}


async def test_work_that_git_cannot_read_stays(room, refs):
    refs.keep(room.agent_commits({"a": "1\n"}), turn=1)
    wip = room.git("rev-parse", f"{AT}/wip")
    room.git("update-ref", "-d", f"{AT}/head")
    room.git("update-ref", "-d", f"{AT}/turns/1")
    (room.top / ".git" / "objects" / wip[:2] / wip[2:]).unlink()
    assert await refs.going() == set()


async def test_a_ref_that_has_moved_since_is_not_deleted_and_none_beside_it(room, refs):
    first = refs.keep(room.agent_commits({"a": "1\n"}), turn=1)
    seen = await refs.names()
    refs.keep(room.agent_commits({"b": "1\n"}), turn=2)
    with pytest.raises(RefMoved):
        await room.repositories.update_refs(
            refs.left.git_dir, {f"{AT}/wip": (first, first), f"{AT}/turns/1": (None, seen[f"{AT}/turns/1"])}
        )
    assert {*seen, f"{AT}/turns/2"} == {*await refs.names()}
