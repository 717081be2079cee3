"""Sandboxes made with bubblewrap: their description, bubblewrap's arguments, the host's abilities; no agents, no daemon."""
