"""One recording of the simulated cluster for all tests of this folder; nobody changes it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streams.recording import Recording, open_recording
from tests.streams.recording.made import bundle_of, log_of


@pytest.fixture(scope="session")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "made.slack"
    bundle_of(*log_of(), path)
    return path


@pytest.fixture
def recording(path: Path) -> Iterator[Recording]:
    with open_recording(path) as opened:
        yield opened
