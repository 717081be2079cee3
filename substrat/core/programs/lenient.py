"""Reads JSON as leniently as Python does, and writes it so that strict readers take it. Pure."""

from __future__ import annotations

import json
import math

Object = dict[str, object]

MAX_DEPTH = 200
"""A deeper value counts as no JSON: every reader of it gives up somewhere, Python's at a thousand levels."""
_MOST_DIGITS = 20
"""A whole number of 64 bits has fewer; Python refuses to read thousands of digits."""


def parse(data: bytes | str) -> Object | None:
    """Read an object as the standard library does, with NaN, lone surrogates and wrong UTF-8, and tame it.

    Returns:
        The object, None when it is none or nested too deeply.
    """
    try:
        body = json.loads(data.decode("utf-8", "replace") if isinstance(data, bytes) else data)
    except (ValueError, RecursionError):
        return None
    if not isinstance(body, dict) or too_deep(body):
        return None
    return {tame_text(key): tame(value) for key, value in body.items()}


def has_more_values(data: bytes, most: int) -> bool:
    """Say whether JSON holds more values than a bound, without reading it: the cost of reading depends on that.

    8 MiB of `{},{},{},…` become 2.8 million objects, which take a second and some hundred MiB; 8 MiB of one string take
    some milliseconds. Counted are the brackets and commas outside strings, so `[1,[2],"a,b"]` has 4.

    Args:
        data: the text, which may be anything.
        most: the bound.
    """
    if len(data) <= most or _marks(data) <= most:
        return False
    bare = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    return bare.count(b'"') > 2 * most or sum(map(_marks, bare.split(b'"')[::2])) > most


def _marks(data: bytes) -> int:
    return data.count(b"{") + data.count(b"[") + data.count(b",")


def too_deep(body: Object) -> bool:
    """Say whether an object is nested deeper than `MAX_DEPTH`."""
    level: list[object] = [body]
    for _ in range(MAX_DEPTH):
        containers = [value for value in level if isinstance(value, dict | list)]
        level = [item for value in containers for item in (value.values() if isinstance(value, dict) else value)]
        if not level:
            return False
    return True


def tame(value: object) -> object:
    """Replace values that JSON doesn't have: NaN and infinities by null, lone surrogates by the replacement character."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, str):
        return tame_text(value)
    if isinstance(value, dict):
        return {tame_text(key): tame(item) for key, item in value.items()}
    return [tame(item) for item in value] if isinstance(value, list) else value


def as_json(body: Object) -> bytes:
    """Write an object that came in a line no strict reader takes as one that every reader takes."""
    return json.dumps(tame(body), separators=(",", ":"), allow_nan=False).encode()


def tame_text(text: str) -> str:
    """Replace lone surrogates, which UTF-8 can't encode; the bytes of a file's name in no encoding become such."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def whole(value: object) -> int | None:
    """Read a whole number of at most 64 bits, which some writers print as text or as a float; None when it isn't one.

    `7`, `7.0` and `"7"` are 7; `7.5`, `"7 s"` and `true` are none.
    """
    if isinstance(value, str):
        value = int(value) if value.isascii() and value.isdigit() and len(value) < _MOST_DIGITS else None
    elif isinstance(value, float):
        value = int(value) if value.is_integer() else None
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 63 else None
