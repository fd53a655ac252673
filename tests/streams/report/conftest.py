"""The planted incident as a report, made once for all tests that look at it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.recording import Recording, open_recording
from streams.report.build import Wish, build
from streams.report.model import Report

BUNDLE = Path(__file__).parents[2] / "fixtures" / "recordings" / "incident.slack"


@pytest.fixture(scope="session")
def bundle() -> Path:
    return BUNDLE


@pytest.fixture(scope="session")
def recording(bundle: Path) -> Iterator[Recording]:
    with open_recording(bundle) as opened:
        yield opened


@pytest.fixture(scope="session")
def report(recording: Recording) -> Report:
    return build(recording, Wish("incident.slack"))
