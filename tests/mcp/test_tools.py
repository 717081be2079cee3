"""The tools' definitions: schemas any client understands, and calls read or refused with a word the model can use."""

import json
import re
from typing import Any

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_server import tools
from mcp_server.conversation import LISTINGS

VALIDATOR = jsonschema.Draft202012Validator
NAMES = [
    "whoami", "list_agents", "get_agent", "send_message", "check_inbox", "spawn_agent", "interrupt_agent", "end_agent",
    "wait_agents",
    "complete", "report_status", "ask_operator", "cancel_question", "remind_me", "cancel_reminder",
    "add_tasks", "claim_task", "finish_task", "list_tasks",
]  # fmt: skip
BY_NAME = {tools.name_of(tool): tool for tool in tools.TOOLS}


def test_the_tools_there_are_make_a_short_list():
    """A model reads it in each of its turns."""
    assert [tools.name_of(tool) for tool in tools.TOOLS] == NAMES
    assert len(LISTINGS[True]) < 12 * 1024
    shown = [tool["name"] for tool in json.loads(LISTINGS[False])["tools"]]
    assert shown == NAMES[:-4], "the tools for tasks are for those who have some, and for leads"


def test_a_schema_is_one_every_client_takes():
    for tool in tools.TOOLS:
        schema = tools.schema_of(tool)
        VALIDATOR.check_schema(schema)
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert set(schema["required"]) <= set(schema["properties"])
        assert "_tool" not in schema["properties"]
        assert "$ref" not in str(schema)
        assert re.fullmatch(r".{21,}", tools.description_of(tool)), "one paragraph"
        for argument in schema["properties"].values():
            assert argument["description"]
            assert argument["type"] in {"string", "integer", "number", "boolean", "array", "object"}
            bounds = {"minLength", "maxLength", "minimum", "exclusiveMinimum", "minItems", "maxItems"}
            assert set(argument) <= {"type", "description", "enum", "items", *bounds}
            assert argument.get("items", {}).get("type", "string") in {"string", "object"}
            assert None not in argument.get("enum", ())


def test_a_refusal_names_the_value_those_there_are_and_the_nearest():
    refusals = {
        ("wait_agents", '{"mode": "al"}'): "wait_agents: there is no mode 'al' (did you mean all?); there are: all, any",
        ("send_message", '{"to": "b", "txt": "x"}'): "no argument 'txt' (did you mean text?); there are: to, text, intent",
        ("send_message", '{"to": 7, "text": "x"}'): "send_message: to: Expected `str`, got `int`, and it is 7",
        ("spawn_agnt", "{}"): "there is no tool 'spawn_agnt' (did you mean spawn_agent?)",
    }
    for (name, arguments), words in refusals.items():
        with pytest.raises(tools.BadArguments, match=re.escape(words)):
            tools.parse(name, json.loads(arguments))


def without_nulls(arguments):
    """Return arguments without nulls: the reader takes them for absent ones, and no schema needs to say so."""
    return {key: value for key, value in (arguments or {}).items() if value is not None}


GOOD = [
    ("whoami", None, tools.Whoami()),
    ("whoami", {}, tools.Whoami()),
    ("list_agents", None, tools.ListAgents()),
    ("check_inbox", {}, tools.CheckInbox()),
    ("send_message", {"to": "bob", "text": "hi"}, tools.SendMessage("bob", "hi")),
    ("report_status", {"text": "thinking"}, tools.ReportStatus("thinking")),
    ("spawn_agent", {"prompt": "do"}, tools.SpawnAgent("do")),
    (
        "spawn_agent",
        {"prompt": "do", "name": "kid", "model": "auto", "network": "none"},
        tools.SpawnAgent("do", "kid", "auto", "none"),
    ),
    ("spawn_agent", {"prompt": "do", "name": None, "network": None}, tools.SpawnAgent("do")),
]


def test_a_call_is_read():
    for name, arguments, call in GOOD:
        assert tools.parse(name, arguments) == call
        VALIDATOR(tools.schema_of(BY_NAME[name])).validate(without_nulls(arguments))
    assert tools.parse("complete", {"result": {"score": 1}}) == tools.Complete('{"score": 1}'), "though it isn't the schema"


BAD = [
    ("send_message", None, "to"),
    ("send_message", {"to": "bob"}, "text"),
    ("send_message", {"to": "", "text": "x"}, "to"),
    ("send_message", {"to": "bob", "text": ""}, "text"),
    ("send_message", {"to": "x" * 65, "text": "x"}, "to"),
    ("send_message", {"to": 7, "text": "x"}, "to"),
    ("send_message", {"to": "bob", "text": ["x"]}, "text"),
    ("send_message", {"to": "bob", "text": "x", "cc": "eve"}, "cc"),
    ("whoami", {"agent": "bob"}, "agent"),
    ("report_status", {"text": "x" * 501}, "text"),
    ("spawn_agent", {"agents": [3]}, "agents"),
    ("spawn_agent", {"prompt": "x", "network": "internet"}, "network"),
    ("spawn_agent", {"prompt": "x", "name": ""}, "name"),
]


def test_a_bad_call_is_refused_by_name_and_argument():
    for name, arguments, word in BAD:
        with pytest.raises(tools.BadArguments) as refusal:
            tools.parse(name, arguments)
        assert name in str(refusal.value)
        assert word in str(refusal.value)
        assert not VALIDATOR(tools.schema_of(BY_NAME[name])).is_valid(arguments or {})


def test_an_unknown_tool_is_refused_with_those_there_are():
    for name in ["", "Whoami", "shell", "whoami ", "_tool"]:
        with pytest.raises(tools.BadArguments) as refusal:
            tools.parse(name, {})
        for known in NAMES:
            assert known in str(refusal.value)


@pytest.mark.parametrize("tag", NAMES)
def test_arguments_cannot_turn_one_tool_into_another(tag):
    try:
        call = tools.parse("whoami", {"_tool": tag, "prompt": "x"})
    except tools.BadArguments:
        return
    assert isinstance(call, tools.Whoami)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=70) | st.sampled_from(["none", "host"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2),
    max_leaves=4,
)
fields = st.sampled_from(["to", "text", "prompt", "name", "directory", "model", "network", "workspace", "what", "other"])


@given(st.sampled_from(NAMES), st.dictionaries(fields, json_values, max_size=4))
def test_the_schema_and_the_reader_agree(name, arguments):
    schema = tools.schema_of(BY_NAME[name])
    optional = set(schema["properties"]) - set(schema["required"])
    try:
        tools.parse(name, arguments)
        read = True
    except tools.BadArguments:
        read = False
    said = {key: value for key, value in arguments.items() if value is not None or key not in optional}
    assert VALIDATOR(schema).is_valid(said) == read


def test_calls_are_frozen():
    call: Any = tools.parse("send_message", {"to": "bob", "text": "hi"})
    with pytest.raises(AttributeError):
        call.to = "eve"
    assert msgspec.json.encode(tools.Whoami()) == b'{"_tool":"whoami"}'
