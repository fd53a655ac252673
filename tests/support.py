"""What tests share that is no fixture: how a missing component is treated."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

BROKER_VARIABLE = "SLACKWATER_TEST_BROKER"
"""host:port of a Kafka that stands already; the `broker` fixture then starts none of its own."""
SLOWNESS_VARIABLE = "SLACKWATER_TEST_SLOWNESS"
"""How many times slower than usual this machine is (software emulation); 1 when it is not set."""


def patient(limit: float) -> float:
    """A time limit of a test, for this machine: what it bounds is not the machine's speed."""
    return limit * float(os.environ.get(SLOWNESS_VARIABLE, "1"))


def in_ci() -> bool:
    """Whether nothing may be skipped."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def unavailable(reason: str) -> NoReturn:
    """This machine lacks something a test needs: fail in CI, else skip and say why."""
    if in_ci():
        pytest.fail(f"missing here, and CI skips nothing: {reason}")
    pytest.skip(f"NOT RUN: {reason}")
