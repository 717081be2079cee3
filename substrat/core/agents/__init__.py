"""Decisions about agents and their turns: lifecycle, records, verdicts, retries, limits."""
