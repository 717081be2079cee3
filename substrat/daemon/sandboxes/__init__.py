"""Prepares agents' sandboxes, and runs git and readers in small ones of their own."""
