"""What stands above single agents: waits, needs, messages, the queue, the gates of accounts, and the tools."""
