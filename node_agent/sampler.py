"""One sweep over the machine: kernel files in, one `NodeSample` out. Called by the agent's loop.

Cadence (period 1 s by default, 100 ms at least):

    every period         node cpu, memory and pressure, best-effort root, pods' cpu usage, throttled
                         time and own cpu pressure
    once a second at     memory.stat (``memory_used_bytes``), oom_kills
      most
    in turn              run-queue wait: 16 groups and 64 threads a second, the others absent
    one a second         the slow pod columns, each within ``SLOW_CADENCE_MS`` (10 s)

A column that is not due is left out of the sample. A value that cannot be had is None, never 0. A
pod whose group goes while it is read has no value at all in that sample. One signal that fails
harms no other. A sweep is synchronous and neither waits nor sleeps.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from node_agent.cgroup.files import FILES
from node_agent.cgroup.handles import (
    REPROBE_US,
    SPARE_DESCRIPTORS,
    Descriptors,
    GroupFiles,
    NodeFiles,
    Vanished,
    raise_descriptor_limit,
)
from node_agent.cgroup.layout import Layout
from node_agent.inventory import Census, InventorySource
from node_agent.signals import (
    BEST_EFFORT_SIGNALS,
    GROUP_SIGNALS,
    NODE_SIGNALS,
    node_cpu,
    runq_wait,
)
from node_agent.signals.base import GroupSignal, Input, Value
from node_agent.signals.cadence import SECOND_MS, Cadence
from node_agent.signals.meter import Meter, SamplerStats, SignalStats
from schemas.columns import POD_COLUMNS
from schemas.records import NodeSample

_LOG = logging.getLogger(__name__)
UNKNOWN_BOOT = "0" * 32


class Clock(Protocol):
    """Where time comes from."""

    def mono_us(self) -> int:
        """Microseconds of a clock that never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, shown to people only."""


class SystemClock:
    """The machine's own clocks."""

    def mono_us(self) -> int:
        return time.monotonic_ns() // 1000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Step(NamedTuple):
    """One group source with the input of this machine's version; None: it cannot be had here."""

    columns: tuple[str, ...]
    input: Input | None
    every_ms: int
    stats: SignalStats


