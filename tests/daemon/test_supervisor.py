"""What people and agents ask, what turns report, and what becomes of agents; no process runs here."""

import contextlib

import pytest
import trio
import trio.testing
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.lifecycle import RUNNING_PHASES, Phase
from substrat.core.records import OPERATOR, SYSTEM, ItemKind, Outcome, Process, Session
from substrat.core.verdict import NOTHING_SEEN, TIME_LIMIT, Verdict
from substrat.daemon.gate import Gate
from substrat.daemon.supervisor import bounded
from substrat.errors import (
    InvalidParams,
    LimitReached,
    NameTaken,
    NotFound,
    PolicyDenied,
    Refused,
    SessionMissing,
    StorageFailed,
    SubstratError,
    WaitTimedOut,
)

PATIENCE = 20
SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"
LOST = "RetriableError: [unavailable] PING timed out"


# Spawning


def test_a_new_agent_without_a_prompt_is_idle(house):
    agent = house.spawn("bob")
    assert house.state("bob") == "idle"
    assert (agent.name, agent.workspace, agent.model, agent.policy.network) == ("bob", "/w", "auto", Network.FILTERED)
    assert house.runner.started == []
    assert [kind for kind, _ in house.told("bob")] == ["agent:spawned"]


def test_a_new_agent_with_a_prompt_runs(house):
    house.spawn("bob", "do it")
    assert house.state("bob") == "running"
    assert house.runner.started == [("bob", house.turn("bob").id)]
    assert house.prompt("bob") == "do it"
    assert house.turn("bob").number == 1


def test_an_agent_is_found_by_name_and_by_id(house):
    agent = house.spawn("bob")
    assert house.agent("bob") is house.agent(agent.id)
    with pytest.raises(NotFound, match="'eve'"):
        house.agent("eve")


def test_names_are_made_up(house):
    house.spawn("agent-2")
    for _ in range(3):
        house.spawn()
    assert len({agent.name for agent in house.registry.agents}) == 4


@pytest.mark.parametrize("name", ["", "-x", ".x", "_x", "a b", "a/b", "a\n", "ü", "x" * 65, "a'b"])
def test_what_cannot_be_a_name(house, name):
    with pytest.raises(InvalidParams):
        house.spawn(name)
    assert not house.registry.agents


@pytest.mark.parametrize(
    "name", ["operator", "Operator", "sub-strat", "System", "all", "me", "parent", SESSION, SESSION.upper()]
)
def test_reserved_names(house, name):
    with pytest.raises(InvalidParams, match="reserved"):
        house.spawn(name)


def test_a_child_cannot_have_a_name_like_anothers(house):
    house.spawn("Anna")
    house.spawn("anna")
    house.spawn("bob")
    with pytest.raises(NameTaken, match="the name 'BOB' can be taken for 'bob'"):
        house.spawn("BOB", "task", parent="anna")


def test_a_name_can_be_used_once(house):
    house.spawn("bob")
    with pytest.raises(NameTaken, match="'bob'"):
        house.spawn("bob", "prompt")
    assert house.state("bob") == "idle"
    house.supervisor.remove("bob")
    house.spawn("bob")


def test_the_wish_beats_the_configuration(new_house):
    house = new_house(sandbox={"network": "none"}, agent={"model": "sonnet"})
    assert house.spawn().policy.network is Network.NONE
    assert house.spawn().model == "sonnet"
    wished = house.spawn(model="gpt", network=Network.HOST)
    assert (wished.model, wished.policy.network) == ("gpt", Network.HOST)


# Children


def test_a_child_is_like_its_parent_unless_told(house):
    house.spawn("boss", model="gpt", network=Network.NONE)
    child = house.spawn("kid", "task", parent="boss")
    assert (child.model, child.policy.network, child.parent) == ("gpt", Network.NONE, house.agent("boss").id)


