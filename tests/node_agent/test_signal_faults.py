"""Each signal in turn fails, and each in turn is slow: the others go on as if nothing was."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from node_agent.cgroup.layout import detect
from node_agent.discovery import Discovery
from node_agent.metrics import TABLE
from node_agent.sampler import Sampler
from node_agent.signals import memory_limits, meter
from node_agent.signals.base import NodeSource
from schemas.columns import COLUMNS, RARE_MS, SECOND_MS
from tests.node_agent.kernels import KERNELS, StepClock

if TYPE_CHECKING:
    from node_agent.loop import NodeAgent

KERNEL = "v2-ubuntu"  # has nearly every signal
SWEEPS = RARE_MS // 1000
EACH_SECOND = {column.name for column in COLUMNS if column.every_ms <= SECOND_MS}
NOT_HERE = ("cold_memory",)
Seen = dict[str, dict[str, list[Any]]]


class Run:
    """A sampler on a copy of the machine, and what it said in a minute."""

    def __init__(self, root: Path) -> None:
        shutil.copytree(KERNELS / KERNEL, root, symlinks=True)
        self.clock = StepClock()
        layout = detect(str(root))
        source = Discovery("n", layout, first_rev=1)
        self.sampler = Sampler(layout, source, "n", self.clock, boot="b" * 32)
        self.sampler._adopt(source.poll(self.clock.mono_us()))

    def minute(self) -> Seen:
        seen: Seen = {}
        for _ in range(SWEEPS):
            sample = self.sampler.sweep()
            for name, value in (*sample.node_columns.items(), *sample.pod_columns.items()):
                scope = "node" if name in sample.node_columns else "pods"
                seen.setdefault(scope, {}).setdefault(name, []).append(value)
            self.clock.step(1000)
        return seen

    def columns_of(self, signal: str) -> set[str]:
        """What one signal fills."""
        sampler = self.sampler
        found = {c for s in sampler._kept if s.name == signal for c in s.columns}
        for sweep in (sampler._pod_files, sampler._root_files):
            steps = [step for step in sweep._steps if step.stats.name == signal]
            found |= {column.name for step in steps for column in step.columns}
        if signal == memory_limits.NAME:
            found |= {*memory_limits.COLUMNS}
        units = [unit for unit in sampler._machine_files._units if unit.stats.name == signal]
        return found | {column for unit in units for column in unit.columns}

    def spoil(self, signal: str, fault: Callable[..., Any]) -> None:
        """Put ``fault`` in the place of whatever reads or parses for this signal."""
        sampler = self.sampler
        for kept in sampler._kept:
            if kept.name == signal:
                kept.visit = fault  # type: ignore[method-assign]
        for sweep in (sampler._pod_files, sampler._root_files):
            sweep._steps = [
                replace(step, parse=fault) if step.stats.name == signal and step.parse else step
                for step in sweep._steps
            ]
        if signal == memory_limits.NAME:
            assert sampler.limits is not None
            sampler.limits.read = fault  # type: ignore[method-assign]
        machine = sampler._machine_files
        for place, unit in enumerate(machine._units):
            if unit.stats.name != signal:
                continue
            if isinstance(unit.origin, NodeSource):
                spoilt = replace(unit.origin, parse=fault)
                machine._units[place] = replace(unit, origin=spoilt)
            else:
                unit.origin.read = fault  # type: ignore[method-assign]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    run = Run(tmp_path_factory.mktemp("whole") / "root")
    return run.minute()


def signals() -> list[str]:
    """Every signal that has a part in a sweep of this machine."""
    layout = detect(str(KERNELS / KERNEL))
    sampler = Sampler(layout, Discovery("n", layout, first_rev=1), "n", StepClock())
    found = {*sampler.stats.signals, *(signal.name for signal in sampler._kept)}
    sampler.close()
    return sorted(found)


def unlike(seen: Seen, whole: Seen) -> set[str]:
    """Columns that do not say in each sample what they said in the undisturbed minute."""
    return {
        name
        for scope in whole
        for name in whole[scope]
        if seen.get(scope, {}).get(name) != whole[scope][name]
    }


class Broken(Exception):
    """Nothing that a signal is expected to raise."""


@pytest.mark.parametrize("signal", signals())
def test_a_signal_that_fails_harms_no_other(tmp_path: Path, whole: Seen, signal: str) -> None:
    run = Run(tmp_path / "root")
    asked = 0

    def fail(*_: object) -> Any:
        nonlocal asked
        asked += 1
        raise Broken(signal)

    run.spoil(signal, fail)
    seen = run.minute()
    assert unlike(seen, whole) <= run.columns_of(signal)
    stats = run.sampler.stats.signals
    assert (stats[signal].errors > 0) == (asked > 0) == (signal not in NOT_HERE)
    if asked:
        assert stats[signal].last_error == f"Broken: {signal}"
    assert not any(other.errors for name, other in stats.items() if name != signal)


@pytest.mark.parametrize("signal", signals())
def test_a_slow_signal_harms_no_other_and_rests_when_nothing_waits_for_it(
    tmp_path: Path, whole: Seen, signal: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(tmp_path / "root")
    clock_ns = time.perf_counter_ns
    lost_ns = asked = 0

    def dawdle(*_: object) -> Any:
        nonlocal lost_ns, asked
        lost_ns += 2 * meter.SLOW_US * 1000
        asked += 1
        raise Broken(signal)

    monkeypatch.setattr(time, "perf_counter_ns", lambda: clock_ns() + lost_ns)
    run.spoil(signal, dawdle)
    seen = run.minute()
    assert unlike(seen, whole) <= run.columns_of(signal)
    stats = run.sampler.stats.signals
    assert not any(other.rests for name, other in stats.items() if name != signal)
    goes_round = signal in {kept.name for kept in run.sampler._kept}
    may_rest = goes_round or not run.columns_of(signal) & EACH_SECOND
    assert (stats[signal].rests > 0) == (may_rest and signal not in NOT_HERE)
    if goes_round:
        assert asked <= 3, "10, 20 and 40 seconds of rest within a minute"


def test_a_signal_that_has_rested_is_asked_again_and_forgiven() -> None:
    stats = meter.SignalStats("one")
    at_us = 0
    for rest_s in (10, 20, 40, 80, 160, 320, 600, 600):
        stats.rest_if_slow(meter.SLOW_US + 1, at_us)
        assert stats.resting(at_us + rest_s * 1_000_000 - 1)
        at_us += rest_s * 1_000_000
        assert not stats.resting(at_us)
    stats.rest_if_slow(meter.SLOW_US, at_us)
    assert not stats.resting(at_us)
    stats.rest_if_slow(meter.SLOW_US + 1, at_us)
    assert not stats.resting(at_us + 10_000_000)
    assert stats.rests == 9


def test_a_part_that_is_slow_does_not_silence_what_a_decision_waits_for() -> None:
    stats = meter.SignalStats("memory_stat", essential=True)
    stats.rest_if_slow(meter.SLOW_US + 1, 0)
    assert not stats.resting(1)


def test_what_one_sweep_asks_of_a_signal_in_parts_is_booked_as_one() -> None:
    stats = meter.SignalStats("one")
    stats.book(1, 10, 5, 1, 1)
    stats.book(1, 20, 5, 0, 0)
    assert (stats.cost_us, stats.sweeps, stats.ok) == (30, 1, False)
    stats.book(2, 7, 5, 0, 0)
    assert (stats.cost_us, stats.cost_us_total, stats.sweeps, stats.ok) == (7, 37, 2, True)
    assert (stats.reads, stats.absent, stats.errors) == (15, 1, 1)


def test_the_metrics_tell_time_success_and_failure_of_each_signal(tmp_path: Path) -> None:
    run = Run(tmp_path / "root")

    def fail(*_: object) -> Any:
        raise Broken

    run.spoil("cpu_usage", fail)
    run.minute()
    agent = cast("NodeAgent", SimpleNamespace(sampler=run.sampler))
    said = {row.name: dict(row.read(agent)) for row in TABLE if row.name.startswith("signal_")}
    every = {(name,) for name in run.sampler.stats.signals}
    assert all(set(values) == every for values in said.values())
    assert set(said) == {
        f"signal_{word}"
        for word in "seconds last_seconds sweeps ok reads absent errors rests".split()
    }
    assert [key for key, ok in said["signal_ok"].items() if not ok] == [("cpu_usage",)]
    assert said["signal_errors"]["cpu_usage",] == 3 * SWEEPS
    assert said["signal_errors"]["memory_stat",] == 0
    assert said["signal_seconds"]["memory_stat",] > said["signal_last_seconds"]["memory_stat",] > 0
    assert said["signal_sweeps"]["memory_stat",] == SWEEPS
    assert said["signal_absent"]["network",] > 0
