"""Random identifiers in the forms cursor-agent shows; the `uuid` module is not used because of its import time."""

from __future__ import annotations

import os
import re

# Compiled on first use, as all patterns here: most runs need few of them.
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyz"


def new_uuid() -> str:
    """A random UUID of version 4."""
    raw = bytearray(os.urandom(16))
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def is_uuid(text: str) -> bool:
    """Whether the text is a UUID of any version."""
    return re.fullmatch(_UUID, text, re.IGNORECASE) is not None


def new_call_id(index: int, *, with_newline: bool) -> str:
    r"""A tool call's id.

    Args:
        index: How many calls the turn made before this one.
        with_newline: The two-part form of some models, `call-…\nfc_…`; otherwise `tool_…`, cut to 40 characters.
    """
    if with_newline:
        return f"call-{new_uuid()}-{index}\nfc_{new_uuid()}_0"
    return f"tool_{new_uuid()}"[:40]


def new_model_call_id(request_id: str, index: int) -> str:
    """The id of one call of the model within a request."""
    return f"{request_id}-{index}-" + "".join(_LETTERS[byte % 36] for byte in os.urandom(4))
