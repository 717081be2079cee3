"""Agents as the daemon keeps them: the registry, requests, accounting, the inbox, reminders."""
