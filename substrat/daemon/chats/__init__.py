"""Chats: read in a sandbox, and moved among the user's own."""
