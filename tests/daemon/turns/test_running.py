"""One running turn: its output, its end, its stop; scripts take the place of sandboxes, and the test owns the time."""

import contextlib
import os
import resource
import signal

import pytest
import trio
import trio.testing

from sandbox import host
from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.records import Process
from substrat.core.agents.stop_reason import ENDED, SUSPENDED, StopKind, StopReason, silent_too_long, took_too_long
from substrat.core.agents.turn_limits import TurnLimits
from substrat.daemon.failpoints import Failpoints
from substrat.daemon.kernel import process, procfs, sandbox_process
from substrat.daemon.kernel.inotify import Watcher
from substrat.daemon.sandboxes.launch_plan import LaunchPlan
from substrat.daemon.state.layout import TurnDir
from substrat.daemon.state.storing import until_stored
from substrat.daemon.turns import output, shortage
from substrat.daemon.turns.running import RunningTurn
from substrat.errors import SandboxFailed, StorageFailed
from tests.support.optional import present
from tests.support.waiting import is_readable

PATIENCE = 30
RESULT = '{"type":"result","subtype":"success","result":"done"}'
NOTHING_ELSE = (
    "--unshare-user --unshare-pid --ro-bind / / --bind {work} {work} --proc /proc --dev /dev --json-status-fd 3 --"
)


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

    def turn_lines(self, _turn, lines, offset, *, urgent=False):
        self._write()
        self.lines += [line for line, _ in lines]
        self.offset = offset

    def turn_truncated(self, _turn, size, expected, *, urgent=False):
        self._write()
        self.truncated.append((size, expected))

    def open_call(self, _turn):
        return None

    def turn_limit_reached(self, _turn, limit):
        self._write()
        self.limits.append(limit)

    def turn_note(self, _turn, kind, text, *, holds_up_end=False):
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
            "t", self.place, offset, self.books, self.watcher, how, Failpoints({}), group=group, frozen=frozen
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


async def test_lines_are_told_while_it_runs(bench):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(bench.run, "echo one; read x <$GATE; echo two; read x <$GATE; echo three")
        for word in ("one", "two", "three"):
            await bench.books.wait_for(word)
            descriptor = bench.open_gate() if word != "three" else None
            if descriptor is not None:
                await trio.testing.wait_all_tasks_blocked()
                await bench.books.wait_for({"one": "two", "two": "three"}[word])
                os.close(descriptor)
    assert bench.books.texts == ["one", "two", "three"]


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


async def test_a_program_that_cannot_be_started(bench):
    async def missing():
        return LaunchPlan(("/nonexistent/bwrap",), {}, b"")

    with pytest.raises(SandboxFailed, match="/nonexistent/bwrap"):
        await bench.turn().run(missing)
    assert bench.books.spawned == []


async def test_a_launch_that_is_refused(bench):
    async def refused():
        raise SandboxFailed("no")

    with pytest.raises(SandboxFailed, match="no"):
        await bench.turn().run(refused)


async def test_a_turn_that_was_stopped_before_its_launch_is_not_started(bench):
    turn = bench.turn()
    turn.stop(SUSPENDED)
    seen = await turn.run(bench.launch("echo never"))
    assert seen.stop == SUSPENDED
    assert bench.books.spawned == []
    assert not os.path.exists(bench.place.stdout)


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


# Its end: the clock only moves when a test moves it


