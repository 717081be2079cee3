"""JSON text for programs that start often: the C functions under the `json` package without the package itself.

Importing `json` imports `re` and `enum`, which together cost a fifth of the time of `substratctl ls`. Where a Python has no
such C functions, as json.scanner and json.encoder allow for, the package does the work.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_CONSTANTS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SPACE = " \t\n\r"  # RFC 8259, section 2


class _Reading:
    """How `_json.make_scanner` reads, under the names it looks for (json.decoder.JSONDecoder)."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = float
    parse_int = int
    parse_constant = _CONSTANTS.__getitem__


def _unknown(value: object) -> object:
    raise TypeError(f"a {type(value).__name__} is nothing that JSON can say")


def loads(data: bytes) -> object:
    """Read a JSON text in UTF-8.

    Raises:
        ValueError: it isn't one.
        RecursionError: it is nested too deeply.
    """
    text = data.decode("utf-8").strip(_SPACE)
    try:
        value, end = _scan(text, 0)
    except StopIteration:
        raise ValueError("there is no JSON value") from None
    if end != len(text):
        raise ValueError(f"something follows the JSON value at character {end}")
    return value


def dumps(value: object) -> bytes:
    """Write a value as JSON text in ASCII without spaces.

    Raises:
        TypeError: JSON has no word for it.
        ValueError: it holds itself.
        RecursionError: it is nested too deeply.
    """
    return "".join(_encoder()(value, 0)).encode("ascii")


try:
    import _json

    _scan: Callable[[str, int], tuple[object, int]] = _json.make_scanner(_Reading)  # type: ignore[arg-type]  # it takes any such object

    def _encoder() -> Callable[[object, int], tuple[str, ...]]:
        # A new one each time: it remembers the values it is inside of, to notice a value that holds itself.
        made: Callable[[object, int], tuple[str, ...]] = _json.make_encoder(
            {}, _unknown, _json.encode_basestring_ascii, None, ":", ",", False, False, True
        )
        return made

except (ImportError, AttributeError):
    import json

    _scan = json.JSONDecoder().raw_decode

    def _encoder() -> Callable[[object, int], tuple[str, ...]]:
        write = json.JSONEncoder(separators=(",", ":"), default=_unknown).encode
        return lambda value, _: (write(value),)
