"""What tests share that is no fixture: how a missing component is treated."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def in_ci() -> bool:
    """Whether nothing may be skipped."""
    return os.environ.get("CI", "").lower() in {"1", "true", "yes"}


def unavailable(reason: str) -> NoReturn:
    """This machine lacks something a test needs: fail in CI, else skip and say why."""
    if in_ci():
        pytest.fail(f"missing here, and CI skips nothing: {reason}")
    pytest.skip(f"NOT RUN: {reason}")
