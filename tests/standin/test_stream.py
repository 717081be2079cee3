"""The lines a turn prints: order, keys and shapes."""

import json
import re

import pytest

from substrat.standin.stream import Stream

SESSION = "session_id"


def keys(line):
    return list(line)


def test_a_turn_has_the_recorded_order_and_keys(standin):
    outcome = standin.run("/think hm\nhello\n/shell true\nbye\n")
    assert [(line["type"], line.get("subtype")) for line in outcome.lines] == [
        ("system", "init"),
        ("user", None),
        ("thinking", "delta"),
        ("thinking", "completed"),
        ("assistant", None),
        ("tool_call", "started"),
        ("tool_call", "completed"),
        ("assistant", None),
        ("result", "success"),
    ]
    init, user, delta, completed, flush, started, ended, final, result = outcome.lines
    assert keys(init) == ["type", "subtype", "apiKeySource", "cwd", SESSION, "model", "permissionMode"]
    assert keys(user) == ["type", "message", SESSION]
    assert keys(delta) == ["type", "subtype", "text", SESSION, "timestamp_ms"]
    assert keys(completed) == ["type", "subtype", SESSION, "timestamp_ms"]
    assert keys(flush) == ["type", "message", SESSION, "model_call_id", "timestamp_ms"]
    call_keys = ["type", "subtype", "call_id", "tool_call", "model_call_id", SESSION, "timestamp_ms"]
    assert keys(started) == keys(ended) == call_keys
    assert keys(final) == ["type", "message", SESSION]
    assert keys(result) == [
        *("type", "subtype", "duration_ms", "duration_api_ms", "is_error", "result", SESSION, "request_id", "usage")
    ]
    assert keys(result["usage"]) == ["inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"]
    assert {line[SESSION] for line in outcome.lines} == {init[SESSION]}
    assert flush["model_call_id"] == started["model_call_id"]
    assert flush["model_call_id"].startswith(result["request_id"] + "-0-")


def test_the_first_lines_say_where_and_what(standin):
    prompt = 'one "quoted" line\nümlaut 🙂\n'
    outcome = standin.run(prompt, "--model", "composer-2.5-fast")
    init, user, *_ = outcome.lines
    assert init["cwd"] == str(standin.workspace)
    assert (init["model"], init["apiKeySource"], init["permissionMode"]) == ("Composer 2.5 Fast", "login", "default")
    assert user["message"] == {"role": "user", "content": [{"type": "text", "text": prompt}]}
    # JavaScript's JSON: no spaces, nothing escaped that need not be.
    assert b'{"type":"system","subtype":"init",' in outcome.stdout
    assert "ümlaut 🙂".encode() in outcome.stdout


def test_segments_are_glued_without_a_separator(standin):
    outcome = standin.run("one\ntwo\n/shell true\n\nthree\n")
    assert outcome.text == "one\ntwothree"
    flush, final = outcome.of("assistant")
    assert flush["message"]["content"][0]["text"] == "one\ntwo"
    assert final["message"]["content"][0]["text"] == "three"


def test_replies_around_the_end_of_a_background_command_are_glued(tmp_path):
    with (tmp_path / "out").open("wb") as file:
        output = Stream(file.fileno(), "stream-json", partial=False, session_id="s", two_part_ids=False)
        output.speak("launched")
        output.speak("there")
        output.event("system", "task_notification", {"task_id": "7", "status": "completed", "title": "make"})
        output.next_model_call()
        output.speak("it ended")
        output.final_flush()
    notice, flush = map(json.loads, (tmp_path / "out").read_text().splitlines())
    assert notice["subtype"] == "task_notification"
    assert flush["message"]["content"][0]["text"] == output.text == "launched\nthereit ended"


def test_deltas_come_only_when_asked_for(standin):
    outcome = standin.run("a rather long line of text to cut\n/shell true\nend", "--stream-partial-output")
    deltas = [line for line in outcome.of("assistant") if "timestamp_ms" in line and "model_call_id" not in line]
    assert len(deltas) > 2
    assert keys(deltas[0]) == ["type", "message", SESSION, "timestamp_ms"]
    assert "".join(line["message"]["content"][0]["text"] for line in deltas) == outcome.text
    assert len(outcome.of("assistant")) == len(deltas) + 2


@pytest.mark.parametrize("model", ["auto", "gpt-5.5-high", "grok-4.7"])
def test_call_ids_of_some_models_hold_a_newline(standin, model):
    started, ended = standin.run("/shell true", "--model", model).of("tool_call")
    assert re.fullmatch(r"call-[0-9a-f-]{36}-0\nfc_[0-9a-f-]{36}_0", started["call_id"])
    assert started["call_id"] == ended["call_id"] == started["tool_call"]["toolCallId"]


