"""Turns' reports, people's requests, failures that pass by themselves, and waiting; no process runs here."""

import pytest
import trio
import trio.testing

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Outcome, Process, Session, abridged
from substrat.core.agents.stop_reason import INTERRUPTED, SUSPENDED, took_too_long
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict
from substrat.daemon.families.waiting import bounded
from substrat.errors import NotFound, Refused, StorageFailed, WaitTimedOut

PATIENCE = 20
SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"
LOST = "RetriableError: [unavailable] PING timed out"


# What a turn reports


def test_a_turns_life_is_told(agents):
    agents.spawn("bob", "work")
    agents.book.turn_spawned(agents.turn("bob").id, Process(17, 99, "boot"))
    assert agents.turn("bob").process == Process(17, 99, "boot")
    session = agents.begin("bob")
    assert agents.agent("bob").session == Session(session)
    assert agents.turn("bob").reported
    agents.finish("bob", "the result", {"inputTokens": 5})
    turn = agents.store.turn(agents.turn("bob").id)
    assert abridged(turn) == agents.turn("bob")
    assert (turn.outcome, turn.result, turn.usage, turn.exit_code, turn.error) == (
        Outcome.SUCCESS, "the result", {"inputTokens": 5}, 0, None,
    )  # fmt: skip
    assert turn.ended_at > turn.started_at
    kinds = [kind for kind, _ in agents.told("bob")]
    assert kinds == ["agent:spawned", "turn:started", "system:init", "mcp:not-contacted", "turn:ended"]


def test_a_companion_that_was_called_is_not_reported(agents):
    agents.spawn("bob", "work")
    agents.begin("bob")
    agents.book.companion_called(agents.turn("bob").id)
    agents.restart()
    assert agents.turn("bob").contacted
    agents.finish("bob")
    assert "mcp:not-contacted" not in [kind for kind, _ in agents.told("bob")]


def test_a_turn_that_was_stopped_early_is_not_blamed_for_its_companion(agents):
    agents.spawn("bob", "work")
    agents.supervisor.interrupt("bob")
    agents.fall("bob", exit_code=130)
    assert "mcp:not-contacted" not in [kind for kind, _ in agents.told("bob")]


@pytest.mark.parametrize("option", ["--sandbox", "--trust", "--stream-partial-output"])
def test_an_option_that_the_program_does_not_know_is_left_out_and_the_turn_tried_again_at_once(agents, option):
    agents.spawn("bob", "work")
    agents.fall("bob", errors=f"error: unknown option '{option}'\n")
    assert agents.runner.left_out == [option]
    assert agents.state("bob") == "running"
    assert agents.turn("bob").number == 2
    assert agents.prompt("bob") == "work"
    agents.fall("bob", errors=f"error: unknown option '{option}'\n", without={option})
    assert agents.state("bob") == "failed"


def test_each_turn_that_was_started_with_an_unknown_option_is_tried_again(agents):
    agents.spawn("bob", "work"), agents.spawn("eve", "work")
    for name in ("bob", "eve"):
        agents.fall(name, errors="error: unknown option '--trust'\n")
        assert (agents.state(name), agents.turn(name).number) == ("running", 2)


def test_an_option_is_left_out_once_that_is_committed(agents):
    agents.spawn("bob", "work")
    agents.store.failing = True
    with pytest.raises(StorageFailed):
        agents.fall("bob", errors="error: unknown option '--trust'\n")
    assert agents.runner.left_out == []
    agents.store.failing = False
    agents.fall("bob", errors="error: unknown option '--trust'\n")
    assert (agents.runner.left_out, agents.turn("bob").number) == (["--trust"], 2)


def test_an_option_that_no_turn_can_do_without_is_an_error(agents):
    agents.spawn("bob", "work")
    agents.fall("bob", errors="error: unknown option '--print'\n")
    assert agents.runner.left_out == []
    assert agents.state("bob") == "failed"
    assert "--print" in agents.turn("bob").error


@pytest.mark.parametrize("session", ["../../etc", "x", SESSION.upper(), "\ud800", f"{SESSION}/x"])
def test_a_session_that_cannot_be_one_is_refused(agents, session):
    agents.spawn("bob", "work")
    agents.begin("bob", session)
    assert agents.agent("bob").session is None
    assert agents.told("bob", "session:refused")


