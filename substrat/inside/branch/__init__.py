"""Moves a branch where it is checked out, and takes back what git couldn't finish."""
