"""The program `substratctl`, with which people drive the daemon; it keeps no state of its own."""
