"""Recordings in the repository give back every decision, however they are cut, with any numpy."""

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

from agents.log import LAW_VERSION
from streams.recording import open_recording
from tests.determinism.golden import GOLDEN, STORM, make, replay
from tests.determinism.recorded import cpu_features
from tests.determinism.test_same_bytes import OTHER_NUMPYS, other_numpy

ROOT = Path(__file__).parents[2]


def elsewhere(path: Path, environment: Mapping[str, str], batch: int) -> dict[str, Any]:
    """What a process of its own says of the same recording."""
    command = ["-m", "tests.determinism.golden", "replay", str(path), "--batch", str(batch)]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def by_name(path: Path) -> str:
    return path.stem


@pytest.mark.parametrize("path", GOLDEN, ids=by_name)
def test_r7_replay_is_proof(path: Path) -> None:
    with open_recording(path) as golden:
        assert golden.verify(), golden.problems
        assert golden.manifest.law_versions == (LAW_VERSION,), "make it anew, see the module golden"
    said = replay(path, 4_000)
    assert said["verdict"] == "identical"
    assert said["digest_now"] == said["digest_then"]
    assert int(str(said["equal"])) > 500
    assert replay(path, 211) == said, "cut into other batches"


def test_r7_with_another_numpy_in_other_batches_without_vector_units() -> None:
    path, here = STORM, replay(STORM, 37)
    version = next(each for each in OTHER_NUMPYS if each != np.__version__)
    places = os.pathsep.join((str(other_numpy(version)), str(ROOT)))
    plain = {"NPY_DISABLE_CPU_FEATURES": " ".join(cpu_features())}
    other = elsewhere(path, {"PYTHONPATH": places}, 1_000)
    assert other.pop("numpy") == version
    bare = elsewhere(path, plain, 3)
    assert bare.pop("numpy") == here.pop("numpy") == np.__version__
    assert other == bare == here


def test_the_storm_has_what_usually_happens() -> None:
    assert STORM.stat().st_size < 1_000_000
    said = replay(STORM, 4_000)
    assert int(str(said["repeated"])) > 20, "no worker died"
    with open_recording(STORM) as storm:
        assert len(list(storm.records("dead-letters", 0))) > 1
        assert len(list(storm.records("policies", 0))) > 1


def test_the_storm_is_made_by_a_command(tmp_path: Path) -> None:
    make(tmp_path / "storm.slack")
    with open_recording(tmp_path / "storm.slack") as again, open_recording(STORM) as storm:
        assert again.places == storm.places
        for place in storm.places:
            assert list(again.records(*place)) == list(storm.records(*place)), place
