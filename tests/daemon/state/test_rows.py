"""Every column of every table, as `rows` describes it: a stored value is refused, or written as it can be read again."""

import pytest

from substrat.daemon.state.columns import SETTINGS
from substrat.daemon.state.rows import TABLES
from tests.support.cases import each

COLUMNS = [(f"{table.name}.{name}", column) for table in TABLES for name, column in table.column_kinds.items()]
STORED = [
    None, "", "text", "a\0b", "\udcff", "/a/b", "/a/../b", "x" * 5000, 0, 1, -1, 2**31, 2**53, 2**63 - 1, 1.5, 1e12,
    float("inf"), b"\xff", "[]", "[1.5]", '["a.example"]', '[["/x", true]]', '["text", false]', "[" * 50_000, "{}",
    '{"A": "b"}', '{"inputTokens": 3}', "idle", "none", "hold", "success", "prompt", "settled",
    "wanted", "suspended", "0123456789" * 4, "merge", "[1]", "all",
    "succeeded", "request", "normal",
    '{"turn": 3, "command": "make", "state": "again", "tries": 1, "text": "it fails"}',
    '{"environment": [["A", "1=2"]], "ssh_agent": "/run/agent", "priority": "low", "time_limit": 0}',
    '{"name": "f", "members": [{"name": "a", "prompt": "x", "on_fail": "ask", "budget": {"turns": 1}}], "place": "clone"}',
    '{"accepted": null, "failed_line": "1 failed: \\udcff"}',
]  # fmt: skip
"""Values of all kinds, among them at least one that each column takes."""


@each(("name", "column"), COLUMNS)
def test_a_value_that_is_read_is_written_as_it_was(name, column):
    taken = []
    for stored in STORED:
        try:
            value = column.read(stored)
        except (ValueError, RecursionError):
            continue
        taken.append(stored)
        assert column.read(value if column.write is None else column.write(value)) == value, stored
    assert taken not in ([], [None]), name


@pytest.mark.parametrize("damage", ['"ssh_agent": "/run/\udcff"', '"environment": [["A", "\udcff"]]'])
def test_a_wrong_byte_in_a_setting_that_decides_is_not_mended(damage):
    assert SETTINGS.read('{"instructions": "never \udcff"}').instructions == "never \N{REPLACEMENT CHARACTER}"
    with pytest.raises(ValueError, match="isn't UTF-8"):
        SETTINGS.read(f"{{{damage}}}")


def test_an_agent_of_a_program_that_this_version_lacks_is_damaged():
    assert SETTINGS.read("{}").program == "cursor"
    with pytest.raises(ValueError, match="names an agent program that there isn't"):
        SETTINGS.read('{"program": "vi"}')
