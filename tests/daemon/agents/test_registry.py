"""Memory and disk agree: after a restart, when the disk fails, and after events in any order."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrat.core.agents.lifecycle import RUNNING_PHASES, Event, Phase
from substrat.core.agents.records import OPERATOR, Outcome, Process
from substrat.core.agents.stop_reason import ENDED, INTERRUPTED, SUSPENDED, took_too_long
from substrat.errors import StorageFailed, SubstratError

LOST = "RetriableError: [unavailable] PING timed out"


def test_an_effect_that_breaks_keeps_no_other_from_being_carried_out(new_house):
    house = new_house()
    house.spawn("anna")
    done = []
    with house.registry.change("status reported") as change:
        change.after(lambda: 1 / 0)
        change.after(lambda: done.append("after it"))
        house.spawn("bert", "work")
    assert done == ["after it"]
    assert house.agent("bert").phase == Phase.RUNNING


# Families


def families(house):
    """Each agent's children and the family that it heads, by name."""
    registry = house.registry
    return {
        agent.name: ([one.name for one in registry.children(agent.id)], [one.name for one in registry.family(agent)])
        for agent in registry.agents
    }


def test_a_family_is_an_agent_with_all_its_descendants_each_after_its_parent(new_house):
    house = new_house()
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", None), ("f", "b")):
        house.spawn(name, parent=parent)
    found = families(house)
    assert found["a"] == (["b", "d"], ["a", "b", "d", "c", "f"])
    assert (found["b"], found["e"]) == ((["c", "f"], ["b", "c", "f"]), ([], ["e"]))
    assert house.registry.root_of(house.agent("f")).name == "a"
    house.supervisor.remove("b")
    house.supervisor.remove("f")
    found = families(house)
    assert found == {"a": (["d"], ["a", "d"]), "c": ([], ["c"]), "d": ([], ["d"]), "e": ([], ["e"])}
    assert house.registry.root_of(house.agent("c")).name == "c"
    house.restart()
    assert families(house) == found


# Restarting


def scene(house):
    """Bring agents into every state there is."""
    house.spawn("idle"), house.spawn("running", "work"), house.spawn("ended")
    house.begin("running")
    house.book.turn_spawned(house.turn("running").id, Process(17, 99, "boot"))
    house.spawn("failed", "work"), house.fall("failed", errors="boom")
    house.spawn("suspended", "work"), house.supervisor.suspend("suspended"), house.fall("suspended")
    for name, request in (("suspending", "suspend"), ("interrupting", "interrupt"), ("ending", "end")):
        house.spawn(name, "work")
        getattr(house.supervisor, request)(name)
    house.supervisor.end("ended")
    house.spawn("kid", "work", parent="running")
    house.finish("kid", "result", {"inputTokens": 3})
    house.supervisor.message(house.agent("kid"), "failed", "hi")
    house.spawn("retrying", "work"), house.fall("retrying", errors=LOST)
    return house


def test_a_restarted_daemon_has_the_same_agents(new_house):
    house = scene(new_house())
    before = list(house.registry.agents)
    house.restart(attached=False)
    assert list(house.registry.agents) == before


def test_a_restarted_daemon_takes_its_turns_up_again(new_house):
    house = scene(new_house())
    running = {agent.name: agent.turn for agent in house.registry.agents if agent.phase in RUNNING_PHASES}
    house.restart()
    assert dict(house.runner.started[: len(running)]) == {name: turn.id for name, turn in running.items()}
    reasons = {
        running["suspending"].id: SUSPENDED,
        running["interrupting"].id: INTERRUPTED,
        running["ending"].id: ENDED,
    }
    assert dict(house.runner.stopped) == reasons
    assert house.runner.admissions == [house.agent("retrying").retry_at]
    house.finish("running")
    assert house.store.turn(running["running"].id).outcome is Outcome.SUCCESS
    for name in ("suspending", "interrupting", "ending"):
        house.fall(name)
    assert [house.state(name) for name in ("suspending", "interrupting", "ending")] == ["suspended", "idle", "ended"]


def test_without_a_runner_nothing_starts(new_house):
    house = new_house()
    house.restart(attached=False)
    house.spawn("bob", "work")
    assert house.state("bob") == "queued"
    house.families.take_up()
    assert house.state("bob") == "running"


