"""The operator socket's lines and its table of methods, paths and errors: what both ends import."""

import contextlib
import itertools
import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors, paths
from substrat.errors import StateUnusable
from substrat.protocol import framing, methods
from substrat.protocol.framing import LineSplitter

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), inner, max_size=3),
    max_leaves=8,
)  # fmt: skip
params = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=8), json_values, max_size=4)


# Framing


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_any_split_gives_the_same_lines(data, cuts):
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    splitter = LineSplitter()
    found = [line for start, end in itertools.pairwise(edges) for line in splitter.feed(data[start:end])]
    assert found == data.split(b"\n")[:-1]


@pytest.mark.parametrize("step", [1, 3, 10, 1000])
def test_a_line_at_the_limit_passes_and_one_over_it_does_not(step):
    def feed(data):
        splitter = LineSplitter(10)
        return [line for at in range(0, len(data), step) for line in splitter.feed(data[at : at + step])]

    assert feed(b"x" * 10 + b"\n") * 2 == [b"x" * 10] * 2
    assert feed((b"y" * 10 + b"\n") * 3) == [b"y" * 10] * 3
    with pytest.raises(errors.MessageTooLarge):
        feed(b"x" * 11 + b"\n")
    with pytest.raises(errors.MessageTooLarge):
        feed(b"x" * 11)


def test_lines_before_one_that_is_too_long_are_given_out():
    found = []
    with pytest.raises(errors.MessageTooLarge):
        found.extend(LineSplitter(5).feed(b"ab\n" + b"x" * 9))  # extend keeps nothing of a generator that raises
    splitter = LineSplitter(5).feed(b"ab\n" + b"x" * 9)
    assert next(splitter) == b"ab"


@given(st.integers(), st.text(st.characters(exclude_categories=["Cs"])), params)
def test_a_request_round_trips_on_one_line(number, method, given_params):
    line = framing.request(number, method, given_params)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert framing.decode(line) == {"jsonrpc": "2.0", "id": number, "method": method, "params": given_params}


@given(st.integers() | st.text(st.characters(exclude_categories=["Cs"])) | st.none(), json_values)
def test_an_answer_round_trips_on_one_line(number, result):
    line = framing.success(number, result)
    assert line.count(b"\n") == 1
    assert framing.decode(line) == {"jsonrpc": "2.0", "id": number, "result": result}
    text = json.dumps(result).encode()
    encoded = b"".join(framing.success_encoded(number, [text[:1], text[1:]]))
    assert framing.decode(encoded) == framing.decode(line)


@given(params)
def test_a_notification_has_no_id(given_params):
    line = framing.notification("event", given_params)
    assert framing.decode(line) == {"jsonrpc": "2.0", "method": "event", "params": given_params}


@given(st.binary(max_size=100))
def test_any_bytes_are_an_object_or_refused(data):
    try:
        assert isinstance(framing.decode(data), dict)
    except (errors.ParseError, errors.InvalidRequest) as problem:
        problem.message.encode()


NOT_JSON = [
    b"", b"{", b"nonsense", b'{"a":1}x', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":1,"a":2}',
    b'{"x":{"a":1,"a":2}}', b'{"a":"\\ud800"}', b'{"\\udfff":1}', b'{"a":"\xff"}', b"\xff\xfe", b"{" * 100_000,
    b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}", b'{"a":' + b"9" * 5000 + b"}", b"{'a':1}", b'{"a":01}',
    '{"a":1}'.encode("utf-16"), '{"a":1}'.encode("utf-16-le"), '{"a":1}'.encode("utf-32-le"),
]  # fmt: skip


@pytest.mark.parametrize("line", NOT_JSON, ids=range(len(NOT_JSON)))
def test_what_is_not_json(line):
    with pytest.raises(errors.ParseError):
        framing.decode(line)


@pytest.mark.parametrize("line", [b"[]", b"null", b"1", b'"x"', b"true", b'[{"jsonrpc":"2.0"}]'])
def test_what_is_json_but_no_object(line):
    with pytest.raises(errors.InvalidRequest):
        framing.decode(line)


@pytest.mark.parametrize("number", [1, "one", None])
@pytest.mark.parametrize("kind", errors.every_error().values())
def test_a_failure_crosses_the_socket_and_is_the_same(kind, number):
    answer = framing.decode(framing.failure(number, kind("it's \n broken")))
    assert answer["id"] == number
    again = errors.from_wire(answer["error"]["code"], answer["error"]["message"])
    assert type(again) is kind
    assert again.message == "it's \n broken"
    assert answer["error"]["data"] == {"type": kind.__name__}


# Errors


def test_every_error_has_a_code_of_its_own():
    kinds = [errors.SubstratError, *errors.SubstratError.__subclasses__()]
    assert len({kind.code for kind in kinds}) == len(kinds) == len(errors.every_error())


@pytest.mark.parametrize("kind", errors.every_error().values())
def test_every_error_says_what_it_is_and_how_a_command_ends(kind):
    assert kind.__doc__
    assert 1 <= kind.exit_status <= 124
    assert str(kind("words")) == kind("words").message == "words"


def test_a_code_of_a_newer_daemon_is_a_plain_failure():
    assert type(errors.from_wire(-31999, "later")) is errors.SubstratError


# Methods

GOOD = {
    "string": "text", "integer": 3, "number": 1.5, "boolean": True, "strings": ["a", "b"], "states": ["idle", "failed"],
    "integers": [1, 2],
}  # fmt: skip
WRONG = {
    "string": [1, 1.5, True, [], {}],
    "integer": ["1", 1.5, True, [], {}, 2**63, -(2**64)],
    "number": ["1", True, False, [], {}],
    "boolean": [0, 1, "true", [], {}],
    "strings": ["a", 1, {}, [1], ["a", None], [["a"]]],
    "integers": ["1", 1, {}, ["1"], [1, None], [True], [1.5], [2**63]],
    "states": ["idle", ["working"], [1], {}, ["idle", "IDLE"]],
}
ROWS = methods.METHODS
PARAMS = [(method, param) for method in ROWS for param in method.params]


