"""New turns wait while the disk is nearly full, say why once, and start when there is room."""

import pytest

from substrat.core.agents.records import Outcome
from substrat.core.agents.retry import DELAYS
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict
from substrat.core.programs.failures import DISK_FULL, DISK_FULL_IN_TURN
from substrat.daemon.agents.disk_gate import PAUSE, free_bytes

MIB = 1024 * 1024


class Disk:
    """Says how much is free."""

    def __init__(self):
        self.free = 0
        self.looks = 0

    def __call__(self, _path):
        self.looks += 1
        return self.free


@pytest.fixture
def disk():
    return Disk()


@pytest.fixture
def gated(new_agents, disk):
    return new_agents(disk, disk={"free": 100 * MIB})


def test_a_turn_waits_with_a_reason_that_is_told_once(gated, disk):
    disk.free = 99 * MIB
    gated.spawn("bob", "the task")
    gated.spawn("eve", "another")
    assert gated.state("bob") == gated.state("eve") == "queued"
    for _ in range(3):
        gated.registry.admit()
    ((_, told),) = gated.told("bob", "turn:waiting")
    for word in ("99 MiB", "/state", "disk.free", "100 MiB"):
        assert word in told
        assert word in gated.families.queue.closed
    assert len(gated.told("eve", "turn:waiting")) == 1
    assert gated.runner.started == []


def test_it_is_looked_again_after_a_while_once(gated, disk):
    gated.spawn("bob", "the task")
    gated.registry.admit()
    gated.registry.admit()
    (when,) = gated.runner.admissions
    assert 0 < when - gated.clock.time <= PAUSE
    gated.clock.time = when - 0.25  # a little early
    gated.registry.admit()
    assert len(gated.runner.admissions) == 2
    gated.clock.time -= 3600  # somebody sets the clock
    gated.registry.admit()
    assert len(gated.runner.admissions) == 3


def test_what_was_accepted_starts_when_there_is_room_and_the_next_wait_is_told_again(gated, disk):
    gated.spawn("bob", "the task")
    disk.free = 100 * MIB
    gated.registry.admit()
    assert gated.state("bob") == "running"
    assert gated.families.queue.closed is None
    disk.free = 0
    gated.supervisor.send("bob", "more")
    gated.finish("bob")
    assert gated.state("bob") == "queued"
    assert len(gated.told("bob", "turn:waiting")) == 2


def test_running_turns_go_on(gated, disk):
    disk.free = 100 * MIB
    gated.spawn("bob", "the task")
    disk.free = 0
    gated.spawn("eve", "another")
    gated.begin("bob")
    gated.finish("bob")
    assert gated.state("bob") == "idle"
    assert gated.state("eve") == "queued"


def test_when_nobody_waits_there_is_no_reason(gated):
    gated.spawn("bob", "the task")
    assert gated.families.queue.closed is not None
    gated.supervisor.suspend("bob")
    gated.registry.admit()
    assert gated.families.queue.closed is None


def test_the_disk_is_looked_at_only_when_somebody_waits_and_it_is_wanted(new_agents, disk, gated):
    gated.registry.admit()
    assert disk.looks == 0
    agents = new_agents(disk, disk={"free": 0})
    agents.spawn("bob", "the task")
    assert agents.state("bob") == "running"
    assert disk.looks == 0


def test_what_can_not_even_be_told_is_told_later(gated, disk):
    disk.free = 100 * MIB
    gated.spawn("bob")
    gated.admission.close()
    gated.supervisor.send("bob", "the task")
    disk.free = 0
    gated.admission.open()
    gated.store.failing = True
    gated.registry.admit()
    assert gated.told("bob", "turn:waiting") == []
    gated.store.failing = False
    gated.registry.admit()
    gated.registry.admit()
    assert len(gated.told("bob", "turn:waiting")) == 1


def test_a_turn_that_can_not_be_committed_is_tried_again_by_itself(gated, disk):
    disk.free = 100 * MIB
    gated.spawn("bob")
    gated.supervisor.suspend("bob")
    gated.supervisor.send("bob", "the task")
    gated.admission.close()
    gated.supervisor.resume("bob", None)
    gated.admission.open()
    gated.store.failing = True
    gated.registry.admit()
    gated.store.failing = False
    assert gated.state("bob") == "queued"
    assert len(gated.runner.admissions) == 1
    gated.registry.admit()
    assert gated.state("bob") == "running"


def test_a_turn_whose_files_can_not_be_made_is_tried_until_they_can(agents):
    agents.spawn("bob", "the task")
    for attempt in range(len(DELAYS) + 3):
        assert agents.prompt("bob") == "the task"
        agents.book.turn_over(agents.turn("bob").id, Verdict(Outcome.ERROR, "no room", DISK_FULL), NOTHING_SEEN)
        assert agents.state("bob") == "queued"
        wait = DELAYS[min(attempt, len(DELAYS) - 1)]
        assert agents.agent("bob").retry_at - agents.clock.time == pytest.approx(wait, abs=2)
        agents.clock.time += wait + 1
        agents.registry.admit()
    agents.finish("bob")
    assert agents.state("bob") == "idle"
    assert agents.store.turn(agents.turn("bob").id).result == "done"


def test_a_directory_that_can_not_be_looked_at_holds_turns_back(new_agents):
    def broken(_path):
        raise OSError(5, "Input/output error")

    gated = new_agents(broken, disk={"free": 100 * MIB})
    gated.spawn("bob", "the task")
    assert "Input/output error" in gated.families.queue.closed


def test_free_bytes_are_the_kernels(tmp_path):
    assert free_bytes(str(tmp_path)) > 0


ACTED = [
    {"type": "tool_call", "subtype": "started", "call_id": "c", "tool_call": {"shellToolCall": {"args": {}}}},
    {"type": "a shape that nobody knows"},
]


@pytest.mark.parametrize("line", ACTED)
def test_a_turn_that_acted_before_the_disk_was_full_is_not_tried_again(agents, line):
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.write("bob", line)
    failed = Verdict(Outcome.ERROR, DISK_FULL_IN_TURN.sentence, DISK_FULL_IN_TURN)
    agents.book.turn_over(agents.turn("bob").id, failed, NOTHING_SEEN)
    assert agents.state("bob") == "failed"
    assert "disk is full" in agents.turn("bob").error


def test_a_turn_that_only_began_before_the_disk_was_full_is_tried_for_as_long_as_it_takes(agents):
    agents.spawn("bob", "the task")
    for attempt in range(2 * len(DELAYS)):
        agents.begin("bob")
        failed = Verdict(Outcome.ERROR, DISK_FULL_IN_TURN.sentence, DISK_FULL_IN_TURN)
        agents.book.turn_over(agents.turn("bob").id, failed, NOTHING_SEEN)
        assert agents.state("bob") == "queued", attempt
        agents.clock.time += 1000
        agents.registry.admit()
    assert agents.turn("bob").number == 2 * len(DELAYS) + 1
