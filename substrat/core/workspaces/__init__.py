"""Decisions about workspaces, clones and landings: git's files, protected paths, overlapping directories."""
