"""The newest events and their readers, in any order of events and looks: none lost, none doubled, none held for long."""

from unittest import mock

from hypothesis import given
from hypothesis import strategies as st

from substrat.web import window
from substrat.web.window import EncodedEvent, Wanted, Window, next_events

EVENTS = st.tuples(st.sampled_from(["anna", "ben"]), st.booleans(), st.integers(1, 60))
WANTED = st.builds(Wanted, st.sampled_from([None, "anna"]), st.none(), st.none(), st.booleans())


@given(st.lists(st.one_of(EVENTS, st.just("look"))), WANTED, st.integers(0, 5))
def test_a_reader_gets_each_event_that_it_wants_once_and_in_order(steps, wanted, begun):
    with mock.patch.multiple(window, MOST_EVENTS=5, MOST_BYTES=100, _SEND_BYTES=40):
        journal: list[EncodedEvent] = []
        seen: list[EncodedEvent] = []
        newest, cursor = Window("id", 0), 0

        def look():
            """Read as a reader does: what the window lacks comes from the journal, in pages."""
            source = newest.events if cursor >= newest.floor else [one for one in journal if one.cursor > cursor][:3]
            found, after = next_events(source, cursor, wanted)
            assert sum(len(one.json) for one in found[:-1]) <= 40
            return found, after

        for step in steps:
            if step == "look":
                found, cursor = look()
                seen += found
            else:
                agent, is_thinking, size = step
                journal.append(EncodedEvent(2 * len(journal) + begun + 1, agent, is_thinking, b"x" * size))
                newest.add(journal[-1])
                assert [*newest.events] == [one for one in journal if one.cursor > newest.floor]
                assert len(newest.events) <= 5
                assert sum(len(one.json) for one in newest.events) <= 100
        while journal and cursor < journal[-1].cursor:
            found, cursor = look()
            seen += found
    assert seen == [
        one for one in journal if wanted.agent in {None, one.agent} and not (wanted.without_thinking and one.is_thinking)
    ]


def test_a_cursor_after_the_newest_event_stays():
    wanted = Wanted(None, None, None, without_thinking=False)
    assert next_events([EncodedEvent(3, "anna", False, b"{}")], 7, wanted) == ([], 7)
