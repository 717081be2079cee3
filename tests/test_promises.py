"""`docs/reliability.md` and `docs/security.md`: every test that they name exists, and every row names one."""

import ast
import functools
import re
from pathlib import Path

import pytest

from tests.support.cases import each

ROOT = Path(__file__).parents[1]


def rows(name, title):
    """The rows of a document's tables that have a title, without those of its other tables."""
    for table in re.findall(r"(?:^\|.*\n)+", (ROOT / "docs" / name).read_text(), re.MULTILINE):
        head, _, *found = table.splitlines()
        if head.startswith(f"| {title}"):
            yield from found


ROWS = {
    "reliability.md": list(rows("reliability.md", "promise")),
    "security.md": list(rows("security.md", "attempt of an agent")),
}
NAMED = sorted(
    {found for lines in ROWS.values() for line in lines for found in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", line)}
)


@functools.cache
def names_in(path):
    return {node.name for node in ast.parse((ROOT / path).read_text()).body if hasattr(node, "name")}


@each(("path", "name"), NAMED)
def test_a_test_that_is_named_exists(path, name):
    assert name in names_in(path)


@pytest.mark.parametrize("document", ROWS)
def test_every_row_has_a_test(document):
    assert len(ROWS[document]) > 10
    assert [line for line in ROWS[document] if "::" not in line] == []
