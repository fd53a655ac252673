"""A missing component fails in CI and is skipped, with its reason, elsewhere."""

from __future__ import annotations

import pytest

from tests.support import unavailable


@pytest.mark.parametrize("value", ["true", "1"])
def test_ci_skips_nothing(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.fail.Exception, match="CI skips nothing: no java"):
        unavailable("no java")


@pytest.mark.parametrize("value", ["", "false"])
def test_elsewhere_it_is_skipped_aloud(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("CI", value)
    with pytest.raises(pytest.skip.Exception, match="NOT RUN: no java"):
        unavailable("no java")
