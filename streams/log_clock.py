"""What time it is at the broker, from append times seen and the monotonic clock of this process.

`streams.outputs` asks it whether a command is still worth saying. The wall clock is never read.
"""

from __future__ import annotations

from collections import deque

SIGHTINGS = 64


class LogClock:
    """Every sighting (append time, monotonic time at which we knew of it) bounds broker time from
    below; the largest of the last ones is the best. Old sightings leave, so that a broker clock
    that was set back is followed within a minute of ticks.
    """

    def __init__(self) -> None:
        self._ahead_ms: deque[float] = deque(maxlen=SIGHTINGS)
        self._seen_s: float | None = None

    def saw(self, append_ms: int, mono_s: float) -> None:
        """A record with this append time was acknowledged or read at ``mono_s``."""
        self._ahead_ms.append(append_ms - mono_s * 1000)
        self._seen_s = mono_s

    def silent_s(self, mono_s: float) -> float:
        """How long the broker has shown nothing; 0 before the first sighting."""
        return 0.0 if self._seen_s is None else max(mono_s - self._seen_s, 0.0)

    def now_ms(self, mono_s: float) -> int | None:
        """Broker time at ``mono_s``, never too high; None before the first sighting."""
        if not self._ahead_ms:
            return None
        return int(max(self._ahead_ms) + mono_s * 1000)