def test_a_session_of_another_agent_is_refused(agents):
    agents.spawn("bob", "work"), agents.spawn("eve", "work")
    agents.begin("bob", SESSION)
    agents.begin("eve", SESSION)
    assert agents.agent("eve").session is None
    assert agents.told("eve", "session:refused")


def test_a_session_that_changes_is_told(agents):
    agents.spawn("bob", "work")
    agents.begin("bob", SESSION)
    agents.finish("bob")
    agents.supervisor.send("bob", "more")
    other = SESSION.replace("0", "1")
    agents.begin("bob", other)
    assert agents.agent("bob").session.id == other
    assert agents.told("bob", "session:changed")


def test_a_session_is_stored_when_it_was_seen_on_disk(agents):
    agents.spawn("bob", "work")
    agents.begin("bob", SESSION)
    agents.finish("bob", is_stored=True)
    assert agents.agent("bob").session == Session(SESSION, stored=True)


def test_notes_and_truncation_are_told(agents):
    agents.spawn("bob", "work")
    agents.book.turn_note(agents.turn("bob").id, "workspace:left-out", "a link")
    agents.book.turn_truncated(agents.turn("bob").id, 5, 50)
    assert agents.told("bob", "workspace:left-out") == [("workspace:left-out", "a link")]
    assert "from 50 to 5 bytes" in agents.told("bob", "turn:output-truncated")[0][1]


def test_news_of_a_turn_nobody_knows_change_nothing(agents):
    agents.spawn("bob", "work")
    turn = agents.turn("bob").id
    agents.finish("bob")
    before = agents.agent("bob")
    for action in (
        lambda: agents.book.turn_over(turn, Verdict(Outcome.ERROR, "x"), NOTHING_SEEN),
        lambda: agents.book.turn_spawned(turn, Process(1, 1, "x")),
        lambda: agents.book.turn_lines("unknown", [], 5, {}),
        lambda: agents.book.turn_note(turn, "a", "b"),
    ):
        action()
    assert agents.agent("bob") == before


def test_a_huge_result_is_cut_in_the_record(agents):
    agents.spawn("bob", "work")
    agents.finish("bob", "x" * 5_000_000)
    assert len(agents.store.turn(agents.turn("bob").id).result) < 1_100_000


def test_a_huge_error_is_cut_in_the_record_and_a_result_is_not_held_in_memory(agents):
    agents.spawn("bob", "work")
    agents.fall("bob", errors="x" * 500_000)
    assert len(agents.turn("bob").error) < 17_000
    agents.spawn("carl", "work")
    agents.finish("carl", "the result")
    assert agents.turn("carl").result is None
    agents.supervisor.suspend("carl")
    agents.supervisor.end("carl")
    assert agents.store.turn(agents.turn("carl").id).result == "the result"


# Suspending, interrupting, ending


def test_suspending_a_running_agent_and_going_on(agents):
    agents.spawn("bob", "the task\n/with a command")
    agents.begin("bob")
    turn = agents.turn("bob").id
    agents.supervisor.suspend("bob")
    assert agents.runner.stopped == [(turn, SUSPENDED)]
    assert agents.state("bob") == "running"
    agents.fall("bob", exit_code=130)
    assert agents.state("bob") == "suspended"
    agent, item = agents.supervisor.resume("bob", None)
    assert item is not None
    assert agents.state("bob") == "running"
    assert "> the task\n> /with a command" in agents.prompt("bob")
    assert [kind for kind, _ in agents.told("bob") if kind.startswith("agent:")] == [
        "agent:spawned", "agent:suspended", "agent:resumed",
    ]  # fmt: skip
    assert agent.name == "bob"


def test_an_agent_that_never_saw_its_prompt_is_given_it_again(agents):
    agents.spawn("bob", "the task")
    agents.supervisor.suspend("bob")
    agents.fall("bob")
    agents.supervisor.resume("bob", None)
    assert agents.prompt("bob") == "the task"


