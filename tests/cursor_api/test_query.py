"""Queries in each format: answers, failures with their names, prompts of any size, limits."""

import contextlib
import json
import os
import signal

import pytest

from substrat.cursor_api import AgentConfig, CursorAgentClient, EventType, OutputFormat, query

RESULT = {
    "type": "result", "subtype": "success", "is_error": False, "result": "four", "session_id": "s-1", "request_id": "r-1",
    "duration_ms": 15, "duration_api_ms": 14,
}  # fmt: skip
INIT = {"type": "system", "subtype": "init", "session_id": "s-0"}


def said(text, **more):
    return {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}, **more}


def ask(binary, output_format=OutputFormat.STREAM_JSON, **options):
    return query("x", agent_binary=binary, output_format=output_format, **options)


@pytest.mark.parametrize("output_format", ["json", OutputFormat.STREAM_JSON])
def test_a_result_is_told_in_full(printing, output_format):
    found = ask(printing(INIT, said("four"), RESULT), output_format)
    assert (found.success, found.result, found.session_id, found.request_id) == (True, "four", "s-1", "r-1")
    assert (found.duration_ms, found.duration_api_ms, found.error) == (15, 14, None)
    assert [event.type for event in found.events] == (
        [] if output_format == "json" else [EventType.SYSTEM_INIT, EventType.ASSISTANT, EventType.RESULT_SUCCESS]
    )


def test_the_standin_answers_in_each_format():
    found = query("two words")
    assert (found.success, found.result, found.events) == (True, "two words", [])
    assert found.session_id
    assert found.duration_ms is not None
    streamed = query("two words", output_format=OutputFormat.STREAM_JSON)
    assert streamed.result == "two words"
    assert streamed.events[0].session_id == streamed.session_id
    text = query("two words", output_format="text")
    assert (text.success, text.result, text.session_id, text.error) == (True, "two words", "", None)


def test_plain_text_is_the_result(program):
    found = ask(program("print('one\\n\\n  two')"), OutputFormat.TEXT, session_id="s")
    assert (found.success, found.result, found.session_id) == (True, "one\n\n  two", "s")
    long = ask(program("print('x' * 3_000_000)"), OutputFormat.TEXT)
    assert len(long.result) == 3_000_000


@pytest.mark.parametrize(
    ("source", "error"),
    [
        ("sys.exit(3)", "exited with status 3 without a result and without any output"),
        ("pass", "exited with status 0 without a result and without any output"),
        ("print('half'); sys.exit(1)", "exited with status 1 without a result"),
    ],
)
def test_plain_text_needs_words_and_a_good_end(program, source, error):
    found = ask(program(source), OutputFormat.TEXT)
    assert not found.success
    assert found.error == f"the agent program {error}"


def test_a_json_object_may_come_after_other_lines_and_over_many(printing):
    assert ask(printing("Using worktree: w", RESULT), "json").result == "four"
    assert ask(printing(json.dumps(RESULT, indent=2)), "json").result == "four"


def test_an_error_result_is_a_failure(printing):
    error = {
        "type": "result",
        "subtype": "error",
        "error": "Too long",
        "session_id": "s",
        "request_id": "r",
        "is_error": True,
    }
    for output_format in ("json", "stream-json"):
        found = ask(printing(said("so far"), error), output_format)
        assert (found.success, found.error, found.session_id, found.request_id) == (False, "Too long", "s", "r")
    assert found.result == "so far"
    found = ask(printing({"type": "result", "subtype": "success", "is_error": True, "result": "it broke"}))
    assert (found.success, found.error) == (False, "it broke")
    found = ask(printing({"type": "result", "subtype": "error", "payload": {"exitCode": 1, "is_error": True}}, code=1))
    assert (found.success, found.error) == (False, "the agent reported an error without a text")


def test_a_result_without_a_text_is_what_was_said(printing):
    found = ask(printing(said("a"), said("b"), {"type": "result", "subtype": "success", "payload": {"is_error": False}}))
    assert (found.success, found.result) == (True, "ab")


@pytest.mark.parametrize(
    ("name", "output_format", "words"),
    [
        ("auth", "text", "isn't logged in"),
        ("api-key", "json", "API key is refused"),
        ("model", "stream-json", "there is no model"),
        ("trust", "text", "doesn't trust the workspace"),
        ("busy", "json", "another process still holds this chat"),
        ("network", "stream-json", "the connection to Cursor was lost"),
        ("network-zero", "text", "the connection to Cursor was lost"),
    ],
)
def test_failures_have_names(monkeypatch, name, output_format, words):
    monkeypatch.setenv("STANDIN_FAIL", name)
    found = query("hello", output_format=output_format)
    assert not found.success
    assert words in found.error
    assert "daemon" not in found.error
    assert "\x1b" not in found.error


@pytest.mark.parametrize(
    ("prompt", "output_format", "words"),
    [
        ("/fail no-result", "json", "exited with status 0 without a result"),
        (
            "/stderr one \x1b[31mred\x1b[0m thing\n/exit 4", "stream-json",
            "exited with status 4 without a result: one red thing",
        ),
        ("/fail kill", "json", "was ended by SIGKILL without a result"),
        ("/fail segv", "stream-json", "was ended by SIGSEGV without a result"),
    ],
)  # fmt: skip
def test_a_run_without_a_result_is_a_failure_whatever_its_status(prompt, output_format, words):
    found = query(prompt, output_format=output_format)
    assert not found.success
    assert words in found.error


