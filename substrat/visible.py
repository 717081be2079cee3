r"""Makes text of unknown origin harmless to look at: characters that act, hide or reorder become visible escapes; pure.

A terminal, a pager and an editor obey more than C0 controls: C1 controls (`U+009B` begins an escape sequence in 8 bits),
line and paragraph separators, bidirectional overrides (CVE-2021-42574, "Trojan Source"), and tag characters and variation
selectors that carry invisible text (Unicode Technical Standard 39, 3.1). Example: a line separator between `a` and `b`
is written `a\u2028b`, in eight visible characters.

The Unicode category decides, so that a character that Unicode adds to one of these groups is covered too. Exceptions are
listed below with their reasons. The standard library alone is imported, and `unicodedata` only for text beyond ASCII,
because `substratctl` imports this module at every start.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_HIDDEN_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
"""Controls, format characters, lone surrogates, line separators, paragraph separators (Unicode Standard, table 4-4)."""
_HARMLESS = frozenset("\n\t")
_HAVE_GLYPHS = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd")
"""Format characters that are drawn, such as the Arabic number sign (PropList.txt, Prepended_Concatenation_Mark)."""
_BLANKS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2065\u3164\uffa0")
"""Letters and marks that are drawn as nothing (DerivedCoreProperties.txt, Default_Ignorable_Code_Point)."""
_JOINERS = frozenset("\u200c\u200d")
_SELECTORS = frozenset(map(chr, (*range(0xFE00, 0xFE10), 0x180B, 0x180C, 0x180D, 0x180F)))
_FLAG = "\U0001f3f4"
_FLAGS = tuple(
    _FLAG + "".join(chr(0xE0000 + ord(letter)) for letter in region) + "\U000e007f"
    for region in ("gbeng", "gbsct", "gbwls")
)
"""The flags that are written with tag characters: England's, Scotland's, Wales's (emoji-sequences.txt has no others)."""
_KEYCAPS = frozenset("0123456789#*©®")
_FIRST_JOINED = "\u0590"
"""Below stand Latin, Greek, Cyrillic and Armenian, whose letters don't join: there a joiner only hides."""
_FIRST_IDEOGRAPH = "\u3400"

_ASCII = {code: f"\\x{code:02x}" for code in (*range(0x20), 0x7F) if chr(code) not in _HARMLESS}


def visible(text: str) -> str:
    r"""Return text with everything that acts, hides or reorders written as an escape such as `\x1b` or `\u202e`.

    Newline and tab stay. So do joiners and variation selectors where a script or an emoji needs them.

    Args:
        text: anything, lone surrogates included.
    """
    if text.isascii():
        return text.translate(_ASCII)
    from unicodedata import category

    hidden = {letter for letter in set(text) if _is_hidden(letter, category)}
    if not hidden:
        return text
    shown, kept_until = [], 0
    for at, letter in enumerate(text):
        if letter == _FLAG and text.startswith(_FLAGS, at):
            kept_until = at + len(_FLAGS[0])
        is_kept = at < kept_until or letter not in hidden or _belongs(text, at, hidden, category)
        shown.append(letter if is_kept else _escape(letter))
    return "".join(shown)


def _is_hidden(letter: str, category: Callable[[str], str]) -> bool:
    if letter in _HARMLESS or letter in _HAVE_GLYPHS:
        return False
    # The last range is ignorable as a whole: tags, variation selectors and unassigned code points.
    is_ignorable = letter in _BLANKS or letter in _SELECTORS or "\ufff0" <= letter <= "\ufff8"
    return is_ignorable or category(letter) in _HIDDEN_CATEGORIES or "\U000e0000" <= letter <= "\U000e0fff"


def _belongs(text: str, at: int, hidden: set[str], category: Callable[[str], str]) -> bool:
    """Say whether a hidden character does its ordinary work between its neighbours."""
    letter, before, after = text[at], text[at - 1 : at], text[at + 1 : at + 2]
    if letter in _JOINERS:
        follows_selector = before in _SELECTORS and _belongs(text, at - 1, hidden, category)
        return (follows_selector or _joins(before, hidden, category)) and _joins(after, hidden, category)
    if letter in _SELECTORS:
        return _joins(before, hidden, category) or before in _KEYCAPS
    if "\U000e0100" <= letter <= "\U000e01ef":  # chooses among an ideograph's forms (Unicode Standard, 23.4)
        return before >= _FIRST_IDEOGRAPH and before not in hidden and category(before) == "Lo"
    return False


def _joins(letter: str, hidden: set[str], category: Callable[[str], str]) -> bool:
    """Say whether a character is of a script that joins its letters, or a symbol that emoji are made of."""
    if not letter or letter in hidden or letter < _FIRST_JOINED:
        return False
    kind = category(letter)
    return kind[0] in "LM" or kind in {"So", "Sm", "Sk", "Po", "Pd"}


def _escape(letter: str) -> str:
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