class Sampler:
    """Reads one node. Not thread-safe; one a process."""

    def __init__(
        self,
        layout: Layout,
        source: InventorySource,
        node: str,
        clock: Clock,
        *,
        period_ms: int = SECOND_MS,
        boot: str | None = None,
        descriptors: int | None = None,
    ) -> None:
        """``boot``: 32 hex digits, random by default; ``descriptors``: how many may be kept, by
        default what the raised limit leaves. Raises ValueError for a period that is too short.
        """
        self.layout = layout
        self.node = node
        self.period_ms = period_ms
        self.boot = boot if boot is not None else secrets.token_hex(16)
        self.kernel_boot = _kernel_boot(layout.root)
        self.stats = SamplerStats()
        self.samples_dropped: int | None = None  # set by the loop: what the outbox gave up
        self._source = source
        self._clock = clock
        self._cadence = Cadence(period_ms)
        if descriptors is None:
            descriptors = raise_descriptor_limit() - SPARE_DESCRIPTORS
        self._descriptors = Descriptors(descriptors)
        self._machine = NodeFiles(layout.root, self._descriptors)
        self._best_effort: GroupFiles | None = None
        self._pods: list[GroupFiles] = []
        self._busy = node_cpu.exact(layout)
        self._waits = runq_wait.RunqWait(layout.root, period_ms)
        self._census: Census | None = None
        self._seq = 0
        self._noted_us: int | None = None
        self._noted: set[tuple[str, str]] = set()
        self._pod_steps = self._plan(GROUP_SIGNALS)
        self._best_effort_steps = self._plan(BEST_EFFORT_SIGNALS)
        for name in (*(signal.NAME for signal in NODE_SIGNALS), runq_wait.NAME):
            self.stats.signals[name] = SignalStats()

    @property
    def census(self) -> Census | None:
        """The pod set of the latest sweep."""
        return self._census

    @property
    def pods(self) -> Sequence[GroupFiles]:
        """Kept descriptors of the pods of the latest sweep, in the order of `census`."""
        return self._pods

    @property
    def best_effort(self) -> GroupFiles | None:
        """Kept descriptors of the best-effort root; None: there is none."""
        return self._best_effort

    def open_group(self, group: str) -> GroupFiles:
        """Files of another group, from the same budget of descriptors; the caller closes them."""
        return GroupFiles(self.layout, group, self._descriptors)

    def sweep(self) -> NodeSample:
        """Measure once. Raises what the inventory source raises, and nothing of the kernel's."""
        began_ns = time.perf_counter_ns()
        census = self._source.poll(self._clock.mono_us())
        if census is not self._census:
            self._adopt(census)
        second, slow = self._cadence.next()
        mono_us, wall_ms = self._clock.mono_us(), self._clock.wall_ms()
        for files in (*self._pods, *filter(None, (self._best_effort,))):
            if files.gone:
                files.meet()
        pod_columns = self._pod_sweep(mono_us, second, slow)
        node_columns = self._node_sweep(mono_us, second)
        if self.samples_dropped is not None:
            node_columns["samples_dropped"] = self.samples_dropped
        if self._descriptors.exhausted:  # others took what was left to them: give back
            self._descriptors.exhausted = False
            self._close_files()
        self._seq += 1
        self._note_absences(mono_us)
        self.stats.sweeps += 1
        self.stats.descriptors_kept = self._descriptors.kept
        self.stats.descriptor_shortfalls = self._descriptors.shortfalls
        self.stats.sweep_cost_us = (time.perf_counter_ns() - began_ns) // 1000
        return NodeSample(
            node=self.node,
            boot=self.boot,
            kernel_boot=self.kernel_boot,
            seq=self._seq,
            mono_us=mono_us,
            wall_ms=wall_ms,
            period_ms=self.period_ms,
            pods_rev=census.record.pods_rev,
            pods=len(self._pods),
            node_columns=node_columns,
            pod_columns=pod_columns,
        )

    def absences(self) -> dict[str, str]:
        """Why a file is absent, by file; of several groups' reasons the last one."""
        found: dict[str, str] = {}
        for files in (self._machine, *filter(None, (self._best_effort,)), *self._pods):
            found.update(files.reasons())
        return found

    def close(self) -> None:
        """Close every descriptor; the sampler is of no more use."""
        self._close_files()

    def _close_files(self) -> None:
        self._machine.close()
        for files in (*self._pods, *filter(None, (self._best_effort,))):
            files.close()

    def _plan(self, signals: tuple[GroupSignal, ...]) -> list[_Step]:
        """Choose each source's input by the version of its controller on this machine."""
        steps: list[_Step] = []
        for signal in signals:
            stats = self.stats.signals.setdefault(signal.NAME, SignalStats())
            for source in signal.SOURCES:
                chosen: Input | None = None
                for version, candidate in ((1, source.v1), (2, source.v2)):
                    if candidate is not None:
                        home = self.layout.hierarchy(FILES[candidate.files[0]].controller)
                        if home is not None and home.version == version:
                            chosen = candidate
                steps.append(_Step(source.columns, chosen, source.every_ms, stats))
        return steps

    def _adopt(self, census: Census) -> None:
        """Open the groups of new pods, close those of pods that are gone, keep the rest."""
        known = {files.group: files for files in self._pods}
        pods: list[GroupFiles] = []
        for group in census.groups:
            kept = known.pop(group, None)
            pods.append(kept or GroupFiles(self.layout, group, self._descriptors))
        for files in known.values():
            files.close()
        self._waits.forget(set(known))
        self._pods = pods
        root = self._best_effort.group if self._best_effort is not None else None
        if root != census.be_root:
            if self._best_effort is not None:
                self._best_effort.close()
            self._best_effort = (
                None
                if census.be_root is None
                else GroupFiles(self.layout, census.be_root, self._descriptors)
            )
        self._census = census

    def _node_sweep(self, now_us: int, second: bool) -> dict[str, Value]:
        columns: dict[str, Value] = {}
        for signal in NODE_SIGNALS:
            meter = Meter(self.stats.signals[signal.NAME])
            for source in signal.SOURCES:
                if source.every_ms == 0 or second:
                    read = (source.file,)
                    values = meter.read(self._machine, read, source.parse, now_us)
                    columns |= _named(source.columns, values)
            if signal is node_cpu and self._busy is not None:
                read = (self._busy.file,)
                values = meter.read(self._machine, read, self._busy.parse, now_us)
                columns |= _named(self._busy.columns, values)
            meter.book()
        for step in self._best_effort_steps:
            meter = Meter(step.stats)
            values = None
            if self._best_effort is not None and not self._best_effort.gone and step.input:
                try:
                    files, parse = step.input.files, step.input.parse
                    values = meter.read(self._best_effort, files, parse, now_us)
                except Vanished:
                    self._best_effort.leave()
            columns |= _named(step.columns, values)
            meter.book()
        return columns

    def _pod_sweep(self, now_us: int, second: bool, slow: frozenset[str]) -> dict[str, list[Value]]:
        columns: dict[str, list[Value]] = {}
        gone = {index for index, files in enumerate(self._pods) if files.gone}
        left: set[int] = set()
        for step in self._pod_steps:
            fast = step.every_ms == 0 or second
            due = [
                (position, name)
                for position, name in enumerate(step.columns)
                if (name in slow if POD_COLUMNS[name].slow else fast)
            ]
            if not due:
                continue
            meter = Meter(step.stats)
            found: list[tuple[Value, ...] | None] = [None] * len(self._pods)
            if step.input is not None:
                files, parse = step.input.files, step.input.parse
                for index, group in enumerate(self._pods):
                    if index not in gone:
                        try:
                            found[index] = meter.read(group, files, parse, now_us)
                        except Vanished:
                            left.add(index)
                            gone.add(index)
            for position, name in due:
                columns[name] = [None if row is None else row[position] for row in found]
            meter.book()
        for index in left:
            self._pods[index].leave()
            self.stats.vanished += 1
        columns[runq_wait.COLUMN] = self._wait_sweep(now_us)
        for index in gone:
            for values in columns.values():
                values[index] = None
        return columns

    def _wait_sweep(self, now_us: int) -> list[Value]:
        meter = Meter(self.stats.signals[runq_wait.NAME])
        try:
            values = self._waits.sweep(self._pods, now_us)
        except (OSError, ValueError, IndexError) as error:
            meter.fail(error)
            values = [None] * len(self._pods)
        meter.reads += len(values)
        meter.absent += values.count(None)
        meter.book()
        return values

    def _note_absences(self, now_us: int) -> None:
        """Log each absent file once, at the first sweep and whenever it was asked for again."""
        if self._noted_us is not None and now_us - self._noted_us < REPROBE_US:
            return
        self._noted_us = now_us
        for name, reason in self.absences().items():
            if (name, reason) not in self._noted:
                self._noted.add((name, reason))
                _LOG.info("%s is absent (%s); what it fills stays empty", name, reason)


def _named(columns: tuple[str, ...], values: tuple[Value, ...] | None) -> dict[str, Value]:
    """Values by column; None for each where there are none."""
    return dict(zip(columns, values or (None,) * len(columns), strict=True))


def _kernel_boot(root: str) -> str:
    """The kernel's boot id as 32 hex digits; zeros when it does not say."""
    try:
        text = Path(f"{root.rstrip('/')}/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return UNKNOWN_BOOT
    return text.strip().replace("-", "")
