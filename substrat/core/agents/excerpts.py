"""Cuts and quotes texts for agents, and says how much was cut. Pure."""

from __future__ import annotations

MOST = 16 * 1024
"""Bytes of one answer, and of one result: some four thousand tokens, which a model still reads in the middle of its work.
Several results come together in one prompt; longer ones belong into files."""


def shortened(text: str, most: int = MOST) -> str:
    """Return a text, or the head and the tail of one that has more bytes, with the number of those between.

    What is quoted stays so: the tail begins no line of its own, unless it is quoted and the head ends with what isn't.
    """
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return text
    begin = len(data) - most // 2
    head = data[: most - most // 2].decode("utf-8", "ignore").rstrip("\n")
    tail = data[begin:].decode("utf-8", "ignore")
    is_quoted = data.startswith(b"> ", data.rfind(b"\n", 0, begin) + 1)
    mark = "\n> " if is_quoted and not head.rpartition("\n")[2].startswith("> ") else ""
    return f"{head}… [{len(data) - len((head + tail).encode()):,} bytes more] …{mark}{tail}"


def quoted(text: str, most: int | None = None) -> str:
    """Return an agent's words with a mark before each line: they can't pass for Substrat's, or for a command.

    Args:
        text: the words.
        most: the bytes that are kept of them, without the marks; None: all.
    """
    return "\n".join(f"> {line}" for line in (text if most is None else shortened(text, most)).splitlines())
