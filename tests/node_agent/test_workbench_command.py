"""The workbench as the demo and the bench speak to it: real groups, real work, a witness."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from node_agent.cgroup.layout import detect
from tests.node_agent.kernel import real_layout
from tests.support import patient

NAME = f"slackwater-test-{os.getpid()}"

pytestmark = pytest.mark.kernel


class Bench:
    """One workbench process and all it has told."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "node_agent.workbench", "--name", NAME, "--folder", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.events: list[dict[str, Any]] = []
        self._rest = b""

    def tell(self, **command: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        """Read events until the condition holds."""
        assert self.process.stdout is not None
        within_s = patient(within_s)
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, f"not within {within_s} s: {self.events[-3:]}"
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                data = os.read(self.process.stdout.fileno(), 65_536)
                assert data, f"the workbench ended with {self.process.wait()}"
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.events += [json.loads(line) for line in lines]

    def stop(self) -> None:
        self.process.terminate()
        assert self.process.wait(patient(20)) == 0
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def do(self, **command: Any) -> dict[str, Any]:
        before = len(self.of("done"))
        self.tell(**command)
        self.until(lambda: len(self.of("done")) > before)
        return self.of("done")[-1]


def groups() -> list[Path]:
    return [path for mount in detect().mounts() if (path := Path(mount) / NAME).exists()]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    real_layout()
    one = Bench(tmp_path)
    try:
        one.until(lambda: bool(one.of("ready")))
        yield one
    finally:
        one.stop()
    assert groups() == []


def test_it_says_where_the_agent_finds_its_pods(bench: Bench) -> None:
    (ready,) = bench.of("ready")
    inventory = yaml.safe_load(Path(ready["inventory"]).read_text())
    assert inventory["best_effort_root"] == ready["best_effort_root"] == f"{NAME}/besteffort"
    assert [pod["qos"] for pod in inventory["pods"]] == ["LS", "BE"]
    for pod in inventory["pods"]:
        assert all((group.parent / pod["cgroup"]).is_dir() for group in groups())


def test_the_witness_sees_use_and_each_change_of_the_quota(bench: Bench) -> None:
    bench.until(lambda: bool(bench.of("quota")) and bool(bench.of("usage")))
    assert bench.of("quota")[0]["milli"] == -1
    bench.do(do="greedy", on=True)
    start = bench.of("usage")[-1]
    bench.until(lambda: bench.of("usage")[-1]["best_effort_us"] > start["best_effort_us"] + 50_000)
    cpu = detect().hierarchy("cpu")
    assert cpu is not None
    folder = Path(cpu.mount) / NAME / "besteffort"
    written_us = time.monotonic_ns() // 1000
    if cpu.version == 1:
        (folder / "cpu.cfs_quota_us").write_text("20000")
    else:
        (folder / "cpu.max").write_text("20000 100000")
    bench.until(lambda: bench.of("quota")[-1]["milli"] == 200)
    assert bench.of("quota")[-1]["mono_us"] >= written_us
    used = bench.of("usage")[-1]
    assert used["machine_us"] >= start["machine_us"]
    assert used["online_us"] > start["online_us"]
    bench.do(do="greedy", on=False)


def test_latencies_are_told_by_phase(bench: Bench) -> None:
    bench.do(do="phase", name="first")
    begun = bench.do(do="load", milli=200)["mono_us"]
    bench.until(lambda: any(one["mono_us"] > begun + 500_000 for one in bench.of("usage")))
    bench.do(do="phase", name="")
    bench.do(do="phase", name="")
    (latency,) = bench.of("latency")  # none for a phase without a name
    assert latency["phase"] == "first"
    assert latency["count"] > 20
    assert 0 <= latency["p50_us"] <= latency["p99_us"] <= latency["max_us"]


def test_bystanders_are_placed_beside_the_pods_and_outlive_the_groups(tmp_path: Path) -> None:
    real_layout()
    cpu = detect().hierarchy("cpu")
    assert cpu is not None
    top = Path(cpu.mount) / NAME
    home = Path("/proc/self/cgroup").read_text()
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    one = Bench(tmp_path)
    try:
        one.until(lambda: bool(one.of("ready")))
        for role, sleeper in zip(("node", "elsewhere"), sleepers, strict=True):
            one.do(do="place", role=role, pids=[sleeper.pid])
            assert str(sleeper.pid) in (top / role / "cgroup.procs").read_text().split()
        idle = top / "elsewhere" / "cpu.idle"
        assert not idle.exists() or idle.read_text().strip() == "1"
        one.stop()
        assert groups() == []
        for sleeper in sleepers:
            assert sleeper.poll() is None, "a bystander died with the groups"
            assert Path(f"/proc/{sleeper.pid}/cgroup").read_text() == home
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_the_end_of_its_input_ends_it_and_its_groups(bench: Bench) -> None:
    bench.do(do="greedy", on=True)
    assert groups()
    assert bench.process.stdin is not None
    bench.process.stdin.close()
    assert bench.process.wait(patient(20)) == 0
    assert groups() == []


@pytest.mark.parametrize("made", [1, 2, 5])
def test_told_to_end_while_it_makes_its_groups_it_leaves_none(tmp_path: Path, made: int) -> None:
    real_layout()
    one = Bench(tmp_path)
    deadline = time.monotonic() + patient(20)
    while len(groups()) < min(made, len(detect().mounts())):
        assert time.monotonic() < deadline
        assert one.process.poll() is None
    one.stop()
    assert groups() == []


def test_a_dead_runs_groups_are_removed_by_the_next(tmp_path: Path) -> None:
    real_layout()
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait(patient(20))
    stale = [Path(mount) / f"slackwater-test-{dead.pid}" for mount in detect().mounts()]
    for path in stale:
        (path / "besteffort").mkdir(parents=True)
    again = Bench(tmp_path)
    again.until(lambda: bool(again.of("ready")))
    again.stop()
    assert not any(path.exists() for path in stale)
