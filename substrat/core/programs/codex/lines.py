"""The end of a codex turn, and lines that were cut; all else of a line is read by its event (`cursor.stream`). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrat.core.programs.codex import failures
from substrat.core.programs.cursor import stream

if TYPE_CHECKING:
    from substrat.core.programs.program import LineEvent, TurnResult

_SPEECH = re.compile(
    rb'\{"type":(?:"(?:thread\.started|turn\.started|error)"|'
    rb'"item\.completed","item":\{"id":"\w*","type":"(?:agent_message|reasoning|error)")'
)


def result_of(event: LineEvent) -> TurnResult | None:
    """Return the result that a `result:*` event holds, with the failure that it names; None for any other event.

    Its usage is that of the whole thread so far.
    """
    result = stream.result_of(event)
    return result._replace(failure=failures.recognise(result.text)) if result is not None and result.is_error else result


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that it is speech, without its end.

    `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Lo` is.

    Args:
        line: the line as far as it was written.
    """
    return _SPEECH.match(line) is not None
