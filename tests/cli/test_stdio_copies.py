"""The copies of a command's bytes; more in tests/system/test_exec.py."""

import os
import threading

import pytest

from substrat.cli.stdio_copies import _Copy


def test_a_copy_that_breaks_is_over_and_closes_its_pipe(monkeypatch):
    """A caller that waited for it would wait for ever."""
    reading, writing = os.pipe()
    ended = threading.Event()
    copy = _Copy(1, reading, ended.set)
    monkeypatch.setattr(copy, "_take_output", lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        copy.run()
    assert copy.is_over
    assert ended.is_set()
    with pytest.raises(BrokenPipeError):
        os.write(writing, b"x")
    os.close(writing)
