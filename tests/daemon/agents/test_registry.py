"""Memory and disk agree: after a restart, when the disk fails, and after events in any order."""

import contextlib
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from substrat.core.agents.lifecycle import RUNNING_PHASES, Event, Phase
from substrat.core.agents.records import OPERATOR, Intent, Outcome, Process
from substrat.core.agents.stop_reason import ENDED, INTERRUPTED, SUSPENDED, took_too_long
from substrat.errors import StorageFailed, SubstratError

LOST = "RetriableError: [unavailable] PING timed out"


def test_an_effect_that_breaks_keeps_no_other_from_being_carried_out(new_agents):
    agents = new_agents()
    agents.spawn("anna")
    done = []
    with agents.registry.change("status reported") as change:
        change.after(lambda: 1 / 0)
        change.after(lambda: done.append("after it"))
        agents.spawn("bert", "work")
    assert done == ["after it"]
    assert agents.agent("bert").phase == Phase.RUNNING


# Families


def families(agents):
    """Each agent's children and the family that it heads, by name."""
    registry = agents.registry
    return {
        agent.name: ([one.name for one in registry.children(agent.id)], [one.name for one in registry.family(agent)])
        for agent in registry.agents
    }


def test_a_family_is_an_agent_with_all_its_descendants_each_after_its_parent(new_agents):
    agents = new_agents()
    for name, parent in (("a", None), ("b", "a"), ("c", "b"), ("d", "a"), ("e", None), ("f", "b")):
        agents.spawn(name, parent=parent)
    found = families(agents)
    assert found["a"] == (["b", "d"], ["a", "b", "d", "c", "f"])
    assert (found["b"], found["e"]) == ((["c", "f"], ["b", "c", "f"]), ([], ["e"]))
    assert agents.registry.root_of(agents.agent("f")).name == "a"
    agents.supervisor.remove("b")
    agents.supervisor.remove("f")
    found = families(agents)
    assert found == {"a": (["d"], ["a", "d"]), "c": ([], ["c"]), "d": ([], ["d"]), "e": ([], ["e"])}
    assert agents.registry.root_of(agents.agent("c")).name == "c"
    agents.restart()
    assert families(agents) == found


# Restarting


def scene(agents):
    """Bring agents into every state there is."""
    agents.spawn("idle"), agents.spawn("running", "work"), agents.spawn("ended")
    agents.begin("running")
    agents.book.turn_spawned(agents.turn("running").id, Process(17, 99, "boot"))
    agents.spawn("failed", "work"), agents.fall("failed", errors="boom")
    agents.spawn("suspended", "work"), agents.supervisor.suspend("suspended"), agents.fall("suspended")
    for name, request in (("suspending", "suspend"), ("interrupting", "interrupt"), ("ending", "end")):
        agents.spawn(name, "work")
        getattr(agents.supervisor, request)(name)
    agents.supervisor.end("ended")
    agents.spawn("kid", "work", parent="running")
    agents.finish("kid", "result", {"inputTokens": 3})
    agents.supervisor.message(agents.agent("kid"), "failed", "hi", Intent.INFORM)
    agents.spawn("retrying", "work"), agents.fall("retrying", errors=LOST)
    return agents


def test_a_restarted_daemon_has_the_same_agents(new_agents):
    agents = scene(new_agents())
    before = list(agents.registry.agents)
    agents.restart(attached=False)
    assert list(agents.registry.agents) == before


def test_a_restarted_daemon_takes_its_turns_up_again(new_agents):
    agents = scene(new_agents())
    running = {agent.name: agent.turn for agent in agents.registry.agents if agent.phase in RUNNING_PHASES}
    agents.restart()
    assert dict(agents.runner.started[: len(running)]) == {name: turn.id for name, turn in running.items()}
    reasons = {
        running["suspending"].id: SUSPENDED,
        running["interrupting"].id: INTERRUPTED,
        running["ending"].id: ENDED,
    }
    assert dict(agents.runner.stopped) == reasons
    assert agents.runner.admissions == [agents.agent("retrying").retry_at]
    agents.finish("running")
    assert agents.store.turn(running["running"].id).outcome is Outcome.SUCCESS
    for name in ("suspending", "interrupting", "ending"):
        agents.fall(name)
    assert [agents.state(name) for name in ("suspending", "interrupting", "ending")] == ["suspended", "idle", "ended"]


