"""A command's output on a terminal: the clipboard is out of reach, and modes are put back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.cli.terminal_output import TerminalOutput
from tests.support.cases import each

LEFT_OUT = [
    b"\x1b]52;c;aGk=\x07", b"\x1b]52;c;?\x1b\\", b"\x1b]052;;aGk=\x07", b"\x1b\x00]5\x002;c;aGk=\x07",
    b"\x9d52;c;aGk=\x9c", b"\x90tmux;\x1b\x1b]52;c;aGk=\x07\x1b\\", b"\xc2\x9d52;c;aGk=\xc2\x9c",
    b"\x1b]4294967348;c;aGk=\x07", b"\x1b]1337;Copy=:aGk=\x07", b"\x1b]5522;type=read\x1b\\",
    b"\x1b]" + b"0" * 99 + b"52;c;x\x07", b"\x1bPtmux;\x1b\x1b]52;c;aGk=\x07\x1b\\", b"\x1bP0tmux;x\x1b\\",
    b"\x1bPtmux;\x1b\x1b]52;c;aGk=\x1b\x1b\\\x1b\\", b"\x1bP\x1b]52;c;aGk=\x07\x1b\\", b"\x1b]52;c;aGk=\x18",
    b"\x1b\n\x1b]52;c;a\x07",
]  # fmt: skip
KEPT = [
    b"plain \xe2\x80\x9d52; text \xc2\xb5 \xc3\xa4\n", b"\x1b]0;a title\x07", b"\x1b]8;;http://a/\x1b\\link\x1b]8;;\x1b\\",
    b"\x1bPq#0;2;0;0;0~-\x1b\\", b"\x1bP+q544e\x1b\\", b"\x1b[31mred\x1b[0m", b"\x1b]52", b"\x1b]521;c\x07",
    b"\x1b(0lqk\x1b(B", b"\x1b]11;?\x07", b"\x1b[?1049h",
]  # fmt: skip


@each("sequence", LEFT_OUT)
def test_the_clipboard_is_out_of_reach(sequence):
    shown = TerminalOutput().take(b"before " + sequence + b" after")
    assert shown.replace(b"\x1b\n", b"") == b"before \x1b\\ after"


@each("sequence", [one for one in KEPT if one != b"\x1b]52"])
def test_everything_else_passes(sequence):
    assert TerminalOutput().take(b"before " + sequence + b" after") == b"before " + sequence + b" after"


def test_a_sequence_that_is_ended_by_another_ends():
    assert TerminalOutput().take(b"\x1b]52;c;aGk=\x1b[31mred") == b"\x1b\\\x1b[31mred"
    assert TerminalOutput().take(b"\x1b\x1b]52;c;a\x07]52;c;b\x07") == b"\x1b\x1b\\]52;c;b\x07", "no sequence is left"


PIECES = [b"\x1b", b"\\", b"]", b"52;", b"\xc2", b"\x9d", b"\xe2", b"P"]
parts_of_output = st.lists(st.sampled_from([*LEFT_OUT, *KEPT, *PIECES]), max_size=8)


@given(parts_of_output, st.data())
def test_pieces_make_no_difference(parts, data):
    whole = b"".join(parts) + b"."
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    output = TerminalOutput()
    pieces = [output.take(whole[at:end]) for at, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    other = TerminalOutput()
    assert b"".join(pieces) == other.take(whole)
    assert output.restoring() == other.restoring()


@given(parts_of_output)
def test_what_is_left_makes_no_new_sequence(parts):
    shown = TerminalOutput().take(b"".join(parts)) + b"."
    assert TerminalOutput().take(shown) == shown


@pytest.mark.parametrize(
    ("printed", "restored"),
    [
        (b"\x1b[?1049h\x1b[?1000;1006h\x1b[?2004h\x1b[?25l", b"\x1b[?1000l\x1b[?1006l\x1b[?2004l\x1b[?1049l\x1b[?25h"),
        (b"\x1b[?1049h\x1b[?25l hi \x1b[?25h\x1b[?1049l", b""),
        (b"\x1b[?1049h\x1bc", b""),
        (b"\x1b[?7l", b"\x1b[?7h"),
        (b"\x1b[?12h\x1b[?9999l\x1b[2J", b""),
    ],
)
def test_modes_are_put_back_once(printed, restored):
    output = TerminalOutput()
    output.take(printed)
    assert output.restoring() == restored
    assert output.restoring() == b""
