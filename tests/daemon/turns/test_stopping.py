"""The end of a running turn: stops, limits, freezes, holds and kills."""

import contextlib
import os
import resource
import signal

import pytest
import trio
import trio.testing

from substrat.core.agents.cgroup_limits import RanOut
from substrat.core.agents.stop_reason import ENDED, SUSPENDED, StopKind, StopReason, silent_too_long, took_too_long
from substrat.daemon.kernel import process, procfs, sandbox_process
from substrat.daemon.turns import shortage
from tests.daemon.turns.test_running import PATIENCE, RESULT, bench, no_descriptor_is_left, real_bwrap
from tests.support.optional import present
from tests.support.waiting import is_readable

__all__ = ["bench", "no_descriptor_is_left", "real_bwrap"]


# Stops and limits: the clock only moves when a test moves it


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


# Freezes and holds


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
            await next_turn.hold_from_adoption()
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
