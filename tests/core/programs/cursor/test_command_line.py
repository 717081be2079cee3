"""cursor-agent's command line, its places, and the small records."""

import hashlib
import itertools
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox.spec import Network
from substrat.core.agents.records import Outcome, Turn, left_unfinished
from substrat.core.agents.rights import Policy
from substrat.core.agents.stop_reason import INTERRUPTED, SUSPENDED, out_of_budget, took_too_long
from substrat.core.programs.cursor import command_line
from substrat.names import is_uuid

SESSION = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"


def test_the_command_names_everything_that_has_a_surprising_default():
    command = command_line.command("/opt/cursor-agent", "/w", "auto", None)
    assert command[0] == "/opt/cursor-agent"
    for flag in ("--print", "--trust", "--force", "--approve-mcps", "--stream-partial-output"):
        assert flag in command
    pairs = dict(itertools.pairwise(command))
    assert pairs["--output-format"] == "stream-json"
    assert pairs["--sandbox"] == "disabled"
    assert pairs["--workspace"] == "/w"
    assert pairs["--model"] == "auto"
    assert "--resume" not in command


def test_a_session_is_resumed_by_its_id():
    command = command_line.command("p", "/w", "auto", SESSION)
    assert command[-2:] == ("--resume", SESSION)
    assert command[:-2] == command_line.command("p", "/w", "auto", None)


@given(st.uuids())
def test_a_uuid_is_a_session_id(number):
    assert is_uuid(str(number))


@pytest.mark.parametrize(
    "text",
    ["", "x", SESSION.upper(), SESSION + "\n", " " + SESSION, SESSION + "/..", SESSION.replace("-", ""), "../" + SESSION,
     f"{{{SESSION}}}", "g" + SESSION[1:], SESSION.replace("0", "\u0660")],
)  # fmt: skip
def test_nothing_else_is(text):
    assert not is_uuid(text)


@given(st.text(max_size=50))
def test_a_session_id_is_safe_in_a_path(text):
    if is_uuid(text):
        uuid.UUID(text)
        assert "/" not in text


@pytest.mark.parametrize("path", ["/w", "/home/ü/x", "/w/\udcff"])
def test_the_chats_folder_is_the_md5_of_the_path(path):
    raw = path.encode("utf-8", "surrogateescape")
    assert command_line.chats_folder(path) == hashlib.md5(raw).hexdigest()


@pytest.mark.parametrize("child", Network)
@pytest.mark.parametrize("parent", Network)
def test_a_childs_network_is_never_more_than_its_parents(parent, child):
    order = [Network.NONE, Network.FILTERED, Network.HOST]
    assert Policy(parent).allows(Policy(child)) == (order.index(child) <= order.index(parent))


def turn(outcome, stop=None, reported=True):
    return Turn("t", "a", 1, 0.0, stop=stop, outcome=outcome, reported=reported)


UNFINISHED = [
    (turn(None), False, False),
    (turn(Outcome.SUCCESS), False, False),
    (turn(Outcome.SUCCESS, SUSPENDED), False, False),
    (turn(Outcome.INTERRUPTED, SUSPENDED), False, True),
    (turn(Outcome.INTERRUPTED, SUSPENDED), True, True),
    (turn(Outcome.INTERRUPTED, out_of_budget("2 of 2 turns")), True, True),
    (turn(Outcome.INTERRUPTED, INTERRUPTED), False, False),
    (turn(Outcome.INTERRUPTED, None), False, False),
    (turn(Outcome.ERROR), False, True),
    (turn(Outcome.ERROR), True, False),
    (turn(Outcome.ERROR, reported=False), True, True),
    (turn(Outcome.LOST), False, True),
    (turn(Outcome.TIMED_OUT, took_too_long(5)), False, True),
    (turn(Outcome.TIMED_OUT, took_too_long(5)), True, False),
    (turn(Outcome.ERROR, SUSPENDED), True, True),
]


@pytest.mark.parametrize(("last", "waiting", "unfinished"), UNFINISHED)
def test_what_is_left_unfinished(last, waiting, unfinished):
    assert left_unfinished(last, waiting=waiting) is unfinished
