"""git-lfs in a move: it writes the objects that the repository has, and asks no server."""

from substrat.daemon.clones import lfs_objects
from substrat.daemon.clones.host_git import Move
from tests.support import git_lfs


async def test_git_lfs_asks_no_server_and_what_the_repository_lacks_stays_a_pointer(room):
    seen = git_lfs.install(room.top.parent / "bin")
    room.environ["PATH"] = f"{seen.parent}:{room.environ['PATH']}"
    room.again()
    for key, command in git_lfs.FILTERS.items():
        room.git("config", "--global", key, command)
    room.git("config", "remote.origin.url", "http://here.invalid")
    room.git("config", "remote.origin.lfsurl", "http://own.invalid")
    room.commit({".gitattributes": "*.bin filter=lfs -text\n", ".lfsconfig": "[lfs]\n\turl = http://evil.invalid\n"})
    git_lfs.store(room.top / ".git", b"here\n")
    room.branch_again()
    tip, far = room.tip(), git_lfs.pointer(b"far\n")
    head = room.agent_commits({"a.bin": git_lfs.pointer(b"here\n"), "b.bin": far, "c.txt": far})
    checkout = await room.checkout()
    persons = await room.persons_git(checkout)
    await room.host_git.move(room.clone, room.landing(), Move(head, tip, persons.programs), checkout)
    assert [(room.top / name).read_text() for name in ("a.bin", "b.bin")] == ["here\n", far]
    assert seen.read_text().split() == ["http://127.0.0.1:0/"] * 2
    assert room.git("status", "--porcelain") == ""
    assert lfs_objects.without_object(str(room.top), ["a.bin", "b.bin"]) == ["b.bin"]