async def stopping(bench, script, mock_clock, *steps, reason=SUSPENDED, sandboxed=True):
    """Run a script that says `ready`, stop it, and take steps: a word to wait for, or seconds that pass."""
    turn, seen = bench.turn(stop_grace=5.0), []

    async def run():
        seen.append(await turn.run(bench.launch(script, sandboxed=sandboxed)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await bench.books.wait_for("ready")
        turn.stop(reason)
        for step in steps:
            if isinstance(step, str):
                await bench.books.wait_for(step)
            else:
                await trio.testing.wait_all_tasks_blocked()
                assert seen == []
                mock_clock.jump(step)
    return seen[0]


WAIT = "while :; do read x <$GATE & wait; done"


async def test_stopping_begins_gently(bench, real_bwrap, mock_clock):
    seen = await stopping(bench, f"trap 'echo stopped; exit 130' INT; echo ready; {WAIT}", mock_clock)
    assert bench.books.texts == ["ready", "stopped"]
    assert (seen.exit_code, seen.stop, seen.result) == (130, SUSPENDED, None)


async def test_after_a_while_it_is_asked_again(bench, real_bwrap, mock_clock):
    script = f"trap 'echo int' INT; trap 'echo term; exit 7' TERM; echo ready; {WAIT}"
    seen = await stopping(bench, script, mock_clock, "int", 5)
    assert bench.books.texts == ["ready", "int", "term"]
    assert (seen.exit_code, seen.stop) == (7, SUSPENDED)


async def test_what_does_not_listen_is_killed_with_all_it_started(bench, real_bwrap, mock_clock):
    script = f"(trap '' INT TERM; {WAIT}) & trap 'echo int' INT; trap 'echo term' TERM; echo ready; {WAIT}"
    seen = await stopping(bench, script, mock_clock, "int", 5, "term", 5)
    assert seen.stop == SUSPENDED
    assert seen.result is None
    assert is_gone(bench)


def is_gone(bench):
    """Say whether a turn's sandbox is dead, reaped or not."""
    inner, _ = sandbox_process.read_status(bench.place.read_status())
    pidfd = sandbox_process.open_inner(bench.books.spawned[0], present(inner))
    if pidfd is None:
        return True
    with open(pidfd) as file:
        return is_readable(file)


async def test_a_sandbox_that_never_came_up_is_killed(bench, mock_clock):
    seen = await stopping(bench, "echo ready; exec sleep 1000", mock_clock, 5, 5, sandboxed=False)
    assert (seen.stop, seen.exit_code) == (SUSPENDED, None)


async def test_a_result_on_the_way_down_counts(bench, real_bwrap, mock_clock):
    seen = await stopping(bench, f"trap 'echo '\"'\"'{RESULT}'\"'\"'; exit 0' INT; echo ready; {WAIT}", mock_clock)
    assert seen.result.text == "done"
    assert seen.stop == SUSPENDED


async def test_the_first_reason_counts(bench, mock_clock):
    turn = bench.turn()
    turn.stop(SUSPENDED)
    turn.stop(took_too_long(5))
    assert (await turn.run(bench.launch("true"))).stop == SUSPENDED


async def test_what_goes_on_after_its_result_is_stopped_and_has_succeeded(bench, real_bwrap, mock_clock):
    script = f"trap 'echo term; exit 0' TERM; echo '{RESULT}'; {WAIT}"
    turn, seen = bench.turn(result_grace=10.0), []

    async def run():
        seen.append(await turn.run(bench.launch(script, sandboxed=True)))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        await bench.books.wait_for(RESULT)
        await trio.testing.wait_all_tasks_blocked()
        mock_clock.jump(9)
        await trio.testing.wait_all_tasks_blocked()
        assert bench.books.texts == [RESULT]
        mock_clock.jump(1)
    assert bench.books.texts == [RESULT, "term"]
    assert (seen[0].result.text, seen[0].stop) == ("done", None)


async def test_the_time_limit_is_reported_once(bench, mock_clock):
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: bench.run("echo ready; read x <$GATE", time=90.0, time_left=60.0))
        await bench.books.wait_for("ready")
        await trio.testing.wait_all_tasks_blocked()
        assert bench.books.limits == []
        mock_clock.jump(60)
        await trio.testing.wait_all_tasks_blocked()
        assert bench.books.limits == [took_too_long(90)]
        descriptor = bench.open_gate()
    os.close(descriptor)


async def test_silence_is_time_of_the_loops_clock_since_its_last_output_or_its_thaw(bench, mock_clock):
    turn = bench.turn(silence=900.0, silent=800.0)  # as an earlier daemon left it

    async def pass_time(seconds):
        await trio.testing.wait_all_tasks_blocked()
        assert bench.books.limits == []
        mock_clock.jump(seconds)
        await trio.testing.wait_all_tasks_blocked()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.run, bench.launch("echo ready; read x <$GATE; echo more; read x <$GATE"))
        await bench.books.wait_for("ready")
        await pass_time(800)
        gates = [bench.open_gate()]
        await bench.books.wait_for("more")
        for seconds in (800, 99):
            await pass_time(seconds)
        turn.freeze()
        await pass_time(5000)
        turn.thaw()
        await pass_time(899)
        await pass_time(1)
        assert bench.books.limits == [silent_too_long(900)]
        gates.append(bench.open_gate())
    for gate in gates:
        os.close(gate)


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


