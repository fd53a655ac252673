"""Times as people type them."""

from __future__ import annotations

import pytest

from streams.moments import BadMoment, moment, shown

NOW_MS = 1_700_000_000_000


@pytest.mark.parametrize(
    ("text", "at_ms"),
    [
        ("1700000000123", NOW_MS + 123),
        ("2023-11-14T22:13:20", NOW_MS),
        ("2023-11-14T23:13:20+01:00", NOW_MS),
        ("now", NOW_MS),
        ("-15m", NOW_MS - 900_000),
        ("-2d", NOW_MS - 2 * 86_400_000),
    ],
)
def test_what_is_understood(text: str, at_ms: int) -> None:
    assert moment(text, "--at", NOW_MS) == at_ms


@pytest.mark.parametrize("text", ["", "yesterday", "-15", "-m", "9" * 30, "15m", "٣"])
def test_what_is_not(text: str) -> None:
    with pytest.raises(BadMoment, match=r"--at .*milliseconds"):
        moment(text, "--at", NOW_MS)


def test_what_is_shown_is_understood() -> None:
    assert moment(shown(NOW_MS), "--at", 0) == NOW_MS
