"""The model's tests: their length, and their report of a failure."""

import os

DEEP = float(os.environ.get("SUBSTRAT_MODEL_DEPTH", "1"))
"""How many times as many walks are made as usually."""
