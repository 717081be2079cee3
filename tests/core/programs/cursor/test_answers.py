"""An error of cursor-agent's in an answer's place is a failure; an answer that tells of one is an answer."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrat.core.programs.cursor import answers, failures
from substrat.core.programs.cursor.answers import failure_shown

# As whole answers, in the forms that recordings and other projects' tests show.
SHOWN = {
    "RetriableError: [aborted] read ECONNRESET\n": "connection-lost",
    "RetriableError: [unavailable] PING timed out": "connection-lost",
    "RetriableError: [unavailable] Error": "connection-lost",
    "Error: RetriableError: [unavailable] getaddrinfo ENOTFOUND api2.cursor.sh": "connection-lost",
    "Error: RetriableError: HTTP/2 stream closed with error code CANCEL (0x8)": "connection-lost",
    "RetriableError: [canceled] http/2 stream closed with error code CANCEL (0x8)": "connection-lost",
    "RetriableError: [deadline_exceeded] the operation timed out": "connection-lost",
    "RetriableError: Connection stalled": "connection-lost",
    "RetriableError: Client network socket disconnected before secure TLS connection was established": "connection-lost",
    "Error: ConnectError: [unavailable] dropped": "connection-lost",
    "\n\nError: RetriableError: [resource_exhausted] Error": "rate-limited",
    "RetriableError: [resource_exhausted]": "rate-limited",
    "ConnectError: [resource_exhausted] Error": "rate-limited",
    "Error: T: [resource_exhausted] Error": "rate-limited",
    "ConnectError: [unknown] No response from model": "service-unavailable",
    "ConnectError: [internal] 502 Bad Gateway": "service-unavailable",
    "RetriableError: [unavailable] self-signed certificate in certificate chain": "certificate-refused",
    "[unauthenticated] Backend rejected authentication. Verify this is a User API Key for the same endpoint": "bad-api-key",
    "ActionRequiredError: You're out of usage. Switch to Auto.": "usage-limit",
    "RetriableError: [invalid_argument] unknown option '--x'": "unknown-option",
    "ConnectError: [failed_precondition] Error": "request-refused",
}

ANSWERS = (
    "",
    "I saw RetriableError: [aborted] read ECONNRESET",
    "RetriableError: this class is thrown when the network is gone",
    "RetriableError: [aborted] is what it prints when the connection breaks",
    "RetriableError: [aborted] read ECONNRESET means that the connection was cut.",
    "RetriableError: handled in src/net.ts",
    "I saw this:\nRetriableError: [aborted] read ECONNRESET",
    "The log ends with:\n\nError: RetriableError: [resource_exhausted] Error",
    "```\nError: RetriableError: [resource_exhausted] Error\n```",
    "The log:\n```\nError: RetriableError: [resource_exhausted] Error",
    "Error: RetriableError: [resource_exhausted] Error\nis what the log says.",
    "    Error: RetriableError: [aborted] Error\nstands in the log",
    "Error: file not found",
    "Error: fetch failed",
    "[internal] Refactored the parser",
    "T: error",
    "OK: done",
)


@pytest.mark.parametrize(("shown", "name"), SHOWN.items())
def test_an_error_that_is_the_whole_answer_is_a_failure(shown, name):
    found = failure_shown(shown)
    assert found is not None
    assert found.name == name
    assert answers.needs_last_passage(shown)


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_answer_that_tells_of_an_error_is_an_answer(answer):
    assert failure_shown(answer) is None
    assert failure_shown(answer, answer) is None


def test_an_error_that_was_said_last_is_a_failure_whatever_was_said_before():
    error = "RetriableError: [aborted] read ECONNRESET"
    assert failure_shown(f"I look at it.{error}", error).name == "connection-lost"
    assert failure_shown(f"I look at it.{error}") is None


def test_an_error_in_the_last_line_is_a_failure():
    assert failure_shown("I look at it.\n\nError: RetriableError: [resource_exhausted] Error").name == "rate-limited"


def test_a_refusal_without_a_name_says_what_was_said():
    assert "[failed_precondition]" in failure_shown("ConnectError: [failed_precondition] Error").sentence


@given(st.text())
def test_any_text_is_looked_at(text):
    failure_shown(text, text)


TERSE = sorted(shown for shown, name in SHOWN.items() if name not in {"bad-api-key", "usage-limit"} and "TLS" not in shown)


@given(st.text(alphabet="abc.:[]` \n", max_size=300), st.sampled_from(TERSE))
def test_words_after_an_error_make_an_answer(text, shown):
    assert failure_shown(f"{shown.strip()} {text} and so it is") is None
    assert failure_shown(f"{text}\n\n{shown.strip()} which passes") is None


def test_names_are_those_of_the_table():
    assert set(SHOWN.values()) - {row.failure.name for row in failures.TABLE} == {"request-refused"}