@pytest.mark.parametrize("where", ["1", "2"])
@pytest.mark.parametrize("failures", [0, 2])
async def test_too_much_output_is_told_once(bench, autojump_clock, where, failures):
    async def say_when(books):
        while not books.too_long:
            await books.news.wait()
        os.close(bench.open_gate())

    bench.books.failures = failures
    async with trio.open_nursery() as nursery:
        nursery.start_soon(say_when, bench.books)
        await bench.run(f"printf 12345678 >&{where}; printf 90 >&{where}; read x < $GATE; echo", output=9)
    assert bench.books.too_long == [9]


async def test_output_up_to_the_limit_is_fine(bench):
    await bench.run("printf 12345678; printf 9 >&2", output=9)
    assert bench.books.too_long == []


async def test_a_program_that_goes_on_flooding_is_killed(bench, real_bwrap):
    script = "trap '' INT TERM; while :; do echo 0123456789; done"
    with trio.fail_after(PATIENCE):
        seen = await bench.run(script, sandboxed=True, output=1000)
    assert bench.books.too_long == [1000]
    assert seen.result is None


@pytest.mark.parametrize("left", [0.0, -5.0])
async def test_a_time_that_is_over_already(bench, mock_clock, left):
    await bench.run("cat", time_left=left)
    assert len(bench.books.limits) <= 1


async def test_when_the_outer_process_is_killed_the_sandbox_follows(bench, real_bwrap):
    seen = []

    async def run():
        seen.append(await bench.run(f"trap '' INT TERM; echo ready; {WAIT}", sandboxed=True))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await bench.books.wait_for("ready")
            os.kill(bench.books.spawned[0].pid, signal.SIGKILL)
    assert (seen[0].exit_code, seen[0].stop) == (None, None)
    assert is_gone(bench)


async def test_when_the_daemon_stops_the_program_goes_on(bench):
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(bench.run, "echo ready; read x <$GATE; echo after")
            await bench.books.wait_for("ready")
            nursery.cancel_scope.cancel()
        (started,) = bench.books.spawned
        pidfd = process.open_pidfd(started)
        assert pidfd is not None
        os.close(pidfd)
        descriptor = bench.open_gate()
        await bench.turn(offset=bench.books.offset).adopt(started)
        os.close(descriptor)
    assert bench.books.texts == ["ready", "after"]


async def test_a_sandbox_holds_its_turns_lock_to_its_end(bench, real_bwrap):
    """Also after its outer process is gone, and the program in it knows nothing of it."""
    assert not bench.place.is_held()
    async with trio.open_nursery() as nursery:
        launch = bench.launch("ls -l /proc/self/fd; echo up; cat $GATE", sandboxed=True, options=("--sync-fd", "5"))
        nursery.start_soon(bench.turn().run, launch)
        await bench.books.wait_for("up")
        assert bench.place.is_held()
        with pytest.raises(BlockingIOError):
            bench.place.take_lock()
        assert not any(bench.place.lock in line for line in bench.books.texts)
        os.kill(bench.books.spawned[0].pid, signal.SIGKILL)
    assert not bench.place.is_held()


# Frozen