def test_a_turn_that_succeeded_all_the_same_is_not_repeated(agents):
    agents.spawn("bob", "the task")
    agents.supervisor.suspend("bob")
    agents.finish("bob")
    assert agents.state("bob") == "suspended"
    assert agents.supervisor.resume("bob", None)[1] is None
    assert agents.state("bob") == "idle"


def test_resuming_with_something_else_to_do(agents):
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.supervisor.suspend("bob")
    agents.fall("bob")
    agents.supervisor.resume("bob", "something else")
    assert agents.prompt("bob") == "something else"
    agents.finish("bob")
    assert agents.state("bob") == "idle"


def test_what_came_meanwhile_waits_behind_the_continuation(agents):
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.supervisor.suspend("bob")
    agents.supervisor.send("bob", "later")
    agents.fall("bob")
    assert agents.state("bob") == "suspended"
    agents.supervisor.resume("bob", None)
    assert "the task" in agents.prompt("bob")
    agents.finish("bob")
    assert agents.prompt("bob") == "later"


def test_messages_of_a_stopped_turn_are_said_again(agents):
    agents.spawn("eve"), agents.spawn("bob", parent="eve")
    agents.supervisor.message(agents.agent("eve"), "bob", "important")
    agents.begin("bob")
    agents.supervisor.suspend("bob")
    agents.fall("bob")
    agents.supervisor.resume("bob", None)
    assert "important" in agents.prompt("bob")


def test_a_suspended_turn_that_also_ran_out_of_time_goes_on(agents):
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.supervisor.suspend("bob")
    agents.book.turn_limit_reached(agents.turn("bob").id, took_too_long(5))
    agents.fall("bob", stop=SUSPENDED)
    assert agents.state("bob") == "suspended"
    agents.supervisor.resume("bob", None)
    assert agents.state("bob") == "running"
    assert "the task" in agents.prompt("bob")


def test_an_interrupted_agent_is_idle_and_does_not_go_on(agents):
    agents.spawn("bob", "the task")
    agents.begin("bob")
    agents.supervisor.interrupt("bob")
    assert agents.runner.stopped[0][1] == INTERRUPTED
    agents.fall("bob")
    assert agents.state("bob") == "idle"
    assert agents.turn("bob").outcome is Outcome.INTERRUPTED
    assert agents.supervisor.resume("bob", None)[1] is None


def test_the_output_limit_stops_the_turn_and_fails_the_agent(agents):
    agents.spawn("bob", "the task")
    agents.book.turn_output_too_long(agents.turn("bob").id, 1000)
    ((turn, reason),) = agents.runner.stopped
    assert turn == agents.turn("bob").id
    agents.restart()  # the next daemon goes on stopping it
    assert agents.runner.stopped == [(turn, reason)]
    agents.fall("bob")
    assert agents.state("bob") == "failed"
    assert agents.turn("bob").outcome is Outcome.ERROR
    assert "1000 bytes" in agents.turn("bob").error
    assert "disk.turn_output" in agents.turn("bob").error


def test_a_persons_reason_goes_before_the_output_limit(agents):
    agents.spawn("bob", "the task")
    agents.supervisor.suspend("bob")
    agents.book.turn_output_too_long(agents.turn("bob").id, 1000)
    assert agents.turn("bob").stop == SUSPENDED


@pytest.mark.parametrize("reported", [False, True])
def test_a_failed_agent_goes_on_when_told(agents, reported):
    agents.spawn("bob", "the task")
    if reported:
        agents.begin("bob")
    agents.fall("bob", errors="boom")
    assert agents.state("bob") == "failed"
    assert "boom" in agents.turn("bob").error
    agents.supervisor.resume("bob", None)
    assert agents.prompt("bob").startswith("You were stopped") == reported
    assert "the task" in agents.prompt("bob")


def test_removing(agents):
    boss, _ = agents.spawn("boss"), agents.spawn("kid", parent="boss")
    agents.supervisor.remove("boss")
    assert agents.runner.forgotten == [boss.id]
    assert agents.agent("kid").parent is None
    with pytest.raises(NotFound):
        agents.agent("boss")
    agents.supervisor.send("kid", "work")
    with pytest.raises(Refused, match="running"):
        agents.supervisor.remove("kid")


# What passes by itself


