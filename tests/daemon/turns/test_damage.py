"""A turn's damaged files: each is reported with its damage, and moved to `<state>/damaged`."""

import os
import shutil
from pathlib import Path

import pytest

from substrat.core.agents.records import Process, Turn
from substrat.daemon.kernel import procfs, sandbox_process
from substrat.daemon.sandboxes import generated
from substrat.daemon.sandboxes.person_git import PersonGit
from substrat.daemon.state import archive, damaged_files
from substrat.daemon.state.layout import Layout
from substrat.daemon.turns import damage
from substrat.daemon.turns.without_records import FoundAgent, agents_without_records, turns_without_records
from substrat.daemon.workspaces.user import User
from tests.support.optional import present

GONE = Process(4_194_304, 1, "another boot")
NOW = 1_700_000_000.0
STATUS = b'{ "child-pid": 4242 }\n{ "exit-code": 0 }\n'


@pytest.fixture
def places(tmp_path):
    return Layout(str(tmp_path / "state"), str(tmp_path / "run"))


class Case:
    def __init__(self, places):
        self.places = places
        self.place = places.agent("a-1")
        self.files = self.place.turn(1)
        self.files.make("the prompt")
        Path(self.files.stdout).write_bytes(b"line\n")
        Path(self.files.stderr).write_bytes(b"")
        Path(self.files.status).write_bytes(STATUS)

    def examine(self, started=GONE, offset=5):
        return damage.examine(Turn("t", "a-1", 1, 1.0, started, offset), self.place, self.places, NOW)

    def kept(self):
        return sorted(os.listdir(self.places.damaged)) if os.path.exists(self.places.damaged) else []


@pytest.fixture
def case(places):
    return Case(places)


def test_sound_files_are_left_alone(case):
    assert case.examine() == []
    assert case.kept() == []


@pytest.mark.parametrize(
    "status", [b"", STATUS, b'{ "child-pid": 4242 }\n', b'{ "child-pid": 4242 }\n{ "exit-c', STATUS[:7]]
)
def test_a_status_of_a_sandbox_that_was_killed_is_sound(case, status):
    Path(case.files.status).write_bytes(status)
    assert case.examine() == []


GARBAGE = [b"\0" * 100, b"\xff\xfe\n", b"[1, 2]\n", b'{"child-pid": 1}\nwhat?\n', b"cut"]


@pytest.mark.parametrize("status", GARBAGE)
def test_a_status_that_makes_no_sense_is_set_aside(case, status):
    Path(case.files.status).write_bytes(status)
    (found,) = case.examine()
    assert found.matters
    assert not found.blind
    assert case.files.status in found.sentence
    (kept,) = case.kept()
    assert Path(case.places.damaged, kept).read_bytes() == status
    assert os.path.join(case.places.damaged, kept) in found.sentence
    assert case.files.read_status() == b""


def test_garbage_around_an_exit_code_is_no_harm(case):
    Path(case.files.status).write_bytes(b"garbage\n" + STATUS)
    assert case.examine() == []


def test_the_status_of_a_sandbox_that_runs_stays_for_its_exit_code(case):
    own = Process(os.getpid(), present(procfs.start_time(os.getpid())), procfs.boot_id())
    Path(case.files.status).write_bytes(b"garbage\n")
    assert case.examine(own) == []


@pytest.mark.parametrize("name", ["prompt", "stdout", "stderr", "status"])
@pytest.mark.parametrize("kind", ["directory", "link", "dangling link", "pipe"])
def test_something_else_in_a_files_place_is_set_aside(case, name, kind):
    path = Path(case.files.root, name)
    path.unlink()
    if kind == "directory":
        (path / "inside").mkdir(parents=True)
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("/etc/passwd" if kind == "link" else "/nowhere")
    (found,) = case.examine()
    assert str(path) in found.sentence
    assert (found.matters, found.blind) == (name != "prompt", name == "stdout")
    assert len(case.kept()) == 1
    assert not os.path.lexists(path)


