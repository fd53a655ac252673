"""Who may borrow of a node."""

from __future__ import annotations

import numpy as np
import pytest

from agents.placement.borrow_filter import REASONS, judge


def reason(
    asks: tuple[int, int, int, int],
    offered: tuple[int, int, int, int] = (10, 10, 10, 10),
    taken: tuple[int, int, int, int] = (0, 0, 0, 0),
    known: bool = True,
    new_work: bool = True,
    listed: bool = True,
) -> str:
    found = judge(
        np.array(asks), np.array([offered]), np.array([taken]), np.array([known]),
        np.array([new_work]), np.array([listed]),
    )  # fmt: skip
    return REASONS[int(found[0])]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"asks": (0, 0, 0, 0), "known": False}, "borrows_nothing"),
        ({"asks": (10, 10, 0, 0)}, "fits"),
        ({"asks": (11, 0, 0, 0)}, "too_little"),
        ({"asks": (0, 0, 0, 8), "taken": (0, 0, 0, 3)}, "too_little"),
        ({"asks": (1, 0, 0, 0), "taken": (0, 99, 99, 99)}, "fits"),
        ({"asks": (1, 0, 0, 0), "offered": (5, 0, 0, 0), "taken": (7, 0, 0, 0)}, "too_little"),
        ({"asks": (99, 0, 0, 0), "listed": False}, "not_listed"),
        ({"asks": (1, 0, 0, 0), "listed": False, "new_work": False}, "no_new_work"),
        ({"asks": (1, 0, 0, 0), "new_work": False, "known": False}, "nothing_known"),
    ],
)
def test_the_first_reason_counts(given: dict[str, object], expected: str) -> None:
    assert reason(**given) == expected  # type: ignore[arg-type]
