"""The model's tests: their length, the tokens of texts, and what fails in walks without processes."""

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


class Clock:
    """Almost stands still: whether the time to try again has come is the test's decision alone."""

    def __init__(self):
        self.time = 1_700_000_000.0

    def __call__(self):
        self.time += 2**-14
        return self.time

    steady = __call__


class Countdown:
    """True after having been asked so many times: the store asks once a commit."""

    def __init__(self, commits):
        self.left = commits

    def __bool__(self):
        self.left -= 1
        return self.left < 0
