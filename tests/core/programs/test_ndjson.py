"""Lines and where they were, however the bytes come."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.ndjson import MAX_LINE, Line, Splitter

# Mostly newlines and a few other bytes, so that short examples hold many lines.
texts = st.binary(max_size=80) | st.lists(st.sampled_from([b"\n", b"a", b"\r", b"{}", b"\xff", b"\0"]), max_size=40).map(
    b"".join
)


def pieces(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges)]


def split(parts, *, offset=0, limit=MAX_LINE, finish=True):
    splitter = Splitter(offset, limit)
    lines = [line for part in parts for line in splitter.feed(part)]
    return lines + list(splitter.finish()) if finish else lines


@given(texts, st.lists(st.integers(0, 200), max_size=8), st.integers(0, 2**40), st.integers(1, 10))
def test_any_split_gives_the_same_lines(data, cuts, offset, limit):
    whole = split([data], offset=offset, limit=limit)
    assert split(pieces(data, cuts), offset=offset, limit=limit) == whole
    assert split([bytes([byte]) for byte in data], offset=offset, limit=limit) == whole


@given(texts, st.lists(st.integers(0, 200), max_size=8))
def test_the_lines_are_the_stream(data, cuts):
    lines = split(pieces(data, cuts))
    assert b"".join(line.data + b"\n" * line.ended for line in lines) == data
    assert all(line.ended for line in lines[:-1])


@given(texts, st.integers(0, 1000), st.integers(1, 10))
def test_offsets_and_lengths_add_up(data, offset, limit):
    at = offset
    for line in split([data], offset=offset, limit=limit):
        assert line.offset == at
        assert line.data == data[at - offset :][: line.length][:limit]
        at += line.length + line.ended
    assert at == offset + len(data)


@given(texts, st.lists(st.integers(0, 200), max_size=8), st.integers(0, 1000))
def test_a_reader_that_starts_at_consumed_sees_the_rest(data, cuts, offset):
    splitter = Splitter(offset)
    given_out: list[Line] = []
    for part in pieces(data, cuts):
        given_out += splitter.feed(part)
        assert splitter.consumed <= splitter.position
        restarted = split([data[splitter.consumed - offset :]], offset=splitter.consumed)
        assert given_out + restarted == split([data], offset=offset)
    assert splitter.position == offset + len(data)


@given(texts, st.integers(0, 1000))
def test_finishing_consumes_everything(data, offset):
    splitter = Splitter(offset)
    list(splitter.feed(data))
    list(splitter.finish())
    assert splitter.consumed == splitter.position == offset + len(data)
    assert list(splitter.finish()) == []


@pytest.mark.parametrize(("length", "cut"), [(9, False), (10, False), (11, True), (1000, True)])
def test_a_long_line_is_cut_and_says_so(length, cut):
    (line,) = split([b"x" * length + b"\n"], limit=10)
    assert line == Line(0, length, b"x" * min(length, 10))
    assert line.cut is cut


def test_a_cut_line_does_not_harm_the_next():
    assert split([b"x" * 50, b"x" * 50 + b"\nshort\n"], limit=10) == [Line(0, 100, b"x" * 10), Line(101, 5, b"short")]


def test_an_endless_line_costs_no_more_than_the_limit():
    splitter = Splitter(0, 1000)
    for _ in range(1000):
        assert list(splitter.feed(b"y" * 1000)) == []
    held = sum(len(part) for part in splitter._kept)
    assert held == 1000
    (line,) = splitter.finish()
    assert (line.length, len(line.data), line.ended, line.cut) == (1_000_000, 1000, False, True)


def test_the_last_line_of_a_killed_program_is_told():
    assert split([b'{"a":1}\n{"b"']) == [Line(0, 7, b'{"a":1}'), Line(8, 4, b'{"b"', ended=False)]


def test_empty_lines_are_lines():
    assert split([b"\n\n"]) == [Line(0, 0, b""), Line(1, 0, b"")]


def test_only_a_newline_ends_a_line():
    text = "a\rb\x0bc\x85d\u2028e".encode()
    assert split([text + b"\n"]) == [Line(0, len(text), text)]


def test_nothing_is_nothing():
    assert split([]) == split([b"", b""]) == []
