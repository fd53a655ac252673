"""Times as people type them, for every command that looks back.

UTC as 2026-01-31T12:00:00, milliseconds, ``now``, or so long before now: ``-15m``, ``-90s``.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_AGO = re.compile(r"-(\d{1,9})([smhd])")
_LAST_MS = 1 << 53


class BadMoment(Exception):
    """No time that we know; the message says what is understood."""

    says_what_to_do = True


def moment(text: str, option: str, now_ms: int) -> int:
    """Milliseconds since 1970 from what ``option`` was given. Raises BadMoment."""
    ago = _AGO.fullmatch(text)
    if text == "now":
        return now_ms
    if ago:
        return max(now_ms - int(ago[1]) * UNITS_MS[ago[2]], 0)
    if text.isascii() and text.isdigit() and int(text[:17]) <= _LAST_MS:
        return int(text)
    try:
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            when = when.replace(tzinfo=UTC)
        return round(when.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadMoment(
            f"{option} {text!r:.60}: write 2026-01-31T12:00:00 (UTC), milliseconds, now, or -15m"
        ) from None


def shown(at_ms: int) -> str:
    """A time for people: UTC to the second, as `moment` reads it."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%S")
