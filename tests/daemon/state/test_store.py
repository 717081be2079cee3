"""The state on disk: values come out as they went in, and all or nothing is written."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.lifecycle import Phase
from substrat.core.agents.records import Closed, Item, ItemKind, Outcome, Process, Session, Turn, abridged
from substrat.core.agents.rights import Policy
from substrat.core.agents.stop_reason import ENDED, SUSPENDED, call_too_long
from substrat.daemon.state.rows import EventRow
from substrat.daemon.state.store import Store
from substrat.errors import StorageFailed

TURN = Turn("t-1", "a", 1, 1.0)


def reopened(store):
    store.close()
    store.__init__(store.path)
    return store


# Round trips


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("session", [None, Session("s"), Session("s", stored=True)])
def test_an_agent_round_trips(store, new_agent, phase, session):
    agent = new_agent(phase=phase, session=session, parent="p", status="busy ü", policy=Policy(Network.NONE))
    with store.transaction():
        store.save_agent(agent)
    assert reopened(store).agents() == [agent]


TURNS = [
    TURN,
    replace(TURN, process=Process(4242, 99, "boot"), offset=2**40, reported=True, contacted=True),
    replace(TURN, stop=SUSPENDED, outcome=Outcome.INTERRUPTED, ended_at=5.5, exit_code=130, error="stopped"),
    replace(TURN, stop=call_too_long(5, "sh: sleep ü")),
    replace(TURN, outcome=Outcome.SUCCESS, ended_at=5.5, exit_code=0, result="done\n\0ü", usage={"inputTokens": 2**60}),
    replace(TURN, outcome=Outcome.SUCCESS, result="", usage={}),
    replace(TURN, login="cursor-agent:0", model="gpt-5"),
    *(replace(TURN, outcome=outcome) for outcome in Outcome),
]


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_round_trips(store, new_agent, turn):
    agent = new_agent(id="a", turn=turn)
    with store.transaction():
        store.save_agent(agent)
        store.save_turn(turn)
    assert reopened(store).turn(turn.id) == turn
    assert store.agents() == [replace(agent, turn=abridged(turn))]


def test_an_agent_comes_with_its_newest_turn_and_what_waits(store, new_agent):
    agents = [new_agent(f"a{number}") for number in range(3)]
    with store.transaction():
        for agent in agents:
            store.save_agent(agent)
            for number in (1, 10, 2):
                store.save_turn(Turn(f"{agent.id}-{number}", agent.id, number, 1.0))
        for text in ("one", "two"):
            store.add_item(Item(0, agents[1].id, ItemKind.MESSAGE, "x", "x", text, 1.0))
        store.add_item(Item(0, None, ItemKind.MESSAGE, "x", "x", "to the operator", 1.0))
    found = reopened(store).agents()
    assert [agent.turn.number for agent in found] == [10, 10, 10]
    assert [agent.waiting for agent in found] == [0, 2, 0]


def test_agents_stay_in_the_order_of_their_making(store, new_agent):
    agents = [new_agent(f"a{number}", created_at=1000.0) for number in range(5)]
    with store.transaction():
        for agent in agents:
            store.save_agent(agent)
    with store.transaction():
        store.save_agent(replace(agents[1], status="changed"))
    assert [agent.name for agent in reopened(store).agents()] == ["a0", "a1", "a2", "a3", "a4"]


def item(text="x", kind=ItemKind.MESSAGE, agent="a"):
    return Item(0, agent, kind, "sender", "sender's name", text, 1.5)


def test_items_wait_in_their_order_continuations_first(store):
    kinds = [ItemKind.MESSAGE, ItemKind.PROMPT, ItemKind.CONTINUATION, ItemKind.MESSAGE, ItemKind.CONTINUATION]
    with store.transaction():
        numbers = [store.add_item(item(str(number), kind)) for number, kind in enumerate(kinds)]
    assert numbers == sorted(set(numbers))
    found = reopened(store).waiting_items("a")
    assert [entry.text for entry in found] == ["2", "4", "0", "1", "3"]
    assert found[2] == replace(item("0"), id=numbers[0])
    assert len(store.waiting_items("a", limit=2)) == 2


def test_a_delivered_item_does_not_wait_any_more(store):
    with store.transaction():
        for number, kind in enumerate((ItemKind.NOW, *[ItemKind.MESSAGE] * 3)):
            store.add_item(item(str(number), kind))
        first, second, third, _ = sorted(store.waiting_items("a"), key=lambda entry: entry.text)
        store.deliver([first, second], "t-1")
        store.close_items([third], Closed.READ)
    assert [entry.text for entry in store.waiting_items("a")] == ["3"]
    assert [entry.text for entry in store.items_of_turn("t-1")] == ["1", "0"], "the words that came in its middle last"
    assert store.item_turn(first.id) == ("a", "t-1")
    assert store.item_turn(third.id) == ("a", None)
    assert not store.waits(third.id)
    assert store.item_turn(999) is None


def test_the_operators_messages_wait_for_no_agent(store):
    with store.transaction():
        store.add_item(item("for the operator", agent=None))
        store.add_item(item("for a"))
    assert [entry.text for entry in store.waiting_items(None)] == ["for the operator"]
    assert [entry.text for entry in store.waiting_items("a")] == ["for a"]


def test_the_newest_prompt(store):
    assert store.newest_prompt("a") is None
    with store.transaction():
        store.add_item(item(kind=ItemKind.PROMPT))
        newest = store.add_item(item(kind=ItemKind.CONTINUATION))
        store.add_item(item(kind=ItemKind.MESSAGE))
        store.add_item(item(kind=ItemKind.PROMPT, agent="b"))
    assert store.newest_prompt("a") == newest


def event(agent="a", **changes):
    return EventRow(0, agent, None, 1.0, "told", "text", None, None, None)._replace(**changes)


def test_events_are_numbered_and_paged(store):
    with store.transaction():
        stored = store.add_events([event("a"), event("b", turn="t", offset=1, length=2, checksum=2**32 - 1), event("a")])
    cursors = [row.cursor for row in stored]
    assert cursors == sorted(set(cursors))
    assert reopened(store).events_after(0, None, 10) == stored
    assert store.events_after(0, "a", 10) == [stored[0], stored[2]]
    assert store.events_after(cursors[0], None, 1) == [stored[1]]
    assert store.events_after(cursors[-1], None, 10) == []
    assert store.last_cursor() == cursors[-1]


def test_cursors_are_never_used_again(store):
    with store.transaction():
        store.add_events([event("a"), event("a")])
    last = store.last_cursor()
    with store.transaction():
        store.forget_agent("a")
    assert reopened(store).last_cursor() == last
    with store.transaction():
        assert store.add_events([event("b")])[0].cursor == last + 1


def steps(store, question):
    """How much SQLite does for a question, in hundreds of its steps."""
    count = 0

    def step():
        nonlocal count
        count += 1

    store.connection.set_progress_handler(step, 100)
    question()
    store.connection.set_progress_handler(None, 0)
    return count


def test_a_turns_text_is_found_however_much_others_wrote_before(store):
    before = [event(turn=f"t-{number % 50}", kind="assistant") for number in range(20_000)]
    with store.transaction():
        store.add_events(before)
        _, *mine = store.add_events(
            [event(turn="t", kind=kind) for kind in ("turn:started", "assistant", "tool-call-started", "result:success")]
        )
        store.add_events(before)
    assert store.events_of_turn("a", "t", "assistant", 5)[0] == mine[0]
    assert store.turn_has_event("a", "t", "tool-call-started")
    assert not store.turn_has_event("a", "u", "tool-call-started")
    assert store.result_event("t") == mine[2]
    assert store.result_event("u") is None
    for question in (
        lambda: store.events_of_turn("a", "t", "assistant", 1),
        lambda: store.result_event("t"),
        lambda: store.result_event("t-1"),
    ):
        assert steps(store, question) < 5
    assert steps(store, lambda: store.events_after(0, "a", 9000)) > 500


def test_a_repeated_call_finds_its_answer(store):
    with store.transaction():
        store.add_call("a", "t", "c", '["answer", false]')
    assert reopened(store).answered_call("a", "t", "c") == '["answer", false]'
    for other in (("b", "t", "c"), ("a", "u", "c"), ("a", "t", "d")):
        assert store.answered_call(*other) is None


def test_mount_points_are_noted_once(store):
    with store.transaction():
        store.add_mount_points(["/w/.cursor", "/v/.cursor"])
        store.add_mount_points(["/w/.cursor"])
    assert sorted(reopened(store).mount_points()) == ["/v/.cursor", "/w/.cursor"]
    with store.transaction():
        store.forget_mount_points(["/w/.cursor"])
    assert store.mount_points() == ["/v/.cursor"]


def test_a_forgotten_agent_leaves_nothing_but_its_children(store, new_agent):
    parent, child = new_agent("parent"), new_agent("child")
    with store.transaction():
        store.save_agent(parent)
        store.save_agent(replace(child, parent=parent.id))
        store.save_turn(Turn("t", parent.id, 1, 1.0))
        store.add_item(item(agent=parent.id))
        store.add_events([event(parent.id)])
        store.add_call(parent.id, "t", "c", "x")
        store.forget_agent(parent.id)
    assert reopened(store).agents() == [child]
    assert store.turn("t") is None
    assert store.waiting_items(parent.id) == []
    assert store.events_after(0, None, 10) == []
    assert store.answered_call(parent.id, "t", "c") is None


def test_items_that_wait_or_are_settled_are_found_without_a_look_at_all_others(store):
    run: list[str] = []
    store.connection.set_trace_callback(run.append)
    store.waiting_items("a"), store.waiting_items(None), store.waiting_from("b", "a"), store.first_waiting()
    store.waits_from_a_person("a", "operator"), store.operator_items(), store.open_questions(["a"])
    store.waiting_since("a"), store.turns_kept("a"), store.forget_settled()
    store.connection.set_trace_callback(None)
    plans = [step[3] for statement in run for step in store.connection.execute(f"EXPLAIN QUERY PLAN {statement}")]
    assert len(run) == 10
    assert "SCAN items" not in plans


def test_a_turn_that_is_stored_without_its_result_keeps_it(store):
    turn = TURNS[3]
    with store.transaction():
        store.save_turn(turn)
        store.save_turn(replace(abridged(turn), stop=ENDED))
    assert store.turn(turn.id) == replace(turn, stop=ENDED)


def test_a_page_of_turns_ends_with_the_one_that_fills_it(store):
    with store.transaction():
        for number in range(1, 6):
            store.save_turn(Turn(f"t{number}", "a", number, 1.0, outcome=Outcome.SUCCESS, result="x" * 10))
    assert [turn.number for turn in store.turns_after("a", 0, 10, 15)] == [1, 2]
    assert [turn.number for turn in store.turns_after("a", 2, 10, 0)] == [3]
    assert [turn.number for turn in store.turns_after("a", 0, 10)] == [1, 2, 3, 4, 5]
    assert store.turn_number("t4") == 4
    assert store.turn_number("none") is None


@given(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=50),
    st.floats(0, 253402300799),
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**63) + 1, 2**63 - 1), max_size=3)
    | st.none(),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_any_values_round_trip(store, new_agent, text, time, usage):
    words = text.replace("\0", "").replace("..", "")
    turn = Turn("t", "a", 1, time, result=text, error=text, usage=usage)
    agent = new_agent(id="a", name="n", status=text, model=words, workspace=f"/{words}", turn=turn)
    with store.transaction():
        store.save_agent(agent)
        store.save_turn(turn)
        number = store.add_item(item(text))
    assert store.agents() == [replace(agent, waiting=len(store.waiting_items("a")))]
    assert store.turn("t") == turn
    assert store.waiting_items("a")[-1] == replace(item(text), id=number)


# All or nothing


def test_a_transaction_that_raises_writes_nothing(store, new_agent):
    def change():
        with store.transaction():
            store.save_agent(new_agent())
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert store.agents() == []
    with store.transaction():
        store.save_agent(new_agent())
    assert len(store.agents()) == 1


def test_a_transaction_in_another_is_part_of_it(store, new_agent):
    def change():
        with store.transaction():
            store.save_agent(new_agent())
            with store.transaction():
                store.save_agent(new_agent())
            with store.transaction():
                store.save_agent(new_agent())
                raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        change()
    assert reopened(store).agents() == []


def test_a_refused_statement_changes_nothing(store, new_agent):
    def change():
        with store.transaction():
            store.save_agent(new_agent())
            store._db.execute("INSERT INTO items (agent) VALUES ('a')")

    with pytest.raises(StorageFailed):
        change()
    assert reopened(store).agents() == []


def fill(store):
    """Leave the database no further page, as a full disk would."""
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count={pages}")


def test_a_full_disk_is_told_and_changes_nothing(store, new_agent):
    agent = new_agent()
    with store.transaction():
        store.save_agent(agent)
    fill(store)

    def change():
        with store.transaction():
            store.save_agent(replace(agent, status="changed"))
            for _ in range(1000):
                store.add_item(item("x" * 10_000))

    with pytest.raises(StorageFailed, match="disk full"):
        change()
    assert store.agents() == [agent]
    store._db.execute("PRAGMA max_page_count=1000000")
    with store.transaction():
        store.add_item(item("x" * 10_000))
    assert len(reopened(store).waiting_items("a")) == 1


def test_a_full_disk_inside_a_nested_transaction_undoes_the_outer_one(store, new_agent):
    fill(store)

    def change():
        with store.transaction():
            store.save_agent(new_agent())
            with store.transaction():
                store.add_item(item("x" * 1_000_000))

    with pytest.raises(StorageFailed):
        change()
    assert reopened(store).agents() == []


def test_a_commit_survives_without_a_close(store, new_agent, tmp_path):
    agent = new_agent()
    with store.transaction():
        store.save_agent(agent)
    copy = tmp_path / "copy"
    copy.mkdir()
    for name in ("substrat.db", "substrat.db-wal"):
        (copy / name).write_bytes((tmp_path / name).read_bytes())
    other = Store(str(copy / "substrat.db"))
    assert other.agents() == [agent]
    other.close()
