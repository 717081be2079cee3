"""Events as people read them: one agent's voice and a chorus of many."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.cli.output import neutralise
from substrat.cli.render import Chorus, Renderer
from tests.support.cases import each

SGR = re.compile(r"\x1b\[(?:0|1|2|31|32|33|34|35|36)m")
FORBIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
KINDS = (
    "system:init", "user", "thinking:delta", "thinking:completed", "assistant", "assistant:delta", "tool-call-started",
    "tool-call-completed", "result:success", "result:error", "unknown", "turn:started", "turn:ended", "message:received",
    "network:denied", "raw", "",
)  # fmt: skip
HOSTILE = [
    "\x1b[31m",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\u202e",
    "\r",
    "\n",
    "\x00",
    "\u2066",
    "\ud800",
    " → ",
    "exit 0 (0.2 s)",
    "\x85",
]


def render(*events, flow=True, colour=False):
    renderer = Renderer(flow=flow, colour=colour, clock=False)
    return "".join([*(renderer.feed(event) for event in events), renderer.finish()])


@pytest.fixture
def started(event):
    return lambda text, call="c1": event("tool-call-started", text, raw={"call_id": call})


@pytest.fixture
def completed(event):
    return lambda text, call="c1": event("tool-call-completed", text, raw={"call_id": call})


def test_deltas_flow_on_a_terminal(event):
    renderer = Renderer(flow=True, colour=False)
    assert [renderer.feed(event("assistant:delta", text)) for text in ("Hel", "lo", ", you")] == ["Hel", "lo", ", you"]
    assert renderer.feed(event("assistant", "Hello, you")) == "\n"
    assert renderer.finish() == ""


@pytest.mark.parametrize("flow", [True, False])
def test_events_from_the_middle_on_begin_with_a_whole_word(event, started, flow):
    rest = [event("assistant:delta", text) for text in ("rld, I", " am", " here")]

    def shown(*events):
        renderer = Renderer(flow=flow, colour=False, midway=True)
        return "".join(map(renderer.feed, events)) + renderer.finish()

    assert shown(*rest, event("assistant", "Hello world, I am here")) == "Hello world, I am here\n"
    assert shown(*rest, started("ls")).startswith("… I am here\n")
    assert shown(*rest) == "… I am here\n"
    assert shown(event("thinking:delta", "mm, so"), *rest[:1]) == "… so\nrld, I\n"
    assert shown(event("assistant", "whole"), *rest) == "whole\nrld, I am here\n"


def test_a_followed_segment_from_the_middle_on_goes_on_after_a_moment(event):
    renderer = Renderer(flow=True, colour=False, midway=True)
    assert renderer.feed(event("assistant:delta", "rld, I")) == ""
    assert renderer.pause() == "… I"
    assert renderer.feed(event("assistant:delta", " am")) == " am"
    assert renderer.feed(event("assistant", "Hello world, I am")) == "\n"


@pytest.mark.parametrize("words", [("logs", "anna"), ("logs", "anna", "bob"), ("events",)])
def test_the_last_events_begin_with_a_whole_word(ctl, fake, agent, event, words):
    rest = [event("assistant:delta", "rld, I am")]
    read = lambda params: {"events": rest if params["since"] < 1 else [], "cursor": 1}  # noqa: E731 - one row of a table
    fake({"agent.show": agent(), "agent.list": [agent()], "events.read": read})
    assert "rld, I am\n" in ctl(*words).out
    assert ctl(*words, "-n", "1").out.endswith("… I am\n")


def test_a_long_line_is_cut_behind_a_word(event):
    assert render(event("user", "letter " * 100)) == f"> {'letter ' * 21}letter…\n"
    assert render(event("user", "letters" * 100)) == f"> {('letters' * 100)[:159]}…\n"


def test_a_notes_times_are_local(event):
    said = render(event("turn:waiting", "next try 2026-01-31T09:02:04.195Z"))
    assert said == "• next try 2026-01-31 09:02\n"


def test_elsewhere_a_line_is_held_back_until_it_is_whole(event):
    renderer = Renderer(flow=False, colour=False)
    written = [renderer.feed(event("assistant:delta", text)) for text in ("Hel", "lo\nand ", "more\nx", "y")]
    assert written == ["", "Hello\n", "and more\n", ""]
    assert renderer.feed(event("assistant", "Hello\nand more\nxy")) == "xy\n"


@pytest.mark.parametrize("flow", [True, False])
def test_what_was_heard_in_fragments_is_not_shown_again(event, flow):
    events = [event("assistant:delta", "one "), event("assistant:delta", "two"), event("assistant", "one two")]
    assert render(*events, event("result:success", "one two"), flow=flow) == "one two\n"
    assert render(event("assistant", "one two"), event("result:success", "one two"), flow=flow) == "one two\n"


@pytest.mark.parametrize("flow", [True, False])
def test_two_segments_are_two_lines(event, flow):
    first = [event("assistant:delta", "one"), event("assistant", "one")]
    assert render(*first, event("assistant", "two"), event("assistant:delta", "three"), flow=flow) == "one\ntwo\nthree\n"


@pytest.mark.parametrize("flow", [True, False])
def test_an_agent_that_says_nothing_but_its_result_is_heard(event, flow):
    assert render(event("result:success", "only this"), flow=flow) == "only this\n"
    turn = [
        event("turn:started", "turn 1"),
        event("assistant", "a"),
        event("result:success", "a"),
        event("turn:ended", "ended"),
    ]
    again = [event("turn:started", "turn 2"), event("result:success", "b"), event("turn:ended", "ended")]
    assert re.sub(r"• [-:\d]+ ", "• ", render(*turn, *again, flow=flow)) == "• turn 1\na\n• ended\n• turn 2\nb\n• ended\n"


@pytest.mark.parametrize("flow", [True, False])
def test_a_call_is_one_line(started, completed, flow):
    assert render(started("ls -l"), completed("ls -l → exit 0 (0.2 s)"), flow=flow) == "  ls -l  ✓ exit 0  0.2s\n"
    assert render(started("x"), completed("x → exit 3 (12 s)"), flow=flow) == "  x  ✗ exit 3  12s\n"
    assert render(started("read a"), completed("read a → done"), flow=flow) == "  read a  ✓ done\n"
    assert (
        render(started("read a"), completed("read a → failed: no (1.0 s)"), flow=flow) == "  read a  ✗ failed: no  1.0s\n"
    )
    assert render(completed("late → done (0.1 s)"), flow=flow) == "  late  ✓ done  0.1s\n"


def test_a_call_appears_when_it_starts_on_a_terminal(started, completed):
    renderer = Renderer(flow=True, colour=False)
    assert renderer.feed(started("sleep 9")) == "  sleep 9"
    assert renderer.feed(completed("sleep 9 → exit 0 (9.0 s)")) == "  ✓ exit 0  9.0s\n"
    assert render(started("a → b"), completed("a → b → exit 0 (0.1 s)")) == "  a → b  ✓ exit 0  0.1s\n"
    assert render(completed("a → b → done")) == "  a → b  ✓ done\n"


def test_calls_side_by_side_are_a_line_each(started, completed):
    events = [started("one", "1"), started("two", "2"), completed("one → done", "1"), completed("two → done", "2")]
    assert render(*events, flow=False) == "  one  ✓ done\n  two  ✓ done\n"
    assert render(*events).endswith("  one  ✓ done\n  two  ✓ done\n")


def test_the_daemons_own_events_do_not_break_a_call(event, started, completed):
    between = event("message:received", "from bob")
    events = [started("make"), between, completed("make → exit 0 (3.0 s)")]
    assert render(*events, flow=False) == "• message:received: from bob\n  make  ✓ exit 0  3.0s\n"
    flowing = render(*events).splitlines()
    assert flowing == ["  make", "• message:received: from bob", "  make  ✓ exit 0  3.0s"]
    assert "no outcome" not in render(*events)


@pytest.mark.parametrize("flow", [True, False])
def test_a_call_without_an_outcome_is_said_to_have_none(event, started, flow):
    ended = event("turn:ended", "turn 1 interrupted")
    shown = render(started("sleep 9"), ended, flow=flow).splitlines()
    assert shown[-2:] == ["  sleep 9  … no outcome was seen", "• turn 1 interrupted"]
    assert render(started("sleep 9"), flow=flow) == "  sleep 9  … running\n", "its turn hasn't ended"


def test_thinking_is_dim_and_ends_its_line(event):
    events = [
        event("thinking:delta", "hm"),
        event("thinking:delta", "m"),
        event("thinking:completed"),
        event("assistant", "so"),
    ]
    assert render(*events) == "hmm\nso\n"
    assert render(*events, flow=False) == "hmm\nso\n"
    assert render(*events, colour=True) == "\x1b[2mhm\x1b[0m\x1b[2mm\x1b[0m\nso\n"
    assert render(*events, flow=False, colour=True) == "\x1b[2mhmm\x1b[0m\nso\n"


def test_thinking_and_speech_do_not_share_a_line(event):
    events = [event("thinking:delta", "hm"), event("assistant:delta", "so"), event("thinking:delta", "ah")]
    assert render(*events) == render(*events, flow=False) == "hm\nso\nah\n"


def test_colours(event, started, completed):
    assert (
        render(started("ls"), completed("ls → exit 0 (0.2 s)"), colour=True)
        == "  ls  \x1b[32m✓ exit 0\x1b[0m  \x1b[2m0.2s\x1b[0m\n"
    )
    assert "\x1b[31m✗ exit 1\x1b[0m" in render(completed("ls → exit 1"), colour=True)
    assert render(event("result:error", "no"), colour=True) == "\x1b[31m✗ no\x1b[0m\n"
    assert render(event("user", "do it"), colour=True) == "\x1b[1m> do it\x1b[0m\n"


def test_single_lines(event):
    assert render(event("user", "do\n\tthis  now " + "x" * 200)).startswith("> do this now xxx")
    assert len(render(event("user", "x" * 900))) == 163
    assert render(event("result:error", None)) == "✗ the agent reported an error\n"
    assert render(event("raw", "not JSON")) == "  | not JSON\n"
    assert render(event("unknown", None, raw={"type": "a", "subtype": "b\x1b"})) == "• unknown event a/b\\x1b\n"
    assert render(event("system:init", None)) == "• system init\n"
    assert render(event("network:denied", "x.org")) == "• network:denied: x.org\n"
    renderer = Renderer(flow=True, colour=False)
    assert renderer.feed(event("turn:started", "turn 1")) == "• 10:20:30 turn 1\n"
    assert renderer.feed(event("turn:started", "turn 1", time=None)) == "• --:--:-- turn 1\n"


@each("kind", KINDS)
@each("flow", [True, False])
def test_hostile_text_is_made_visible(event, kind, flow):
    text = "a\x1b[2J\x9b31m\x1b]52;c;x\x07\u202eb\u2066\x7f\r\x00z"
    shown = render(event(kind, text, raw={"call_id": text, "type": text, "subtype": text}), flow=flow)
    assert FORBIDDEN.search(shown) is None
    if kind not in {"thinking:completed"}:
        assert "\\x1b[2J\\x9b31m\\x1b]52;c;x\\x07\\u202eb\\u2066\\x7f" in shown


TEXTS = st.none() | st.lists(st.text(max_size=6) | st.sampled_from(HOSTILE), max_size=6).map("".join)
RAW = (
    st.none()
    | st.text(max_size=3)
    | st.fixed_dictionaries({}, optional={"call_id": TEXTS | st.integers(0, 2), "type": TEXTS, "subtype": TEXTS})
)
TIMES = (
    st.none()
    | st.sampled_from(["2026-01-01T00:00:00Z", "0000-00-00T00:00:inf", "9999-99-99T99:99:nan", "2026-01-01T00:00:1e308"])
    | st.text(max_size=24)
)
EVENTS = st.lists(
    st.fixed_dictionaries(
        {"kind": st.sampled_from(KINDS) | st.text(max_size=8)},
        optional={
            "text": TEXTS | st.integers(),
            "raw": RAW,
            "time": TIMES,
            "agent": st.sampled_from([None, "a1", "b\x1b2", 7]),
        },
    ),
    max_size=14,
)


def check(shown, *, colour):
    bare = SGR.sub("", shown) if colour else shown
    assert FORBIDDEN.search(bare) is None
    if colour:
        for line in shown.split("\n"):
            codes = SGR.findall(line)
            # Nothing of our own is left on at the end of a line, and nothing is nested.
            assert codes[1::2] == ["\x1b[0m"] * (len(codes) // 2)
            assert len(codes) % 2 == 0
    assert shown == "" or shown.endswith("\n")


@given(EVENTS, st.booleans(), st.booleans())
def test_any_events_are_harmless_and_off_a_terminal_whole_lines(events, flow, colour):
    renderer = Renderer(flow=flow, colour=colour)
    pieces = [*map(renderer.feed, events), renderer.finish()]
    for piece in ["".join(pieces)] if flow else pieces:
        check(piece, colour=colour)


@given(EVENTS, st.booleans())
def test_any_chorus_is_harmless_whole_lines(events, colour):
    chorus = Chorus({"a1": "anna", "b\x1b2": "b\x1b[31m"}, colour=colour)
    for event in events:
        shown = chorus.feed(event)
        check(shown, colour=colour)
        assert all("  " in line for line in shown.splitlines())
    check(chorus.finish(), colour=colour)


@given(st.lists(st.text(max_size=9), max_size=9), st.booleans())
def test_fragments_add_up_to_what_was_said(texts, flow):
    events = [{"kind": "assistant:delta", "text": text} for text in texts]
    said = "".join(texts)
    shown = render(*events, flow=flow)
    assert shown.rstrip("\n") == neutralise(said).rstrip("\n")


# The chorus


def test_a_chorus_gives_each_line_its_time_and_name(event):
    chorus = Chorus({"a": "anna", "b": "bert"}, colour=False)
    one = event("assistant:delta", "from a\nand", agent="a")
    two = event("assistant", "from b", agent="b", time="2026-01-01T11:00:00Z")
    assert chorus.feed(one) == "10:20:30 anna  from a\n"
    assert chorus.feed(two) == "11:00:00 bert  from b\n"
    assert chorus.feed(event("assistant:delta", " more\n", agent="a")) == "10:20:30 anna  and more\n"
    assert chorus.feed(event("assistant", "x", agent="0123456789")) == "10:20:30 01234567  x\n"
    assert chorus.feed(event("daemon:started", None, agent=None)) == "10:20:30 substratd  • daemon started\n"


def test_a_chorus_keeps_calls_of_different_agents_apart(event):
    chorus = Chorus({"a": "anna", "b": "bert"}, colour=False)
    shown = [
        chorus.feed(event(f"tool-call-{step}", text, raw={"call_id": "same"}, agent=agent))
        for agent, step, text in (
            ("a", "started", "make"), ("b", "started", "ls"), ("b", "completed", "ls → done"),
            ("a", "completed", "make → exit 1 (2 s)"),
        )
    ]  # fmt: skip
    assert shown == ["", "", "10:20:30 bert  ls  ✓ done\n", "10:20:30 anna  make  ✗ exit 1  2s\n"]


def test_a_chorus_forgets_an_agent_between_its_turns(event):
    chorus = Chorus({}, colour=False)
    for number in range(50):
        chorus.feed(event("assistant:delta", "x", agent=f"agent-{number}"))
        chorus.feed(event("turn:ended", "ended", agent=f"agent-{number}"))
    assert chorus._voices == {}
    assert chorus.finish() == ""
    assert chorus.feed(event("assistant:delta", "half", agent="a")) == ""
    assert chorus.finish() == "10:20:30 a  half\n", "what it held back"


@pytest.mark.parametrize(
    ("kind", "text", "colour"),
    [
        ("turn:ended", "turn 1 success after 1.0 s", "1"),
        ("turn:ended", "turn 12 timed_out after 1.0 s: it was silent", "31"),
        ("network:denied", "pypi.org:443: it isn't on the allow-list", "33"),
        ("retry:starting", "attempt 1", "2"),
    ],
)
def test_a_line_that_needs_a_person_has_the_colour_for_it(event, kind, text, colour):
    shown = Renderer(flow=True, colour=True).feed(event(kind, text))
    assert shown.startswith(f"\x1b[{colour}m• ")


def test_a_choruss_dim_thoughts_end_dim_on_each_line(event):
    chorus = Chorus({"a": "anna"}, colour=True)
    shown = chorus.feed(event("thinking:delta", "one\ntwo\nthr", agent="a"))
    head = shown.partition("anna")[0] + "anna\x1b[0m  "
    assert head.startswith("\x1b[2m10:20:30\x1b[0m ")
    assert shown == f"{head}\x1b[2mone\x1b[0m\n{head}\x1b[2mtwo\x1b[0m\n"


@pytest.mark.parametrize(("flow", "breaks"), [(True, "\n"), (False, "")])
def test_only_on_a_terminal_a_notice_ends_the_line_under_way(event, flow, breaks):
    renderer = Renderer(flow=flow, colour=False)
    renderer.feed(event("assistant:delta", "half"))
    assert renderer.interrupt() == breaks
    assert renderer.interrupt() == ""
    rest = renderer.feed(event("assistant:delta", " whole")) + renderer.finish()
    assert rest == (" whole\n" if flow else "half whole\n")
