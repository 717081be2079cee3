"""Keeps a command's output from changing a person's terminal beyond its end, and from their clipboard. Pure.

A command of `exec` may be killed while it fills the screen, as vim does: the terminal is given back with the modes that it
had. Sequences by which terminals read and write the clipboard are left out, those wrapped for tmux and screen too.
"""

from __future__ import annotations

import re

# Characters that terminals ignore or obey in the middle of a sequence, which goes on (vt100.net/emu/dec_ansi_parser).
_BETWEEN = rb"[\x00-\x06\x08-\x17\x19\x1c-\x1f\x7f]"
_INSIDE = rb"(?<![\xc3-\xf4])(?<![\xe0-\xf4][\x80-\xbf])(?<![\xf0-\xf4][\x80-\xbf]{2})"
"""Before a byte that isn't in the midst of another character: a terminal that isn't set to UTF-8 obeys C1 bytes alone."""
_CUT = rb"\xc2\Z|[\xc3-\xdf]\Z|[\xe0-\xef][\x80-\xbf]?\Z|[\xf0-\xf4][\x80-\xbf]{0,2}\Z"
_START = re.compile(rb"\x1b%b*(?:[\]P]|\Z)|(?:\xc2|%b)[\x90\x9d]|%b" % (_BETWEEN, _INSIDE, _CUT))
"""The beginning of an operating system command (OSC) or a device control string (DCS), or half of it or of a character."""
_NUMBER = re.compile(rb"(?:%b|[0-9])*" % _BETWEEN)
_PARAMETERS = re.compile(rb"(?:%b|[ -?])*" % _BETWEEN)
_OSC = (b"]", b"\x9d")
_END_OF_OSC = re.compile(rb"[\x07\x18\x1a\x9c]|\x1b(?:\\|(?=[^\\]))")
_END_OF_DCS = re.compile(rb"(?<!\x1b)\x1b\\|\x9c")  # in tmux's wrapping an escape character stands twice
_CLIPBOARD = frozenset({52, 1337, 5522})
"""xterm's (ctlseqs), iTerm2's, which reads files too, and kitty's."""
_WRAPPED = (b"tmux;", b"\x1b")
"""So begins what tmux (tmux(1), allow-passthrough) and screen pass on to the terminal that they run in."""
_NOTHING = b"\x1b\\"
"""Stands where a sequence is left out, and does nothing: the characters around it must not make another one."""
_LONGEST = 64
"""Bytes of a sequence's beginning: real ones have at most ten, and a longer one is left out."""

_MODES = re.compile(rb"\x1b\[\?(?P<modes>[0-9;]{1,60})(?P<act>[hl])|\x1b(?:c|\[!p)")
_USUAL = {
    **dict.fromkeys((1, 5, 6, 9, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 2004, 2026), False),
    **dict.fromkeys((47, 1047, 1049), False),
    **dict.fromkeys((7, 25), True),
}
"""The modes that are put back (ctlseqs, DECSET) and whether they are usually set: keys, colours, the mouse, focus, paste
and updates; the alternate screen; wrapping and the cursor."""


class TerminalOutput:
    """The output of one command on its way to a terminal."""

    def __init__(self) -> None:
        self._held = b""
        self._end: re.Pattern[bytes] | None = None
        """How the sequence ends that is being left out."""
        self._tail = b""
        self._changed: dict[int, bool] = {}

    def take(self, data: bytes) -> bytes:
        """Return what the terminal may get of some further bytes; the beginning of a sequence is held back."""
        data, self._held = self._held + data, b""
        passed, at = bytearray(), 0
        while at < len(data):
            at = self._pass(data, at, passed) if self._end is None else self._leave_out(data, at, self._end)
        self._note_modes(bytes(passed))
        return bytes(passed)

    def restoring(self) -> bytes:
        """Return the sequences that put the terminal's modes back."""
        changed = [mode for mode, usual in _USUAL.items() if self._changed.get(mode, usual) is not usual]
        self._changed.clear()
        return b"".join(b"\x1b[?%d%b" % (mode, b"h" if _USUAL[mode] else b"l") for mode in changed)

    def _pass(self, data: bytes, at: int, passed: bytearray) -> int:
        """Pass bytes on up to and with the next beginning of a sequence; return the place behind it."""
        found = _START.search(data, at)
        if found is None:
            passed += data[at:]
            return len(data)
        passed += data[at : found.start()]
        is_osc = found[0].endswith(_OSC)
        behind = found.end()
        if behind < len(data):
            more = (_NUMBER if is_osc else _PARAMETERS).match(data, behind)
            assert more is not None
            behind = more.end()
        rest = data[behind : behind + 5]
        is_cut = not rest if is_osc else any(word.startswith(rest) and word != rest for word in _WRAPPED)
        if behind - found.start() > _LONGEST or (not is_cut and _is_left_out(is_osc, data[found.end() : behind], rest)):
            self._end = _END_OF_OSC if is_osc else _END_OF_DCS
            passed += _NOTHING
        elif is_cut:
            self._held = data[found.start() :]
            return len(data)
        else:
            passed += data[found.start() : behind]
        return behind

    def _leave_out(self, data: bytes, at: int, end: re.Pattern[bytes]) -> int:
        found = end.search(data, at)
        if found is None:
            # Half an end is kept, with the character before it, on which it may depend.
            self._held = data[max(at, len(data) - 2) :] if data.endswith(b"\x1b") else b""
            return len(data)
        self._end = None
        return found.start() if found[0] == b"\x1b" else found.end()

    def _note_modes(self, passed: bytes) -> None:
        text = self._tail + passed
        for found in _MODES.finditer(text):
            if found["modes"] is None:
                self._changed.clear()
            else:
                numbers = (int(number) for number in found["modes"].split(b";") if number)
                self._changed.update(
                    dict.fromkeys((number for number in numbers if number in _USUAL), found["act"] == b"h")
                )
        self._tail = text[-_LONGEST:]


def _is_left_out(is_osc: bool, parameters: bytes, rest: bytes) -> bool:
    if not is_osc:
        return rest.startswith(_WRAPPED)
    digits = bytes(character for character in parameters if character in b"0123456789").lstrip(b"0")
    return len(digits) > len("5522") or (bool(digits) and int(digits) in _CLIPBOARD)
