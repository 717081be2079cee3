"""One running turn: its output, launch and adoption; scripts take the place of sandboxes, and the test owns the time."""

import contextlib
import os

import pytest
import trio
import trio.testing

from sandbox import host
from substrat.core.agents.records import Process
from substrat.core.agents.stop_reason import ENDED, SUSPENDED
from substrat.core.agents.turn_limits import TurnLimits
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.kernel import process, procfs
from substrat.daemon.kernel.inotify import Watcher
from substrat.daemon.sandboxes.launch_plan import LaunchPlan
from substrat.daemon.state.layout import TurnDir
from substrat.daemon.state.storing import Patience, until_stored
from substrat.daemon.turns import output
from substrat.daemon.turns.running import RunningTurn
from substrat.errors import SandboxFailed, StorageFailed

PATIENCE = 30
RESULT = '{"type":"result","subtype":"success","result":"done"}'
NOTHING_ELSE = (
    "--unshare-user --unshare-pid --ro-bind / / --bind {work} {work} --proc /proc --dev /dev --json-status-fd 3 --"
)


async def no_obstacles(_named):
    """All sessions that an agent names are its own."""
    return {}


class TurnObserver:
    """Writes a turn's reports down; storage can be made to fail."""

    def __init__(self):
        self.spawned = []
        self.result = None
        self.lines = []
        self.offset = 0
        self.truncated = []
        self.limits = []
        self.notes = []
        self.too_long = []
        self.failures = 0
        self.finds_no_room_for_its_prompt = False
        self.news = trio.Event()

    def _write(self):
        if self.failures:
            self.failures -= 1
            raise StorageFailed("the disk is full")
        self.news.set()
        self.news = trio.Event()

    def result_seen(self, _turn):
        return self.result

    def turn_spawned(self, _turn, started, _version=None, _directory=None):
        self._write()
        self.spawned.append(started)

    def lacks_prompt(self, _turn):
        return self.finds_no_room_for_its_prompt

    def prompt_handed_over(self, _turn, _prompt):
        raise StorageFailed("the disk is full")

    def turn_lines(self, _turn, lines, offset, _obstacles, patience=Patience.WAITS):
        self._write()
        self.lines += [line for line, _ in lines]
        self.offset = offset

    def turn_truncated(self, _turn, size, expected, patience=Patience.WAITS):
        self._write()
        self.truncated.append((size, expected))

    def open_call(self, _turn):
        return None

    def turn_limit_reached(self, _turn, limit):
        self._write()
        self.limits.append(limit)

    def turn_note(self, _turn, kind, text, patience=Patience.WAITS):
        self._write()
        self.notes.append((kind, text))

    def turn_output_too_long(self, _turn, limit):
        self._write()
        self.too_long.append(limit)

    @property
    def texts(self):
        return [line.data.decode() for line in self.lines]

    async def wait_for(self, text):
        while text not in self.texts:
            await self.news.wait()


class Bench:
    """A turn's directory, its books, and the parts that run it."""

    def __init__(self, directory, watcher):
        self.directory = directory
        self.place = TurnDir(str(directory / "turn"))
        self.place.make("the prompt\n")
        self.books = TurnObserver()
        self.watcher = watcher
        self.gate = str(directory / "gate")
        os.mkfifo(self.gate)

    def turn(self, offset=0, *, stop_grace=5.0, result_grace=10.0, frozen=False, group=None, **pace):
        how = TurnLimits(stop_grace, result_grace, **pace)
        return RunningTurn(
            "t",
            self.place,
            offset,
            self.books,  # type: ignore[arg-type]
            self.watcher,
            how,
            Failpoints({}),
            obstacles=no_obstacles,
            group=group,
            frozen=frozen,
        )

    def launch(self, script, *, sandboxed=False, options=()):
        """Say how a script is started; `$GATE` is a pipe that it can wait at."""
        command = ("/bin/sh", "-c", script)
        if sandboxed:
            command = (host.find_bubblewrap().path, *options, *NOTHING_ELSE.format(work=self.directory).split(), *command)

        async def prepared():
            return LaunchPlan(command, {"PATH": "/usr/bin:/bin", "GATE": self.gate, "OUT": self.place.stdout}, b"")

        return prepared

    def open_gate(self):
        """Let the script that waits at the gate, or will wait there, go on."""
        descriptor = os.open(self.gate, os.O_RDWR)
        os.write(descriptor, b"go\n")
        return descriptor

    async def run(self, script, *, sandboxed=False, **pace):
        return await self.turn(**pace).run(self.launch(script, sandboxed=sandboxed))


@pytest.fixture
async def bench(tmp_path):
    watcher = Watcher()
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watcher.deliver)
            yield Bench(tmp_path, watcher)
            nursery.cancel_scope.cancel()
    finally:
        watcher.close()


@pytest.fixture
def real_bwrap():
    if host.find_bubblewrap() is None:
        pytest.skip("there is no bubblewrap")


