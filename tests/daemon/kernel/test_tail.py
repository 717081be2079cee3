"""Reading on in a file that grows, and noticing that it was cut, however quickly it has grown again."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.daemon.kernel.tail import Cut, Tail


@pytest.fixture
def path(tmp_path):
    return tmp_path / "out"


def append(path, data):
    with path.open("ab") as file:
        file.write(data)


def drain(tail):
    found = b""
    while data := tail.read():
        assert isinstance(data, bytes)
        found += data
    return found


@pytest.mark.parametrize("later", [b"new\n", b"another line\n" * 40], ids=["shorter", "grown past where it was cut"])
def test_a_file_that_was_emptied_is_read_from_the_beginning(path, later):
    append(path, b"first line\n" * 20)
    tail = Tail(str(path), 0)
    drain(tail)
    os.truncate(path, 0)
    append(path, later)
    assert tail.read() == Cut(len(later), 220, 0)
    assert drain(tail) == later
    tail.close()


def test_a_file_that_lost_its_end_is_read_on_from_there(path):
    append(path, b"".join(b"%03d\n" % number for number in range(100)))
    tail = Tail(str(path), 0)
    drain(tail)
    os.truncate(path, 200)
    assert tail.read() == Cut(200, 400, 200)
    append(path, b"more\n")
    assert drain(tail) == b"more\n"
    tail.close()


def test_reading_can_be_taken_up(path):
    append(path, b"x" * 100 + b"rest")
    tail = Tail(str(path), 100)
    assert drain(tail) == b"rest"
    os.truncate(path, 0)
    assert tail.read() == Cut(0, 104, 0)
    tail.close()


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        Tail(str(tmp_path / "none"), 0)


@given(st.lists(st.binary(min_size=1, max_size=100) | st.just(b"two\n" * 100_000), max_size=20))
def test_without_a_cut_everything_is_read_exactly_once(tmp_path_factory, parts):
    path = tmp_path_factory.mktemp("tail") / "out"
    path.touch()
    tail = Tail(str(path), 0)
    found = b""
    for part in parts:
        append(path, part)
        found += drain(tail)
    tail.close()
    assert found == b"".join(parts)
