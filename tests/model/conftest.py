"""The model's tests: their length, and the tokens of texts."""

import os
import re

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
"""How many times as many walks are made as usually."""

_TOKENS = [
    (r"(tok\d+(?:@\S+)?)", "{}"),
    (r"child agent (\S+) has finished turn (\d+): (not done|\w+)", "report:{}:{}:{}"),
    (r"child agent (\S+) has done nothing", "nothing:{}"),
    (r"(\S+) has sent no reply", "answer:{}"),
    (r"will not be answered: (the operator|\S+)", "dropped:{}"),
    (r"^(?:> )*(\S+) \((\w+)\): (?:turn (\d+), )?(no turn yet|no turn|still running|not done|\w+)", "member:{}:{}:{}:{}"),
    (r"^(?:> )*(\S+): it was removed", "removed:{}"),
]


def tokens_in(text):
    """Return the tokens of a text, in the model's form."""
    return sorted(
        form.format(*match.groups()) for pattern, form in _TOKENS for match in re.finditer(pattern, text, re.MULTILINE)
    )
