"""`docs/reliability.md`: every test that it names exists, and every promise names one."""

import ast
import functools
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "reliability.md").read_text()
PROMISES = [line for line in DOCUMENT.splitlines() if line.startswith("| ") and not line.startswith("| promise")]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", DOCUMENT)))


@functools.cache
def names_in(path):
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path, name):
    assert name in names_in(path)


def test_every_promise_has_a_test():
    assert len(PROMISES) > 20
    assert [line for line in PROMISES if "::" not in line] == []