def full(method):
    return {param.name: GOOD[param.kind] for param in method.params}


def ident(value):
    return getattr(value, "name", None)


@pytest.mark.parametrize("method", ROWS, ids=ident)
def test_a_call_with_everything(method):
    assert methods.check(method, full(method)) == full(method)


@pytest.mark.parametrize("method", ROWS, ids=ident)
def test_a_call_with_only_what_is_required(method):
    least = {param.name: GOOD[param.kind] for param in method.params if param.required}
    assert methods.check(method, least) == least
    if not least:
        assert methods.check(method, None) == {}


@pytest.mark.parametrize("method", ROWS, ids=ident)
@pytest.mark.parametrize("given_params", [[], "x", 1, True])
def test_params_must_be_an_object(method, given_params):
    with pytest.raises(errors.InvalidParams, match=method.name):
        methods.check(method, given_params)


@pytest.mark.parametrize("method", ROWS, ids=ident)
def test_an_unknown_parameter_is_named(method):
    with pytest.raises(errors.InvalidParams, match="'colour'"):
        methods.check(method, {**full(method), "colour": "red"})


@pytest.mark.parametrize(("method", "param"), PARAMS, ids=ident)
def test_a_missing_or_null_parameter(method, param):
    without = {name: value for name, value in full(method).items() if name != param.name}
    for given_params in (without, {**without, param.name: None}):
        if param.required:
            with pytest.raises(errors.InvalidParams, match=f"'{param.name}'"):
                methods.check(method, given_params)
        else:
            assert methods.check(method, given_params) == without


@pytest.mark.parametrize(("method", "param"), PARAMS, ids=ident)
def test_a_parameter_of_the_wrong_kind_is_named(method, param):
    for value in WRONG[param.kind]:
        with pytest.raises(errors.InvalidParams, match=f"'{param.name}'"):
            methods.check(method, {**full(method), param.name: value})


@given(st.sampled_from(ROWS), params | json_values)
def test_whatever_is_sent_is_checked_or_refused(method, given_params):
    with contextlib.suppress(errors.InvalidParams):
        found = methods.check(method, given_params)
        assert set(found) <= {param.name for param in method.params}
        assert None not in found.values()


def test_the_table_is_documented_and_unique():
    assert len(methods.BY_NAME) == len(ROWS)
    for method in ROWS:
        assert method.about
        assert method.result
        assert all(param.kind in GOOD and param.about for param in method.params)
    assert set(methods.NETWORKS) == {"none", "filtered", "host"}


def test_only_success_is_an_exit_status_of_success():
    assert [name for name in (*methods.OUTCOMES, None, "?") if methods.verdict_status(name) == errors.DONE] == ["success"]


def test_fields_picks_in_the_contracts_order():
    source = {name: number for number, name in enumerate(reversed((*methods.TURN_FIELDS, "secret")))}
    assert list(methods.fields(source, methods.TURN_FIELDS)) == list(methods.TURN_FIELDS)


# Paths

PLACES = [
    (paths.state_dir, "SUBSTRAT_STATE_DIR"), (paths.config_file, "SUBSTRAT_CONFIG"),
    (paths.runtime_dir, "SUBSTRAT_RUNTIME_DIR"), (paths.operator_socket, "SUBSTRAT_SOCKET"),
]  # fmt: skip


@pytest.mark.parametrize(("place", "variable"), PLACES)
def test_a_place_is_where_the_environment_says(place, variable):
    assert place({variable: "/somewhere/x"}) == "/somewhere/x"
    assert place({variable: "x/../y"}) == os.path.abspath("y")


@pytest.mark.parametrize(("place", "variable"), PLACES)
def test_a_place_without_any_environment_is_absolute(place, variable):
    assert os.path.isabs(place({}))
    assert os.path.isabs(place({variable: ""}))


def test_a_runtime_directory_that_somebody_else_has_made_is_told(monkeypatch):
    def refused(_self):
        raise PermissionError("runtime directory /tmp/runtime-7 is owned by uid 8, not 7")

    monkeypatch.setattr("platformdirs.PlatformDirs.user_runtime_dir", property(refused))
    with pytest.raises(StateUnusable, match="owned by uid 8, not 7; or set SUBSTRAT_RUNTIME_DIR"):
        paths.runtime_dir({})


def test_the_socket_is_in_the_runtime_directory():
    assert paths.operator_socket({"SUBSTRAT_RUNTIME_DIR": "/r"}) == "/r/daemon.sock"


@pytest.mark.parametrize("length", [1, 50, 107, 108, 109, 200])
def test_a_socket_works_at_any_path_length(tmp_path, length):
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    path = str(directory / ("s" * length))[:4000]
    server, client = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
    with server, client:
        for sock, method in ((server, server.bind), (client, client.connect)):
            spelling, descriptor = paths.short_socket_path(path)
            assert len(os.fsencode(spelling)) < 108 or length > 60
            if len(os.fsencode(spelling)) >= 108:
                os.close(descriptor)
                return
            method(spelling)
            os.close(descriptor)
            if sock is server:
                server.listen()
        assert os.path.exists(path)


def test_a_short_path_stays_as_it_is():
    assert paths.short_socket_path("/run/x.sock") == ("/run/x.sock", None)
    assert paths.short_socket_path("/" + "x" * 106) == ("/" + "x" * 106, None)
