"""Prepares sandboxes and looks after the files that agents and people share."""
