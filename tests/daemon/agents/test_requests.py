"""Turns' reports, people's requests, failures that pass by themselves, and waiting; no process runs here."""

import pytest
import trio
import trio.testing

from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Outcome, Process, Session, abridged
from substrat.core.agents.stop_reason import INTERRUPTED, SUSPENDED, took_too_long
from substrat.core.agents.verdict import NOTHING_SEEN, Verdict
from substrat.daemon.families.waiting import bounded
from substrat.errors import NotFound, Refused, SessionMissing, StorageFailed, WaitTimedOut

PATIENCE = 20
SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"
LOST = "RetriableError: [unavailable] PING timed out"


# What a turn reports


def test_a_turns_life_is_told(house):
    house.spawn("bob", "work")
    house.book.turn_spawned(house.turn("bob").id, Process(17, 99, "boot"))
    assert house.turn("bob").process == Process(17, 99, "boot")
    session = house.begin("bob")
    assert house.agent("bob").session == Session(session)
    assert house.turn("bob").reported
    house.finish("bob", "the result", {"inputTokens": 5})
    turn = house.store.turn(house.turn("bob").id)
    assert abridged(turn) == house.turn("bob")
    assert (turn.outcome, turn.result, turn.usage, turn.exit_code, turn.error) == (
        Outcome.SUCCESS, "the result", {"inputTokens": 5}, 0, None,
    )  # fmt: skip
    assert turn.ended_at > turn.started_at
    kinds = [kind for kind, _ in house.told("bob")]
    assert kinds == ["agent:spawned", "turn:started", "system:init", "mcp:not-contacted", "turn:ended"]


def test_a_companion_that_was_called_is_not_reported(house):
    house.spawn("bob", "work")
    house.begin("bob")
    house.book.companion_called(house.turn("bob").id)
    house.restart()
    assert house.turn("bob").contacted
    house.finish("bob")
    assert "mcp:not-contacted" not in [kind for kind, _ in house.told("bob")]


def test_a_turn_that_was_stopped_early_is_not_blamed_for_its_companion(house):
    house.spawn("bob", "work")
    house.supervisor.interrupt("bob")
    house.fall("bob", exit_code=130)
    assert "mcp:not-contacted" not in [kind for kind, _ in house.told("bob")]


@pytest.mark.parametrize("option", ["--sandbox", "--trust", "--stream-partial-output"])
def test_an_option_that_the_program_does_not_know_is_left_out_and_the_turn_tried_again_at_once(house, option):
    house.spawn("bob", "work")
    house.fall("bob", errors=f"error: unknown option '{option}'\n")
    assert house.runner.left_out == [option]
    assert house.state("bob") == "running"
    assert house.turn("bob").number == 2
    assert house.prompt("bob") == "work"
    house.fall("bob", errors=f"error: unknown option '{option}'\n", without={option})
    assert house.state("bob") == "failed"


def test_each_turn_that_was_started_with_an_unknown_option_is_tried_again(house):
    house.spawn("bob", "work"), house.spawn("eve", "work")
    for name in ("bob", "eve"):
        house.fall(name, errors="error: unknown option '--trust'\n")
        assert (house.state(name), house.turn(name).number) == ("running", 2)


def test_an_option_is_left_out_once_that_is_committed(house):
    house.spawn("bob", "work")
    house.store.failing = True
    with pytest.raises(StorageFailed):
        house.fall("bob", errors="error: unknown option '--trust'\n")
    assert house.runner.left_out == []
    house.store.failing = False
    house.fall("bob", errors="error: unknown option '--trust'\n")
    assert (house.runner.left_out, house.turn("bob").number) == (["--trust"], 2)


def test_an_option_that_no_turn_can_do_without_is_an_error(house):
    house.spawn("bob", "work")
    house.fall("bob", errors="error: unknown option '--print'\n")
    assert house.runner.left_out == []
    assert house.state("bob") == "failed"
    assert "--print" in house.turn("bob").error


def test_the_offset_goes_with_the_lines(house):
    house.spawn("bob", "work")
    house.write("bob", {"type": "user"}, {"type": "user"})
    before = house.turn("bob").offset
    house.write("bob", {"type": "user"})
    assert before < house.turn("bob").offset
    assert house.store.agents()[0].turn.offset == house.turn("bob").offset


@pytest.mark.parametrize("session", ["../../etc", "x", SESSION.upper(), "\ud800", f"{SESSION}/x"])
def test_a_session_that_cannot_be_one_is_refused(house, session):
    house.spawn("bob", "work")
    house.begin("bob", session)
    assert house.agent("bob").session is None
    assert house.told("bob", "session:refused")


