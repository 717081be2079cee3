"""JSON-RPC 2.0 envelopes as lines of bytes: build them, split them, judge them; it owns no socket.

Standard library only. `docs/protocol.md` describes it, section "Lines".
"""

from __future__ import annotations

from substrat import errors
from substrat.protocol import text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

PROTOCOL_VERSION = 1
# A prompt of some megabytes is legal (cursor-agent was seen to read 2 MB), a gigabyte is an attack.
MAX_LINE = 16 * 1024 * 1024
MAX_IN_FLIGHT = 64


class LineSplitter:
    """Cuts a byte stream into lines with a bound on the one that isn't complete yet.

    Args:
        limit: the most bytes a line may have, without its newline.
    """

    def __init__(self, limit: int = MAX_LINE) -> None:
        self._limit = limit
        # One buffer, because a peer that sends byte by byte would make a list of as many objects.
        self._held = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Take in bytes and give back each line that they complete, without its newline.

        Raises:
            MessageTooLarge: the line under way is over the limit; the splitter is of no use afterwards.
        """
        *complete, rest = data.split(b"\n")
        for part in complete:
            self._hold(part)
            line = bytes(self._held)
            self._held.clear()
            yield line
        self._hold(rest)

    def _hold(self, part: bytes) -> None:
        if len(self._held) + len(part) > self._limit:
            raise errors.MessageTooLarge(f"a message may have {self._limit} bytes; this one is longer, send less")
        self._held += part


def request(request_id: int, method: str, params: dict[str, object]) -> bytes:
    """Encode a request as one line."""
    return _line({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def success(request_id: object, result: object) -> bytes:
    """Encode the answer to a request that went well."""
    return _line({"jsonrpc": "2.0", "id": request_id, "result": result})


def success_encoded(request_id: object, result: Iterable[bytes]) -> list[bytes]:
    """Put a result that is JSON text already into an answer; both are in pieces, because a long one isn't copied."""
    return [b'{"jsonrpc":"2.0","id":' + text.dumps(request_id) + b',"result":', *result, b"}\n"]


def failure(request_id: object, error: errors.SubstratError) -> bytes:
    """Encode the answer to a request that didn't; `request_id` is None when it couldn't be read."""
    body = {"code": error.code, "message": error.message, "data": {"type": error.wire_name or type(error).__name__}}
    return _line({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: dict[str, object]) -> bytes:
    """Encode a message that wants no answer."""
    return _line({"jsonrpc": "2.0", "method": method, "params": params})


def decode(line: bytes) -> dict[str, object]:
    """Read one line as a JSON object.

    Raises:
        ParseError: it isn't JSON (NaN, duplicate keys and lone surrogates included) or is nested too deeply.
        InvalidRequest: it is JSON but no object.
    """
    import json  # only the daemon is this strict, and clients start often

    try:
        # Decoded here, because json.loads would also take UTF-16 and UTF-32.
        message = json.loads(line.decode("utf-8"), parse_constant=_refuse_constant, object_pairs_hook=_unique)
        json.dumps(message, ensure_ascii=False).encode("utf-8")
    except (ValueError, RecursionError) as problem:
        raise errors.ParseError(f"a message must be one JSON object on one line: {problem}") from None
    if not isinstance(message, dict):
        raise errors.InvalidRequest("a message must be one JSON object; batches are not supported")
    return message


def _line(message: dict[str, object]) -> bytes:
    return text.dumps(message) + b"\n"


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has the same key twice")
    return found
