"""Names cursor-agent's failures by its standard error, with a sentence for people and whether waiting helps. Pure.

cursor-agent reports failures before a session starts only as text on standard error, with an empty standard output
and an exit status that says little, so the text is all there is. The texts are those of builds up to 2026.10.
"""

from __future__ import annotations

from functools import partial

from substrat.core.programs import failures
from substrat.core.programs.failures import USAGE_LIMIT, known

# The first match counts, so the more exact pattern stands first.
TABLE = (
    known(
        "bad-api-key", r"API key is invalid|\[unauthenticated\][^\n]{0,200}API key",
        "the API key is refused: correct CURSOR_API_KEY in the daemon's environment",
    ),
    known(
        "not-logged-in",
        r"Authentication required|run '(?:cursor-)?agent login'|^(?:Error: )?(?:You are )?not logged in\b(?! to)|"
        r"\[unauthenticated\]|\b(?:session|login|token) (?:has |is )?expired|\b401 Unauthorized",
        "cursor-agent isn't logged in: run `cursor-agent login`, or set CURSOR_API_KEY in the daemon's environment",
    ),
    known(
        "no-such-model", r"Cannot use this model: (?P<subject>[^\n]*?)(?:\. Available models|\.?$)",
        "there is no model {subject!r} for this account: `cursor-agent models` lists those there are",
    ),
    known(
        "model-not-found", r"\bmodel [\w./: -]{0,100}\b(?:not found|not available|unavailable|not supported)\b",
        "Cursor has no such model for this account: `cursor-agent models` lists those there are ({said})",
    ),
    known(
        "model-not-in-plan",
        r"Named models unavailable|Free plans can only use Auto|plan does(?: not|n't) include this model",
        "this account's plan doesn't have the model: use --model auto, or upgrade the plan",
    ),
    known(
        "chat-too-long",
        r"(?:prompt|input) is too long|maximum context length|context[_ ](?:length|window)[_ ](?:was )?exceeded|"
        r"exceeds? the (?:model's )?context window",
        "the chat is longer than the model takes: spawn another agent, or give this one a model that takes more ({said})",
    ),
    known(
        USAGE_LIMIT,
        r"out of usage|spend(?:ing)? limit|usage limit|(?<!disk )quota (?:was |is )?(?:exceeded|reached|exhausted)|"
        r"exceeded your [\w ]{0,60}quota|\b402 Payment Required|ActionRequiredError",
        "the account has used up what it may: wait for the next period, or raise its limit ({said})",
    ),
    known(
        "untrusted-workspace", r"Workspace Trust Required",
        "cursor-agent doesn't trust the workspace although it was told to: this version may not know --trust",
    ),
    known(
        "force-forbidden",
        r"(?:admin|team)[^\n]{0,200}(?:--force|run everything|yolo)|"
        r"(?:--force|yolo)[^\n]{0,200}(?:admin|team)",
        "the team's administrator forbids --force, without which an unattended agent can't work: ask them",
    ),
    known(
        "bad-session-id", r"chat ID must be a UUID",
        "the session's id isn't a UUID, so it can't be resumed: spawn another agent",
    ),
    known(
        "chat-busy", r"may still be running|ownership is currently changing",
        "another process still holds this chat: end it, or wait", passes=True,
    ),
    known("session-id-in-use", r'Session ID "[^"]*" is already in use', "the new session's id is in use already"),
    known(
        "unknown-option", r"unknown option '(?P<subject>[^']*)'",
        "this cursor-agent doesn't know the option {subject}: install a version from 2026.02 on",
    ),
    known(
        "rate-limited",
        r"\[resource_exhausted\]|\b429\b|Too Many Requests|\brate[- ]?limit|ENHANCE_YOUR_CALM|\boverloaded\b",
        "Cursor takes no more for now, because of too many requests or too few machines: {said}", passes=True, last=True,
    ),
    known(
        "certificate-refused",
        r"unable to (?:get (?:local )?issuer certificate|verify the first certificate)|self[- ]signed certificate|"
        r"certificate has expired|CERT_(?:HAS_EXPIRED|UNTRUSTED|REJECTED)|SELF_SIGNED_CERT|UNABLE_TO_(?:GET_ISSUER|VERIFY)|"
        r"ERR_TLS_CERT_ALTNAME_INVALID|does not match certificate's altnames",
        "the certificate that Cursor's server shows isn't trusted: where a company's proxy opens TLS connections, name its "
        "authority with sandbox.ca ({said})", last=True,
    ),
    known(
        "service-unavailable",
        r"\b50[0234] (?:Internal Server Error|Bad Gateway|Service Unavailable|Gateway Time-?out)|"
        r"HTTP(?: status)? 50[0234]\b|\[(?:internal|data_loss)\]|No response from model",
        "Cursor's service failed: {said}", passes=True, last=True,
    ),
    known(
        "connection-lost",
        r"\b(?:RetriableError|Connection (?:lost|failed repeatedly|stalled)|ECONN(?:RESET|REFUSED|ABORTED)|"
        r"ENOTFOUND|ETIMEDOUT|EAI_AGAIN|EPIPE|EHOSTUNREACH|ENETUNREACH|PING timed out|socket hang up|fetch failed|"
        r"(?:HTTP/2 )?stream closed with error code|before secure TLS connection was established)\b|"
        r"\[(?:unavailable|aborted|canceled|deadline_exceeded)\]",
        "the connection to Cursor was lost: {said}", passes=True, last=True,
    ),
    known(
        "settings-race", r"cli-config\.json|Unexpected end of JSON input",
        "two cursor-agents wrote their settings at once: {said}", passes=True, last=True,
    ),
    known(
        "out-of-memory", r"JavaScript heap out of memory|Allocation failed", "the agent program ran out of memory: {said}"
    ),
)  # fmt: skip
recognise = partial(failures.recognise, TABLE)
