"""Names codex's failures by a failed turn's message, or by its standard error where it prints no line. Pure.

The words are those of version 0.171.0 (docs/programs.md). codex words many failures itself, so that the server's own words
are not in them.
"""

from __future__ import annotations

from functools import partial

from substrat.core.programs import failures
from substrat.core.programs.failures import USAGE_LIMIT, known

_REMEDY = "log in again with `codex login`, or set CODEX_API_KEY in programs.codex.env to a key that is accepted"
# The first match counts. "unexpected status" is what codex says of every answer for which it has no words of its own.
TABLE = (
    known("bad-api-key", r"unexpected status 40[13]\b|missing environment variable",
          f"codex's login is refused: {_REMEDY} ({{said}})"),
    known("chat-too-long", r"ran out of room in the model's context window|prompt is too long|exceeds the context window",
          "the chat is longer than the model takes: spawn another agent, or give this one a larger model ({said})"),
    known(USAGE_LIMIT, r"hit your usage limit|quota exceeded|unexpected status 402\b",
          "the account has used up what it may: wait for the next period, or raise its limit ({said})"),
    known("not-in-plan", r"to use codex with your chatgpt plan",
          "the account's plan doesn't have codex: upgrade it, or log in with another account ({said})"),
    known("model-not-found", r"\bmodel '[^'\n]*' (?:does not exist|is not supported)|'[^'\n]*' model is not supported|"
          r"unexpected status 404\b",
          "there is no such model for this account: name another with `substratctl set NAME model=MODEL` ({said})"),
    known("unknown-session", r"no rollout found for thread id",
          "codex has no such session, so it can't be resumed: spawn another agent ({said})"),
    known("unknown-option", r"unexpected argument '(?P<subject>[^']*)' found",
          "this codex doesn't know the option {subject}: install a newer version"),
    known("bad-settings", r"error loading config\.toml",
          "codex can't read its settings: correct the config.toml in its directory ({said})"),
    known("rate-limited", r"\b429 too many requests|rate limit exceeded|model is at capacity|\boverloaded\b|"
          r"unexpected status 529\b",
          "the model's server takes no more for now: {said}", passes=True),
    known("service-unavailable", r"experiencing high demand|unexpected status 5\d\d\b",
          "the model's server failed: {said}", passes=True),
    known("connection-lost", r"connection failed|stream disconnected|failed to lookup address",
          "the connection to the model's server was lost: {said}", passes=True),
)  # fmt: skip
recognise = partial(failures.recognise, TABLE)
