"""Packs of an agent's, small and large, honest and not, on their way into a person's repository; real git, no daemon."""

import io
import os
import re
import signal
import subprocess
import sys
import zlib

import pytest
import trio

from substrat.daemon.clones.git_sandbox import GitFailed
from substrat.daemon.clones.repository import Room, TooMuch
from substrat.errors import SandboxFailed
from substrat.inside import packtaker
from tests.support.waiting import wait_until

MIB = 1 << 20
ROOM = Room(64 * MIB, 0)
NAME = 20
BLOB, OFS_DELTA = 3, 6


@pytest.fixture
def agent(room):
    """A repository of the agent's that borrows the person's objects; `pack` returns a pack of commits of its own."""
    return Agent(room)


class Agent:
    def __init__(self, room):
        self.room, self.work = room, room.top.parent / "work"
        self.pack_path = str(room.top.parent / "pack")
        room.git("clone", "-q", "--shared", str(room.top), str(self.work))

    def commits(self, files):
        """Commit files, and return the commit; the agent goes on from there."""
        return self.room.commit(files, at=self.work)

    def packs(self, head):
        """Pack all that a commit has and the person's `main` hasn't."""
        self.packs_alone(head, f"^{self.room.tip()}", options=("--revs", "--thin"))

    def packs_alone(self, *names, options=()):
        """Pack objects, with the options what they lead to."""
        line = ("git", "-C", self.work, "pack-objects", "--stdout", "-q", *options)
        given = "".join(f"{name}\n" for name in names).encode()
        with open(self.pack_path, "wb") as file:
            subprocess.run(line, input=given, stdout=file, env=self.room.environ, check=True)

    async def hands_over(self, head, space=ROOM):
        """Import the pack as the work of a turn."""
        refs = {self.room.clone.ref("head"): head, self.room.clone.ref("wip"): head}
        return await self.room.repositories.import_pack(self.room.clone, self.pack_path, refs, space)


def contents(room):
    """Return all files in the person's directory of objects, with their sizes."""
    objects = room.top / ".git" / "objects"
    return {str(path.relative_to(objects)): path.stat().st_size for path in objects.rglob("*") if path.is_file()}


def is_sound(room):
    return room.git("fsck", "--no-dangling") == "" and not list((room.top / ".git" / "objects").glob("tmp*"))


def test_what_a_pack_unfolds_to_is_what_git_says(agent, room):
    """Blobs with deltas among them, one large, one empty, trees, a commit."""
    lines = "".join(f"{number}\n" for number in range(20_000))
    files = {f"f{number}": f"{lines}{number}\n" for number in range(5)}
    head = agent.commits({**files, "empty": "", "random": os.urandom(300_000)})
    agent.packs(head)
    listed = room.git("rev-list", "--objects", f"{room.tip()}..{head}", at=agent.work).splitlines()
    names = "".join(f"{line.split()[0]}\n" for line in listed).encode()
    sizes = room.git("cat-file", "--batch-check=%(objectsize)", given=names, at=agent.work).split()
    with open(agent.pack_path, "rb") as file:
        assert packtaker.measure(file, MIB, NAME) == (len(sizes), sum(map(int, sizes)))
        file.seek(0)
        with pytest.raises(packtaker.Refused) as caught:
            packtaker.measure(file, sum(map(int, sizes)) - 1, NAME)
    assert caught.value.status == packtaker.TOO_LARGE


def number(value, first=7, kind=0):
    """Encode a number as packs and deltas have it; of the first byte so many bits are its own, and above them the kind."""
    data = [kind << first | value & (1 << first) - 1]
    value >>= first
    while value:
        data[-1] |= 0x80
        data.append(value & 0x7F)
        value >>= 7
    return bytes(data)


def delta(base, made):
    """A delta that repeats the beginning of its base; copies are of 16 MiB at most."""
    copies, left = b"", made
    while left:
        size = min(left, base, (1 << 24) - 1)
        copies, left = copies + b"\xf0" + size.to_bytes(3, "little"), left - size
    return number(base) + number(made) + copies


