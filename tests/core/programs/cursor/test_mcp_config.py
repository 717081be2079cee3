"""The merged `mcp.json`: our server is always in it, the workspace's own are when they can be read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.cursor import mcp_config
from tests.support.cases import each

OURS = mcp_config.companion("/usr/bin/python3", "/run/c.py", "id-1", "/run/agent.sock")


def merge(own):
    text, problem = mcp_config.merge(own, OURS)
    merged = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} isn't JSON"))
    assert list(merged) == ["mcpServers"]
    assert merged["mcpServers"]["substrat"] == OURS
    return {name: server for name, server in merged["mcpServers"].items() if name != "substrat"}, problem


def test_our_entry_runs_the_companion_by_path_and_isolated():
    assert OURS["command"] == "/usr/bin/python3"
    assert OURS["args"][:3] == ["-I", "-S", "/run/c.py"]
    assert OURS["env"] == {"SUBSTRAT_SOCKET": "/run/agent.sock"}


def test_without_a_file_of_its_own():
    assert merge(None) == ({}, None)


READABLE = [
    ('{"mcpServers":{"a":{"command":"x"}}}', {"a": {"command": "x"}}),
    ('{"mcpServers":{}}', {}),
    ('// head\n{"mcpServers": /* in */ {"a": {"url": "http://h/p"}}} // tail', {"a": {"url": "http://h/p"}}),
    ('{"mcpServers":{"a":{"args":["/*","*/","//","a//b"]}}}', {"a": {"args": ["/*", "*/", "//", "a//b"]}}),
    (
        r'{"mcpServers":{"a":{"command":"say \"// no comment\" \\"}}} // but this',
        {"a": {"command": 'say "// no comment" \\'}},
    ),
    ('{"mcpServers":{"a":{"x":1}}, "other": [1, 2]}', {"a": {"x": 1}}),
    ('/* "mcpServers" */ {"mcpServers":{"ä":{"x":"é\\u00fc"}}}', {"ä": {"x": "éü"}}),
    ('{\n // "b": {}\n "mcpServers":{"a":{"x":1}}}\n', {"a": {"x": 1}}),
    ('{"mcpServers":{"a":{"x":1 /* a\nb */ }}}', {"a": {"x": 1}}),
]


@pytest.mark.parametrize(("own", "servers"), READABLE)
def test_readable_files(own, servers):
    assert merge(own) == (servers, None)


def test_ours_wins_over_one_of_the_same_name():
    assert merge('{"mcpServers":{"substrat":{"command":"evil"},"a":{}}}') == ({"a": {}}, None)


BROKEN = [
    "", "   ", "{", "nonsense", "null", "[]", "17", '"mcpServers"', "{}", '{"servers":{}}', '{"mcpServers":null}',
    '{"mcpServers":7}', '{"mcpServers":"ab"}', '{"mcpServers":[]}', '{"mcpServers":["ab"]}', '{"mcpServers":[["a",{}]]}',
    '{"mcpServers":[["a",{}],5]}', '{"mcpServers":{"a":1}', '{"mcpServers":{}} extra', '{"mcpServers":{"a":NaN}}',
    "/* never closed", '{"mcpServers":{"a', "\ufeff{", "{" * 100_000, '{"mcpServers":{"a":' + "[" * 900 + "]" * 900 + "}}",
    '{"mcpServers":{"a":' + "[" * 300 + "]" * 300 + "}}", '{"mcpServers":{"a":1e999}}',
]  # fmt: skip


@each("own", BROKEN)
def test_a_broken_file_is_left_out_whole_and_told(own):
    servers, problem = merge(own)
    deep = own.startswith('{"mcpServers":{"a":[')
    assert servers == {} or deep
    assert problem is not None or (deep and servers)
    if problem is not None:
        assert ".cursor/mcp.json" in problem
        problem.encode()


@pytest.mark.parametrize("piece", ["/*", '"', '\\"', "//", "*/", "[", '"a":'])
def test_a_huge_hostile_file_is_read_in_reasonable_time(piece):
    merge('{"mcpServers":' + piece * 200_000)
    merge('"' + piece * 200_000 + "\\")


@given(st.text(max_size=60))
def test_any_text_gives_a_file_with_our_server(own):
    merge(own)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=10) | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=8).filter(lambda name: name != "substrat"), json_values, max_size=4))
def test_every_server_of_the_workspace_survives(servers):
    assert merge(json.dumps({"mcpServers": servers})) == (servers, None)


@given(
    st.dictionaries(st.text(max_size=6).filter(lambda name: name != "substrat"), json_values, max_size=3),
    st.text(st.characters(exclude_characters="*/", exclude_categories=["Cs"]), max_size=10),
)
def test_comments_between_tokens_change_nothing(servers, comment):
    line = "".join(comment.splitlines())
    text = json.dumps({"mcpServers": servers}, indent=1)
    assert merge(f"/*{comment}*/{text}//{line}\n/**/") == (servers, None)


@given(json_values)
def test_whatever_the_servers_are_the_file_is_json(value):
    servers, problem = merge(json.dumps({"mcpServers": value}))
    assert (problem is None) == isinstance(value, dict)
    assert isinstance(servers, dict)
