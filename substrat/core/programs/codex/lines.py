"""Lines that were cut; all else of a line is read by its event (`cursor.stream`). Pure."""

from __future__ import annotations

import re

_SPEECH = re.compile(
    rb'\{"type":(?:"(?:thread\.started|turn\.started|error)"|'
    rb'"item\.completed","item":\{"id":"\w*","type":"(?:agent_message|reasoning|error)")'
)


def only_speaks(line: bytes) -> bool:
    """Say whether the beginning of a line shows that it is speech, without its end.

    `{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"Lo` is.

    Args:
        line: the line as far as it was written.
    """
    return _SPEECH.match(line) is not None
