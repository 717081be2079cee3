"""The parts that both ends of the operator socket import: lines, errors, words and paths."""

import itertools
import json
import os
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors, paths
from substrat.errors import StateUnusable
from substrat.protocol import framing, vocabulary
from substrat.protocol.framing import LineSplitter
from tests.support.cases import each
from tests.support.optional import present

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
    found: list[bytes] = []
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


NO_OBJECTS = [b"[]", b"null", b"1", b'"x"', b"true", b'[{"jsonrpc":"2.0","id":1,"method":"agent.list"}]']


def test_what_is_json_but_no_object():
    for line in NO_OBJECTS:
        with pytest.raises(errors.InvalidRequest):
            framing.decode(line)


@each("number", [1, "one", None])
@each("kind", errors.every_error().values())
def test_a_failure_crosses_the_socket_and_is_the_same(kind, number):
    answer = framing.decode(framing.failure(number, kind("it's \n broken")))
    assert answer["id"] == number
    again = errors.from_wire(answer["error"]["code"], answer["error"]["message"])
    assert type(again) is kind
    assert again.message == "it's \n broken"
    assert answer["error"]["data"] == {"type": kind.__name__}


# Errors


def test_every_error_has_a_code_of_its_own():
    kinds: list[type[errors.SubstratError]] = [errors.SubstratError, *errors.SubstratError.__subclasses__()]
    assert len({kind.code for kind in kinds}) == len(kinds) == len(errors.every_error())


@each("kind", errors.every_error().values())
def test_every_error_says_what_it_is_and_how_a_command_ends(kind):
    assert kind.__doc__
    assert 1 <= kind.exit_status <= 124
    assert str(kind("words")) == kind("words").message == "words"


# Words


def test_only_success_is_an_exit_status_of_success():
    assert [
        name for name in (*vocabulary.OUTCOMES, None, "?") if vocabulary.verdict_status({"outcome": name}) == errors.DONE
    ] == ["success"]


def test_fields_picks_in_the_contracts_order():
    source = {name: number for number, name in enumerate(reversed((*vocabulary.TURN_FIELDS, "secret")))}
    assert list(vocabulary.fields(source, vocabulary.TURN_FIELDS)) == list(vocabulary.TURN_FIELDS)


# Paths

PLACES = [
    (paths.state_dir, "SUBSTRAT_STATE_DIR"), (paths.config_file, "SUBSTRAT_CONFIG"),
    (paths.runtime_dir, "SUBSTRAT_RUNTIME_DIR"), (paths.operator_socket, "SUBSTRAT_SOCKET"),
]  # fmt: skip


def test_a_place_is_where_the_environment_says():
    for place, variable in PLACES:
        assert place({variable: "/somewhere/x"}) == "/somewhere/x"
        assert place({variable: "x/../y"}) == os.path.abspath("y")


def test_a_place_without_any_environment_is_absolute():
    for place, variable in PLACES:
        assert os.path.isabs(place({}))
        assert os.path.isabs(place({variable: ""}))


def test_a_runtime_directory_that_somebody_else_has_made_is_told(monkeypatch):
    def refused(_self):
        raise PermissionError("runtime directory /tmp/runtime-7 is owned by uid 8, not 7")

    monkeypatch.setattr("platformdirs.PlatformDirs.user_runtime_dir", property(refused))
    with pytest.raises(StateUnusable, match="owned by uid 8, not 7; or set SUBSTRAT_RUNTIME_DIR"):
        paths.runtime_dir({})


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
                os.close(present(descriptor))
                return
            method(spelling)
            os.close(present(descriptor))
            if sock is server:
                server.listen()
        assert os.path.exists(path)


def test_a_short_path_stays_as_it_is():
    assert paths.short_socket_path("/run/x.sock") == ("/run/x.sock", None)
    assert paths.short_socket_path("/" + "x" * 106) == ("/" + "x" * 106, None)
