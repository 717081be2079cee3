"""Serves the operator's socket and the agents' sockets."""
