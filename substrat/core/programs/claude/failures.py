"""Names claude's failures by its result, or by its standard error where it prints no result. Pure.

The words are those of versions 2.1.197 and 2.1.332 (docs/programs.md); an account's limits were never seen, so the
patterns for them are wider than the rest.
"""

from __future__ import annotations

from functools import partial

from substrat.core.programs import failures
from substrat.core.programs.failures import USAGE_LIMIT, known

_REMEDY = "set ANTHROPIC_API_KEY or CLAUDE_CODE_OAUTH_TOKEN (`claude setup-token`) in programs.claude.env"
# The first match counts, words before the status: a 400 may be a prompt that is too long, and a 429 an account's limit.
TABLE = (
    known("chat-too-long", r"prompt is too long",
          "the chat is longer than the model takes: spawn another agent, or name a model that takes more ({said})"),
    known(USAGE_LIMIT, r"credit balance is too low|usage limit|hit your [\w ]*limit|\blimit reached\b|out of [\w ]*usage",
          "the account has used up what it may: wait for the next period, or raise its limit ({said})", 402),
    known("not-logged-in", r"not logged in|please run /login", f"claude isn't logged in: {_REMEDY}"),
    known("bad-api-key", r"invalid api key|failed to authenticate|oauth token",
          f"the login is refused: {_REMEDY} to one that is accepted ({{said}})", 401, 403),
    known("model-not-found", r"issue with the selected model",
          "there is no such model for this account: name another with `substratctl set NAME model=MODEL` ({said})", 404),
    known("unknown-session", r"no conversation found with session id|--resume requires a valid session",
          "claude has no such session, so it can't be resumed: spawn another agent ({said})"),
    known("unknown-option", r"unknown option '(?P<subject>[^']*)'",
          "this claude doesn't know the option {subject}: install a version from 2.1.197 on"),
    known("rate-limited", r"request rejected \(429\)|\boverloaded\b", "Anthropic takes no more for now: {said}", 429, 529,
          passes=True),
    known("service-unavailable", r"\binternal server error\b", "Anthropic's service failed: {said}", *range(500, 505),
          passes=True),
    known("connection-lost",
          r"unable to connect|connection (?:refused|error|closed|reset|timed out)|request timed out|"
          r"\bE(?:CONNREFUSED|CONNRESET|NOTFOUND|TIMEDOUT|AI_AGAIN|PIPE)\b|socket connection was closed",
          "the connection to Anthropic was lost: {said}", passes=True),
)  # fmt: skip
recognise = partial(failures.recognise, TABLE)
