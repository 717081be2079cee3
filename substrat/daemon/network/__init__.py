"""Serves the `filtered` networks of turns, in the transparent and the proxy form."""
