"""Whether a person's branch has an agent's work, by whichever commits."""

LINES = "".join(f"{number}\n" for number in range(30))


async def has_content(room):
    """What a landing asks; the look at a clone's state gives the same answer."""
    found = (await room.standing()).has_content
    assert (await room.repositories.state(room.clone)).is_landed is found
    return found


async def test_work_that_a_person_has_squashed_has_landed_also_where_the_file_has_changed_since(room):
    room.commit({"a.txt": LINES})
    room.branch_again()
    room.agent_commits({"a.txt": f"{LINES}one\n"}, {"b.txt": "b\n"})
    assert not await has_content(room)
    room.git("merge", "-q", "--squash", str(room.clone.kept.head))
    room.git("commit", "-qm", "all of fix")
    assert await has_content(room)
    room.commit({"a.txt": f"zero\n{LINES}one\n"})
    assert await has_content(room), "git merges that with what is there"


async def test_work_that_a_person_has_picked_has_landed_once_all_of_it_is_there(room):
    room.commit({"mine.txt": "mine\n"})
    head = room.agent_commits({"c.txt": "c\n"}, {"c.txt": "cc\n"})
    assert not await has_content(room)
    room.git("cherry-pick", f"{head}^")
    assert not await has_content(room)
    room.git("cherry-pick", head)
    room.commit({"c.txt": "other\n"})
    assert await has_content(room), "the branch has a commit with the same changes for each"


async def test_work_of_which_a_part_is_missing_or_other_has_not_landed(room):
    room.commit({"a.py": "if x:\n    y()\n"})
    room.branch_again()
    head = room.agent_commits({"a.py": "if x:\n    y()\n    z()\n"})
    room.commit({"a.py": "if x:\n    y()\nz()\n"})
    assert not await has_content(room), "white space counts"
    room.git("reset", "-q", "--hard", "HEAD^")
    room.commit({"mine.txt": "mine\n"})
    room.git("cherry-pick", head)
    assert await has_content(room)
    room.git("revert", "--no-edit", "HEAD")
    assert not await has_content(room), "it was taken back"
    assert [path.name for path in (room.top / ".git" / "objects").glob("tmp*")] == []


async def test_a_merge_that_git_would_make_otherwise_hides_no_change(room):
    """An evil merge: what it changes is in no patch of the commits beside it."""
    room.commit({"a": "0\n", "b": "0\n", "secret": "0\n"})
    room.branch_again()
    head = room.agent_commits({"a": "1\n"})
    work = room.top.parent / "work"
    room.git("checkout", "-q", str(room.clone.base), at=work)
    room.commit({"b": "1\n"}, at=work)
    side = room.git("rev-parse", "HEAD", at=work)
    room.git("merge", "-q", "--no-commit", head, at=work)
    room.commit({"secret": "1\n"}, "merge", at=work)
    room.agent_commits()
    room.git("cherry-pick", head, side)
    room.commit({"secret": "2\n", "a": "2\n"})
    assert not await has_content(room)
