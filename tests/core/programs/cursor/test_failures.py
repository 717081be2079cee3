"""cursor-agent's failures by name: what each says, what a person is told, and what is tried again."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.agents import retry
from substrat.core.programs.cursor import failures
from substrat.core.programs.cursor.failures import TABLE, recognise
from substrat.core.programs.failures import last_words
from substrat.standin import recorded
from substrat.standin.errors import LeaveError
from tests.support.cases import each

BY_NAME = {row.failure.name: row.failure for row in TABLE}
CHAT = "0b5d7e5c-8d2f-4d6a-9a3e-5a1f0c9b7e21"

SAID = [
    (
        "not-logged-in",
        "Error: Authentication required. Please run 'agent login' first, or set CURSOR_API_KEY environment variable.",
    ),
    ("not-logged-in", "Error: Authentication required. Please run 'cursor-agent login' first, or set CURSOR_API_KEY"),
    ("not-logged-in", "Not logged in"),
    ("bad-api-key", "\x1b[33m⚠ Warning: The provided API key is invalid.\x1b[0m"),
    ("no-such-model", "Cannot use this model: gpt-99. Available models: auto, composer-2.5"),
    ("model-not-in-plan", "ActionRequiredError: Named models unavailable Free plans can only use Auto."),
    ("model-not-in-plan", "ActionRequiredError: Your plan does not include this model"),
    ("chat-too-long", "ConnectError: [invalid_argument] prompt is too long: 208310 tokens > 200000 maximum"),
    ("chat-too-long", "Error: 400 This model's maximum context length is 200000 tokens"),
    (
        "usage-limit",
        "ActionRequiredError: You're out of usage. Switch to Auto, or ask your admin to raise your spend limit.",
    ),
    ("usage-limit", "You have reached your spend limit"),
    ("usage-limit", "ActionRequiredError: something new"),
    ("usage-limit", "Error: RetriableError: [resource_exhausted] You've hit your usage limit. Try again in 3 hours."),
    ("usage-limit", "ConnectError: [resource_exhausted] quota exceeded"),
    ("model-not-found", "ConnectError: [not_found] AI Model Not Found"),
    ("model-not-found", "Error: the model gpt-9 is not available in your region"),
    ("not-logged-in", "Error: ConnectError: [unauthenticated] Error"),
    ("not-logged-in", "Your session has expired"),
    (
        "bad-api-key",
        "[unauthenticated] Backend rejected authentication. Verify this is a User API Key for the same environment",
    ),
    ("rate-limited", "Error: RetriableError: [resource_exhausted] Error"),
    ("rate-limited", "ConnectError: [resource_exhausted] Error"),
    ("rate-limited", "HTTP 429 Too Many Requests"),
    ("rate-limited", "Rate limit exceeded, retry in 2s"),
    ("rate-limited", "RetriableError: [unavailable] Session closed with error code NGHTTP2_ENHANCE_YOUR_CALM"),
    ("certificate-refused", "RetriableError: [unavailable] self-signed certificate in certificate chain"),
    ("certificate-refused", "Error: unable to get local issuer certificate"),
    ("certificate-refused", "code: 'UNABLE_TO_VERIFY_LEAF_SIGNATURE'"),
    ("certificate-refused", "Error: certificate has expired"),
    ("service-unavailable", "502 Bad Gateway"),
    ("service-unavailable", "ConnectError: [internal] Error"),
    ("service-unavailable", "ConnectError: [unknown] No response from model"),
    ("untrusted-workspace", str(recorded.refusal("trust", workspace="/w"))),
    ("force-forbidden", "Error: Your team administrator has disabled the 'Run Everything' option."),
    ("force-forbidden", "--force is not allowed by your team"),
    ("bad-session-id", str(recorded.refusal("chat-id", short="not-a-uuid"))),
    ("chat-busy", str(recorded.refusal("busy", chat=CHAT))),
    ("session-id-in-use", str(recorded.refusal("in-use", chat=CHAT))),
    ("unknown-option", "error: unknown option '--fork'"),
    ("unknown-option", "RetriableError: [invalid_argument] unknown option '--system-prompt'"),
    ("connection-lost", "Connection lost, reconnecting to https://example.org (attempt 1)...\nRetry attempt 1..."),
    ("connection-lost", "RetriableError: [unavailable] PING timed out"),
    ("connection-lost", "RetriableError: [aborted] read ECONNRESET"),
    ("connection-lost", "Connection failed repeatedly"),
    ("connection-lost", "RetriableError: [canceled] http/2 stream closed with error code CANCEL (0x8)"),
    ("connection-lost", "RetriableError: Connection stalled"),
    ("connection-lost", "ConnectError: [deadline_exceeded] the operation timed out"),
    ("connection-lost", "TypeError: fetch failed"),
    ("connection-lost", "Error: socket hang up"),
    ("connection-lost", "Error: connect ECONNREFUSED 10.1.2.3:443"),
    ("connection-lost", "Error: getaddrinfo EAI_AGAIN api2.cursor.sh"),
    ("settings-race", "Error: ENOENT: no such file or directory, rename '/h/.cursor/cli-config.json.tmp' -> 'x'"),
    ("settings-race", "SyntaxError: Unexpected end of JSON input"),
    ("out-of-memory", "FATAL ERROR: Reached heap limit Allocation failed - JavaScript heap out of memory"),
]


@each(("name", "said"), SAID)
def test_what_the_program_says_has_a_name(name, said):
    assert recognise(said).name == name


def test_every_name_is_tested():
    assert {name for name, _ in SAID} == set(BY_NAME)


@each(("name", "said"), SAID)
@each("around", ["{}\n", "some warning\n{}", "\x1b[31m{}\x1b[0m\nat run (index.js:1:1)\n"])
def test_other_lines_and_terminal_codes_hide_nothing(name, said, around):
    assert recognise(around.format(said)).name == name


@each(("name", "said"), SAID)
def test_a_sentence_is_one_line_with_nothing_left_open(name, said):
    sentence = recognise(said).sentence
    assert len(sentence.splitlines()) == 1
    assert "{" not in sentence
    assert "\x1b" not in sentence


def test_a_sentence_names_what_is_wrong():
    assert "'no-such-model'" in recognise(str(recorded.refusal("model"))).sentence
    assert "--fork" in recognise("error: unknown option '--fork'").sentence


def test_only_what_passes_by_itself_is_tried_again():
    passing = {"chat-busy", "connection-lost", "rate-limited", "service-unavailable", "settings-race"}
    assert {name for name, failure in BY_NAME.items() if failure.passes} == passing
    for name, failure in BY_NAME.items():
        assert (retry.delay(failure, 0, acted=False) is not None) == (name in passing)


def test_what_had_passed_when_something_else_failed_is_not_the_failure():
    lost = "Connection lost, reconnecting to https://example.org (attempt 1)..."
    assert recognise(f"{lost}\nTypeError: x is undefined\n    at run (index.js:1:1)") is None
    assert recognise(f"TypeError: x is undefined\n{lost}").name == "connection-lost"


@pytest.mark.parametrize("model", ["llama-3.1", "gpt-5.2-codex", "auto", "a.b."])
def test_a_models_name_may_hold_dots(model):
    assert repr(model.rstrip(".")) in recognise(f"Cannot use this model: {model}").sentence
    assert repr(model) in recognise(f"Cannot use this model: {model}. Available models: auto, x").sentence


def test_not_being_logged_in_somewhere_else_is_not_cursors():
    assert recognise("Error: not logged in to the npm registry") is None


def test_a_turn_that_called_a_tool_is_not_tried_again():
    assert retry.delay(BY_NAME["connection-lost"], 0, acted=True) is None


@pytest.mark.parametrize(("name", "first", "tries"), [("chat-busy", 2, 5), ("rate-limited", 30, 6)])
def test_trying_again_takes_longer_each_time_and_has_an_end(name, first, tries):
    delays = [retry.delay(BY_NAME[name], attempts, acted=False) for attempts in range(tries + 2)]
    assert delays[0] == first
    assert delays[:tries] == sorted({delay for delay in delays[:tries] if delay is not None})
    assert delays[tries:] == [None, None]


def test_a_full_disk_is_no_full_account():
    assert recognise("write: Disk quota exceeded") is None


def test_what_has_no_name_is_not_tried_again():
    assert retry.delay(None, 0, acted=False) is None


STANDIN = {
    "auth": "not-logged-in", "auth-old": "not-logged-in", "api-key": "bad-api-key", "model": "no-such-model",
    "trust": "untrusted-workspace", "trust-zero": "untrusted-workspace", "busy": "chat-busy", "chat-id": "bad-session-id",
    "in-use": "session-id-in-use", "option": "unknown-option", "settings": "settings-race", "admin": "force-forbidden",
    "silent": None,
}  # fmt: skip


@each("name", recorded.table("before"))
def test_what_the_stand_in_says_has_the_same_name(name):
    error = recorded.refusal(name, workspace="/w", chat=CHAT, short=CHAT[:8])
    found = recognise("" if isinstance(error, LeaveError) else str(error))
    assert (found.name if found else None) == STANDIN[name]


def test_the_whole_catalogue_does_not_confuse_it():
    assert recognise(str(recorded.refusal("model"))).name == "no-such-model"


@given(st.text())
def test_any_text_is_looked_at(text):
    found = recognise(text)
    assert found is None or found.name in BY_NAME


@given(st.text(alphabet="abc \n\x1b[]0m;K", max_size=2000))
def test_last_words_are_short_and_plain(text):
    words = last_words(text)
    assert len(words) <= 401
    assert "\n" not in words
    assert "\x1b[0m" not in words


@pytest.mark.parametrize("known", failures.TABLE, ids=lambda known: known.failure.name)
def test_no_pattern_looks_for_two_words_any_distance_apart(known):
    """An agent decides what stands on standard error, 64 KiB of it, and such a search takes the square of that."""
    assert not re.search(r"\[(?:\^\\n|\\w[^]]*)\]\*(?!\?)", known.text.pattern)
