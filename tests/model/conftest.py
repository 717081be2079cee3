"""The model's tests: their length, and their report of a failure."""

import os

from hypothesis import settings

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
"""How many times as many walks are made as usually."""

settings.register_profile("substrat", deadline=None, print_blob=True)
settings.load_profile("substrat")
