"""The end of a claude turn, and lines that were cut; all else of a line is read by its event (`cursor.stream`). Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from substrat.core.programs.claude import failures
from substrat.core.programs.cursor import stream

if TYPE_CHECKING:
    from substrat.core.programs.program import LineEvent, TurnResult

_SYSTEM = re.compile(rb'\s*\{\s*"type"\s*:\s*"system"')


def result_of(event: LineEvent) -> TurnResult | None:
    """Return the result that a `result:*` event holds, with the failure that it names; None for any other event."""
    result = stream.result_of(event)
    if result is None or not result.is_error or event.body is None:
        return result
    return result._replace(failure=failures.of_result(event.body))


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that the line reports no act.

    Only `{"type":"system"` does: an `assistant` line may be a tool call, and a `user` line the end of one.

    Args:
        line: the line as far as it was written.
    """
    return _SYSTEM.match(line) is not None
