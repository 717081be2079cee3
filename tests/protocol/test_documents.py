"""`docs/protocol.md` and `docs/configuration.md` against the code, both ways."""

import ast
import itertools
import json
import re
import tomllib

import pytest

from sandbox.spec import Network
from substrat import config, errors
from substrat.core.agents.lifecycle import STATE_OF
from substrat.core.agents.records import RESERVED_NAMES, Outcome
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Line
from substrat.daemon.agents import turn_ends
from substrat.daemon.kernel import sockets
from substrat.daemon.servers import generate, operator, rpc, slices
from substrat.daemon.servers.methods import request, table
from substrat.daemon.state import event_lines
from substrat.protocol import framing, vocabulary
from tests.protocol import document
from tests.protocol.rules import rule

# Rules


def marked_rules():
    """The ids in `@rule(...)` of this folder's tests."""
    found = []
    for path in sorted((document.ROOT / "tests" / "protocol").glob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "rule":
                        assert node.name.startswith("test_")
                        found += [ast.literal_eval(argument) for argument in mark.args]
    return found


def test_each_rule_has_a_test_and_each_test_a_rule():
    assert set(marked_rules()) == set(document.rules())


def test_rules_are_numbered_once_and_in_order():
    rules = document.rules()
    assert len(rules) == len(set(rules))
    for area, ids in itertools.groupby(sorted(rules, key=_area), key=_area):
        numbers = [int(name.rpartition("-")[2]) for name in ids]
        assert numbers == list(range(1, len(numbers) + 1)), area
    assert document.mentioned_rules() == set(rules)


def _area(name):
    return name.rpartition("-")[0]


# Methods


def test_the_methods_part_is_what_the_code_makes_of_it():
    assert generate.document(document.PROTOCOL) == document.PROTOCOL, "run make generate"


def test_the_clients_table_is_what_the_code_makes_of_it():
    assert generate.TABLE.read_text() == generate.table(), "run make generate"
    assert generate.PARAMETERS.read_text() == generate.parameter_table(), "run make generate"


def test_a_method_without_a_result_in_the_document_is_noticed():
    with pytest.raises(KeyError, match=r"agent\.send"):
        generate.document(document.PROTOCOL.replace("### `agent.send`", "### `agent.sent`"))


def test_parameter_kinds_are_those_of_the_methods():
    kinds = {parameter.kind for kind in table.METHODS for parameter in request.parameters(kind)}
    assert set(document.column("Requests and answers", "kind")) == kinds


def test_methods_that_wait_are_those_of_the_code():
    (paragraph,) = [text for text in document.PROTOCOL.split("\n\n") if text.startswith("**P-REQ-5**")]
    assert set(re.findall(r"`([a-z_.]+)`", paragraph)) == {kind.method for kind in table.METHODS if kind.waits}


def test_every_method_says_what_its_result_is():
    for name, text in document.methods().items():
        assert len(re.findall(r"^Result: ", text, re.MULTILINE)) == 1, name
        if "Result: an object." in text:
            assert document.result_members(name), name


# Errors


@rule("P-ERR-1")
def test_errors_are_those_of_the_code():
    rows = [row for rows in document.tables(document.sections()["Errors"]) for row in rows[1:]]
    assert {int(code): name for code, name, _ in rows} == {
        code: kind.__name__ for code, kind in errors.every_error().items()
    }
    assert len(rows) == len(errors.every_error()), "a code stands there twice"
    assert all(meaning for _, _, meaning in rows)


def test_errors_that_are_mentioned_exist():
    names = set(re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", document.PROTOCOL))
    assert names <= {kind.__name__ for kind in errors.every_error().values()}


# Objects


@pytest.mark.parametrize(
    ("section", "fields"),
    [
        ("The agent object", vocabulary.AGENT_FIELDS),
        ("The turn object", vocabulary.TURN_FIELDS),
        ("Events", vocabulary.EVENT_FIELDS),
    ],
)
def test_members_are_those_of_the_code(section, fields):
    assert tuple(document.column(section, "member")) == fields


def test_states_outcomes_and_networks_are_those_of_the_code():
    states = document.column("States", "state")
    assert set(states) == set(vocabulary.AGENT_STATES) == set(STATE_OF.values())
    assert set(document.column("Outcomes", "outcome")) == set(vocabulary.OUTCOMES) == {outcome.value for outcome in Outcome}
    (network,) = [row for row in document.table("The agent object", "member") if row[0] == "network"]
    assert re.findall(r"\w+", network[2].replace(" or", "")) == list(vocabulary.NETWORKS) == [one.value for one in Network]


def test_reserved_names_are_those_of_the_code():
    (paragraph,) = [text for text in document.PROTOCOL.split("\n\n") if text.startswith("**P-NAME-1**")]
    assert set(re.findall(r"`([a-z]{2,})`", paragraph)) - {"agent"} == set(RESERVED_NAMES)


# Events


def agent_kinds():
    """Every kind that the decoder gives to some line, found by trying the words it knows as types and subtypes."""
    tree = ast.parse((document.ROOT / "substrat" / "core" / "programs" / "cursor" / "stream.py").read_text())
    words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = sorted(word for word in words if re.fullmatch(r"[a-z_-]{3,30}", word))
    names += [f"tool-call-{word}" for word in ("started", "completed")]
    kinds = {"raw"}
    for name, subtype in itertools.product(names, [None, *names]):
        for more in ({}, {"is_error": True}, {"timestamp_ms": 1}):
            data = json.dumps({"type": name, "subtype": subtype, **more}).encode()
            kinds.add(stream.decode(Line(0, len(data), data)).kind)
    return kinds


def daemon_kinds():
    """Every text in the daemon's code that has the form of a kind and isn't one of an agent's."""
    kinds = set()
    for path in (document.ROOT / "substrat" / "daemon").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.fullmatch(r"[a-z]+:[a-z-]+", node.value)
            ):
                kinds.add(node.value)
    return kinds - agent_kinds()


def test_event_kinds_are_those_of_the_code():
    of_agents, of_daemon = (rows for rows in document.tables(document.sections()["Kinds"]) if rows[0][0] == "kind")
    assert {row[0] for row in of_agents[1:]} == agent_kinds()
    assert {row[0] for row in of_daemon[1:]} == daemon_kinds()


# Numbers


@rule("P-STAB-1")
def test_the_version_is_the_codes():
    assert f"\nVersion {framing.PROTOCOL_VERSION}.\n" in document.PROTOCOL
    assert f"This document describes version {framing.PROTOCOL_VERSION}." in document.PROTOCOL


@pytest.mark.parametrize(
    ("identity", "number"),
    [
        ("P-SOCK-4", operator.MAX_CONNECTIONS),
        ("P-SOCK-5", operator.MAX_CONNECTIONS),
        ("P-SOCK-5", sockets.GREETING_SECONDS),
        ("P-FRAME-3", framing.MAX_LINE),
        ("P-FRAME-7", int(rpc._GOODBYE_SECONDS)),
        ("P-REQ-4", framing.MAX_IN_FLIGHT),
        ("P-EVENT-4", slices.PAGE_BYTES // 1024**2),
        ("P-EVENT-9", event_lines.MAX_RAW),
        ("P-EVENT-9", stream.MAX_TEXT),
        ("P-SUB-4", rpc._OUTBOX_BYTES // 1024**2),
        ("P-SUB-5", rpc._MAX_SUBSCRIPTIONS),
    ],
)
def test_limits_are_those_of_the_code(identity, number):
    (paragraph,) = [text for text in document.PROTOCOL.split("\n\n") if text.startswith(f"**{identity}**")]
    assert re.search(rf"(?<!\d){number}(?!\d)", paragraph)


def test_limits_in_tables_are_those_of_the_code():
    assert f"at most the first {event_lines.MAX_RAW} " in document.PROTOCOL
    assert f"cut after {turn_ends._MAX_RESULT} characters" in document.PROTOCOL


# The text


def test_links_lead_somewhere():
    for name in ("protocol.md", "configuration.md"):
        text = (document.ROOT / "docs" / name).read_text()
        for target in re.findall(r"\]\(([^)]+)\)", text):
            path, _, anchor = target.partition("#")
            there = (document.ROOT / "docs" / (path or name)).read_text()
            anchors = {heading.lower().replace("`", "").replace(" ", "-") for heading in document.sections(there)}
            assert anchor in anchors, target


# The configuration


def test_every_key_stands_in_the_configuration_document():
    sections = document.sections(document.CONFIGURATION)
    for section, rows in document.configuration_rows().items():
        lines = [line for line in sections[f"[{section}]"].splitlines() if line.startswith("| `")]
        assert lines == rows, f"[{section}]"


def test_every_key_of_the_configuration_document_is_one():
    documented = re.findall(r"^\| `([a-z]+(?:\.NAME)?\.[a-z_]+)` \|", document.CONFIGURATION, re.MULTILINE)
    known = [re.match(r"\| `([^`]+)`", row)[1] for rows in document.configuration_rows().values() for row in rows]
    assert documented == known
    mentioned = set(re.findall(r"`([a-z]+\.[a-z_]+)`", document.CONFIGURATION)) - {"agent.binary"} | set(
        re.findall(r"`((?:agent|sandbox|turns|limits|disk|log)\.[a-z_]+)` of the configuration", document.PROTOCOL)
    )
    assert mentioned <= set(known)


def test_the_documents_defaults_are_the_defaults():
    rows = re.findall(r"^\| `([a-z]+)\.([a-z_]+)` \| [^|]+ \| `([^`]*)` \|", document.CONFIGURATION, re.MULTILINE)
    text = "".join(f"{section}.{key} = {default}\n" for section, key, default in rows)
    assert config.parse(tomllib.loads(text)) == config.Config()


def test_the_documents_examples_are_valid():
    first, company = (
        config.parse(tomllib.loads(text)) for text in re.findall(r"```toml\n(.*?)```", document.CONFIGURATION, re.DOTALL)
    )
    assert first.turns.max_running == 20
    assert company.sandbox.ca


def test_a_key_of_the_document_misspelt_names_the_right_one():
    for rows in document.configuration_rows().values():
        for row in rows:
            section, each, key = re.match(r"\| `([a-z]+)(\.NAME)?\.([a-z_]+)`", row).groups()
            misspelt: dict[str, object] = {f"{key}x": 1}
            with pytest.raises(errors.ConfigInvalid, match=rf"{section}\.{'cursor.' if each else ''}{key}"):
                config.parse({section: {"cursor": misspelt} if each else misspelt})


def test_environment_variables_are_those_of_the_code():
    ((_, *rows),) = document.tables(document.sections(document.CONFIGURATION)["The environment"])
    documented = {row[0] for row in rows}
    source = [document.ROOT / "substrat" / name for name in ("paths.py", "config.py")]
    read = {name for path in source for name in re.findall(r'environ\.get\("(SUBSTRAT_\w+)"\)', path.read_text())}
    assert documented == read
