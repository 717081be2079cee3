"""Replays a transcript: sends its `C` lines, compares what comes with its `S` lines, placeholders by type and by number.

A template is a JSON text with words in angle brackets. `read` turns a bare `<int>` into the string that a placeholder in
quotes is anyway, so that both sides are plain values.
"""

import json
import os
import re
from datetime import datetime

_BARE = re.compile(r"(?<=[:\[,])<([a-z]+)(\d*)>(?=[,}\]])")
_WORD = re.compile(r"<([a-z]+)(\d*)>")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def _is_integer(value):
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value):
    if not isinstance(value, str) or _TIME.fullmatch(value) is None:
        return False
    datetime.fromisoformat(value)
    return True


MATCHES = {
    "uuid": lambda value: isinstance(value, str) and _UUID.fullmatch(value) is not None,
    "time": _is_time,
    "path": lambda value: isinstance(value, str) and os.path.isabs(value),
    "text": lambda value: isinstance(value, str),
    "int": _is_integer,
    "cursor": lambda value: _is_integer(value) and value >= 0,
    "object": lambda value: isinstance(value, dict),
}


class Mismatch(AssertionError):
    """What came isn't what the transcript says."""


def read(template):
    """Parse a transcript's line."""
    return json.loads(_BARE.sub(r'"<\1\2>"', template))


def fill(template, known):
    """Replace a template's placeholders by their values."""
    if isinstance(template, dict):
        return {key: fill(value, known) for key, value in template.items()}
    if isinstance(template, list):
        return [fill(value, known) for value in template]
    if isinstance(template, str) and _WORD.fullmatch(template):
        return known[template]
    return template


def match(template, value, known, where="$"):
    """Compare a value with a template; numbered placeholders are noted in `known` when they are first seen.

    Members have to come in the template's order: the document shows them as they are sent.
    """
    word = _WORD.fullmatch(template) if isinstance(template, str) else None
    if word is not None:
        if not MATCHES[word[1]](value):
            raise Mismatch(f"{where}: {value!r} is no {template}")
        if word[2] and known.setdefault(template, value) != value:
            raise Mismatch(f"{where}: {template} was {known[template]!r} and is {value!r}")
    elif isinstance(template, dict) and isinstance(value, dict):
        if list(template) != list(value):
            raise Mismatch(f"{where}: the members are {list(value)}, not {list(template)}")
        for key, inner in template.items():
            match(inner, value[key], known, f"{where}.{key}")
    elif isinstance(template, list) and isinstance(value, list) and len(template) == len(value):
        for index, inner in enumerate(template):
            match(inner, value[index], known, f"{where}[{index}]")
    elif type(template) is not type(value) or template != value:
        raise Mismatch(f"{where}: {value!r} instead of {template!r}")


class Replay:
    """One replay over one connection.

    Args:
        wire: the connection.
        known: values of placeholders that the client chooses.
    """

    def __init__(self, wire, known):
        self._wire = wire
        self.known = dict(known)
        self._waiting = {}

    def client(self, line):
        self._wire.send(fill(read(line), self.known))

    def server(self, line):
        """Compare with the next message of the same stream: an answer's id, or a subscription."""
        template = read(line)
        stream = self._stream(template)
        while not self._waiting.get(stream):
            message = self._wire.receive()
            assert message is not None, f"the connection ended before {line}"
            self._waiting.setdefault(self._stream(message), []).append(message)
        match(template, self._waiting[stream].pop(0), self.known)

    def finish(self):
        """Check that nothing came that isn't in the transcript, and that the daemon ends the connection."""
        rest = [message for messages in self._waiting.values() for message in messages]
        while (message := self._wire.receive()) is not None:
            rest.append(message)
        assert rest == []

    @staticmethod
    def _stream(message):
        return ("answer", message["id"]) if "id" in message else ("events", message["params"]["subscription"])
