"""The model's tests: how long they go on, and what a failure shows."""

import os

from hypothesis import settings

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
"""How many times as many walks are made as usually."""

settings.register_profile("substrat", deadline=None, print_blob=True)
settings.load_profile("substrat")
