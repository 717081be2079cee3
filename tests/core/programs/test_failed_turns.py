"""Failures of claude and codex: each as a result or standard error said it, and what the turn becomes."""

import json

import pytest

from substrat.core.agents.records import Outcome
from substrat.core.agents.verdict import NOTHING_SEEN, judge
from substrat.core.programs.claude import dialect as claude
from substrat.core.programs.claude.claude import CLAUDE
from substrat.core.programs.claude.failures import TABLE as OF_CLAUDE
from substrat.core.programs.codex import dialect as codex
from substrat.core.programs.codex.codex import CODEX
from substrat.core.programs.codex.failures import TABLE as OF_CODEX
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Line
from tests.support.cases import each


def verdict_of(program, **body):
    data = json.dumps(body).encode()
    result = stream.result_of(stream.decode(Line(0, len(data), data)))
    assert result is not None
    return judge(NOTHING_SEEN._replace(result=result, exit_code=1), program)


def claudes(words, status=None, **members):
    usage = {"input_tokens": 0}
    body = {"type": "result", "is_error": True, "result": words, "api_error_status": status, "usage": usage, **members}
    return verdict_of(CLAUDE, **body)


def codexs(words):
    return verdict_of(CODEX, type="turn.failed", error={"message": words})


# As printed by 2.1.197 (2026-11-29) and, where marked, 2.1.332 (2026-11-26), against a scripted model server.
CLAUDES = [
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
    # A status alone is enough.
    (401, "?", "bad-api-key", False), (402, "?", "usage-limit", False), (404, "?", "model-not-found", False),
    (429, "?", "rate-limited", True), (503, "?", "service-unavailable", True),
]  # fmt: skip
URL = "url: http://127.0.0.1:8787/v1/responses"
LIMIT = (
    "You\u2019ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit "
    "https://chatgpt.com/settings/usage to purchase more credits or try again at 2:50 PM."
)
# As codex 0.171.0 printed them on 2026-11-29 against a scripted model server.
CODEXS = [
    (f"unexpected status 401 Unauthorized: invalid x-api-key, {URL}", "bad-api-key", False),
    (f"unexpected status 403 Forbidden: not allowed, {URL}", "bad-api-key", False),
    ("Missing environment variable: `NOKEY`.", "bad-api-key", False),
    (LIMIT, "usage-limit", False),
    ("Quota exceeded. Check your plan and billing details.", "usage-limit", False),
    (f"unexpected status 402 Payment Required: pay, {URL}", "usage-limit", False),
    ("To use Codex with your ChatGPT plan, upgrade to Plus: https://chatgpt.com/explore/plus.", "not-in-plan", False),
    ("The requested model 'nope' does not exist.", "model-not-found", False),
    ('{"detail": "The \'nope\' model is not supported when using Codex with a ChatGPT account."}',
     "model-not-found", False),
    (f"unexpected status 404 Not Found: model: fake-model, {URL}", "model-not-found", False),
    ("Codex ran out of room in the model's context window. Start a new thread or clear earlier history before retrying.",
     "chat-too-long", False),
    ('{"error": {"message": "prompt is too long: 250000 tokens > 200000 maximum"}}', "chat-too-long", False),
    ("exceeded retry limit, last status: 429 Too Many Requests", "rate-limited", True),
    ("rate limit exceeded: Rate limit reached for gpt-5.1. Please try again in 1.5s.", "rate-limited", True),
    ("Selected model is at capacity. Please try a different model.", "rate-limited", True),
    ("We\u2019re currently experiencing high demand, which may cause temporary errors.", "service-unavailable", True),
    (f"unexpected status 502 Bad Gateway: bad gateway, {URL}", "service-unavailable", True),
    (f"unexpected status 529 <unknown status code>: Overloaded, {URL}", "rate-limited", True),
    (f"unexpected status 529 <unknown status code>: as the prompt says, {URL}", "rate-limited", True),
    ("Connection failed: error sending request", "connection-lost", True),
    ("stream disconnected before completion: stream closed before response.completed", "connection-lost", True),
]  # fmt: skip
FAILED = [
    *((claudes(words, status), words, name, passes) for status, words, name, passes in CLAUDES),
    *((codexs(words), words, name, passes) for words, name, passes in CODEXS),
]
ERRORS = [
    (CLAUDE, "error: unknown option '--strict-mcp-config'\n", "unknown-option", "--strict-mcp-config"),
    (CODEX, "Error: thread/resume: thread/resume failed: no rollout found for thread id 01a219bf-3e03-7253-9c72-00000000",
     "unknown-session", ""),
    (CODEX, "error: unexpected argument '--skip-git-repo-check' found\n\nUsage: codex exec [OPTIONS] [PROMPT]",
     "unknown-option", "--skip-git-repo-check"),
    (CODEX, "Error loading config.toml: unknown variant `perhaps`, expected one of `disabled`, `cached`\nin `web_search`",
     "bad-settings", ""),
]  # fmt: skip