@pytest.mark.parametrize("parent", list(Network))
@pytest.mark.parametrize("child", list(Network))
def test_a_child_gets_no_more_than_its_parent_has(house, parent, child):
    house.spawn("boss", network=parent)
    if child.reach > parent.reach:
        with pytest.raises(PolicyDenied):
            house.spawn("kid", "task", parent="boss", network=child)
        with pytest.raises(NotFound):
            house.agent("kid")
    else:
        assert house.spawn("kid", "task", parent="boss", network=child).policy.network is child


def test_the_number_of_living_children_is_bounded(new_house):
    house = new_house(limits={"children": 2})
    house.spawn("boss")
    house.spawn("a", parent="boss")
    house.spawn("b", parent="boss")
    with pytest.raises(LimitReached, match="children"):
        house.spawn("c", parent="boss")
    house.supervisor.end("a")
    house.spawn("c", parent="boss")


def test_generations_are_bounded(new_house):
    house = new_house(limits={"depth": 2})
    house.spawn("a")
    house.spawn("b", parent="a")
    house.spawn("c", parent="b")
    with pytest.raises(LimitReached, match="generation"):
        house.spawn("d", parent="c")


def test_agents_are_bounded(new_house):
    house = new_house(limits={"agents": 2})
    house.spawn(), house.spawn("x")
    with pytest.raises(LimitReached):
        house.spawn()
    house.supervisor.remove("x")
    house.spawn()


def test_a_parent_is_told_when_its_child_has_finished(house):
    house.spawn("boss", "lead")
    house.finish("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid", "the answer")
    assert house.state("boss") == "running"
    assert "the answer" in house.prompt("boss")
    assert "kid" in house.prompt("boss")
    assert "from Substrat" in house.prompt("boss")


