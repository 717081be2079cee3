"""Tells answers from errors that stand in their place: cursor-agent was seen to end well with an error as result. Pure.

Such an error is a line of a machine: `Error: RetriableError: [resource_exhausted] Error`. It is the whole answer, or the
whole of the last passage after others, or the answer's last line. An answer that tells of such a line is an answer:
`RetriableError: [aborted] is what it prints when the connection breaks` goes on in words, and a quoted line stands in a
block of code, is indented, or follows a colon.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrat.core.programs.cursor import failures
from substrat.core.programs.failures import Failure, last_words

if TYPE_CHECKING:
    from collections.abc import Sequence

# The codes of Connect, the protocol that cursor-agent speaks to its servers (connectrpc.com/docs/protocol, "Error codes").
_CODES = (
    "canceled|unknown|invalid_argument|deadline_exceeded|not_found|already_exists|permission_denied|resource_exhausted|"
    "failed_precondition|aborted|out_of_range|unimplemented|internal|unavailable|data_loss|unauthenticated"
)
_CLASSES = r"(?:RetriableError|NonRetriableError|ConnectError|ActionRequiredError)"
# Some builds show a class by the one or two letters that their bundler has left of its name: `Error: T: [internal] Error`.
_BUNDLED, _BUNDLED_LENGTH = r"[A-Za-z]{1,2}", 2
_SHAPE = re.compile(
    rf"(?:Error: )?(?:(?P<class>{_CLASSES}|{_BUNDLED}(?=: \[)): )?(?:\[(?P<code>{_CODES})\])?\s*(?P<text>.*)", re.DOTALL
)
# The words that node, its HTTP/2 and TLS, Connect and Cursor's servers put after class and code.
_MACHINE = re.compile(
    r"(?:error|"
    r"(?:(?:read|write|connect|getaddrinfo|socket|send|recv)\w* )?E[A-Z_]{3,}(?: [\w.:@/\[\]-]+)?|"
    r"ping timed out|socket hang up|fetch failed|connection (?:stalled|lost|closed|failed repeatedly)|"
    r"(?:http/2 )?stream (?:was )?(?:closed|reset|ended)[^.]*|"
    r"(?:the )?(?:operation|request) (?:was )?(?:timed out|aborted)|"
    r"no response from model|too many requests|http(?: status)? \d{3}|\d{3} [a-z][a-z -]*|unknown option '[^']*'|"
    r"(?:unable to (?:get|verify)|self[- ]signed|certificate)\b[^.]*)[.!]?",
    re.IGNORECASE,
)
_SENTENCE = re.compile(
    r"backend rejected authentication\.|named models unavailable\b|you're out of usage\b|"
    r"you've (?:hit|reached) your [\w ]*limit|client network socket disconnected before secure tls",
    re.IGNORECASE,
)
"""Errors of Cursor's servers in whole sentences, which may go on."""
_HINT = re.compile(rf"{_CLASSES}: |\[(?:{_CODES})\]")
_LONGEST = 400
"""Characters; no such line was seen to be longer."""
# Words that tie a sentence together; a machine's few words have none of them.
_PROSE = re.compile(
    r"\b(?:is|are|was|were|be|been|means?|meant|happen\w*|occur\w*|indicate\w*|appear\w*|seem\w*|come|comes|came|which|"
    r"because|so|when|while|if|i|we|you|it|its|this|that|these|should|would|can|could|will|usually|cause\w*|now|then|"
    r"fixed|handle\w*|thrown|raise\w*|print\w*|log|logs|logged|return\w*|retr(?:y|ies|ied|ying)|and|but)\b|[`*]",
    re.IGNORECASE,
)
_FENCE = re.compile(r"\s*(?:```|~~~)")
_DEFAULT = Failure("request-refused", "Cursor refused the request: {said}")


def failure_shown(result: str, last_passage: str = "") -> Failure | None:
    """Name the failure that an answer shows in its own place.

    Args:
        result: the result's whole text.
        last_passage: the words after the last tool call; empty when they aren't known.

    Returns:
        The failure with its sentence filled in, or None when the answer is one.
    """
    text, passage = result.strip(), last_passage.strip()
    if _is_error(text):
        return _named(text)
    if passage and text.endswith(passage) and _is_error(passage):
        return _named(passage)
    before, _, last = text.rpartition("\n")
    if before and last.startswith("Error: ") and _is_error(last) and not _introduces(before):
        return _named(last)
    return None


def needs_last_passage(result: str) -> bool:
    """Say whether an answer may end in an error, so that `failure_shown` needs the last passage."""
    return _HINT.search(result[-_LONGEST:]) is not None


def _is_error(line: str) -> bool:
    """Say whether a text is such a line: a class of theirs or a code, and then a machine's words."""
    if not line or len(line) > _LONGEST or "\n" in line:
        return False
    found = _SHAPE.fullmatch(line)
    if found is None or (found["code"] is None and (found["class"] is None or len(found["class"]) <= _BUNDLED_LENGTH)):
        return False
    words = found["text"]
    if not words:
        return found["code"] is not None
    if _SENTENCE.match(words):
        return True
    is_known = _MACHINE.fullmatch(words) or (found["code"] is not None and found["class"] is not None)
    return bool(is_known) and not _PROSE.search(words)


def _introduces(before: str) -> bool:
    """Say whether the text before a line quotes it: an open block of code, or a line that ends with a colon."""
    lines = [line for line in before.splitlines() if line.strip()]
    is_open = sum(1 for line in lines if _FENCE.match(line)) % 2 == 1
    return is_open or (bool(lines) and lines[-1].rstrip().endswith(":"))


def _named(line: str) -> Failure:
    found = failures.recognise(line)
    return found or _DEFAULT._replace(sentence=_DEFAULT.sentence.format(said=last_words(line)))


def result_text(result: str, segments: Sequence[str]) -> str:
    """Return a turn's result with a blank line between the passages before and after each tool call.

    cursor-agent glues segments together without anything between them, so that "Let me look.Done." comes out; some
    dialects have no result text at all.

    Args:
        result: the text of the `result` event, empty when it has none.
        segments: the agent's passages, in order.
    """
    if result and result != "".join(segments):
        return result
    text = ""
    for segment in segments:
        glued = text and segment and not text[-1].isspace() and not segment[0].isspace()
        text += f"\n\n{segment}" if glued else segment
    return text