def test_missing_files_are_told_where_they_matter(case):
    for name in ("prompt", "stderr"):
        os.unlink(os.path.join(case.files.root, name))
    assert case.examine() == []
    os.unlink(case.files.stdout)
    assert case.examine(offset=0) == []  # nothing was read of it, and nothing may have been written
    (found,) = case.examine()
    assert (found.blind, found.sentence) == (True, f"{case.files.stdout} is gone")
    os.unlink(case.files.status)
    assert len(case.examine()) == 2


def test_compressed_output_is_not_missing(case):
    archive.compress(case.files.stdout)
    assert case.examine() == []


def test_a_missing_directory_is_told_and_made(case):
    shutil.rmtree(case.files.root)
    (found,) = case.examine()
    assert (found.blind, found.sentence) == (True, f"{case.files.root} is gone")
    assert os.path.isdir(case.files.root)


@pytest.mark.parametrize("which", ["agent", "turns", "turn"])
@pytest.mark.parametrize("started", [GONE, None])
def test_a_file_in_a_directorys_place_is_set_aside(case, which, started):
    path = {"agent": case.place.root, "turns": os.path.dirname(case.files.root), "turn": case.files.root}[which]
    shutil.rmtree(path)
    Path(path).write_text("what is this?")
    (found,) = case.examine(started)
    assert path in found.sentence
    assert found.blind
    assert len(case.kept()) == 1
    assert os.path.isdir(case.files.root) == (started is not None)


def test_a_turn_that_never_started_has_no_files_to_miss(case):
    os.unlink(case.files.status)
    assert case.examine(None) == []
    shutil.rmtree(case.files.root)
    assert case.examine(None) == []
    case.files.make("again")
    os.mkdir(case.files.status)
    (found,) = case.examine(None)
    assert case.files.status in found.sentence


def huge(path):
    path.touch()
    os.truncate(path, 40 << 30)


