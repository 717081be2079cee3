"""The signals that `substratctl exec` forwards to its command, and that the daemon delivers."""

from __future__ import annotations

import signal

FORWARDED = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
"""Those that ask a program to end, and the two whose meaning is the program's own."""
