"""Lines that are broken between words."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.cli import output
from substrat.cli.wrapping import WordWrap
from tests.support.cases import each


@each(
    ("text", "hang", "broken"),
    [
        ("one two three\n", 0, "one two\nthree\n"),
        ("  one two three\n", 0, "  one two\n  three\n"),
        ("• one two three\nfour\n", 2, "• one two\n  three\nfour\n"),
        ("exactly-10 more\n", 0, "exactly-10\nmore\n"),
        ("a-word-of-sixteen more\n", 0, "a-word-of-sixteen\nmore\n"),
        ("\x1b[1mone two\x1b[0m three\n", 0, "\x1b[1mone two\x1b[0m\nthree\n"),
        ("one\n\n\ntwo", 0, "one\n\n\ntwo"),
    ],
)
def test_a_line_is_broken_before_the_word_that_does_not_fit(text, hang, broken):
    assert WordWrap(10, hang).feed(text) == broken
    assert WordWrap(None, hang).feed(text) == text


@given(st.lists(st.text("ab \n", max_size=30), max_size=6), st.integers(4, 40))
def test_pieces_keep_their_words_and_whole_words_fit(pieces, columns):
    wrap = WordWrap(columns)
    shown = "".join(map(wrap.feed, pieces))
    assert shown.split() == "".join(pieces).split()
    whole = WordWrap(columns).feed("".join(pieces))
    for line in whole.split("\n"):
        indent = len(line) - len(line.lstrip())
        longest = max(map(output.width, line.split()), default=0)
        assert output.width(line.rstrip()) <= columns or indent + longest > columns
    assert re.sub(r"\s", "", shown) == re.sub(r"\s", "", whole)


@pytest.mark.parametrize("words", [("logs", "anna"), ("events",)])
def test_on_a_terminal_no_word_of_an_event_is_broken(ctl, fake, agent, event, monkeypatch, words):
    said = [event("agent:spawned", "anna spawned by the operator in a clone of /home/somebody/src/app")]
    read = lambda params: {"events": said if params["since"] < 1 else [], "cursor": 1}  # noqa: E731 - one row of a table
    fake({"agent.show": agent(), "agent.list": [agent()], "events.read": read})
    whole = ctl(*words).out
    assert whole.count("\n") == 1
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("NO_COLOR", "1")
    broken = ctl(*words).out
    assert broken.split() == whole.split()
    assert broken.count("\n") > 1
    assert max(map(len, broken.splitlines())) <= 40
