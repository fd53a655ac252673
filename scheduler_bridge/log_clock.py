"""Log time, from the records that are read and a clock of our own that only grows. No I/O.

The view of capacities and the queue of evictions keep one each.
"""

from __future__ import annotations


class LogClock:
    """A wall clock that lies changes nothing; while every partition is silent time goes on."""

    def __init__(self) -> None:
        self._newest_log_ms = 0
        self._newest_mono_ms = 0

    def now_ms(self, mono_ms: int) -> int:
        """Log time now: the newest record's broker time and what has passed since, by our clock."""
        return self._newest_log_ms + max(0, mono_ms - self._newest_mono_ms)

    def saw(self, log_ms: int, mono_ms: int) -> None:
        """A record of broker time ``log_ms`` was read at ``mono_ms``; log time never goes back."""
        if log_ms >= self.now_ms(mono_ms):
            self._newest_log_ms, self._newest_mono_ms = log_ms, mono_ms