def test_a_failed_run_keeps_what_it_brought():
    found = query("begun\n/exit 1", output_format="stream-json")
    assert (found.success, found.result) == (False, "begun")
    assert found.session_id == found.events[0].session_id
    last = found.events[-1]
    assert last.type is EventType.RESULT_ERROR
    assert last.data["error"] == found.error
    assert last.data["synthetic"] is True


def test_the_answer_counts_and_not_the_exit_status(printing):
    assert ask(printing(RESULT, code=1), "json").success


def test_resuming_a_chat():
    first = query("remember me")
    second = query("/recall", session_id=first.session_id)
    assert second.session_id == first.session_id
    assert "remember me" in second.result
    assert query("/recall", resume=first.session_id).success


def test_the_configuration_reaches_the_program(program, place):
    source = """
key = os.environ.get("CURSOR_API_KEY")
line({"type": "result", "subtype": "success", "result": json.dumps([sys.argv[1:], key, prompt])})
"""
    config = AgentConfig(
        workspace=str(place), model="m", force_approve=True, api_key="secret", agent_binary=program(source)
    )
    arguments, key, prompt = json.loads(CursorAgentClient(config).query("--help me", approve_mcps=True).result)
    assert key == "secret"
    assert prompt == "--help me"
    assert "secret" not in arguments
    assert arguments == [
        "--print", "--output-format", "json", "--trust", "--force", "--approve-mcps", "--workspace", str(place),
        "--model", "m",
    ]  # fmt: skip


def test_megabytes_both_ways(program):
    source = """
line({"type": "assistant", "message": {"content": [{"text": prompt}]}})
line({"type": "result", "subtype": "success", "result": str(len(prompt))})
"""
    prompt = "é" * 4_000_000
    found = query(prompt, agent_binary=program(source), output_format="stream-json")
    assert found.result == "4000000"
    assert found.events[0].text == prompt


def test_a_line_beyond_all_measure_is_cut_and_the_rest_goes_on(program, monkeypatch):
    monkeypatch.setattr("substrat.cursor_api.run.LONGEST_LINE", 1000)
    source = (
        "line({'type': 'assistant', 'text': 'x' * 5000})\nline({'type': 'result', 'subtype': 'success', 'result': 'ok'})"
    )
    found = query("x", agent_binary=program(source), output_format="stream-json")
    assert (found.success, found.result) == (True, "ok")
    assert found.events[0].raw_type == "raw"


def test_much_on_standard_error_holds_nobody_up(program):
    source = """
for _ in range(64):
    sys.stderr.write("noise " * 8000)
line({"type": "result", "subtype": "success", "result": "through"})
"""
    assert ask(program(source)).result == "through"


def test_fifty_megabytes_of_small_lines_are_read(program):
    source = """
piece = json.dumps({"type": "assistant", "text": "y" * 900, "timestamp_ms": 1}) + "\\n"
for _ in range(52):
    sys.stdout.write(piece * 1000)
line({"type": "result", "subtype": "success", "result": "end"})
"""
    found = ask(program(source))
    assert (found.result, len(found.events)) == ("end", 52_001)


@pytest.mark.parametrize("output_format", list(OutputFormat))
def test_a_timeout_is_a_failure(program, alive, until, place, output_format):
    source = "mark('pid', str(os.getpid()))\nline({'type': 'assistant', 'message': {'content': 'begun'}})\nhang()"
    found = ask(program(source), output_format, timeout=1)
    assert not found.success
    assert found.error == "Request timed out after 1 s"
    assert not alive(int((place / "pid").read_text()))
    if output_format is OutputFormat.STREAM_JSON:
        assert found.result == "begun"
        assert found.events[-1].type is EventType.RESULT_ERROR


def test_a_timeout_ends_a_program_that_never_stops_printing(program):
    source = "while True: line({'type': 'assistant', 'text': 'again', 'timestamp_ms': 1})"
    assert "timed out" in ask(program(source), timeout=0.3).error


def test_a_program_that_never_exits_after_its_result(monkeypatch):
    monkeypatch.setattr("substrat.cursor_api.run.RESULT_GRACE", 0.2)
    found = query("said\n/hang")
    assert (found.success, found.result) == (True, "said")


def test_a_program_that_closes_its_output_and_stays(program, monkeypatch):
    monkeypatch.setattr("substrat.cursor_api.run.RESULT_GRACE", 0.2)
    found = ask(program("os.close(1)\nhang()"))
    assert "without a result" in found.error


def test_a_child_that_keeps_the_output_open_is_not_waited_for(program, place, until):
    source = """
if os.fork() == 0:
    mark("child", str(os.getpid()))
    hang()
while not os.path.exists("child"):
    time.sleep(0.01)
line({"type": "result", "subtype": "success", "result": "mine"})
"""
    found = ask(program(source))
    assert (found.success, found.result) == (True, "mine")
    os_kill(int((place / "child").read_text()))


def test_a_child_that_floods_the_output_is_not_listened_to(program, place):
    source = """
if os.fork() == 0:
    mark("child", str(os.getpid()))
    while True:
        os.write(1, b'{"type": "noise"}\\n' * 100)
while not os.path.exists("child"):
    time.sleep(0.01)
line({"type": "result", "subtype": "success", "result": "mine"})
"""
    found = ask(program(source))
    assert not [event for event in found.events if event.data.get("synthetic")]
    pid = int((place / "child").read_text())
    os_kill(pid)


def os_kill(pid):
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
