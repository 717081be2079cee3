"""Judges the facts that `substratctl doctor` has gathered about a machine and a turn's network."""