def open_files():
    """Return the targets of this process's descriptors."""
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            found.append(os.readlink(f"/proc/self/fd/{name}"))
    return sorted(found)


@pytest.fixture(autouse=True)
def no_descriptor_is_left():
    before = open_files()
    yield
    assert open_files() == before


# Its output


async def test_a_turn_that_goes_well(bench):
    seen = await bench.run(f"cat; echo '{RESULT}'; echo complaint >&2; echo '{{ \"exit-code\": 0 }}' >&3")
    assert bench.books.texts == ["the prompt", RESULT]
    assert seen.result.text == "done"
    assert (seen.exit_code, seen.stop, seen.errors, seen.anything) == (0, None, "complaint\n", True)
    assert len(bench.books.spawned) == 1
    assert bench.books.offset == os.path.getsize(bench.place.stdout)


async def test_a_turn_whose_prompt_finds_no_room_can_be_stopped(bench):
    bench.books.finds_no_room_for_its_prompt = True
    turn, seen = bench.turn(stop_grace=0.1), []

    async def run():
        seen.append(await turn.run(bench.launch("echo begun; exec sleep 1000")))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            while not bench.books.spawned:
                await bench.books.news.wait()
            turn.stop(ENDED)
    assert (seen[0].stop, bench.books.texts) == (ENDED, ["begun"])


async def test_a_turn_that_says_nothing(bench):
    seen = await bench.run("exit 3")
    assert (seen.result, seen.exit_code, seen.anything) == (None, None, False)
    assert bench.books.lines == []


async def test_a_last_line_without_its_newline_is_told(bench):
    await bench.run("printf 'one\\ntwo'")
    assert bench.books.texts == ["one", "two"]
    assert [line.ended for line in bench.books.lines] == [True, False]


async def test_half_a_line_is_told_when_it_is_whole(bench):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run, 'echo first; printf "ha"; read x <$GATE; echo lf; echo last')
        await bench.books.wait_for("first")
        descriptor = bench.open_gate()
        await bench.books.wait_for("last")
        os.close(descriptor)
    assert bench.books.texts == ["first", "half", "last"]


async def test_much_output_is_told_whole(bench):
    await bench.run("i=0; while [ $i -lt 3 ]; do head -c 1000000 /dev/zero | tr '\\0' x; echo; seq 20000; i=$((i+1)); done")
    assert bench.books.texts == (["x" * 1_000_000] + [str(number) for number in range(1, 20_001)]) * 3


async def test_output_that_its_program_cut_is_told_and_followed(bench):
    script = "echo a long first line; read x <$GATE; : >$OUT; echo new >$OUT; echo newer"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run, script)
        await bench.books.wait_for("a long first line")
        descriptor = bench.open_gate()
        while not bench.books.truncated:
            await bench.books.news.wait()
        os.close(descriptor)
    ((size, expected),) = bench.books.truncated
    assert size < expected == len("a long first line\n")
    assert set(bench.books.texts) <= {"a long first line", "new", "newer"}


async def test_output_that_is_cut_again_and_again_is_read_no_further(bench, monkeypatch):
    """Each cut is an event in the state, and costs the agent nothing of the disk."""
    monkeypatch.setattr(output, "_MOST_CUTS", 3)
    # It goes on after each cut when that was seen: a line of the same length would stand where the cut one was read.
    script = "for i in 1 2 3 4; do echo line $i; read x <$GATE; : >$OUT; read x <$GATE; done; echo more"
    gate = os.open(bench.gate, os.O_RDWR)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run, script)
        for number in range(1, 5):
            await bench.books.wait_for(f"line {number}")
            os.write(gate, b"go\n")
            while len(bench.books.truncated) + len(bench.books.notes) < number:
                await bench.books.news.wait()
            os.write(gate, b"go\n")
    os.close(gate)
    assert len(bench.books.truncated) == 3
    assert bench.books.texts == ["line 1", "line 2", "line 3", "line 4"]
    ((kind, text),) = bench.books.notes
    assert kind == "turn:output-unread"
    assert "3 times" in text


async def test_what_a_stopped_turn_wrote_is_not_read_for_long(bench, monkeypatch):
    """A person who stopped it is answered when it is read; an agent may have written a gigabyte that takes minutes."""
    monkeypatch.setattr(output, "_LAST_READING_SECONDS", -1.0)
    decode = output.TurnOutput._decode

    async def decode_late(turn, batch):
        turn._stop.ask(ENDED)
        await turn._exited.wait()
        return await decode(turn, batch)

    monkeypatch.setattr(output.TurnOutput, "_decode", decode_late)
    await bench.run("seq 10000; read x <$GATE", stop_grace=0.1)
    assert 0 < len(bench.books.texts) < 10_000
    ((kind, text),) = bench.books.notes
    assert kind == "turn:output-unread"
    assert "stopped" in text


