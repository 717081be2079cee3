"""The types of the protocol's objects, and the tables that describe them."""

import re
import typing
from pathlib import Path

import pytest

from substrat.protocol import objects

DOCUMENT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text()
TABLES = [
    ("### The agent object", objects.AgentObject),
    ("### Attention", objects.AttentionObject),
    ("### The finding object", objects.FindingObject),
    ("### The turn object", objects.TurnObject),
    ("### `agent.usage`", objects.UsageObject),
    ("### `usage.list`", objects.AgentUsageObject),
    ("### `usage.sum`", objects.UsageSumObject),
    ("### `session.list`", objects.SessionObject),
    ("### `inbox.show`", objects.InboxItemObject),
    ("### `daemon.status`", objects.StatusObject),
    ("## Events", objects.EventObject),
]


def members(heading):
    """Return a section's members, and whether each can be null."""
    section = re.split(r"^##+ ", DOCUMENT.partition(f"\n{heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]
    table = section.partition("| member | type | meaning |")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \|", table, re.MULTILINE)
    return {name: "null" in kind for name, kind in rows}


@pytest.mark.parametrize(("heading", "kind"), TABLES)
def test_a_type_has_the_members_of_its_table(heading, kind):
    hints = typing.get_type_hints(kind)
    assert {name: type(None) in typing.get_args(hint) for name, hint in hints.items()} == members(heading)


def test_the_states_and_outcomes_are_those_of_the_document():
    for heading, kind in (("### States", objects.State), ("### Outcomes", objects.Outcome)):
        section = DOCUMENT.partition(f"\n{heading}\n")[2].partition("\n#")[0]
        assert set(typing.get_args(kind)) == set(re.findall(r"^\| `(\w+)` ", section, re.MULTILINE))
