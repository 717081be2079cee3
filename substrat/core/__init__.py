"""Decisions as functions over frozen values: no Trio, no files, no clock, no randomness."""