def pack(*objects):
    """Return a pack, each object as its header and the data that follow it; its checksum is wrong."""
    return b"PACK" + (2).to_bytes(4, "big") + len(objects).to_bytes(4, "big") + b"".join(objects) + bytes(20)


def blob(data, size=None):
    return number(len(data) if size is None else size, 4, BLOB) + zlib.compress(data)


def deltas(data):
    return number(len(data), 4, OFS_DELTA) + b"\1" + zlib.compress(data)


FIRST = blob(bytes(MIB))
LARGE = deltas(number(MIB) + number(1) + bytes(40 * MIB))
BOMBS = {
    "zeros": [blob(bytes(80 * MIB))],
    "deltas": [FIRST, deltas(delta(MIB, 32 * MIB)), deltas(delta(MIB, 63 * MIB))],
    "deltas larger than what they make": [FIRST, LARGE, LARGE],
    "a number of a thousand bits": [b"\xb0" + b"\xff" * 50 + b"\x01"],
}
NO_PACKS = {
    "nothing": b"",
    "a header": b"PACK\0\0\0\2\0\0\0\1",
    "another size": pack(blob(bytes(100), 99)),
    "no object's kind": pack(number(5, 4, 5) + zlib.compress(b"12345")),
    "no data": pack(number(5, 4, BLOB) + b"none"),
    "a delta without sizes": pack(deltas(b"")),
    "an endless header": pack(b"\xb0" + b"\x80" * 100),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_bomb_is_known_before_it_unfolds(bomb):
    with pytest.raises(packtaker.Refused) as caught:
        packtaker.measure(io.BytesIO(pack(*BOMBS[bomb])), 64 * MIB, NAME)
    assert caught.value.status == packtaker.TOO_LARGE


@pytest.mark.parametrize("bad", NO_PACKS)
def test_what_is_no_pack_is_refused(bad):
    with pytest.raises(packtaker.Refused) as caught:
        packtaker.measure(io.BytesIO(NO_PACKS[bad]), 64 * MIB, NAME)
    assert caught.value.status == packtaker.REFUSED


async def test_a_keep_of_many_objects_stays_a_pack_and_one_of_few_becomes_files(agent, room):
    before = contents(room)
    few = agent.commits({"a/b": "1\n"})
    agent.packs(few)
    await agent.hands_over(few)
    new = sorted(set(contents(room)) - set(before))
    assert len(new) == 4
    assert all(re.fullmatch("[0-9a-f]{2}/[0-9a-f]{38}", name) for name in new), new
    assert is_sound(room)

    before = contents(room)
    many = agent.commits({f"f{number}": f"{number}\n" for number in range(150)})
    agent.packs(many)
    await agent.hands_over(many)
    kinds = {os.path.splitext(name)[1] for name in set(contents(room)) - set(before)}
    assert {".pack", ".idx"} <= kinds <= {".pack", ".idx", ".rev"}
    assert room.git("rev-parse", "refs/substrat/fix/head") == many
    assert room.git("show", f"{many}:f7") == "7"
    assert is_sound(room)


async def test_files_that_are_there_are_not_written_anew(agent, room):
    """Such as those that an import has moved which was killed before it set the refs."""
    many = agent.commits({f"f{number}": f"{number}\n" for number in range(150)})
    agent.packs(many)
    await agent.hands_over(many)
    (index,) = (room.top / ".git" / "objects" / "pack").glob("*.idx")
    stood = (index.with_suffix(".pack").stat().st_ino, index.read_bytes())
    index.unlink()
    await agent.hands_over(many)
    assert (index.with_suffix(".pack").stat().st_ino, index.read_bytes()) == stood
    assert is_sound(room)


def test_a_pack_gets_its_index_last_also_where_a_file_system_has_no_links(tmp_path, monkeypatch):
    quarantine, moved, rename = tmp_path / "objects" / "quarantine", [], os.rename
    (quarantine / "pack").mkdir(parents=True)
    name = f"pack-{'1f' * 20}"
    for ending in ("idx", "rev", "pack"):
        (quarantine / "pack" / f"{name}.{ending}").touch()

    def refuse(*_, **__):
        raise PermissionError

    def note(source, target, **places):
        moved.append(target)
        rename(source, target, **places)

    monkeypatch.setattr(os, "link", refuse)
    monkeypatch.setattr(os, "rename", note)
    packtaker._move(str(quarantine), str(tmp_path / "objects"))
    assert moved == [f"{name}.pack", f"{name}.rev", f"{name}.idx"]
    assert sorted(path.name for path in (tmp_path / "objects" / "pack").iterdir()) == sorted(moved)


def test_only_what_git_makes_is_moved_and_through_no_link(tmp_path):
    """An agent in place can put anything into the quarantine, and a link into the place of a directory of objects."""
    objects, hooks, name = tmp_path / "objects", tmp_path / "hooks", "1f" * 19
    quarantine = objects / "quarantine"
    for directory in (hooks, *(quarantine / inner for inner in ("zz", "1f", "ab", "info", "pack"))):
        directory.mkdir(parents=True)
    for file in ("zz/post-commit", "1f/post-commit", f"1f/{name}", f"ab/{name}", "info/alternates", "pack/pack-x.pack"):
        (quarantine / file).touch()
    (quarantine / "1f" / ("2e" * 19)).symlink_to(hooks)
    (objects / "zz").symlink_to(hooks)
    (objects / "ab").symlink_to(hooks)
    with pytest.raises(OSError, match="ab"):
        packtaker._move(str(quarantine), str(objects))
    assert [path.name for path in (objects / "1f").iterdir()] == [name]
    (objects / "ab").unlink()
    packtaker._move(str(quarantine), str(objects))
    assert list(hooks.iterdir()) == []
    assert {path.name for path in objects.iterdir()} == {"quarantine", "zz", "1f", "ab", "pack"}
    assert list((objects / "pack").iterdir()) == []


@pytest.mark.parametrize("is_bad", ["too large", "no room", "a commit that git refuses", "something is missing"])
async def test_what_is_refused_leaves_nothing(agent, room, is_bad):
    head, space = agent.commits({"a": "a" * 3 * MIB, "b": "b"}), ROOM
    if is_bad == "a commit that git refuses":
        bad = room.printed("cat-file", "commit", "HEAD").replace(b"<me@example.invalid>", b"<<>")
        head = room.git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", given=bad, at=agent.work)
    agent.packs(head)
    if is_bad == "too large":
        space = Room(2 * MIB, 0)
    elif is_bad == "no room":
        space = Room(64 * MIB, 1 << 60)
    elif is_bad == "something is missing":
        agent.packs_alone(head)
    before = contents(room)
    with pytest.raises(SandboxFailed) as caught:
        await agent.hands_over(head, space)
    assert type(caught.value) is {"too large": TooMuch, "no room": SandboxFailed}.get(is_bad, GitFailed)
    assert ("disk.free" in caught.value.message) is (is_bad == "no room")
    assert contents(room) == before
    assert is_sound(room)


async def test_a_commit_of_which_something_is_missing_in_the_persons_repository_becomes_no_ref(agent, room):
    head = agent.commits({"a": "a"})
    agent.packs(head)
    text = room.printed("cat-file", "commit", "HEAD").replace(room.git("rev-parse", "HEAD^{tree}").encode(), b"1" * 40)
    bad = room.git("hash-object", "-t", "commit", "-w", "--literally", "--stdin", given=text)
    before = contents(room)
    with pytest.raises(GitFailed):
        await agent.hands_over(bad)
    assert contents(room) == before
    assert room.git("for-each-ref", "refs/substrat") == ""


async def test_objects_of_the_persons_that_deltas_begin_at_count_too(agent, room):
    """git adds them to the pack: some hundred bytes would bring a copy of whatever the repository has."""
    room.commit({f"large{number}": os.urandom(MIB) for number in range(4)})
    room.git("fetch", "-q", at=agent.work)
    room.git("checkout", "-q", "--detach", "origin/main", at=agent.work)
    base = room.tip()
    small = {f"small{number}": f"{number}\n" for number in range(150)}
    head = agent.commits({f"large{n}": (agent.work / f"large{n}").read_bytes() + b"x" for n in range(4)} | small)
    agent.packs(head)
    assert os.path.getsize(agent.pack_path) < MIB
    before = contents(room)
    # The new objects unfold to 4 MiB, and the pack has as many of the person's.
    with pytest.raises(TooMuch):
        await agent.hands_over(head, Room(5 * MIB, 0))
    assert contents(room) == before
    await agent.hands_over(head, Room(16 * MIB, 0))
    assert room.tip() == base
    assert is_sound(room)


async def test_git_that_takes_too_much_processor_time_is_stopped(agent, room, monkeypatch, tmp_path):
    head = agent.commits({"a": "a"})
    agent.packs(head)
    slow = tmp_path / "slow"
    slow.mkdir()
    (slow / "git").write_text("#!/bin/sh\nwhile :; do :; done\n")
    (slow / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(slow), prepend=":")
    monkeypatch.setenv("GIT_DIR", f"{room.top}/.git")
    monkeypatch.setattr(packtaker, "_SECONDS", 1)
    before = contents(room)
    quarantine = f"{room.top}/.git/objects/tmp_objdir-substrat-id"
    with pytest.raises(packtaker.Refused) as caught:
        packtaker.take(agent.pack_path, quarantine, MIB, 0, [head])
    assert caught.value.status == packtaker.TOO_SLOW
    assert contents(room) == before
    assert not os.path.lexists(quarantine)


def is_killed(line, environ, path):
    """Start a program, and kill it with all that it has started once a file is there."""
    killed = subprocess.Popen(line, env=environ, start_new_session=True)
    wait_until(path.exists, "it has begun")
    os.killpg(killed.pid, signal.SIGKILL)
    killed.wait()


async def test_a_killed_import_leaves_only_a_quarantine_which_the_next_one_removes(agent, room, tmp_path):
    head = agent.commits({"a": "a"})
    agent.packs(head)
    hanging = tmp_path / "hanging"
    hanging.mkdir()
    (hanging / "git").write_text("#!/bin/sh\n: >$GIT_OBJECT_DIRECTORY/begun\nexec sleep 100\n")
    (hanging / "git").chmod(0o755)
    objects = room.top / ".git" / "objects"
    quarantine = objects / "tmp_objdir-substrat-id"
    line = (sys.executable, packtaker.__file__, agent.pack_path, str(quarantine), str(MIB), "0", head)
    environ = {"PATH": f"{hanging}:{os.environ['PATH']}", "GIT_DIR": f"{room.top}/.git"}
    before = contents(room)
    is_killed(line, environ, quarantine / "begun")
    assert contents(room) == {**before, "tmp_objdir-substrat-id/begun": 0}
    await room.repositories.clear_quarantine(room.clone)
    assert contents(room) == before
    quarantine.symlink_to(tmp_path)
    await agent.hands_over(head)
    assert is_sound(room)
    assert hanging.exists(), "nothing follows the link"


async def test_an_import_that_is_cancelled_leaves_nothing(agent, room, monkeypatch):
    head = agent.commits({"a": "a"})
    agent.packs(head)
    quarantine = room.top / ".git" / "objects" / "tmp_objdir-substrat-id"
    run, before, scope = room.sandbox.run, contents(room), trio.CancelScope()

    async def is_stopped(command, *rest, **more):
        if command[0] == "rm":
            return await run(command, *rest, **more)
        quarantine.mkdir()
        scope.cancel()
        return await trio.sleep_forever()

    monkeypatch.setattr(room.sandbox, "run", is_stopped)
    with scope:
        await agent.hands_over(head)
    assert scope.cancelled_caught
    assert contents(room) == before
    assert not quarantine.exists()
