"""The program that makes, sets up, keeps and restores agents' clones; the daemon runs it in sandboxes without a network."""
