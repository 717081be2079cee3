"""The daemon's log: one JSON object a line, or readable lines; secrets in neither."""

import json
import os
import sys

import pytest
import structlog

from substrat.daemon import logs
from tests.support import descriptors

SECRET = "crsr_0123456789abcdef"


@pytest.fixture
def log_to(monkeypatch, tmp_path):
    """Configure logging as the daemon does and collect the lines that it writes."""
    before = structlog.get_config()
    files = []

    def configure(level="debug", form="json", *, terminal=False, under_systemd=False):
        file = (tmp_path / "log").open("w")
        files.append(file)
        file.isatty = lambda: terminal
        monkeypatch.setattr(sys, "stderr", file)
        logs.configure(level, form, under_systemd=under_systemd)
        return structlog.get_logger("test"), lambda: (tmp_path / "log").read_text(encoding="utf-8")

    yield configure
    structlog.configure(**before)
    for file in files:
        file.close()


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_an_event_is_one_json_object(log_to):
    log, written = log_to()
    log.info("something happened", agent="bob\n", number=3, word="ü")
    (line,) = lines(written())
    assert line["event"] == "something happened"
    assert line["level"] == "info"
    assert (line["agent"], line["number"], line["word"]) == ("bob\n", 3, "ü")
    assert line["timestamp"].endswith("Z")


@pytest.mark.parametrize(("level", "told"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level(log_to, level, told):
    log, written = log_to(level)
    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)("x")
    assert len(lines(written())) == told


FORMS = [
    ("auto", True, False, False),
    ("auto", True, True, True),
    ("auto", False, False, True),
    ("json", True, False, True),
    ("text", False, True, False),
]


@pytest.mark.parametrize(("form", "terminal", "under_systemd", "is_json"), FORMS)
def test_the_form(log_to, form, terminal, under_systemd, is_json):
    log, written = log_to(form=form, terminal=terminal, under_systemd=under_systemd)
    log.info("something happened")
    assert written().startswith("{") == is_json
    assert "something happened" in written()


BY_NAME = ["api_key", "CURSOR_API_KEY", "token", "auth_token", "password", "Authorization", "cookie", "client_secret"]
BY_FORM = [
    f"Bearer {SECRET}",
    f"the key {SECRET} is wrong",
    "key_0123456789abcdef",
    "sk-0123456789abcdef",
    f"url?x={SECRET}&y",
]


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("name", BY_NAME)
def test_a_secret_by_its_name(log_to, form, name):
    log, written = log_to(form=form)
    log.info("x", **{name: "hunter2hunter2"})
    assert "hunter2" not in written()
    assert logs.HIDDEN in written()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("text", BY_FORM)
def test_a_secret_by_its_form(log_to, form, text):
    log, written = log_to(form=form)
    log.info("x", reason=text)
    log.info(text)
    assert "0123456789abcdef" not in written()


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("value", [{"CURSOR_API_KEY": "hunter2"}, [SECRET], {"a": [{"b": f"Bearer {SECRET}"}]}, (SECRET,)])
def test_a_secret_inside_a_value(log_to, form, value):
    log, written = log_to(form=form)
    log.info("x", environ=value)
    assert "hunter2" not in written()
    assert SECRET not in written()


def break_with(problem):
    environ = {"CURSOR_API_KEY": "hunter2"}
    command = ["agent", SECRET]
    raise ValueError(problem, len(environ), len(command))


@pytest.mark.parametrize("form", ["json", "text"])
@pytest.mark.parametrize("problem", ["harmless", f"it said Bearer {SECRET}"])
def test_a_secret_in_a_traceback(log_to, form, problem):
    log, written = log_to(form=form)
    try:
        break_with(problem)
    except ValueError:
        log.exception("it broke")
    assert "break_with" in written()
    assert "hunter2" not in written()
    assert SECRET not in written()


def test_what_is_no_secret_stays(log_to):
    log, written = log_to()
    log.info("the key is missing", path="/home/monkey/donkey", keyboard_layout="x", count=3, sk="a sk-x")
    (line,) = lines(written())
    assert line["event"] == "the key is missing"
    assert line["path"] == "/home/monkey/donkey"
    assert line["sk"] == "a sk-x"


@pytest.mark.parametrize("form", ["json", "text"])
def test_an_agents_text_does_nothing_to_who_reads_the_log(log_to, form):
    log, written = log_to(form=form)
    log.info("said", text="\x1b[2J\x9bH\u2028\u202e\U000e0041", several=["\u2029"], named={"k\u2029": "\x85"})
    assert not set("\x1b\x9b\u2028\u202e\U000e0041\u2029\x85") & set(written())
    assert len(written().splitlines()) == 1


@pytest.fixture
def piped(monkeypatch):
    """Configure logging as the daemon does, to a pipe; gives the log and the pipe's reading end."""
    before = structlog.get_config()
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file, os.fdopen(reading, "rb", buffering=0) as pipe:
        os.set_blocking(reading, False)
        monkeypatch.setattr(sys, "stderr", file)
        opened = descriptors.opened()
        logs.configure("debug", "json", under_systemd=False)
        yield structlog.get_logger("test"), pipe
        assert os.get_blocking(writing), "somebody else may have this end too"
        close_new(opened)
    structlog.configure(**before)


def close_new(before):
    """Close the descriptor of the log, which a daemon keeps for its life."""
    for number, _ in descriptors.opened() - before:
        os.close(int(number))


def drain(pipe):
    found = b""
    while data := pipe.read(1 << 20):
        found += data
    return found.decode()


@pytest.mark.parametrize("length", [10, 3000, 30_000])
def test_a_full_pipe_loses_lines_and_says_how_many(piped, length):
    log, pipe = piped
    for number in range(2000):
        log.info("x" * length, number=number)
    text = drain(pipe)
    log.info("there is room")
    log.info("as before")
    *whole, told, last, after = lines(text + drain(pipe))
    assert [line["number"] for line in whole] == list(range(len(whole)))
    assert 0 < len(whole) < 2000
    assert (told["event"], told["level"]) == (f"{2000 - len(whole)} lines of the log were lost", "warning")
    assert (last["event"], after["event"]) == ("there is room", "as before")


def test_a_reader_that_has_gone(piped):
    log, pipe = piped
    pipe.close()
    for _ in range(3):
        log.info("something happened")


def test_a_log_on_a_full_disk(monkeypatch):
    before = structlog.get_config()
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stderr", full)
        logs.configure("debug", "json", under_systemd=False)
        structlog.get_logger("test").info("something happened")
    structlog.configure(**before)


def test_no_standard_error_at_all(monkeypatch):
    before, opened = structlog.get_config(), descriptors.opened()
    monkeypatch.setattr(sys, "stderr", None)
    logs.configure("debug", "auto", under_systemd=False)
    structlog.get_logger("test").info("something happened")
    structlog.configure(**before)
    close_new(opened)
