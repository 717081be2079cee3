"""Hypothesis without deadlines: a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("substrat", deadline=None, print_blob=True)
settings.load_profile("substrat")
