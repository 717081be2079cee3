"""Decisions about workspaces: git's files, protected paths, overlapping directories."""