# A disk that fails

CHANGES = [
    ("spawn", lambda house: house.spawn("new", "work")),
    ("spawn a child", lambda house: house.spawn("new", "work", parent="running")),
    ("send", lambda house: house.supervisor.send("idle", "work")),
    ("send to a running one", lambda house: house.supervisor.send("running", "work")),
    ("message", lambda house: house.supervisor.message(house.agent("kid"), "running", "hi")),
    ("message to the operator", lambda house: house.supervisor.message(house.agent("kid"), OPERATOR, "hi")),
    ("suspend", lambda house: house.supervisor.suspend("running")),
    ("suspend an idle one", lambda house: house.supervisor.suspend("idle")),
    ("interrupt", lambda house: house.supervisor.interrupt("running")),
    ("end", lambda house: house.supervisor.end("idle")),
    ("resume", lambda house: house.supervisor.resume("suspended", None)),
    ("resume a failed one", lambda house: house.supervisor.resume("failed", "again")),
    ("remove", lambda house: house.supervisor.remove("idle")),
    ("remove a parent", lambda house: house.supervisor.remove("ended")),
    ("status", lambda house: house.supervisor.report_status("running", "busy")),
    ("inbox", lambda house: house.supervisor.take_inbox("failed")),
    ("spawned", lambda house: house.book.turn_spawned(house.turn("running").id, Process(1, 1, "b"))),
    ("lines", lambda house: house.begin("suspending")),
    ("note", lambda house: house.book.turn_note(house.turn("running").id, "a", "b")),
    ("time is up", lambda house: house.book.turn_limit_reached(house.turn("running").id, took_too_long(5))),
    ("too much output", lambda house: house.book.turn_output_too_long(house.turn("running").id, 9)),
    ("over", lambda house: house.finish("running")),
    ("over with a report", lambda house: house.fall("suspending")),
    ("over and tried again", lambda house: house.fall("running", errors=LOST)),
]


def snapshot(house):
    return (list(house.registry.agents), house.store.agents(), house.runner.done, house.journal.last_cursor,
            [event.json for event in house.journal.page(0, None, 10_000)],
            [house.store.waiting_items(agent.id) for agent in house.registry.agents])  # fmt: skip


