"""Margins by name, each a share of capacity kept back for a reason that people can read.

`agents.capacity` adds them to the safety margin. The calendar is weekly and in UTC: minute 0 is
Monday 00:00, told from log time by integer arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable

WEEK_MINUTES = 7 * 24 * 60  # days of hours of minutes
EPOCH_MINUTE = 3 * 24 * 60
"""Log time begins on a Thursday, three days into the week."""
MS_PER_MINUTE = 60_000


def minute_of_week(log_ms: int) -> int:
    """0 .. 10079 in UTC."""
    return (log_ms // MS_PER_MINUTE + EPOCH_MINUTE) % WEEK_MINUTES


def expected_peak(log_ms: int, peaks: Iterable[tuple[int, int, int]]) -> int:
    """Permille of capacity that the calendar keeps back now: the largest of the open windows.

    A window is (start, end, permille) in minutes of the week, without its end; one whose end is not
    after its start goes on into the next week.
    """
    now = minute_of_week(log_ms)
    found = 0
    for start, end, permille in peaks:
        inside = start <= now < end if start < end else now >= start or now < end
        if inside:
            found = max(found, permille)
    return found
