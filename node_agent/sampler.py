"""One sweep over the machine: kernel files in, one `NodeSample` out. Called by the agent's loop.

How often each column is due stands in `schemas.columns`, what takes turns in `signals.cadence`.
A column that is not due is left out of the sample. A value that cannot be had is None, never 0. A
pod whose group goes while it is read has no value at all in that sample. One signal that fails
harms no other. A sweep is synchronous and neither waits nor sleeps.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from node_agent.cgroup.handles import (
    REPROBE_US,
    SPARE_DESCRIPTORS,
    Descriptors,
    GroupFiles,
    NodeFiles,
    raise_descriptor_limit,
)
from node_agent.cgroup.layout import Layout
from node_agent.inventory import Census, InventorySource
from node_agent.signals import (
    BEST_EFFORT_SIGNALS,
    GROUP_SIGNALS,
    kept_signals,
    memory_limits,
    node_readers,
    node_sources,
)
from node_agent.signals.base import Pods, Value
from node_agent.signals.cadence import Cadence
from node_agent.signals.group_sweep import GroupSweep, When
from node_agent.signals.machine_sweep import MachineSweep
from node_agent.signals.memory_limits import MemoryLimits
from node_agent.signals.meter import Meter, SamplerStats
from schemas.columns import POD_COLUMNS, SECOND_MS
from schemas.records import NodeSample

_LOG = logging.getLogger(__name__)
UNKNOWN_BOOT = "0" * 32
EXTRA: tuple[bool, frozenset[str], frozenset[str]] = (True, frozenset(), frozenset())
"""What is due in a sweep between two periods."""


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
        self.evictions: int | None = None  # set by the loop: pods that this start has ended
        self._source = source
        self._clock = clock
        if descriptors is None:
            descriptors = raise_descriptor_limit() - SPARE_DESCRIPTORS
        self._descriptors = Descriptors(descriptors)
        self._machine = NodeFiles(layout.root, self._descriptors)
        self._best_effort: GroupFiles | None = None
        self.limits: MemoryLimits | None = None  # at and above the best-effort root
        self._pods: list[GroupFiles] = []
        self._census: Census | None = None
        self._seq = 0
        self._noted_us: int | None = None
        self._noted: set[tuple[str, str]] = set()
        self._pod_files = GroupSweep(layout, GROUP_SIGNALS, self.stats)
        self._root_files = GroupSweep(layout, BEST_EFFORT_SIGNALS, self.stats)
        self._machine_files = MachineSweep(
            self._machine, node_sources(layout), node_readers(self._machine), self.stats
        )
        self.stats.of(memory_limits.NAME).essential = True
        self._kept = kept_signals(layout, period_ms)
        turns = self._pod_files.turns() | {
            name: POD_COLUMNS[name].every_ms
            for signal in self._kept
            for name in signal.columns
            if POD_COLUMNS[name].every_ms > SECOND_MS
        }
        self._cadence = Cadence(period_ms, turns)

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

    def sweep(self, *, extra: bool = False) -> NodeSample:
        """Measure once; ``extra``: between two periods, memory included, and nobody's turn is used.

        Raises what the inventory source raises, and nothing of the kernel's.
        """
        began_ns = time.perf_counter_ns()
        census = self._source.poll(self._clock.mono_us())
        if census is not self._census:
            self._adopt(census)
        mono_us, wall_ms = self._clock.mono_us(), self._clock.wall_ms()
        if self._machine_files.look(mono_us):
            self._cadence.machine_has(self._machine_files.turns())
        second, pods_turn, machine_turn = EXTRA if extra else self._cadence.next()
        self._seq += 1
        for files in (*self._pods, *filter(None, (self._best_effort,))):
            if files.gone:
                files.meet()
        pod_columns = self._pod_sweep(When(self._seq, mono_us, second, pods_turn))
        node_columns = self._node_sweep(When(self._seq, mono_us, second, machine_turn))
        pod_columns |= self._go_round(mono_us, pods_turn, node_columns.get("oom_kills"))
        self._blank_gone(pod_columns)
        if self.evictions is not None:
            node_columns["evictions"] = self.evictions
        if self.samples_dropped is not None:
            node_columns["samples_dropped"] = self.samples_dropped
        if self._descriptors.exhausted:  # others took what was left to them: give back
            self._descriptors.exhausted = False
            self._close_files()
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
        return found | {signal.name: signal.reason for signal in self._kept if signal.reason}

    def close(self) -> None:
        """Close every descriptor; the sampler is of no more use."""
        self._close_files()
        for signal in self._kept:
            signal.close()

    def _close_files(self) -> None:
        self._machine.close()
        for files in (*self._pods, *filter(None, (self._best_effort,))):
            files.close()
        if self.limits is not None:
            self.limits.close()

    def _adopt(self, census: Census) -> None:
        """Open the groups of new pods, close those of pods that are gone, keep the rest."""
        known = {files.group: files for files in self._pods}
        pods: list[GroupFiles] = []
        for group in census.groups:
            kept = known.pop(group, None)
            pods.append(kept or GroupFiles(self.layout, group, self._descriptors))
        for files in known.values():
            files.close()
        for signal in self._kept:
            signal.forget(set(known))
        self._pods = pods
        root = self._best_effort.group if self._best_effort is not None else None
        if root != census.be_root:
            if self._best_effort is not None:
                self._best_effort.close()
            if self.limits is not None:
                self.limits.close()
            self._best_effort = self.limits = None
            if census.be_root is not None:
                self._best_effort = self.open_group(census.be_root)
                self.limits = MemoryLimits(self.layout, census.be_root, self.open_group)
        self._census = census

    def _pod_sweep(self, when: When) -> dict[str, list[Value]]:
        there = sum(not files.gone for files in self._pods)
        columns = self._pod_files.read(self._pods, when)
        self.stats.vanished += there - sum(not files.gone for files in self._pods)
        return columns

    def _node_sweep(self, when: When) -> dict[str, Value]:
        groups = () if self._best_effort is None else (self._best_effort,)
        columns = self._machine_files.read(when)
        for name, values in self._root_files.read(groups, when).items():
            columns[name] = values[0] if values else None
        return columns | self._limit_columns(when) if when.second else columns

    def _limit_columns(self, when: When) -> dict[str, Value]:
        """The memory limit that best-effort work will reach first."""
        meter = Meter(self.stats.of(memory_limits.NAME))
        values: tuple[Value, ...] = (None, None)
        try:
            values = values if self.limits is None else self.limits.read(when.now_us)
        except Exception as error:  # noqa: BLE001  (it harms no other)
            meter.fail(error)
        meter.reads += 1
        meter.absent += values.count(None)
        meter.book(self._seq, when.now_us)
        return dict(zip(memory_limits.COLUMNS, values, strict=True))

    def _go_round(
        self, now_us: int, turn: frozenset[str], oom_kills: Value
    ) -> dict[str, list[Value]]:
        """What goes round the pods: a little further, and the columns that are due or urgent."""
        assert self._census is not None
        pods = Pods(self._pods, self._census.record.pods)
        columns: dict[str, list[Value]] = {}
        for signal in self._kept:
            stats = self.stats.of(signal.name)
            urgent = False
            values: dict[str, list[Value]] = {}
            due = [n for n in signal.columns if n in turn or POD_COLUMNS[n].every_ms == 0]
            if not stats.resting(now_us):
                meter = Meter(stats)
                try:
                    urgent = signal.visit(pods, now_us, oom_kills)
                    due = list(signal.columns) if urgent else due
                    values = {name: signal.values(name, pods) for name in due}
                except Exception as error:  # noqa: BLE001  (it harms no other)
                    meter.fail(error)
                meter.reads += len(pods.files) * len(due)
                meter.absent += sum(each.count(None) for each in values.values())
                meter.book(self._seq, now_us)
            for name in due:
                columns[name] = values.get(name) or [None] * len(pods.files)
        return columns

    def _blank_gone(self, columns: dict[str, list[Value]]) -> None:
        """A pod whose group went has no value at all."""
        for index, files in enumerate(self._pods):
            if files.gone:
                for values in columns.values():
                    values[index] = None

    def _note_absences(self, now_us: int) -> None:
        """Log each absent file once, at the first sweep and whenever it was asked for again."""
        if self._noted_us is not None and now_us - self._noted_us < REPROBE_US:
            return
        self._noted_us = now_us
        for name, reason in self.absences().items():
            if (name, reason) not in self._noted:
                self._noted.add((name, reason))
                _LOG.info("%s is absent (%s); what it fills stays empty", name, reason)


def in_range(sample: NodeSample) -> NodeSample:
    """The sample without the figures that no 64-bit integer can say: absent, not a wrong one."""

    def said(value: Value) -> Value:
        return value if value is not None and -(1 << 63) <= value < 1 << 63 else None

    return replace(
        sample,
        node_columns={name: said(value) for name, value in sample.node_columns.items()},
        pod_columns={name: [*map(said, values)] for name, values in sample.pod_columns.items()},
    )


def _kernel_boot(root: str) -> str:
    """The kernel's boot id as 32 hex digits; zeros when it does not say."""
    try:
        text = Path(f"{root.rstrip('/')}/proc/sys/kernel/random/boot_id").read_text("ascii")
    except OSError:
        return UNKNOWN_BOOT
    return text.strip().replace("-", "")
