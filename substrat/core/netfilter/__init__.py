"""Decisions of the `filtered` network: host names, addresses, DNS, TLS and proxy requests."""