def test_without_a_runner_nothing_starts(new_agents):
    agents = new_agents()
    agents.restart(attached=False)
    agents.spawn("bob", "work")
    assert agents.state("bob") == "queued"
    agents.families.take_up()
    assert agents.state("bob") == "running"


# A disk that fails

CHANGES = [
    ("spawn", lambda agents: agents.spawn("new", "work")),
    ("spawn a child", lambda agents: agents.spawn("new", "work", parent="running")),
    ("send", lambda agents: agents.supervisor.send("idle", "work")),
    ("send to a running one", lambda agents: agents.supervisor.send("running", "work")),
    ("message", lambda agents: agents.supervisor.message(agents.agent("kid"), "running", "hi")),
    ("message to the operator", lambda agents: agents.supervisor.message(agents.agent("kid"), OPERATOR, "hi")),
    ("suspend", lambda agents: agents.supervisor.suspend("running")),
    ("suspend an idle one", lambda agents: agents.supervisor.suspend("idle")),
    ("interrupt", lambda agents: agents.supervisor.interrupt("running")),
    ("end", lambda agents: agents.supervisor.end("idle")),
    ("resume", lambda agents: agents.supervisor.resume("suspended", None)),
    ("resume a failed one", lambda agents: agents.supervisor.resume("failed", "again")),
    ("remove", lambda agents: agents.supervisor.remove("idle")),
    ("remove a parent", lambda agents: agents.supervisor.remove("ended")),
    ("status", lambda agents: agents.supervisor.report_status("running", "busy")),
    ("inbox", lambda agents: agents.supervisor.take_inbox("failed")),
    ("spawned", lambda agents: agents.book.turn_spawned(agents.turn("running").id, Process(1, 1, "b"))),
    ("lines", lambda agents: agents.begin("suspending")),
    ("note", lambda agents: agents.book.turn_note(agents.turn("running").id, "a", "b")),
    ("time is up", lambda agents: agents.book.turn_limit_reached(agents.turn("running").id, took_too_long(5))),
    ("too much output", lambda agents: agents.book.turn_output_too_long(agents.turn("running").id, 9)),
    ("over", lambda agents: agents.finish("running")),
    ("over with a report", lambda agents: agents.fall("suspending")),
    ("over and tried again", lambda agents: agents.fall("running", errors=LOST)),
]


def snapshot(agents):
    return (list(agents.registry.agents), agents.store.agents(), agents.runner.done, agents.journal.last_cursor,
            [event.json for event in agents.journal.page(0, None, 10_000)],
            [agents.store.waiting_items(agent.id) for agent in agents.registry.agents])  # fmt: skip


