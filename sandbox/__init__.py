"""Sandboxes made with bubblewrap: what they are, how bubblewrap is told, what the host offers; no agents, no daemon."""
