"""Names claude's failures by its result, or by its standard error where it prints no result. Pure.

The words are those of versions 2.1.197 and 2.1.332 (docs/programs.md); an account's limits were never seen, so the
patterns for them are wider than the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from substrat.core.programs.failures import USAGE_LIMIT, Failure, last_words, without_codes

if TYPE_CHECKING:
    from collections.abc import Mapping


class _Known(NamedTuple):
    failure: Failure
    text: re.Pattern[str]
    statuses: frozenset[int]


def _known(name: str, text: str, sentence: str, *statuses: int, passes: bool = False) -> _Known:
    return _Known(Failure(name, sentence, passes), re.compile(text, re.IGNORECASE), frozenset(statuses))


_REMEDY = "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (`claude setup-token`) in the daemon's environment"
# The first match counts, words before the status: a 400 may be a prompt that is too long, and a 429 an account's limit.
_TABLE = (
    _known("chat-too-long", r"prompt is too long",
           "the chat is longer than the model takes: spawn another agent, or name a model that takes more ({said})"),
    _known(USAGE_LIMIT, r"credit balance is too low|usage limit|hit your [\w ]*limit|\blimit reached\b|out of [\w ]*usage",
           "the account has used up what it may: wait for the next period, or raise its limit ({said})", 402),
    _known("not-logged-in", r"not logged in|please run /login", f"claude isn't logged in: {_REMEDY}"),
    _known("bad-api-key", r"invalid api key|failed to authenticate|oauth token",
           f"the login is refused: {_REMEDY} to one that is accepted ({{said}})", 401, 403),
    _known("model-not-found", r"issue with the selected model",
           "there is no such model for this account: name another with `substratctl set NAME model=MODEL` ({said})", 404),
    _known("unknown-session", r"no conversation found with session id|--resume requires a valid session",
           "claude has no such session, so it can't be resumed: spawn another agent ({said})"),
    _known("unknown-option", r"unknown option '(?P<subject>[^']*)'",
           "this claude doesn't know the option {subject}: install a version from 2.1.197 on"),
    _known("rate-limited", r"request rejected \(429\)|\boverloaded\b", "Anthropic takes no more for now: {said}", 429, 529,
           passes=True),
    _known("service-unavailable", r"\binternal server error\b", "Anthropic's service failed: {said}", *range(500, 505),
           passes=True),
    _known("connection-lost",
           r"unable to connect|connection (?:refused|error|closed|reset|timed out)|request timed out|"
           r"\bE(?:CONNREFUSED|CONNRESET|NOTFOUND|TIMEDOUT|AI_AGAIN|PIPE)\b|socket connection was closed",
           "the connection to Anthropic was lost: {said}", passes=True),
)  # fmt: skip

KNOWN = tuple(known.failure for known in _TABLE)


def recognise(words: str, status: int | None = None) -> Failure | None:
    """Name the failure that claude's own words show.

    Args:
        words: a failed result's text, or the end of standard error, with or without terminal codes.
        status: the HTTP status that the result names, None when it names none.

    Returns:
        The failure with its sentence filled in, or None when nothing known is in it.
    """
    plain = without_codes(words)
    for known in _TABLE:
        if (found := known.text.search(plain)) is not None:
            subject = found.groupdict().get("subject", "")
            return _told(known.failure, last_words(plain), subject)
    by_status = (known.failure for known in _TABLE if status in known.statuses)
    failure = next(by_status, None)
    return _told(failure, last_words(plain)) if failure is not None else None


def of_result(body: Mapping[str, object]) -> Failure | None:
    """Name the failure of a result's line in the one shape (`dialect.normalise`); None when it is an unknown one.

    Args:
        body: a line such as `{"is_error": true, "api_error_status": 401, "result": "Invalid API key", …}`.
    """
    status, words = body.get("api_error_status"), body.get("result")
    return recognise(words if isinstance(words, str) else "", status if isinstance(status, int) else None)


def _told(failure: Failure, said: str, subject: str = "") -> Failure:
    return failure._replace(sentence=failure.sentence.format(said=said, subject=subject), subject=subject)