def test_a_session_of_another_agent_is_refused(house):
    house.spawn("bob", "work"), house.spawn("eve", "work")
    house.begin("bob", SESSION)
    house.begin("eve", SESSION)
    assert house.agent("eve").session is None
    assert house.told("eve", "session:refused")


def test_a_session_that_changes_is_told(house):
    house.spawn("bob", "work")
    house.begin("bob", SESSION)
    house.finish("bob")
    house.supervisor.send("bob", "more")
    other = SESSION.replace("0", "1")
    house.begin("bob", other)
    assert house.agent("bob").session.id == other
    assert house.told("bob", "session:changed")


def test_a_session_is_stored_when_it_was_seen_on_disk(house):
    house.spawn("bob", "work")
    house.begin("bob", SESSION)
    house.runner.stored = True
    house.finish("bob")
    assert house.agent("bob").session == Session(SESSION, stored=True)


def test_notes_and_truncation_are_told(house):
    house.spawn("bob", "work")
    house.book.turn_note(house.turn("bob").id, "workspace:left-out", "a link")
    house.book.turn_truncated(house.turn("bob").id, 5, 50)
    assert house.told("bob", "workspace:left-out") == [("workspace:left-out", "a link")]
    assert "from 50 to 5 bytes" in house.told("bob", "turn:output-truncated")[0][1]


def test_news_of_a_turn_nobody_knows_change_nothing(house):
    house.spawn("bob", "work")
    turn = house.turn("bob").id
    house.finish("bob")
    before = house.agent("bob")
    for action in (
        lambda: house.book.turn_over(turn, Verdict(Outcome.ERROR, "x"), NOTHING_SEEN),
        lambda: house.book.turn_spawned(turn, Process(1, 1, "x")),
        lambda: house.book.turn_lines("unknown", [], 5),
        lambda: house.book.turn_note(turn, "a", "b"),
    ):
        action()
    assert house.agent("bob") == before


def test_a_huge_result_is_cut_in_the_record(house):
    house.spawn("bob", "work")
    house.finish("bob", "x" * 5_000_000)
    assert len(house.store.turn(house.turn("bob").id).result) < 1_100_000


def test_a_huge_error_is_cut_in_the_record_and_a_result_is_not_held_in_memory(house):
    house.spawn("bob", "work")
    house.fall("bob", errors="x" * 500_000)
    assert len(house.turn("bob").error) < 17_000
    house.spawn("carl", "work")
    house.finish("carl", "the result")
    assert house.turn("carl").result is None
    house.supervisor.suspend("carl")
    house.supervisor.end("carl")
    assert house.store.turn(house.turn("carl").id).result == "the result"


# Suspending, interrupting, ending


def test_suspending_a_running_agent_and_going_on(house):
    house.spawn("bob", "the task\n/with a command")
    house.begin("bob")
    turn = house.turn("bob").id
    house.supervisor.suspend("bob")
    assert house.runner.stopped == [(turn, SUSPENDED)]
    assert house.state("bob") == "running"
    house.fall("bob", exit_code=130)
    assert house.state("bob") == "suspended"
    agent, item = house.supervisor.resume("bob", None)
    assert item is not None
    assert house.state("bob") == "running"
    assert "> the task\n> /with a command" in house.prompt("bob")
    assert [kind for kind, _ in house.told("bob") if kind.startswith("agent:")] == [
        "agent:spawned", "agent:suspended", "agent:resumed",
    ]  # fmt: skip
    assert agent.name == "bob"


def test_an_agent_that_never_saw_its_prompt_is_given_it_again(house):
    house.spawn("bob", "the task")
    house.supervisor.suspend("bob")
    house.fall("bob")
    house.supervisor.resume("bob", None)
    assert house.prompt("bob") == "the task"


def test_a_turn_that_succeeded_all_the_same_is_not_repeated(house):
    house.spawn("bob", "the task")
    house.supervisor.suspend("bob")
    house.finish("bob")
    assert house.state("bob") == "suspended"
    assert house.supervisor.resume("bob", None)[1] is None
    assert house.state("bob") == "idle"


def test_resuming_with_something_else_to_do(house):
    house.spawn("bob", "the task")
    house.begin("bob")
    house.supervisor.suspend("bob")
    house.fall("bob")
    house.supervisor.resume("bob", "something else")
    assert house.prompt("bob") == "something else"
    house.finish("bob")
    assert house.state("bob") == "idle"