def test_composer_calls_a_tool_without_a_word_and_its_id_is_one_word(standin):
    outcome = standin.run("/shell true", "--model", "composer-2.5")
    assert (outcome.of("assistant"), outcome.text) == ([], ""), "a segment may be missing"
    started, _ = outcome.of("tool_call")
    assert re.fullmatch(r"tool_[0-9a-f-]{35}", started["call_id"])


def test_tool_calls_have_their_siblings_and_string_times(standin):
    started, ended = (line["tool_call"] for line in standin.run("/shell echo hi").of("tool_call"))
    assert keys(started) == ["shellToolCall", "hookAdditionalContexts", "toolCallId", "startedAtMs"]
    assert keys(ended) == [*keys(started), "completedAtMs"]
    assert isinstance(started["startedAtMs"], str)
    assert isinstance(ended["completedAtMs"], str)
    assert keys(started["shellToolCall"]) == ["args", "description"]
    assert keys(ended["shellToolCall"]) == ["args", "result", "description"]


def test_emit_writes_deltas_of_a_size(standin):
    outcome = standin.run("/emit 3 12")
    *deltas, final = outcome.of("assistant")
    assert [line["message"]["content"][0]["text"] for line in deltas] == ["012345678901"] * 3
    assert "timestamp_ms" not in final
    assert outcome.text == "012345678901" * 3


@pytest.mark.parametrize("output_format", ["text", "json"])
def test_other_formats_print_nothing_before_the_end(standin, output_format):
    marker = standin.workspace / "reached"
    script = f"/think deep\nhello\n/shell touch {marker}\n/shell test ! -e go && while ! test -e go; do sleep 0.01; done\n"
    running = standin.start(script, "--output-format", output_format, "--show-thinking")
    while not marker.exists():
        assert running.process.poll() is None
    (standin.workspace / "go").touch()
    outcome = running.finish()
    if output_format == "text":
        assert outcome.stdout == b"hello\n"
    else:
        (line,) = outcome.lines
        assert (line["type"], line["result"], line["thinking_blocks"]) == ("result", "hello", ["deep"])


def test_a_long_prompt_from_stdin_is_echoed_whole(standin):
    prompt = "x" * 2_000_000
    outcome = standin.run(prompt)
    assert outcome.of("user")[0]["message"]["content"][0]["text"] == prompt
    assert outcome.text == prompt


def test_bytes_that_are_no_utf8_are_replaced(standin):
    assert standin.run(b"/say a\xffb").text == "a\ufffdb"


def test_odd_events_do_not_stop_the_turn(standin):
    script = "/new-events\n/completed-without-started weather\n/ask really?\n/web http://x\n/reconnect\nend"
    outcome = standin.run(script)
    assert outcome.text == "end"
    kinds = [(line["type"], line.get("subtype")) for line in outcome.lines]
    assert ("weather", "forecast") in kinds
    # The question comes before its tool call, the search never starts and has no arguments.
    ask = [line for line in outcome.lines if "askQuestion" in json.dumps(line)]
    assert [line["type"] for line in ask] == ["interaction_query", "interaction_query", "tool_call", "tool_call"]
    (search,) = [line for line in outcome.of("tool_call") if "webSearchToolCall" in line["tool_call"]]
    assert search["subtype"] == "completed"
    assert search["tool_call"]["webSearchToolCall"] == {"result": {"rejected": {"reason": "User Rejected"}}}
    assert outcome.calls("webFetch") == [{"rejected": {"reason": "User Rejected"}}]


def test_a_plan_is_approved_and_its_text_is_in_the_query(standin):
    outcome = standin.run("/plan 1. Look")
    request, response = outcome.of("interaction_query")
    assert request["query"]["createPlanRequestQuery"]["args"]["plan"] == "1. Look"
    assert response["response"]["createPlanRequestResponse"] == {"result": {"success": {}}}
    assert outcome.calls("createPlan") == [{"success": {}}]
    assert outcome.text == ""


def test_a_line_is_written_as_it_is(standin):
    lines = ['{"type": "text",  "text":"ü"}', "no json", '{"type":"result","subtype":"error","error":"it broke"}']
    outcome = standin.run("".join(f"/line {line}\n" for line in lines) + "/exit 1")
    assert outcome.stdout.decode().splitlines()[2:] == lines
    assert outcome.code == 1


def test_garbage_is_no_json(standin):
    outcome = standin.run("/garbage\nend")
    bad = [line for line in outcome.stdout.split(b"\n") if line and not line.endswith(b"}")]
    assert len(bad) == 2
    with pytest.raises(UnicodeDecodeError):
        bad[1].decode()


def test_a_line_can_be_megabytes_long(standin):
    outcome = standin.run("/shell head -c 3000000 /dev/zero | tr '\\0' x")
    assert len(outcome.calls("shell")[0]["success"]["stdout"]) == 3_000_000
    assert max(map(len, outcome.stdout.splitlines())) > 3_000_000
