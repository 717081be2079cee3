"""Cuts long texts for agents and says how much was left out. Pure."""

from __future__ import annotations

MOST = 16 * 1024
"""Bytes of one answer: some four thousand tokens, which a model still reads in the middle of its work."""


def beginning(text: str, more: int = 0) -> str:
    """Return a text, cut at 16 KiB.

    Args:
        text: the text.
        more: how many bytes of it were left out before.
    """
    data = text.encode("utf-8", "replace")
    kept = data[:MOST].decode("utf-8", "ignore")
    more += len(data) - len(kept.encode())
    return f"{kept}\n… {more} bytes more" if more else kept


def end(text: str) -> str:
    """Return the end of a text, at most 16 KiB, from the beginning of a line on where there is one."""
    data = text.encode("utf-8", "replace")
    if len(data) <= MOST:
        return text
    kept = data[-MOST:]
    kept = kept[kept.find(b"\n") + 1 :]
    return f"… {len(data) - len(kept)} bytes more\n{kept.decode('utf-8', 'ignore')}"
