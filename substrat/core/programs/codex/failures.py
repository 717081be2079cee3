"""Names codex's failures by a failed turn's message, or by its standard error where it prints no line. Pure.

The words are those of version 0.171.0 (docs/programs.md). codex words many failures itself, so that the server's own words
are not in them.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from substrat.core.programs.failures import USAGE_LIMIT, Failure, last_words, without_codes


class _Known(NamedTuple):
    failure: Failure
    text: re.Pattern[str]


def _known(name: str, text: str, sentence: str, *, passes: bool = False) -> _Known:
    return _Known(Failure(name, sentence, passes), re.compile(text, re.IGNORECASE))


_REMEDY = "log in again with `codex login`, or set CODEX_API_KEY in the daemon's environment to a key that is accepted"
# The first match counts. "unexpected status" is what codex says of every answer for which it has no words of its own.
_TABLE = (
    _known("bad-api-key", r"unexpected status 40[13]\b|missing environment variable",
           f"codex's login is refused: {_REMEDY} ({{said}})"),
    _known("chat-too-long", r"ran out of room in the model's context window|prompt is too long|exceeds the context window",
           "the chat is longer than the model takes: spawn another agent, or give this one a larger model ({said})"),
    _known(USAGE_LIMIT, r"hit your usage limit|quota exceeded|unexpected status 402\b",
           "the account has used up what it may: wait for the next period, or raise its limit ({said})"),
    _known("not-in-plan", r"to use codex with your chatgpt plan",
           "the account's plan doesn't have codex: upgrade it, or log in with another account ({said})"),
    _known("model-not-found", r"\bmodel '[^'\n]*' (?:does not exist|is not supported)|'[^'\n]*' model is not supported|"
           r"unexpected status 404\b",
           "there is no such model for this account: name another with `substratctl set NAME model=MODEL` ({said})"),
    _known("unknown-session", r"no rollout found for thread id",
           "codex has no such session, so it can't be resumed: spawn another agent ({said})"),
    _known("unknown-option", r"unexpected argument '(?P<subject>[^']*)' found",
           "this codex doesn't know the option {subject}: install a newer version"),
    _known("bad-settings", r"error loading config\.toml",
           "codex can't read its settings: correct the config.toml in its directory ({said})"),
    _known("rate-limited", r"\b429 too many requests|rate limit exceeded|model is at capacity|\boverloaded\b",
           "the model's server takes no more for now: {said}", passes=True),
    _known("service-unavailable", r"experiencing high demand|unexpected status 5\d\d\b",
           "the model's server failed: {said}", passes=True),
    _known("connection-lost", r"connection failed|stream disconnected|failed to lookup address",
           "the connection to the model's server was lost: {said}", passes=True),
)  # fmt: skip

KNOWN = tuple(known.failure for known in _TABLE)


def recognise(words: str) -> Failure | None:
    """Name the failure that codex's own words show.

    Args:
        words: a failed turn's message, or the end of standard error, with or without terminal codes.

    Returns:
        The failure with its sentence filled in, or None when nothing known is in it.
    """
    plain = without_codes(words)
    for known in _TABLE:
        if (found := known.text.search(plain)) is not None:
            subject = found.groupdict().get("subject", "")
            sentence = known.failure.sentence.format(said=last_words(plain), subject=subject)
            return known.failure._replace(sentence=sentence, subject=subject)
    return None