async def test_a_full_disk_loses_and_repeats_nothing(bench, autojump_clock):
    bench.books.failures = 0
    script = f"echo one; read x <$GATE; echo two; echo '{RESULT}'"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run, script)
        await bench.books.wait_for("one")
        bench.books.failures = 7
        descriptor = bench.open_gate()
        await bench.books.wait_for(RESULT)
        os.close(descriptor)
    assert bench.books.texts == ["one", "two", RESULT]


async def test_writing_is_tried_again_once_a_second(autojump_clock):
    tries = []

    def write():
        tries.append(trio.current_time())
        if len(tries) < 4:
            raise StorageFailed("full")

    await until_stored(write)
    assert [round(at - tries[0]) for at in tries] == [0, 1, 2, 3]


# Its launch


async def test_a_program_that_cannot_be_started_and_a_launch_that_is_refused(bench):
    async def missing():
        return LaunchPlan(("/nonexistent/bwrap",), {}, b"")

    async def refused():
        raise SandboxFailed("no room")

    for launch, reason in ((missing, "/nonexistent/bwrap"), (refused, "no room")):
        with pytest.raises(SandboxFailed, match=reason):
            await bench.turn().run(launch)
    assert bench.books.spawned == []


async def test_a_turn_that_was_stopped_before_its_launch_is_not_started(bench):
    turn = bench.turn()
    turn.stop(SUSPENDED)
    seen = await turn.run(bench.launch("echo never"))
    assert seen.stop == SUSPENDED
    assert bench.books.spawned == []
    assert not os.path.exists(bench.place.stdout)


async def test_no_room_for_its_files_is_told_apart_from_a_launch_that_fails(bench, monkeypatch):
    real = os.open

    def full(path, *arguments, **more):
        if path == bench.place.stderr:
            raise OSError(28, "No space left on device")
        return real(path, *arguments, **more)

    monkeypatch.setattr(os, "open", full)
    with pytest.raises(StorageFailed, match="make room"):
        await bench.run("true")
    assert bench.books.spawned == []


# Adopted


async def test_an_adopted_turn_goes_on_where_reading_stopped(bench):
    started = await start_alone(bench, "echo before; echo after; read x <$GATE; echo last")
    while os.path.getsize(bench.place.stdout) < len("before\n"):
        await trio.lowlevel.checkpoint()
    descriptor = bench.open_gate()
    seen = await bench.turn(offset=len("before\n")).adopt(started)
    os.close(descriptor)
    assert bench.books.texts == ["after", "last"]
    assert bench.books.lines[0].offset == len("before\n")
    assert bench.books.spawned == []
    assert seen.anything


async def test_a_turn_that_ended_meanwhile_is_read_to_its_end(bench):
    started = await start_alone(bench, f"echo before; echo '{RESULT}'; echo '{{ \"exit-code\": 7 }}' >&3")
    os.waitpid(started.pid, 0)
    seen = await bench.turn(offset=len("before\n")).adopt(started)
    assert bench.books.texts == [RESULT]
    assert (seen.result.text, seen.exit_code) == ("done", 7)


async def test_a_turn_of_another_boot_or_process_is_over(bench):
    os.close(os.open(bench.place.stdout, os.O_CREAT, 0o600))
    for started in (Process(os.getpid(), 1, procfs.boot_id()), Process(os.getpid(), 1, "another boot")):
        seen = await bench.turn().adopt(started)
        assert (seen.result, seen.exit_code) == (None, None)


async def test_a_turn_whose_output_is_gone_is_over(bench):
    seen = await bench.turn().adopt(Process(os.getpid(), 1, "another boot"))
    assert (seen.result, seen.anything) == (None, False)


async def start_alone(bench, script):
    launch = await bench.launch(script)()
    appending = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
    outputs = (bench.place.stdout, bench.place.stderr, bench.place.status)
    files = [os.open(bench.place.prompt, os.O_RDONLY), *(os.open(path, appending) for path in outputs)]
    try:
        return process.start(launch.command, launch.environment, files)
    finally:
        for descriptor in files:
            os.close(descriptor)


# Its system call filter


async def test_a_turn_runs_under_the_filter(bench):
    options = ("--seccomp", "6")
    seen = await bench.turn().run(
        bench.launch("grep Seccomp: /proc/self/status; echo ran", sandboxed=True, options=options)
    )
    assert seen.exit_code == 0
    assert [text.split() for text in bench.books.texts] == [["Seccomp:", "2"], ["ran"]]


async def test_a_turn_does_not_start_on_a_machine_whose_calls_are_unknown(bench, monkeypatch):
    monkeypatch.setattr(os, "uname", lambda: os.uname_result(("Linux", "h", "6.1", "v", "riscv64")))
    with pytest.raises(SandboxFailed, match="riscv64, only for x86_64 and aarch64; run substratd on one of those"):
        await bench.turn().run(bench.launch("echo ran"))
    assert bench.books.spawned == []
    assert not bench.place.is_held()
