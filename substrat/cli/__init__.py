"""The program `substratctl`: what people type; it keeps no state, and whatever it knows it asked the daemon."""