@contextlib.contextmanager
def no_more_descriptors():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.parametrize("asked", ["thaw", "stop", "release"])
async def test_what_is_asked_of_a_stopped_turn_is_done_once_there_are_descriptors(bench, real_bwrap, monkeypatch, asked):
    monkeypatch.setattr(shortage, "PAUSE", 0.01)
    seen, turn = [], bench.turn()

    async def run():
        seen.append(await turn.run(bench.launch("echo ready; read x <$GATE; echo after", sandboxed=True)))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await bench.books.wait_for("ready")
            if asked == "release":
                assert await turn.hold()
            else:
                turn.freeze()
                await turn.frozen.wait()
            with no_more_descriptors():
                {"thaw": turn.thaw, "stop": lambda: turn.stop(ENDED), "release": turn.release}[asked]()
                await trio.testing.wait_all_tasks_blocked(0.005)
            gate = bench.open_gate() if asked != "stop" else None
    if gate is not None:
        os.close(gate)
    assert seen[0].stop == (ENDED if asked == "stop" else None)
    assert ("after" in bench.books.texts) == (asked != "stop")


@pytest.mark.parametrize("is_held", [True, False])
async def test_a_sandbox_that_the_last_daemon_held_goes_on_when_its_protection_says_so(bench, real_bwrap, is_held):
    turn, next_turn = bench.turn(), bench.turn()

    async def run():
        await turn.run(bench.launch("echo ready; read x <$GATE; echo after", sandboxed=True))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(run)
            await bench.books.wait_for("ready")
            assert await turn.hold()
            nursery.cancel_scope.cancel()
        if is_held:
            next_turn.hold_from_adoption()
        gate = bench.open_gate()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(next_turn.adopt, bench.books.spawned[0])
            if is_held:
                await trio.testing.wait_all_tasks_blocked(0.05)
                assert procfs.stat(next_turn.first_process()).state == "T"
                next_turn.release()
            await bench.books.wait_for("after")
    os.close(gate)


class Freezer:
    """Takes a cgroup's place: it stops bubblewrap's outer process too, and notes whether all was gone at each thaw."""

    is_there = True

    def __init__(self, bench):
        self._bench = bench
        self.was_gone = []

    def freeze(self):
        (outer,) = self._bench.books.spawned
        inner, _ = sandbox_process.read_status(self._bench.place.read_status())
        os.kill(outer.pid, signal.SIGSTOP)
        return sandbox_process.stop_all(present(inner))

    def thaw(self):
        self.was_gone.append(is_gone(self._bench))

    def ran_out(self):
        return RanOut()


@pytest.mark.parametrize("in_cgroup", [False, True])
@pytest.mark.parametrize("killed_by", ["end", "ladder", "another"])
async def test_a_held_sandbox_that_is_being_killed_is_never_let_go_on(bench, real_bwrap, monkeypatch, killed_by, in_cgroup):
    """The kernel comes to each process in its own time: until then each one that went on would be the agent's."""
    freezer = Freezer(bench) if in_cgroup else None
    turn, kill = bench.turn(stop_grace=0.01, group=freezer), process.kill
    let_go_on: list[int] = []

    def kill_and_release(pidfd):
        kill(pidfd)
        turn.release()

    monkeypatch.setattr(process, "kill", kill_and_release)
    monkeypatch.setattr(sandbox_process, "continue_all", let_go_on.append)
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.run, bench.launch(f"trap '' INT TERM; echo ready; {WAIT}", sandboxed=True))
            await bench.books.wait_for("ready")
            assert await turn.hold()
            if killed_by == "end":
                turn.end(StopReason(StopKind.PROTECTION, "/w/.envrc changed"))
            elif killed_by == "ladder":
                turn.stop(SUSPENDED)
            else:
                os.kill(present(turn.first_process()), signal.SIGKILL)
    assert let_go_on == []
    assert is_gone(bench)
    if freezer is not None:
        assert freezer.was_gone == [True]


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