@each(("verdict", "words", "name", "passes"), FAILED)
def test_a_failed_turn_names_its_failure(verdict, words, name, passes):
    assert verdict.outcome is Outcome.ERROR
    assert (verdict.failure.name, verdict.failure.passes) == (name, passes)
    assert verdict.error == verdict.failure.sentence
    assert words in verdict.error or name == "not-logged-in"


@each(("program", "errors", "name", "subject"), ERRORS)
def test_standard_error_names_what_kept_the_turn_from_beginning(program, errors, name, subject):
    failure = judge(NOTHING_SEEN._replace(errors=errors, exit_code=1), program).failure
    assert failure is not None
    assert (failure.name, failure.subject) == (name, subject)


def test_claudes_unknown_session_is_named_by_the_list_of_errors():
    errors = ["No conversation found with session ID: 9"]
    verdict = claudes(None, subtype="error_during_execution", errors=errors)
    assert verdict.failure is not None
    assert verdict.failure.name == "unknown-session"
    assert errors[0] in verdict.failure.sentence


def test_every_failure_was_seen():
    named = {name for *_, name, _ in [*FAILED, *ERRORS]}
    assert {row.failure.name for row in (*OF_CLAUDE, *OF_CODEX)} == named


@pytest.mark.parametrize(
    ("verdict", "words"),
    [
        (claudes("Reached maximum budget ($5)"), "Reached maximum budget ($5)"),
        (codexs("Incomplete response returned, reason: max_output_tokens"),
         "Incomplete response returned, reason: max_output_tokens"),
    ],
)  # fmt: skip
def test_an_unknown_failure_keeps_the_programs_words(verdict, words):
    assert (verdict.outcome, verdict.error, verdict.failure) == (Outcome.ERROR, words, None)


def test_an_answer_that_tells_of_a_failure_is_an_answer():
    assert claudes("Invalid API key · Fix external API key", is_error=False).outcome is Outcome.SUCCESS
    assert verdict_of(CODEX, type="turn.completed", usage={}).outcome is Outcome.SUCCESS


@each(
    ("dialect", "line", "speaks"),
    [
        (claude, b'{"type":"system","subtype":"init","tools":["Ba', True),
        (claude, b'{"type":"assistant","message":{"role":"assistant","cont', False),
        (claude, b'{"type":"user","message":{"role":"user","content":[{"type":"tool_re', False),
        (claude, b'{"ty', False),
        (codex, b'{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Lo', True),
        (codex, b'{"type":"item.completed","item":{"id":"item_1","type":"reasoning","te', True),
        (codex, b'{"type":"item.completed","item":{"id":"item_1","type":"command_exec', False),
        (codex, b'{"type":"item.completed","item":{"id":"ite', False),
        (codex, b'{"type":"turn.completed"', False),
    ],
)
def test_the_beginning_of_a_line_shows_whether_it_only_speaks(dialect, line, speaks):
    assert dialect.only_speaks(line) is speaks
