"""claude's failures: each as its result or its standard error said it, and what the turn becomes."""

import json
from functools import partial

from substrat.core.agents import verdict
from substrat.core.agents.records import Outcome
from substrat.core.agents.verdict import NOTHING_SEEN
from substrat.core.programs.claude import failures, lines
from substrat.core.programs.claude.claude import CLAUDE
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Line
from tests.support.cases import each

judge = partial(verdict.judge, program=CLAUDE)
# As printed by 2.1.197 (2026-11-29) and, where marked, 2.1.332 (2026-11-26), against a scripted model server.
RESULTS = [
    (401, "Invalid API key · Fix external API key", "bad-api-key", False),
    (403, "Failed to authenticate. API Error: 403 not allowed", "bad-api-key", False),
    (None, "Not logged in · Please run /login", "not-logged-in", False),
    (402, "Credit balance is too low", "usage-limit", False),
    (404, "There's an issue with the selected model (x). It may not exist.", "model-not-found", False),
    (400, "Prompt is too long · the request is ~250000 tokens (limit 200000) but this conversation is only ~1588 tokens",
     "chat-too-long", False),
    (429, "API Error: Request rejected (429) · This request would exceed your rate limit", "rate-limited", True),
    (529, "API Error: 529 Overloaded. This is a server-side issue, usually temporary", "rate-limited", True),
    (None, "API Error: Repeated 529 Overloaded errors", "rate-limited", True),
    (500, "API Error: 500 Internal server error. This is a server-side issue", "service-unavailable", True),
    (None, "API Error: Unable to connect to API (ConnectionRefused)", "connection-lost", True),
    # 2.1.332
    (None, "API Error: Connection refused — a firewall or proxy may be blocking it (ECONNREFUSED)",
     "connection-lost", True),
    # The words of the program's own text for subscriptions; no account that has reached its limit was seen.
    (429, "You've hit your monthly spend limit. Run /usage-credits to manage your limit", "usage-limit", False),
]  # fmt: skip


def result_of(**members):
    body = {"is_error": True, "subtype": "success", **members, "usage": {"input_tokens": 0}, "type": "result"}
    data = json.dumps(body).encode()
    found = lines.result_of(stream.decode(Line(0, len(data), data)))
    assert found is not None
    return found


@each(("status", "words", "name", "passes"), RESULTS)
def test_a_failed_result_names_the_failure(status, words, name, passes):
    verdict = judge(NOTHING_SEEN._replace(result=result_of(api_error_status=status, result=words), exit_code=1))
    assert verdict.outcome is Outcome.ERROR
    assert verdict.failure is not None
    assert (verdict.failure.name, verdict.failure.passes) == (name, passes)
    assert verdict.error == verdict.failure.sentence
    assert "{" not in verdict.error


def test_an_unknown_session_is_named_by_the_list_of_errors():
    found = result_of(subtype="error_during_execution", errors=["No conversation found with session ID: 9"])
    assert found.text == "No conversation found with session ID: 9"
    assert found.failure is not None
    assert found.failure.name == "unknown-session"


def test_a_status_alone_is_enough():
    assert {status: failures.recognise("?", status).name for status in (401, 402, 404, 429, 503)} == {
        401: "bad-api-key", 402: "usage-limit", 404: "model-not-found", 429: "rate-limited", 503: "service-unavailable",
    }  # fmt: skip


def test_an_unknown_failure_keeps_the_programs_words():
    verdict = judge(NOTHING_SEEN._replace(result=result_of(result="Reached maximum budget ($5)"), exit_code=1))
    assert (verdict.outcome, verdict.error, verdict.failure) == (Outcome.ERROR, "Reached maximum budget ($5)", None)


def test_an_answer_that_tells_of_a_failure_is_an_answer():
    found = result_of(is_error=False, result="Invalid API key · Fix external API key")
    assert found.failure is None
    assert judge(NOTHING_SEEN._replace(result=found, exit_code=0)).outcome is Outcome.SUCCESS


def test_standard_error_names_an_option_that_this_version_does_not_know():
    found = failures.recognise("error: unknown option '--strict-mcp-config'\n")
    assert found is not None
    assert (found.name, found.subject) == ("unknown-option", "--strict-mcp-config")
    assert failures.recognise("warning: something else") is None


@each(
    ("line", "speaks"),
    [
        (b'{"type":"system","subtype":"init","tools":["Ba', True),
        (b'{"type":"assistant","message":{"role":"assistant","cont', False),
        (b'{"type":"user","message":{"role":"user","content":[{"type":"tool_re', False),
        (b'{"ty', False),
    ],
)
def test_only_a_system_line_that_was_cut_is_known_to_report_no_act(line, speaks):
    assert lines.only_speaks(line) is speaks
