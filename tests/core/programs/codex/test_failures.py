"""codex's failures: each as a failed turn or standard error said it, and what the turn becomes."""

import json

from substrat.core.agents.records import Outcome
from substrat.core.agents.verdict import NOTHING_SEEN, judge
from substrat.core.programs.codex import failures, lines
from substrat.core.programs.codex.codex import CODEX
from substrat.core.programs.cursor import stream
from substrat.core.programs.ndjson import Line
from tests.support.cases import each

URL = "url: http://127.0.0.1:8787/v1/responses"
LIMIT = (
    "You\u2019ve hit your usage limit. Upgrade to Pro (https://chatgpt.com/explore/pro), visit "
    "https://chatgpt.com/settings/usage to purchase more credits or try again at 2:50 PM."
)
# As codex 0.171.0 printed them on 2026-11-29 against a scripted model server.
FAILED = [
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
    ("Connection failed: error sending request", "connection-lost", True),
    ("stream disconnected before completion: stream closed before response.completed", "connection-lost", True),
]  # fmt: skip
ERRORS = [
    ("Error: thread/resume: thread/resume failed: no rollout found for thread id 01a219bf-3e03-7253-9c72-000000000000",
     "unknown-session", ""),
    ("error: unexpected argument '--skip-git-repo-check' found\n\nUsage: codex exec [OPTIONS] [PROMPT]", "unknown-option",
     "--skip-git-repo-check"),
    ("Error loading config.toml: unknown variant `perhaps`, expected one of `disabled`, `cached`\nin `web_search`",
     "bad-settings", ""),
]  # fmt: skip


def verdict_of(**body):
    data = json.dumps(body).encode()
    return judge(NOTHING_SEEN._replace(result=lines.result_of(stream.decode(Line(0, len(data), data))), exit_code=1), CODEX)


@each(("words", "name", "passes"), FAILED)
def test_a_failed_turn_names_its_failure(words, name, passes):
    verdict = verdict_of(type="turn.failed", error={"message": words})
    assert verdict.outcome is Outcome.ERROR
    assert verdict.failure is not None
    assert (verdict.failure.name, verdict.failure.passes) == (name, passes)
    assert verdict.error == verdict.failure.sentence
    assert words in verdict.error


@each(("errors", "name", "subject"), ERRORS)
def test_standard_error_names_what_kept_the_turn_from_beginning(errors, name, subject):
    found = failures.recognise(errors)
    assert found is not None
    assert (found.name, found.subject) == (name, subject)


def test_every_failure_was_seen():
    seen = {name for _, name, _ in [*FAILED, *ERRORS]}
    assert {failure.name for failure in failures.KNOWN} == seen


def test_an_unknown_failure_keeps_the_programs_words():
    words = "Incomplete response returned, reason: max_output_tokens"
    verdict = verdict_of(type="turn.failed", error={"message": words})
    assert (verdict.outcome, verdict.error, verdict.failure) == (Outcome.ERROR, words, None)


def test_a_turn_that_is_completed_has_no_failure():
    assert verdict_of(type="turn.completed", usage={}).outcome is Outcome.SUCCESS