@pytest.mark.parametrize("when", ["first write", "commit"])
@pytest.mark.parametrize(("_name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_change_that_cannot_be_stored_changes_nothing_and_works_later(new_house, _name, change, when):
    house = scene(new_house())
    before = snapshot(house)
    fragile(house, when, failing=True)
    with pytest.raises(StorageFailed):
        change(house)
    fragile(house, when, failing=False)
    assert snapshot(house) == before
    change(house)
    assert snapshot(house) != before
    assert list(house.registry.agents) == house.store.agents()


def fragile(house, when, *, failing):
    if when == "commit":
        house.store.failing = failing
    else:
        house.store._db.execute(f"PRAGMA query_only={int(failing)}")


def test_a_turn_that_could_not_be_started_starts_with_the_next_change(new_house):
    house = new_house()
    house.spawn("bob")
    house.admission.close()
    house.supervisor.send("bob", "work")
    house.admission.open()
    house.store.failing = True
    house.registry.admit()
    assert house.state("bob") == "queued"
    assert house.runner.started == []
    house.store.failing = False
    house.spawn("eve", "work")
    assert house.state("bob") == "running"


def test_a_turn_that_could_not_be_started_is_tried_again_by_itself(new_house):
    house = new_house()
    house.spawn("bob")
    house.admission.close()
    house.supervisor.send("bob", "work")
    house.admission.open()
    house.store.failing = True
    house.registry.admit()
    house.store.failing = False
    (when,) = house.runner.admissions
    assert when > house.clock.time


def test_a_change_that_breaks_halfway_changes_nothing(house):
    house.spawn("bob", "work")
    before = snapshot(house)
    with pytest.raises(ZeroDivisionError):
        break_halfway(house)
    assert snapshot(house) == before


def test_no_command_of_the_lifecycle_is_dropped(house):
    house.spawn("bob")
    running = replace(house.agent("bob"), phase=Phase.RUNNING)
    with pytest.raises(RuntimeError, match="has no turn"), house.registry.change("note taken") as change:
        change.step(running, Event.SUSPEND)
    assert house.state("bob") == "idle"


def break_halfway(house):
    with house.registry.change("note taken"):
        house.supervisor.send("bob", "more")
        house.supervisor.suspend("bob")
        assert house.agent(house.spawn("eve", "work").id).name == "eve"
        raise ZeroDivisionError


# Anything in any order, the account's limits too, which the walk in tests/model doesn't know

NAMES = ["a", "b", "c"]
LIMIT = "ActionRequiredError: You're out of usage."
names = st.sampled_from(NAMES)
acts = st.one_of(
    st.tuples(st.just("spawn"), names, st.booleans()),
    st.tuples(st.just("child"), names, names),
    st.tuples(st.sampled_from(["send", "suspend", "resume", "resume with", "interrupt", "end", "remove"]), names),
    st.tuples(st.just("message"), names, names),
    st.tuples(st.sampled_from(["begin", "finish", "fall", "lose", "time", "output", "inbox", "limit"]), names),
    st.tuples(st.sampled_from(["restart", "full disk", "later", "try"])),
)


def perform(house, act):
    kind, *who = act
    match kind:
        case "spawn":
            house.spawn(who[0], "work" if who[1] else None)
        case "child":
            house.spawn(who[0], "work", parent=who[1])
        case "send":
            house.supervisor.send(who[0], "more")
        case "suspend" | "interrupt" | "end" | "remove":
            getattr(house.supervisor, kind)(who[0])
        case "resume":
            house.supervisor.resume(who[0], None)
        case "resume with":
            house.supervisor.resume(who[0], "instead")
        case "message":
            house.supervisor.message(house.agent(who[0]), who[1], "hi")
        case "restart":
            house.restart()
        case "later":
            house.clock.time += 1000
            house.registry.admit()
        case "full disk":
            house.store.failing = not house.store.failing
        case "try":
            house.families.gates.try_now("ctl")
        case _ if house.agent(who[0]).phase in RUNNING_PHASES:
            report(house, kind, who[0])


def report(house, kind, name):
    match kind:
        case "begin":
            house.begin(name)
        case "finish":
            house.finish(name)
        case "fall":
            house.fall(name)
        case "lose":
            house.fall(name, errors=LOST)
        case "time":
            house.book.turn_limit_reached(house.turn(name).id, took_too_long(5))
        case "output":
            house.book.turn_output_too_long(house.turn(name).id, 1000)
        case "inbox":
            house.supervisor.take_inbox(name)
        case "limit":
            house.fall(name, errors=LIMIT)


def check_house(house, *, is_later):
    agents = list(house.registry.agents)
    assert sorted(house.store.agents(), key=lambda agent: agent.id) == sorted(agents, key=lambda agent: agent.id)
    assert house.registry.running <= house.config.turns.max_running
    started = [turn for _, turn in house.runner.started]
    assert len(started) == len(set(started))
    for agent in agents:
        waiting = house.store.waiting_items(agent.id)
        assert agent.waiting == len(waiting)
        running = agent.turn is not None and agent.turn.outcome is None
        assert running == (agent.phase in RUNNING_PHASES)
        assert not running or agent.turn.id in started
        assert agent.phase is not Phase.QUEUED or waiting
        assert agent.phase is not Phase.IDLE or not waiting
    if not house.store.failing and not house.families.gates.shut():
        due = house.clock.time if is_later else 0.0  # the clock goes on by itself, and no timer rings
        ready = [agent for agent in agents if agent.phase is Phase.QUEUED and (agent.retry_at or 0.0) <= due]
        assert not ready or house.registry.running == house.config.turns.max_running


@given(st.lists(acts, max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_happens_memory_and_disk_agree_and_nobody_is_forgotten(new_house, walk):
    house = new_house(turns={"max_running": 2}, limits={"children": 2, "depth": 2, "waiting_items": 3})
    for act in walk:
        with contextlib.suppress(SubstratError):
            perform(house, act)
        if act == ("full disk",) and not house.store.failing:
            house.registry.admit()
        check_house(house, is_later=act == ("later",))
    house.store.failing = False
    before = {agent.id: agent for agent in house.registry.agents}
    house.restart(attached=False)
    assert {agent.id: agent for agent in house.registry.agents} == before