def test_a_parent_is_told_of_a_failure_too(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.fall("kid", errors="it exploded")
    assert "it exploded" in house.prompt("boss")


def test_only_the_prompt_the_parent_gave_is_reported(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid")
    house.finish("boss")
    house.supervisor.send("kid", "from the operator")
    house.finish("kid")
    assert house.state("boss") == "idle"


def test_a_suspended_child_reports_when_it_is_done_after_all(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.begin("kid")
    house.supervisor.suspend("kid")
    house.fall("kid")
    assert house.state("boss") == "idle"
    house.supervisor.resume("kid", None)
    house.finish("kid", "late answer")
    assert "late answer" in house.prompt("boss")


def test_a_parent_that_has_ended_is_told_nothing(house):
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.supervisor.end("boss")
    house.finish("kid")
    assert house.state("kid") == "idle"
    assert house.agent("boss").waiting == 0


def test_a_report_is_hardly_longer_than_a_message(new_house):
    house = new_house(limits={"message_bytes": 100})
    house.spawn("boss")
    house.spawn("kid", "task", parent="boss")
    house.finish("kid", "ü" * 1000)
    (item,) = house.store.items_of_turn(house.turn("boss").id)
    assert len(item.text) < 200


# Prompts and messages


def test_prompts_are_worked_on_one_by_one_in_their_order(house):
    house.spawn("bob", "first")
    for text in ("second", "third"):
        house.supervisor.send("bob", text)
    found = []
    while house.state("bob") == "running":
        found.append(house.prompt("bob"))
        house.finish("bob")
    assert found == ["first", "second", "third"]
    assert house.state("bob") == "idle"
    assert house.turn("bob").number == 3


def test_messages_that_wait_are_delivered_together(house):
    house.spawn("eve")
    house.spawn("bob", "busy")
    for text in ("one", "two"):
        house.supervisor.message(house.agent("eve"), "bob", text)
    house.supervisor.send("bob", "a prompt")
    house.supervisor.message(house.agent("eve"), "bob", "three")
    assert house.agent("bob").waiting == 4
    house.finish("bob")
    assert "one" in house.prompt("bob")
    assert "two" in house.prompt("bob")
    assert "three" not in house.prompt("bob")
    house.finish("bob")
    assert house.prompt("bob") == "a prompt"
    house.finish("bob")
    assert "three" in house.prompt("bob")
    house.finish("bob")
    assert house.state("bob") == "idle"


def test_a_message_wakes_an_idle_agent_and_leaves_a_failed_one_alone(house):
    house.spawn("eve")
    house.spawn("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    assert house.state("bob") == "running"
    house.fall("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi again")
    assert house.state("bob") == "failed"
    assert house.agent("bob").waiting == 1
    house.supervisor.send("bob", "go on")
    assert "hi again" in house.prompt("bob")


def test_a_message_to_the_operator(house):
    house.spawn("bob")
    house.supervisor.message(house.agent("bob"), OPERATOR, "done, boss")
    (item,) = house.store.waiting_items(None)
    assert (item.text, item.sender_name) == ("done, boss", "bob")
    assert house.told("bob", "message:sent")


def test_both_sides_of_a_message_are_told(house):
    house.spawn("eve"), house.spawn("bob")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    assert house.told("eve", "message:sent") == [("message:sent", "to bob: hi")]
    assert house.told("bob", "message:received") == [("message:received", "from eve: hi")]


def test_messages_that_are_refused(new_house):
    house = new_house(limits={"message_bytes": 10, "waiting_items": 2})
    house.spawn("eve"), house.spawn("bob", "busy"), house.spawn("old")
    house.supervisor.end("old")
    eve = house.agent("eve")
    with pytest.raises(LimitReached, match="bytes"):
        house.supervisor.message(eve, "bob", "ü" * 6)
    with pytest.raises(Refused, match="itself"):
        house.supervisor.message(eve, "eve", "hi")
    with pytest.raises(NotFound):
        house.supervisor.message(eve, "nobody", "hi")
    with pytest.raises(Refused, match="ended"):
        house.supervisor.message(eve, "old", "hi")
    for _ in range(2):
        house.supervisor.message(eve, "bob", "ü" * 5)
    with pytest.raises(LimitReached, match="waiting"):
        house.supervisor.message(eve, "bob", "hi")
    with pytest.raises(LimitReached, match="waiting"):
        house.supervisor.send("bob", "hi")
    assert house.agent("bob").waiting == len(house.store.waiting_items(house.agent("bob").id)) == 2


def test_messages_are_handed_out_once_and_prompts_are_not(house):
    house.spawn("eve"), house.spawn("bob", "busy")
    house.supervisor.message(house.agent("eve"), "bob", "hi")
    house.supervisor.send("bob", "a prompt")
    assert [item.text for item in house.supervisor.take_inbox("bob")] == ["hi"]
    assert house.supervisor.take_inbox("bob") == []
    assert house.agent("bob").waiting == 1
    house.finish("bob")
    assert house.prompt("bob") == "a prompt"


def test_what_an_agent_says_it_does(house):
    house.spawn("bob", "busy")
    house.supervisor.report_status("bob", "x" * 10_000)
    assert house.agent("bob").status == "x" * 500
    assert house.told("bob", "agent:status")


# Slots


def test_no_more_turns_run_than_allowed(new_house):
    house = new_house(turns={"max_running": 2})
    for name in "abcd":
        house.spawn(name, "work")
    assert [house.state(name) for name in "abcd"] == ["running", "running", "queued", "queued"]
    house.finish("a")
    assert house.state("c") == "running"
    house.fall("b")
    assert house.state("d") == "running"


def test_who_has_waited_longest_starts_first(new_house):
    house = new_house(turns={"max_running": 1})
    for name in ("old", "young", "busy"):
        house.spawn(name)
    house.supervisor.send("busy", "work")
    house.supervisor.send("young", "first in the queue")
    house.supervisor.send("old", "second in the queue")
    house.finish("busy")
    assert [house.state(name) for name in ("old", "young")] == ["queued", "running"]


def test_nobody_is_passed_over_for_ever(new_house):
    house = new_house(turns={"max_running": 1})
    house.spawn("first", "work"), house.spawn("second", "work")
    for _ in range(5):
        house.supervisor.send("first", "more work")
        if house.state("second") == "running":
            return
        house.finish("first")
    pytest.fail("the second agent never came to its turn")


def test_a_suspended_agent_in_the_queue_gives_its_place_up(new_house):
    house = new_house(turns={"max_running": 1})
    for name in "abc":
        house.spawn(name, "work")
    house.supervisor.suspend("b")
    house.finish("a")
    assert [house.state(name) for name in "abc"] == ["idle", "suspended", "running"]


# What a turn reports


def test_a_turns_life_is_told(house):
    house.spawn("bob", "work")
    house.book.turn_spawned(house.turn("bob").id, Process(17, 99, "boot"))
    assert house.turn("bob").process == Process(17, 99, "boot")
    session = house.begin("bob")
    assert house.agent("bob").session == Session(session)
    assert house.turn("bob").reported
    house.finish("bob", "the result", {"inputTokens": 5})
    turn = house.turn("bob")
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
    house.fall("bob", errors=f"error: unknown option '{option}'\n")
    assert house.state("bob") == "failed"


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
    assert len(house.turn("bob").result) < 1_100_000


# Suspending, interrupting, ending


def test_suspending_a_running_agent_and_going_on(house):
    house.spawn("bob", "the task\n/with a command")
    house.begin("bob")
    turn = house.turn("bob").id
    house.supervisor.suspend("bob")
    assert house.runner.stopped == [(turn, "suspended")]
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
    house.book.turn_limit_reached(house.turn("bob").id, TIME_LIMIT)
    house.fall("bob", stop="suspended")
    assert house.state("bob") == "suspended"
    house.supervisor.resume("bob", None)
    assert house.state("bob") == "running"
    assert "the task" in house.prompt("bob")


def test_an_interrupted_agent_is_idle_and_does_not_go_on(house):
    house.spawn("bob", "the task")
    house.begin("bob")
    house.supervisor.interrupt("bob")
    assert house.runner.stopped[0][1] == "interrupted"
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
    house.book.turn_limit_reached(house.turn("bob").id, TIME_LIMIT)
    assert house.runner.stopped == [(house.turn("bob").id, "time limit")]
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
    assert house.turn("bob").stop == "suspended"


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
    house.book.admit()
    assert house.state("bob") == "queued"
    house.clock.time = when
    house.book.admit()
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
        house.book.admit()
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
        found.extend(await house.supervisor.wait_states(["bob", "eve"], None))

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
        found.append(await house.supervisor.wait_item("bob", item))

    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            house.finish("bob", "one")
            await trio.testing.wait_all_tasks_blocked()
            assert found == []
            house.finish("bob", "two")
    assert found[0].turn.result == "two"
    assert (await house.supervisor.wait_item("bob", None)).turn.result == "two"


async def test_what_can_never_come_is_not_waited_for(house):
    house.spawn("bob", "first")
    _, item = house.supervisor.send("bob", "second")
    house.supervisor.end("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, Refused, lambda: house.supervisor.wait_item("bob", item))
            await trio.testing.wait_all_tasks_blocked()
            house.fall("bob")
        await expects(NotFound, lambda: house.supervisor.wait_item("bob", 999))
        await expects(NotFound, lambda: house.supervisor.wait_states(["nobody"], None))


async def expects(kind, wait):
    with pytest.raises(kind):
        await wait()


async def test_an_agent_that_is_removed_is_not_waited_for(house):
    house.spawn("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(expects, NotFound, lambda: house.supervisor.wait_states(["bob"], ["running"]))
            await trio.testing.wait_all_tasks_blocked()
            house.supervisor.remove("bob")


async def test_waiting_until_a_turn_is_stopped(house):
    house.spawn("bob", "work")
    assert (await house.supervisor.wait_settled("bob")).phase is Phase.RUNNING
    house.supervisor.suspend("bob")
    with trio.fail_after(PATIENCE):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(house.supervisor.wait_settled, "bob")
            await trio.testing.wait_all_tasks_blocked()
            house.fall("bob")


async def test_waiting_has_a_bound(house, autojump_clock):
    house.spawn("bob", "work")
    with pytest.raises(WaitTimedOut, match="7"):
        await bounded(7, "bob", lambda: house.supervisor.wait_states(["bob"], None))
    assert trio.current_time() >= 7


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
        running["suspending"].id: "suspended",
        running["interrupting"].id: "interrupted",
        running["ending"].id: "ended",
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
    house.book.attach(house.runner)
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
    ("time is up", lambda house: house.book.turn_limit_reached(house.turn("running").id, TIME_LIMIT)),
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
    house.registry.admit = lambda: None
    house.supervisor.send("bob", "work")
    house.registry.admit = house.book.admit
    house.store.failing = True
    house.book.admit()
    assert house.state("bob") == "queued"
    assert house.runner.started == []
    house.store.failing = False
    house.spawn("eve", "work")
    assert house.state("bob") == "running"


def test_a_turn_that_could_not_be_started_is_tried_again_by_itself(new_house):
    house = new_house()
    house.spawn("bob")
    house.registry.admit = lambda: None
    house.supervisor.send("bob", "work")
    house.registry.admit = house.book.admit
    house.registry.gate = Gate(house.registry, "/", lambda _path: 1 << 40)
    house.store.failing = True
    house.book.admit()
    house.store.failing = False
    (when,) = house.runner.admissions
    assert when > house.clock.time


def test_a_change_that_breaks_halfway_changes_nothing(house):
    house.spawn("bob", "work")
    before = snapshot(house)
    with pytest.raises(ZeroDivisionError):
        break_halfway(house)
    assert snapshot(house) == before


def break_halfway(house):
    with house.registry.change("note taken"):
        house.supervisor.send("bob", "more")
        house.supervisor.suspend("bob")
        assert house.agent(house.spawn("eve", "work").id).name == "eve"
        raise ZeroDivisionError


# Anything in any order

NAMES = ["a", "b", "c"]
names = st.sampled_from(NAMES)
acts = st.one_of(
    st.tuples(st.just("spawn"), names, st.booleans()),
    st.tuples(st.just("child"), names, names),
    st.tuples(st.sampled_from(["send", "suspend", "resume", "resume with", "interrupt", "end", "remove"]), names),
    st.tuples(st.just("message"), names, names),
    st.tuples(st.sampled_from(["begin", "finish", "fall", "lose", "time", "output", "inbox"]), names),
    st.tuples(st.sampled_from(["restart", "full disk", "later"])),
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
            house.book.admit()
        case "full disk":
            house.store.failing = not house.store.failing
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
            house.book.turn_limit_reached(house.turn(name).id, TIME_LIMIT)
        case "output":
            house.book.turn_output_too_long(house.turn(name).id, 1000)
        case "inbox":
            house.supervisor.take_inbox(name)


def check_house(house):
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
    if not house.store.failing:
        ready = [a for a in agents if a.phase is Phase.QUEUED and not (a.retry_at and a.retry_at > house.clock.time)]
        assert not ready or house.registry.running == house.config.turns.max_running


@given(st.lists(acts, max_size=30))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=150)
def test_whatever_happens_memory_and_disk_agree_and_nobody_is_forgotten(new_house, walk):
    house = new_house(turns={"max_running": 2}, limits={"children": 2, "depth": 2, "waiting_items": 3})
    for act in walk:
        with contextlib.suppress(SubstratError):
            perform(house, act)
        if act == ("full disk",) and not house.store.failing:
            house.book.admit()
        check_house(house)
    house.store.failing = False
    before = {agent.id: agent for agent in house.registry.agents}
    house.restart(attached=False)
    assert {agent.id: agent for agent in house.registry.agents} == before


def test_the_kinds_of_items(house):
    house.spawn("boss"), house.spawn("kid", "task", parent="boss")
    (item,) = house.store.items_of_turn(house.turn("kid").id)
    assert (item.kind, item.sender) == (ItemKind.PROMPT, house.agent("boss").id)
    house.finish("kid")
    (item,) = house.store.items_of_turn(house.turn("boss").id)
    assert (item.kind, item.sender) == (ItemKind.MESSAGE, SYSTEM)
