"""`wire.text` reads and writes what the `json` package does, also where a Python lacks the functions it is made of."""

import importlib.util
import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.protocol import text
from tests.support.optional import present

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.fixture(params=["C functions", "json package"])
def wire_text(request, monkeypatch):
    if request.param == "C functions":
        return text
    monkeypatch.setitem(sys.modules, "_json", None)
    found = present(importlib.util.spec_from_file_location("text_without_c", text.__file__))
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@given(VALUES)
def test_it_writes_and_reads_what_json_does(value):
    written = text.dumps(value)
    assert written == json.dumps(value, separators=(",", ":")).encode()
    assert text.loads(written) == value


@pytest.mark.parametrize(
    "line", ['{"a":[1,2.5,-0,1e3,"\\u00e9\\ud800",null,true]}', ' \r\n\t"x" \n', "NaN", "-Infinity", "9" * 40]
)
def test_it_reads_what_json_reads(wire_text, line):
    assert repr(wire_text.loads(line.encode())) == repr(json.loads(line))


@pytest.mark.parametrize(
    "line", [b"", b"  ", b"{", b"[1,]", b"{} x", b'"\n"', b"nul", b"{'a':1}", b"\xff", b"\xef\xbb\xbf{}", b"01", b'{"a" 1}']
)
def test_it_refuses_what_json_refuses(wire_text, line):
    with pytest.raises(ValueError):
        json.loads(line.decode("utf-8"))
    with pytest.raises(ValueError):
        wire_text.loads(line)


def test_what_json_has_no_word_for_is_refused(wire_text):
    with pytest.raises(TypeError, match="a bytes is nothing that JSON can say"):
        wire_text.dumps({"a": b""})
    circle: list[object] = []
    circle.append(circle)
    with pytest.raises(ValueError, match="Circular"):
        wire_text.dumps(circle)
