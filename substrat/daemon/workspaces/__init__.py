"""Workspaces: checked, looked through for what a host would run, and protected while an agent works in them."""
