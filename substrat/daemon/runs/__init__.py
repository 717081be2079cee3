"""Families from files: starts their agents one after the other, and says how each run stands."""
