"""Parameters of every method of the operator socket: read into its Struct or refused by name."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat import errors
from substrat.daemon.servers.methods.request import parameters, parse
from substrat.daemon.servers.methods.table import BY_NAME, METHODS
from tests.support.cases import each

GOOD = {
    "string": "text", "integer": 3, "number": 1.5, "boolean": True, "strings": ["a", "b"], "states": ["idle", "failed"],
    "integers": [1, 2],
}  # fmt: skip
CHOICES = {"network": "none", "restore": "auto", "priority": "low", "by": "day"}
WRONG: dict[str, list] = {
    "string": [1, 1.5, True, [], {}],
    "integer": ["1", 1.0, 1.5, True, [], {}, 2**63, -(2**63), -(2**64)],
    "number": ["1", True, False, [], {}, -0.5, 1e9 + 1, float("inf"), 10**400],
    "boolean": [0, 1, "true", [], {}],
    "strings": ["a", 1, {}, [1], ["a", None], [["a"]]],
    "integers": ["1", 1, {}, ["1"], [1, None], [True], [1.5], [2**63]],
    "states": ["idle", ["working"], [1], {}, ["idle", "IDLE"]],
}
PARAMETERS = [(kind, parameter) for kind in METHODS for parameter in parameters(kind)]


def good(parameter):
    return CHOICES.get(parameter.name, GOOD[parameter.kind])


def full(kind):
    return {parameter.name: good(parameter) for parameter in parameters(kind)}


def ident(value):
    return getattr(value, "method", None) or getattr(value, "name", None)


def plain(value):
    return list(value) if isinstance(value, tuple) else getattr(value, "value", value)


@each("kind", METHODS)
def test_a_request_with_everything_and_with_only_what_is_required(kind):
    read = parse(kind, full(kind))
    assert {name: plain(getattr(read, name)) for name in kind.__struct_fields__} == full(kind)
    least = {one.name: good(one) for one in parameters(kind) if one.required}
    assert parse(kind, least) == kind(**least) or any(isinstance(value, list) for value in least.values())
    if not least:
        assert parse(kind, None) == parse(kind, {}) == kind()


@each("kind", METHODS)
def test_params_that_are_no_object_or_have_an_unknown_name(kind):
    odd: tuple[object, ...] = ([], "x", 1, True)
    for given_params in odd:
        with pytest.raises(errors.InvalidParams, match=kind.method):
            parse(kind, given_params)
    with pytest.raises(errors.InvalidParams, match="'colour'"):
        parse(kind, {**full(kind), "colour": "red"})


@each(("kind", "parameter"), PARAMETERS)
def test_a_missing_or_null_parameter(kind, parameter):
    without = {name: value for name, value in full(kind).items() if name != parameter.name}
    for given_params in (without, {**without, parameter.name: None}):
        if parameter.required:
            with pytest.raises(errors.InvalidParams, match=f"'{parameter.name}'"):
                parse(kind, given_params)
        else:
            assert parse(kind, given_params) == parse(kind, without)


@each(("kind", "parameter"), PARAMETERS)
def test_a_parameter_of_the_wrong_kind_is_named(kind, parameter):
    for value in WRONG[parameter.kind]:
        with pytest.raises(errors.InvalidParams, match=f"{kind.method}: '{parameter.name}' must be "):
            parse(kind, {**full(kind), parameter.name: value})


@pytest.mark.parametrize(
    ("method", "params", "sentence"),
    [
        ("agent.send", {"agent": 7, "prompt": "x"}, "agent.send: 'agent' must be a string"),
        ("agent.send", {"agent": "anna"}, "agent.send needs the parameter 'prompt': the prompt"),
        ("agent.rm", {"agents": ["a"]}, "agent.rm has no parameter 'agents'; it has: agent"),
        ("agent.spawn", {"workspace": "/", "network": "x"}, "agent.spawn: 'network' must be one of none, filtered, host"),
        ("agent.wait", {"agents": [], "timeout": -1}, "agent.wait: 'timeout' must be a number from 0 to 1000000000"),
        ("events.read", {"since": 2**63}, "events.read: 'since' must be an integer of 64 bits"),
    ],
)  # fmt: skip
def test_the_sentence_says_what_would_fit(method, params, sentence):
    with pytest.raises(errors.InvalidParams) as caught:
        parse(BY_NAME[method], params)
    assert caught.value.message == sentence


@given(
    st.sampled_from(METHODS),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=5,
    ),
    st.data(),
)
def test_whatever_is_sent_is_read_or_refused(kind, value, data):
    names = kind.__struct_fields__
    params = {name: value for name in names if data.draw(st.booleans())} if names and data.draw(st.booleans()) else value
    with contextlib.suppress(errors.InvalidParams):
        assert isinstance(parse(kind, params), kind)