def test_what_came_meanwhile_waits_behind_the_continuation(house):
    house.spawn("bob", "the task")
    house.begin("bob")
    house.supervisor.suspend("bob")
    house.supervisor.send("bob", "later")
    house.fall("bob")
    assert house.state("bob") == "suspended"
    house.supervisor.resume("bob", None)
    assert "the task" in house.prompt("bob")
    house.finish("bob")
    assert house.prompt("bob") == "later"


def test_messages_of_a_stopped_turn_are_said_again(house):
    house.spawn("eve"), house.spawn("bob")
    house.supervisor.message(house.agent("eve"), "bob", "important")
    house.begin("bob")
    house.supervisor.suspend("bob")
    house.fall("bob")
    house.supervisor.resume("bob", None)
    assert "important" in house.prompt("bob")


def test_a_suspended_turn_that_also_ran_out_of_time_goes_on(house):
    house.spawn("bob", "the task")
    house.begin("bob")
    house.supervisor.suspend("bob")
    house.book.turn_limit_reached(house.turn("bob").id, took_too_long(5))
    house.fall("bob", stop=SUSPENDED)
    assert house.state("bob") == "suspended"
    house.supervisor.resume("bob", None)
    assert house.state("bob") == "running"
    assert "the task" in house.prompt("bob")


def test_an_interrupted_agent_is_idle_and_does_not_go_on(house):
    house.spawn("bob", "the task")
    house.begin("bob")
    house.supervisor.interrupt("bob")
    assert house.runner.stopped[0][1] == INTERRUPTED
    house.fall("bob")
    assert house.state("bob") == "idle"
    assert house.turn("bob").outcome is Outcome.INTERRUPTED
    assert house.supervisor.resume("bob", None)[1] is None


def test_ending(house):
    house.spawn("bob", "the task")
    house.supervisor.end("bob")
    house.fall("bob")
    assert house.state("bob") == "ended"
    for action in (
        lambda: house.supervisor.send("bob", "x"), lambda: house.supervisor.resume("bob", None),
        lambda: house.supervisor.suspend("bob"), lambda: house.supervisor.interrupt("bob"),
    ):  # fmt: skip
        with pytest.raises(Refused, match="bob"):
            action()
    house.supervisor.end("bob")
    assert len(house.told("bob", "agent:ended")) == 1


def test_the_time_limit_stops_the_turn_and_fails_the_agent(house):
    house.spawn("bob", "the task")
    house.book.turn_limit_reached(house.turn("bob").id, took_too_long(5))
    assert house.runner.stopped == [(house.turn("bob").id, took_too_long(5))]
    house.fall("bob")
    assert house.state("bob") == "failed"
    assert house.turn("bob").outcome is Outcome.TIMED_OUT


def test_the_output_limit_stops_the_turn_and_fails_the_agent(house):
    house.spawn("bob", "the task")
    house.book.turn_output_too_long(house.turn("bob").id, 1000)
    ((turn, reason),) = house.runner.stopped
    assert turn == house.turn("bob").id
    house.restart()  # the next daemon goes on stopping it
    assert house.runner.stopped == [(turn, reason)]
    house.fall("bob")
    assert house.state("bob") == "failed"
    assert house.turn("bob").outcome is Outcome.ERROR
    assert "1000 bytes" in house.turn("bob").error
    assert "disk.turn_output" in house.turn("bob").error


def test_a_persons_reason_goes_before_the_output_limit(house):
    house.spawn("bob", "the task")
    house.supervisor.suspend("bob")
    house.book.turn_output_too_long(house.turn("bob").id, 1000)
    assert house.turn("bob").stop == SUSPENDED


@pytest.mark.parametrize("reported", [False, True])
def test_a_failed_agent_goes_on_when_told(house, reported):
    house.spawn("bob", "the task")
    if reported:
        house.begin("bob")
    house.fall("bob", errors="boom")
    assert house.state("bob") == "failed"
    assert "boom" in house.turn("bob").error
    house.supervisor.resume("bob", None)
    assert house.prompt("bob").startswith("You were stopped") == reported
    assert "the task" in house.prompt("bob")


def test_a_session_that_is_gone_refuses_to_go_on(house):
    house.spawn("bob", "the task")
    house.supervisor.suspend("bob")
    house.fall("bob")
    house.runner.refuse_to_resume = SessionMissing("it is gone")
    with pytest.raises(SessionMissing):
        house.supervisor.resume("bob", None)
    assert house.state("bob") == "suspended"
    assert house.agent("bob").waiting == 0


