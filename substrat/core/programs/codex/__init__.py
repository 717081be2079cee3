"""Codex (`codex exec --json`): its command line, settings, lines and failures."""