@pytest.mark.parametrize("when", ["first write", "commit"])
@pytest.mark.parametrize(("_name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_a_change_that_cannot_be_stored_changes_nothing_and_works_later(new_agents, _name, change, when):
    agents = scene(new_agents())
    before = snapshot(agents)
    fragile(agents, when, failing=True)
    with pytest.raises(StorageFailed):
        change(agents)
    fragile(agents, when, failing=False)
    assert snapshot(agents) == before
    change(agents)
    assert snapshot(agents) != before
    assert list(agents.registry.agents) == agents.store.agents()


def fragile(agents, when, *, failing):
    if when == "commit":
        agents.store.failing = failing
    else:
        agents.store._db.execute(f"PRAGMA query_only={int(failing)}")


def test_a_turn_that_could_not_be_started_starts_with_the_next_change(new_agents):
    agents = new_agents()
    agents.spawn("bob")
    agents.admission.close()
    agents.supervisor.send("bob", "work")
    agents.admission.open()
    agents.store.failing = True
    agents.registry.admit()
    assert agents.state("bob") == "queued"
    assert agents.runner.started == []
    agents.store.failing = False
    agents.spawn("eve", "work")
    assert agents.state("bob") == "running"


def test_a_turn_that_could_not_be_started_is_tried_again_by_itself(new_agents):
    agents = new_agents()
    agents.spawn("bob")
    agents.admission.close()
    agents.supervisor.send("bob", "work")
    agents.admission.open()
    agents.store.failing = True
    agents.registry.admit()
    agents.store.failing = False
    (when,) = agents.runner.admissions
    assert when > agents.clock.time


def test_a_change_that_breaks_halfway_changes_nothing(agents):
    agents.spawn("bob", "work")
    before = snapshot(agents)
    with pytest.raises(ZeroDivisionError):
        break_halfway(agents)
    assert snapshot(agents) == before


def test_no_command_of_the_lifecycle_is_dropped(agents):
    agents.spawn("bob")
    running = replace(agents.agent("bob"), phase=Phase.RUNNING)
    with pytest.raises(RuntimeError, match="has no turn"), agents.registry.change("note taken") as change:
        change.step(running, Event.SUSPEND)
    assert agents.state("bob") == "idle"


def break_halfway(agents):
    with agents.registry.change("note taken"):
        agents.supervisor.send("bob", "more")
        agents.supervisor.suspend("bob")
        assert agents.agent(agents.spawn("eve", "work").id).name == "eve"
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


def perform(agents, act):
    kind, *who = act
    match kind:
        case "spawn":
            agents.spawn(who[0], "work" if who[1] else None)
        case "child":
            agents.spawn(who[0], "work", parent=who[1])
        case "send":
            agents.supervisor.send(who[0], "more")
        case "suspend" | "interrupt" | "end" | "remove":
            getattr(agents.supervisor, kind)(who[0])
        case "resume":
            agents.supervisor.resume(who[0], None)
        case "resume with":
            agents.supervisor.resume(who[0], "instead")
        case "message":
            agents.supervisor.message(agents.agent(who[0]), who[1], "hi")
        case "restart":
            agents.restart()
        case "later":
            agents.clock.time += 1000
            agents.registry.admit()
        case "full disk":
            agents.store.failing = not agents.store.failing
        case "try":
            agents.families.gates.try_now("ctl")
        case _ if agents.agent(who[0]).phase in RUNNING_PHASES:
            report(agents, kind, who[0])


def report(agents, kind, name):
    match kind:
        case "begin":
            agents.begin(name)
        case "finish":
            agents.finish(name)
        case "fall":
            agents.fall(name)
        case "lose":
            agents.fall(name, errors=LOST)
        case "time":
            agents.book.turn_limit_reached(agents.turn(name).id, took_too_long(5))
        case "output":
            agents.book.turn_output_too_long(agents.turn(name).id, 1000)
        case "inbox":
            agents.supervisor.take_inbox(name)
        case "limit":
            agents.fall(name, errors=LIMIT)


def check_house(agents, *, is_later):
    listed = list(agents.registry.agents)
    assert sorted(agents.store.agents(), key=lambda agent: agent.id) == sorted(listed, key=lambda agent: agent.id)
    assert agents.registry.running <= agents.config.turns.max_running
    started = [turn for _, turn in agents.runner.started]
    assert len(started) == len(set(started))
    for agent in listed:
        waiting = agents.store.waiting_items(agent.id)
        assert agent.waiting == len(waiting)
        running = agent.turn is not None and agent.turn.outcome is None
        assert running == (agent.phase in RUNNING_PHASES)
        assert not running or agent.turn.id in started
        assert agent.phase is not Phase.QUEUED or waiting
        assert agent.phase is not Phase.IDLE or not waiting
    if not agents.store.failing and not agents.families.gates.shut():
        due = agents.clock.time if is_later else 0.0  # the clock goes on by itself, and no timer rings
        ready = [agent for agent in listed if agent.phase is Phase.QUEUED and (agent.retry_at or 0.0) <= due]
        assert not ready or agents.registry.running == agents.config.turns.max_running


@given(st.lists(acts, max_size=40))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_whatever_happens_memory_and_disk_agree_and_nobody_is_forgotten(new_agents, walk):
    agents = new_agents(turns={"max_running": 2}, limits={"children": 2, "depth": 2, "waiting_items": 3})
    for act in walk:
        with contextlib.suppress(SubstratError):
            perform(agents, act)
        if act == ("full disk",) and not agents.store.failing:
            agents.registry.admit()
        check_house(agents, is_later=act == ("later",))
    agents.store.failing = False
    before = {agent.id: agent for agent in agents.registry.agents}
    agents.restart(attached=False)
    assert {agent.id: agent for agent in agents.registry.agents} == before
