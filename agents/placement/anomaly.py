"""Who is hot for long enough to be relieved: one hot round is noise.

Called by the scheduler bridge's descheduler after `balance.classify`, once a round.
Rules: koordinator `descheduler/utils/anomaly/basic_detector.go`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from agents.table import Bools, Ints


@dataclass(frozen=True, slots=True)
class Marks:
    """Hot rounds in a row of each node [n], and when the last one was."""

    count: Ints
    last_ms: Ints


def mark(marks: Marks, now_ms: int, hot: Bools, cleared: Bools, forget_after_ms: int) -> Marks:
    """The marks after one more round.

    ``cleared`` nodes begin anew: targets, and sources that pods were just taken from. A node that
    was not hot for ``forget_after_ms`` begins anew too.
    """
    over = cleared | (now_ms - marks.last_ms >= forget_after_ms)
    count = np.where(over, 0, marks.count) + hot
    return Marks(count, np.where(hot, now_ms, marks.last_ms))


def abnormal(marks: Marks, hot: Bools, consecutive: int) -> Bools:
    """Hot nodes to act on: all with ``consecutive`` of 1, else those marked more often than it."""
    result: Bools = hot if consecutive <= 1 else hot & (marks.count > consecutive)
    return result
