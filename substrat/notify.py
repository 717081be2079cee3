"""Tells systemd how the daemon, or the server of the page, is doing (sd_notify(3)); without systemd it does nothing."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import structlog
import trio

if TYPE_CHECKING:
    from collections.abc import Mapping


log = structlog.get_logger("substrat.notify")


class Notifier:
    """The service manager's socket, if there is one.

    Args:
        environ: holds `NOTIFY_SOCKET` and `WATCHDOG_USEC` under systemd.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        watched = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        period = environ.get("WATCHDOG_USEC", "")
        self._watchdog_seconds = int(period) / 1e6 if watched and period.isascii() and period.isdigit() else 0.0

    def send(self, *states: str) -> None:
        """Send assignments such as `READY=1`."""
        if not self._address:
            return
        # A leading "@" stands for the null byte of an abstract address.
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
                sock.sendto("\n".join(states).encode(), address)
        except OSError as problem:
            # A manager that is gone is no reason to go too.
            log.warning("the service manager can't be told", reason=problem.strerror)

    def extend_start(self, seconds: float) -> None:
        """Ask for so many seconds more, beyond which the start counts as failed (`EXTEND_TIMEOUT_USEC` in sd_notify(3))."""
        self.send(f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}")

    async def feed_watchdog(self) -> None:
        """Tell the watchdog that the main loop turns, twice in each of its periods, until cancelled."""
        if not self._watchdog_seconds:
            return
        while True:
            self.send("WATCHDOG=1")
            await trio.sleep(self._watchdog_seconds / 2)
