"""One log, one digest: in other batches, without the CPU's vector units, with another numpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.log import Entry, SampleEntry, TickEntry
from tests.determinism.recorded import Folded, cpu_features, fold, record
from tests.support import unavailable

ROOT = Path(__file__).parents[2]
OTHER_NUMPYS = ("2.2.6", "2.3.5")
"""The oldest that is supported, and one to take where that is the one which runs."""


@pytest.fixture(scope="module")
def log() -> list[Entry]:
    return record()


@pytest.fixture(scope="module")
def folded(log: list[Entry]) -> Folded:
    """The fold that all others must equal."""
    return fold(log, 1_000)


def elsewhere(environment: Mapping[str, str]) -> dict[str, Any]:
    """What a process of its own says of the same log."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.determinism.recorded", "--batch", "777"],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def test_the_log_is_worth_folding(log: list[Entry], folded: Folded) -> None:
    samples = [entry.sample for entry in log if isinstance(entry, SampleEntry)]
    assert len(samples) > 8_000
    assert len({sample.boot for sample in samples}) > 20, "no restarts"
    assert len({(sample.node, sample.pods_rev) for sample in samples}) > 60, "no inventory changes"
    side = {s.topic for entry in log if isinstance(entry, TickEntry) for s in entry.side}
    assert side == {"inventory", "policies", "ledger", "fleet", "slis"}
    assert folded.outputs > 5_000


@pytest.mark.parametrize("batch", [1, 7, 64, 10**6])
def test_other_batches(log: list[Entry], folded: Folded, batch: int) -> None:
    print(f"digest {folded.digest}")
    assert fold(log, batch) == folded


def test_a_changed_log_has_another_digest(log: list[Entry], folded: Folded) -> None:
    shorter = fold(log[:-40], 1_000)
    assert shorter.digest != folded.digest
    assert shorter.state != folded.state


def test_without_the_features_that_numpy_chooses_at_run_time(folded: Folded) -> None:
    here = cpu_features()
    assert here, "this CPU has nothing to switch off: the test would prove nothing"
    said = elsewhere({"NPY_DISABLE_CPU_FEATURES": " ".join(here)})
    assert said["cpu_features"] == []
    assert (said["digest"], said["state"]) == (folded.digest, folded.state)


def test_with_another_numpy(folded: Folded) -> None:
    version = next(each for each in OTHER_NUMPYS if each != np.__version__)
    said = elsewhere({"PYTHONPATH": str(other_numpy(version))})
    assert said["numpy"] == version
    assert (said["digest"], said["state"]) == (folded.digest, folded.state)


def other_numpy(version: str) -> Path:
    """A folder with that numpy in it, kept between runs."""
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    folder = ROOT / ".cache" / f"numpy-{version}-python{python}"
    if not (folder / "numpy" / "version.py").exists():
        done = subprocess.run(
            [
                sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                "--only-binary=:all:", "--upgrade", "--target", str(folder), f"numpy=={version}",
            ],
            capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        if done.returncode != 0:
            unavailable(f"numpy {version}: {done.stderr[-300:]}")
    return folder
