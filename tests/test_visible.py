"""Text of unknown origin as it may be shown: nothing acts, nothing hides, and what people write stays as it is."""

import itertools
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.visible import visible
from tests.support.cases import each

ACTING = {
    "CSI in 8 bits": "\x9b31m", "escape": "\x1b[2J", "next line": "\x85", "carriage return": "a\rb", "delete": "\x7f",
    "line separator": "a\u2028b", "paragraph separator": "a\u2029b", "override": "\u202etxt.exe",
    "isolate": "\u2066x\u2069",
    "mark": "a\u200fb", "zero width space": "pay\u200bpal", "word joiner": "a\u2060b", "byte order mark": "\ufeffx",
    "joiner between Latin letters": "ad\u200dmin", "non-joiner at the end": "x\u200c", "joiner in front": "\u200dx",
    "tag characters": "\U000e0041\U000e0042", "tags behind a flag": "\U0001f3f4\U000e0061\U000e0062\U000e007f",
    "selectors that carry bytes": "a\U000e0101\U000e0102", "two selectors": "\u2764\ufe0f\ufe0f",
    "selector on Latin": "a\ufe01",
    "filler": "a\u3164b", "half-width filler": "\uffa0", "lone surrogate": "\ud800", "low surrogate": "a\udc9b",
    "annotation": "\ufff9a\ufffab\ufffb", "soft hyphen": "a\xadb",
    "unassigned ignorable": "\U000e0fff", "reserved": "\u2065",
    "deprecated": "\u206e", "shorthand": "\U0001bca0", "music": "\U0001d173", "Mongolian separator": "\u180e",
    "joiner by a filler": "\u3164\u200d\u05d0", "grapheme joiner": "a\u034fb",
}  # fmt: skip
ORDINARY = [
    "né 漢字 🙂\t\n", "👩‍💻 👨‍👩‍👧‍👦 🏳️‍🌈 ❤️‍🔥 👩🏽‍🚀 🏴‍☠️ 🙂‍↔️ 1️⃣ #️⃣ ©️", "🏴󠁧󠁢󠁥󠁮󠁧󠁿 🏴󠁧󠁢󠁳󠁣󠁴󠁿 🇩🇪",
    "می‌خواهم", "क्‍ष र्‍य", "שָׁלוֹם עולם", "السَّلَامُ", "e\u0301 Z̃", "\u0600\u0661\u0662",
    "葛\U000e0100", "한국어", "√∩\ufe00", "\xa0\u3000",
    "\ue0b0 private",
]  # fmt: skip


@each("text", ACTING.values())
def test_what_acts_or_hides_is_written_out(text):
    shown = visible(text)
    assert shown != text
    assert "\\" in shown
    assert visible(shown) == shown


@pytest.mark.parametrize("text", ORDINARY)
def test_what_people_write_stays(text):
    assert visible(text) == text


def test_the_escapes():
    assert visible("\x1b\x9b\u2028\u202e\ud800\U000e0041") == "\\x1b\\x9b\\u2028\\u202e\\ud800\\U000e0041"


@given(st.text(st.characters(blacklist_categories=()), max_size=60))
def test_one_line_feed_is_the_only_end_of_a_line(text):
    shown = visible(text)
    assert len(shown.splitlines()) <= shown.count("\n") + 1
    assert {letter for letter in shown if unicodedata.category(letter) in {"Cc", "Zl", "Zp", "Cs"}} <= {"\n", "\t"}
    shown.encode()


HIDING = ["\u200d", "\u200c", "\ufe0f", "\U000e0041", "\U000e0101"]


@given(st.lists(st.sampled_from([*HIDING, "a", "1", "\u05d0", "🙂"]), max_size=12))
def test_hidden_characters_never_stand_beside_one_another(letters):
    shown = visible("".join(letters))
    hidden = "\u200d\u200c\U000e0041\U000e0101"
    assert not any(one in hidden and two in hidden for one, two in itertools.pairwise(shown))