def test_removing(house):
    boss, _ = house.spawn("boss"), house.spawn("kid", parent="boss")
    house.supervisor.remove("boss")
    assert house.runner.forgotten == [boss.id]
    assert house.agent("kid").parent is None
    with pytest.raises(NotFound):
        house.agent("boss")
    house.supervisor.send("kid", "work")
    with pytest.raises(Refused, match="running"):
        house.supervisor.remove("kid")


# What passes by itself


def test_what_passes_by_itself_is_tried_again_later(house):
    house.spawn("bob", "the task")
    house.fall("bob", errors=LOST)
    assert house.state("bob") == "queued"
    (when,) = house.runner.admissions
    assert house.clock.time < when < house.clock.time + 10
    assert house.agent("bob").waiting == 1
    house.registry.admit()
    assert house.state("bob") == "queued"
    house.clock.time = when
    house.registry.admit()
    assert house.state("bob") == "running"
    assert house.prompt("bob") == "the task"
    house.finish("bob")
    assert (house.state("bob"), house.agent("bob").attempts) == ("idle", 0)


def test_it_is_not_tried_for_ever(house):
    house.spawn("bob", "the task")
    for _ in range(20):
        house.fall("bob", errors=LOST)
        if house.state("bob") == "failed":
            break
        house.clock.time = house.agent("bob").retry_at
        house.registry.admit()
    assert house.state("bob") == "failed"
    assert "connection" in house.turn("bob").error


def test_a_turn_that_did_something_is_not_tried_again(house):
    house.spawn("bob", "the task")
    house.write("bob", {"type": "tool_call", "subtype": "started", "tool_call": {"shellToolCall": {"args": {}}}})
    house.fall("bob", errors=LOST)
    assert house.state("bob") == "failed"


def test_a_person_need_not_wait_for_the_next_try(house):
    house.spawn("bob", "the task")
    house.fall("bob", errors=LOST)
    house.supervisor.send("bob", "now")
    assert house.state("bob") == "running"
    assert house.prompt("bob") == "the task"


def test_an_agent_that_is_being_stopped_is_not_tried_again(house):
    house.spawn("bob", "the task")
    house.supervisor.suspend("bob")
    house.fall("bob", errors=LOST)
    assert house.state("bob") == "suspended"


# Waiting


async def test_waiting_for_states(house):
    house.spawn("bob", "work"), house.spawn("eve", "work")
    found = []

    async def wait():
        found.extend(await house.families.waiting.states(["bob", "eve"], None))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            house.finish("eve")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            house.fall("bob")
    assert [agent.phase for agent in found] == [Phase.FAILED, Phase.IDLE]


async def test_waiting_for_a_prompts_turn(house):
    house.spawn("bob", "first")
    _, item = house.supervisor.send("bob", "second")
    found = []

    async def wait():
        found.append(await house.families.waiting.item("bob", item))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            house.finish("bob", "one")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            house.finish("bob", "two")
    assert found[0].turn.result == "two"
    assert (await house.families.waiting.item("bob", None)).turn.result == "two"


async def test_what_can_never_come_is_not_waited_for(house):
    house.spawn("bob", "first")
    _, item = house.supervisor.send("bob", "second")
    house.supervisor.end("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, Refused, lambda: house.families.waiting.item("bob", item))
            await trio.testing.wait_all_tasks_blocked()
            house.fall("bob")
        await expects(NotFound, lambda: house.families.waiting.item("bob", 999))
        await expects(NotFound, lambda: house.families.waiting.states(["nobody"], None))


async def expects(kind, wait):
    with pytest.raises(kind):
        await wait()


async def test_an_agent_that_is_removed_is_not_waited_for(house):
    house.spawn("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, NotFound, lambda: house.families.waiting.states(["bob"], ["running"]))
            await trio.testing.wait_all_tasks_blocked()
            house.supervisor.remove("bob")


async def test_waiting_until_a_turn_is_stopped(house):
    house.spawn("bob", "work")
    assert (await house.families.waiting.settled("bob")).phase is Phase.RUNNING
    house.supervisor.suspend("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.families.waiting.settled, "bob")
            await trio.testing.wait_all_tasks_blocked()
            house.fall("bob")


async def test_waiting_has_a_bound(house, autojump_clock):
    house.spawn("bob", "work")
    with pytest.raises(WaitTimedOut, match="7"):
        await bounded(7, "bob", lambda: house.families.waiting.states(["bob"], None))
    assert trio.current_time() >= 7
