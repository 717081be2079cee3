"""`docs/cursor-agent.md` against the code: its lines are decoded, its errors recognised, its tests and flags looked up."""

import ast
import functools
import json
import re

import pytest

from substrat.core.agents import retry
from substrat.core.programs.cursor import command_line, failures, stream, tool_calls
from substrat.core.programs.ndjson import Line
from substrat.standin import actions, flags, recorded
from tests.protocol.document import ROOT
from tests.protocol.test_documents import agent_kinds
from tests.support.cases import each

DOCUMENT = (ROOT / "docs" / "cursor-agent.md").read_text()
SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def tables():
    """Each table as its head and its rows; the cells keep their backquotes."""
    found, rows = [], []
    for line in [*DOCUMENT.splitlines(), ""]:
        if line.startswith("|"):
            rows.append([cell.strip() for cell in re.split(r" \|(?= )", line[1:].removesuffix(" |"))])
        elif rows:
            head, _, *body = rows
            found.append((tuple(head), body))
            rows = []
    return found


def table(*head):
    """The rows of the table whose head begins so."""
    (rows,) = [rows for names, rows in tables() if names[: len(head)] == head]
    return rows


def code(cell):
    """The texts between backquotes."""
    return re.findall(r"`([^`]*)`", cell)


EVENTS = table("kind", "dialect")
TOOLS = table("kind", "arguments")
ARMS = table("arm")
FAILURES = table("name")
CASES = table("case")
PASSED = table("flag", "why", "can be left out")
NOT_PASSED = table("flag", "why not")


# The tests that are named


@functools.cache
def functions_of(path):
    tree = ast.parse((ROOT / path).read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_row_has_as_many_cells_as_its_table():
    for head, rows in tables():
        assert head[-1] == "tests"
        for row in rows:
            assert len(row) == len(head), row


def test_every_row_names_tests_that_exist():
    for _, rows in tables():
        for row in rows:
            names = code(row[-1])
            assert names, row
            assert row[-1] == ", ".join(f"`{name}`" for name in names)
            for name in names:
                path, _, function = name.partition("::")
                assert (ROOT / path).is_file(), name
                assert function.startswith("test_"), name
                assert function in functions_of(path), name


# Events


@each("row", EVENTS)
def test_a_line_becomes_the_event_it_stands_by(row):
    (kind,), (line,) = code(row[0]), code(row[2])
    data = line.encode()
    event = stream.decode(Line(0, len(data), data))
    assert event.kind == kind
    assert [event.text] == (code(row[3]) or [None])


def test_every_kind_stands_there():
    documented = {code(row[0])[0] for row in EVENTS}
    named = {f"{kind}:{subtype}" for kind, subtypes in stream.NAMED.items() for subtype in subtypes}
    others = {"system:notice"}  # docs/programs.md
    assert documented | others == agent_kinds()
    assert documented | others >= named


# Tools


@each("row", TOOLS)
def test_a_call_is_told_as_it_stands_there(row):
    (arguments,), (line,) = code(row[1]), code(row[2])
    kind = (code(row[0]) or [line.partition(":")[0]])[0]
    call = tool_calls.read({"tool_call": {f"{kind}ToolCall": {"args": json.loads(arguments)}}})
    assert tool_calls.summary(call) == line


def test_every_kind_of_tool_stands_there_once():
    assert [row[0] for row in TOOLS if not code(row[0])] == ["any other"]
    kinds = [code(row[0])[0] for row in TOOLS if code(row[0])]
    assert sorted(kinds) == sorted({*tool_calls._SUBJECTS, "mcp", "updateTodos"})


def test_the_stand_in_can_show_every_kind_that_stands_there():
    kinds = {code(row[0])[0] for row in TOOLS if code(row[0])}
    assert kinds == set(recorded.table("shapes"))


@pytest.mark.parametrize("row", ARMS, ids=lambda row: f"{row[0]} {row[1]}")
def test_an_end_is_told_as_it_stands_there(row):
    (arm,), (outcome,), (words,) = map(code, row[:3])
    call = tool_calls.read({"tool_call": {"shellToolCall": {"result": {arm: json.loads(outcome)}}}})
    assert tool_calls.verdict(call) == words


def test_every_arm_stands_there():
    documented = {code(row[0])[0] for row in ARMS}
    shown = {arm for _, arms in recorded.table("shapes").values() for arm in arms}
    assert documented == {*tool_calls._WORDS, "rejected"} - {""}
    assert documented == shown


# Failures


@pytest.mark.parametrize("row", FAILURES, ids=lambda row: row[0])
def test_a_failure_is_told_as_it_stands_there(row):
    (name,), (said,) = code(row[0]), code(row[1])
    failure = failures.recognise(said)
    assert failure.name == name
    assert failure.sentence == row[2]
    assert row[3] == ("yes" if failure.passes else "no")


def test_every_failure_with_a_name_stands_there_once():
    assert [code(row[0])[0] for row in FAILURES] == [row.failure.name for row in failures.TABLE]


def test_the_delays_are_those_of_the_code():
    *first, last = (f"{seconds:g}" for seconds in retry.DELAYS)
    assert f"tried again after {', '.join(first)} and {last} seconds" in " ".join(DOCUMENT.split())


def requests():
    """Every way to ask the stand-in that the document has."""
    return [request for row in FAILURES + CASES for request in code(row[-2])]


def test_what_is_asked_of_the_stand_in_can_be_asked():
    for request in requests():
        name, _, text = request.partition(" ")
        if name.startswith("--"):
            assert name in flags._BY_NAME or f"unknown option '{name}'" in DOCUMENT, request
            continue
        assert name[1:] in actions.ACTIONS, request
        if name == "/fail":
            recorded.parse(text)
        if name == "/show":
            kind, _, arm = text.partition(" ")
            assert arm in recorded.table("shapes")[kind][1], request


def test_every_failure_of_the_stand_in_stands_there():
    asked = {request.removeprefix("/fail ") for request in requests() if request.startswith("/fail ")}
    assert asked == {*recorded.table("before"), *recorded.table("within")}


# Flags


def test_the_flags_that_are_passed_are_those_of_the_command():
    _, *words = command_line.command("program", "/workspace", "auto", SESSION)
    given, values = [], {}
    for word in words:
        if word.startswith("--"):
            given.append(word)
        else:
            values[given[-1]] = word
    documented = [code(row[0])[0].partition(" ") for row in PASSED]
    assert [name for name, _, _ in documented] == given
    varying = {"--workspace", "--model", "--resume"}
    assert {name: value for name, _, value in documented if value} == {
        name: value for name, value in values.items() if name not in varying
    }


def test_the_flags_that_can_be_left_out_are_those_of_the_code():
    assert {row[2] for row in PASSED} == {"yes", "no"}
    assert {code(row[0])[0].partition(" ")[0] for row in PASSED if row[2] == "yes"} == command_line.DISPENSABLE


def test_every_other_flag_has_a_reason():
    named = [name for row in NOT_PASSED for name in code(row[0])]
    passed = {code(row[0])[0].partition(" ")[0] for row in PASSED}
    assert len(named) == len(set(named))
    assert {*named, *passed} == {f"--{option.key}" for option in flags.OPTIONS}
    assert not passed & set(named)


def test_hidden_flags_are_marked():
    hidden = {f"--{option.key}" for option in flags.OPTIONS if option.hidden} - {"--format"}
    marked = {name for row in NOT_PASSED if row[0].endswith("(hidden)") for name in code(row[0])}
    assert marked == hidden