def test_what_passes_by_itself_is_tried_again_later(agents):
    agents.spawn("bob", "the task")
    agents.fall("bob", errors=LOST)
    assert agents.state("bob") == "queued"
    (when,) = agents.runner.admissions
    assert agents.clock.time < when < agents.clock.time + 10
    assert agents.agent("bob").waiting == 1
    agents.registry.admit()
    assert agents.state("bob") == "queued"
    agents.clock.time = when
    agents.registry.admit()
    assert agents.state("bob") == "running"
    assert agents.prompt("bob") == "the task"
    agents.finish("bob")
    assert (agents.state("bob"), agents.agent("bob").attempts) == ("idle", 0)


def test_it_is_not_tried_for_ever(agents):
    agents.spawn("bob", "the task")
    for _ in range(20):
        agents.fall("bob", errors=LOST)
        if agents.state("bob") == "failed":
            break
        agents.clock.time = agents.agent("bob").retry_at
        agents.registry.admit()
    assert agents.state("bob") == "failed"
    assert "connection" in agents.turn("bob").error


def test_a_turn_that_did_something_is_not_tried_again(agents):
    agents.spawn("bob", "the task")
    agents.write("bob", {"type": "tool_call", "subtype": "started", "tool_call": {"shellToolCall": {"args": {}}}})
    agents.fall("bob", errors=LOST)
    assert agents.state("bob") == "failed"


def test_a_person_need_not_wait_for_the_next_try(agents):
    agents.spawn("bob", "the task")
    agents.fall("bob", errors=LOST)
    agents.supervisor.send("bob", "now")
    assert agents.state("bob") == "running"
    assert agents.prompt("bob") == "the task"


def test_an_agent_that_is_being_stopped_is_not_tried_again(agents):
    agents.spawn("bob", "the task")
    agents.supervisor.suspend("bob")
    agents.fall("bob", errors=LOST)
    assert agents.state("bob") == "suspended"


# Waiting


async def test_waiting_for_states(agents):
    agents.spawn("bob", "work"), agents.spawn("eve", "work")
    found = []

    async def wait():
        found.extend(await agents.families.waiting.states(["bob", "eve"], None))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            agents.finish("eve")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            agents.fall("bob")
    assert [agent.phase for agent in found] == [Phase.FAILED, Phase.IDLE]


async def test_waiting_for_a_prompts_turn(agents):
    agents.spawn("bob", "first")
    _, item, _ = agents.supervisor.send("bob", "second")
    found = []

    async def wait():
        found.append(await agents.families.waiting.item("bob", item))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            agents.finish("bob", "one")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            agents.finish("bob", "two")
    assert found[0].turn.result == "two"
    assert (await agents.families.waiting.item("bob", None)).turn.result == "two"


async def test_what_can_never_come_is_not_waited_for(agents):
    agents.spawn("bob", "first")
    _, item, _ = agents.supervisor.send("bob", "second")
    agents.supervisor.end("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, Refused, lambda: agents.families.waiting.item("bob", item))
            await trio.testing.wait_all_tasks_blocked()
            agents.fall("bob")
        await expects(NotFound, lambda: agents.families.waiting.item("bob", 999))
        await expects(NotFound, lambda: agents.families.waiting.states(["nobody"], None))


async def expects(kind, wait):
    with pytest.raises(kind):
        await wait()


async def test_an_agent_that_is_removed_is_not_waited_for(agents):
    agents.spawn("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, NotFound, lambda: agents.families.waiting.states(["bob"], ["running"]))
            await trio.testing.wait_all_tasks_blocked()
            agents.supervisor.remove("bob")


async def test_waiting_until_a_turn_is_stopped(agents):
    agents.spawn("bob", "work")
    assert (await agents.families.waiting.settled("bob")).phase is Phase.RUNNING
    agents.supervisor.suspend("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(agents.families.waiting.settled, "bob")
            await trio.testing.wait_all_tasks_blocked()
            agents.fall("bob")


async def test_waiting_has_a_bound(agents, autojump_clock):
    agents.spawn("bob", "work")
    with pytest.raises(WaitTimedOut, match="7"):
        await bounded(7, "bob", lambda: agents.families.waiting.states(["bob"], None))
    assert trio.current_time() >= 7
