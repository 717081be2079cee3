"""The machine's clocks: the steady one, which goes only while the machine is awake, and an alarm of the wall clock.

People and NTP set the wall clock, and it goes on while the machine sleeps. A reminder's time is one of the wall clock. The
steady clock measures turns, so that no limit counts time in which nothing could run.
"""

from __future__ import annotations

import ctypes
import errno
import os
import time

import trio

# linux/timerfd.h
_TFD_NONBLOCK = os.O_NONBLOCK
_TFD_CLOEXEC = os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1
_TFD_TIMER_CANCEL_ON_SET = 2
_FAR = 1e11
"""Seconds since the epoch, later than any alarm: the kernel takes no infinity."""
_CLOCK_SET = frozenset({errno.ECANCELED, errno.EAGAIN})


def steady() -> float:
    """Return the seconds that the machine has been awake since its start, the same for each process (CLOCK_MONOTONIC).

    `trio.current_time()` goes as fast, from a zero of its own.
    """
    return time.monotonic()


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class WallAlarm:
    """Waits for a time of the wall clock (timerfd_create(2)); `close` ends the descriptor."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._call("timerfd_create", time.CLOCK_REALTIME, _TFD_NONBLOCK | _TFD_CLOEXEC)

    def close(self) -> None:
        """Give the descriptor back."""
        os.close(self._fd)

    async def wait(self, when: float) -> None:
        """Wait until a time, in seconds since the epoch; also returns when the clock is set or the machine wakes."""
        value = _Timespec(*divmod(int(min(max(when, 0.0), _FAR) * 1e9) + 1, 10**9))  # all zero would disarm it
        how = _TFD_TIMER_ABSTIME | _TFD_TIMER_CANCEL_ON_SET
        try:
            self._call("timerfd_settime", self._fd, how, ctypes.byref(_Itimerspec(_Timespec(0, 0), value)), None)
            await trio.lowlevel.wait_readable(self._fd)
            os.read(self._fd, 8)
        except OSError as problem:
            if problem.errno not in _CLOCK_SET:
                raise

    def _call(self, function: str, *arguments: object) -> int:
        result: int = getattr(self._libc, function)(*arguments)
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result
