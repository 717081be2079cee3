"""Decides what stands above single agents: waits, needs, results, the queue and the gates of accounts. Pure."""