NOTE_DAMAGE = {
    "pipe": os.mkfifo,
    "huge": huge,
    "garbage": lambda path: path.write_bytes(b"\0\xff[{"),
    "nested": lambda path: path.write_bytes(b'{"x":' + b"[" * 100_000),
    "directory": Path.mkdir,
    "link": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("name", ["guard", "names", "form", "id"])
@pytest.mark.parametrize("kind", NOTE_DAMAGE)
def test_a_damaged_note_is_set_aside(case, name, kind):
    path = Path(case.files.root, name)
    NOTE_DAMAGE[kind](path)
    assert case.files.read_protected() is None or name == "guard"
    (found,) = case.examine()
    assert str(path) in found.sentence
    assert not found.matters
    assert not os.path.lexists(path)
    assert len(case.kept()) == 1


@pytest.mark.parametrize("name", ["prompt", "stderr", "status", "guard", "lock"])
@pytest.mark.parametrize("kind", ["pipe", "huge", "directory", "link"])
def test_nothing_that_is_read_blocks_or_takes_the_memory(case, name, kind):
    path = Path(case.files.root, name)
    path.unlink(missing_ok=True)
    NOTE_DAMAGE[kind](path)
    assert case.files.read_protected() is None
    assert len(case.files.read_status()) <= 64 * 1024
    assert len(case.files.read_errors()) <= 64 * 1024
    assert not case.files.is_held()
    if name == "prompt":
        with pytest.raises(OSError, match="prompt"):
            case.files.read_prompt()


OWN, OTHER = (f"{number:08}-0000-4000-8000-000000000000" for number in (1, 2))


@pytest.mark.parametrize("written", [OWN, OTHER, None, "", "garbage"])
@pytest.mark.parametrize("started", [GONE, None])
@pytest.mark.parametrize("was_recorded", [True, False])
def test_a_directory_of_another_turn_is_set_aside(case, written, started, was_recorded):
    if written is not None:
        Path(case.files.id).write_text(written)
    turn = Turn(OWN, "a-1", 1, 1.0, started, 5)
    found = damage.examine(turn, case.place, case.places, NOW, was_recorded=was_recorded)
    is_own = written == OWN or (written != OTHER and was_recorded)
    assert os.path.exists(case.files.status) == is_own
    if not is_own:
        (one,) = found
        assert "another turn" in one.sentence
        assert (one.matters, one.blind) == (started is not None, started is not None)
        (kept,) = case.kept()
        assert Path(case.places.damaged, kept, "status").read_bytes() == STATUS


def test_turns_without_records_are_those_above_the_newest_and_in_its_place(case):
    for number in (2, 3, 10):
        case.place.turn(number).make("x", turn=OTHER)
    for name in ("x", "07", "²", "9" * 30):
        os.mkdir(os.path.join(case.place.root, "turns", name))

    def numbers(newest):
        return [lost.number for lost in turns_without_records(case.place, newest)]

    assert numbers(None) == [1, 2, 3, 10]
    assert numbers(Turn(OTHER, "a-1", 3, 1.0)) == [10]
    assert numbers(Turn(OWN, "a-1", 3, 1.0)) == [3, 10]
    assert numbers(Turn(OWN, "a-1", 1, 1.0)) == [2, 3, 10]
    assert numbers(Turn(OWN, "a-1", 20, 1.0)) == []
    shutil.rmtree(case.place.root)
    assert numbers(None) == []


def test_what_cannot_be_moved_is_said(case):
    Path(case.places.damaged).parent.mkdir(exist_ok=True)
    Path(case.places.damaged).write_text("in the way")
    os.unlink(case.files.status)
    os.mkdir(case.files.status)
    (found,) = case.examine()
    assert "can't be moved" in found.sentence


NUMBERS = [
    b'{"child-pid": 1e400}',
    b'{"child-pid": -3}',
    b'{"child-pid": 99999999999999999999}',
    b'{"exit-code": -1}',
    b"{}",
]


@pytest.mark.parametrize("line", NUMBERS)
def test_numbers_that_cant_be_are_not_believed(line):
    assert sandbox_process.read_status(line) == (None, None)


# A database


def test_a_database_is_kept_with_all_that_belongs_to_it(places):
    os.makedirs(places.state)
    path = os.path.join(places.state, "substrat.db")
    for suffix in ("", "-wal", "-shm"):
        Path(path + suffix).write_text(suffix)
    kept = damaged_files.set_aside_database(path, places, NOW)
    assert sorted(os.listdir(kept)) == ["substrat.db", "substrat.db-shm", "substrat.db-wal"]
    assert os.listdir(places.state) == ["damaged"]
    Path(path).write_text("another")
    assert damaged_files.set_aside_database(path, places, NOW) != kept


def test_agents_are_found_by_their_files(places, new_agent, tmp_path):
    assert agents_without_records(places) == []
    agent = new_agent("anna", workspace='/w/a "b"\\c')
    place = places.agent(agent.id)
    os.makedirs(place.etc)
    os.makedirs(place.git)

    user = User("me", 1000, 1000, "/home/me")
    generated._write_etc(place, user, agent)
    generated._write_git(place, user, (f"{agent.workspace}/.git",), PersonGit(), None, agent.name)
    for number, session in ((1, "s-1"), (9, "s-9"), (10, "s-10"), (11, None)):
        turn = place.turn(number)
        turn.make("x")
        line = f'{{"type":"system","subtype":"init","session_id":"{session}"}}\n' if session else "nothing\n"
        Path(turn.stdout).write_text(line)
        archive.compress(turn.stdout)
    os.makedirs(places.agent("empty").root)
    Path(places.agents, "a file").touch()
    assert agents_without_records(places) == [
        FoundAgent(agent.id, "anna", agent.workspace, "s-10"), FoundAgent("empty", None, None, None)
    ]  # fmt: skip
