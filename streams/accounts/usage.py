"""What two samples of one node say of the time between them: use, suppression, satisfaction, OOMs.

Counters are compared within one start of the agent only. A sample that follows the one before
within `EVERY_MS` is passed over (counters go on), but for what it says of OOMs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.classes import BEST_EFFORT, priority_class_of, roles_of
from schemas.packed import PackedSample
from schemas.records import PodFact
from streams.accounts import columns
from streams.accounts.cells import Cells, Place, Span
from streams.accounts.columns import OOM, Values
from streams.accounts.lending import Line
from streams.accounts.machines import GAP_MS
from streams.accounts.satisfaction import MINUTE_MS, PodMinutes, StarvedPod, Starving
from streams.accounts.suppression import is_suppressed

EVERY_MS = 5_000
US_PER_MS = 1000
LONGEST_PAIR_MS = MINUTE_MS + EVERY_MS
"""Two samples further apart say nothing of single minutes."""


@dataclass(slots=True)
class Pod:
    """What is kept of a pod between two samples; ``line``: whose part of the account it is."""

    fact: PodFact
    line: str  # batch or mid; "" for what borrows nothing
    best_effort: bool
    cpu_us: int = -1
    pressure_us: int = -1
    memory_bytes: int = 0
    ooms: int = -1
    minutes: PodMinutes = field(default_factory=PodMinutes)


def pod_of(fact: PodFact) -> Pod:
    """A pod as its fact says it."""
    best_effort = bool(roles_of(fact) & BEST_EFFORT)
    kind = priority_class_of(fact)
    line = "mid" if kind == "mid" else "batch"
    borrows = best_effort or kind in ("mid", "batch", "free")
    return Pod(fact, line if borrows else "", best_effort)


@dataclass(slots=True)
class Seen:
    """The sample before: of which start of the agent, when, the node's counters and levels."""

    boot: bytes
    seq: int
    log_ms: int
    mono_us: int
    counters: dict[str, int]


@dataclass(slots=True)
class Pair:
    """The time between two samples of one start: [begin, end) log ms, of it ``inside`` counts."""

    begin_ms: int
    end_ms: int
    inside_ms: int

    def part(self, amount: int) -> int:
        """What of an amount lies inside, as if it were spread evenly."""
        span_ms = self.end_ms - self.begin_ms
        return amount if self.inside_ms == span_ms else amount * self.inside_ms // max(span_ms, 1)


class Usage:
    """Of one node, sample by sample."""

    def __init__(self, name: str, span: Span, cells: Cells, rule: Starving) -> None:
        self.place = Place()
        self.capacity_milli = 0
        self.command_milli = -1
        self.pods: dict[str, Pod] = {}
        self._name, self._span, self._cells, self._rule = name, span, cells, rule
        self._before: Seen | None = None
        self._set: tuple[PodFact, ...] | None = None
        self._borrowers: list[tuple[int, Pod]] = []
        self._late: tuple[PackedSample, int, tuple[PodFact, ...] | None] | None = None
        self._ooms = -1
        self.starved: list[StarvedPod] = []

    def sample(self, said: PackedSample, at_ms: int, facts: tuple[PodFact, ...] | None) -> None:
        """Fold one; ``facts``: its pods in their order, None where the set is not known."""
        before = self._before
        if before is not None and before.boot == said.boot:
            if said.seq <= before.seq:
                return
        elif before is not None:
            self._finish()
            before = None
            self._begin_anew()
        if facts is not None and len(facts) != said.pods:
            facts = None
        plan = columns.plan_of(said)
        soon = before is not None and at_ms - before.log_ms < EVERY_MS
        self._late = (said, at_ms, facts) if soon else None
        if soon and not plan.ooms:
            return
        node, pods = columns.read(said, plan)
        self._note_ooms(node, pods, facts, at_ms)
        if not soon:
            self._fold(said, at_ms, facts, node, pods)

    def _finish(self) -> None:
        """Fold the last sample of a start, if it was passed over."""
        if self._late is not None:
            said, at_ms, facts = self._late
            self._fold(said, at_ms, facts, *columns.read(said, columns.plan_of(said)))
            self._late = None

    def _fold(
        self, said: PackedSample, at_ms: int, facts: tuple[PodFact, ...] | None,
        node: dict[str, int], pods: dict[str, Values],
    ) -> None:  # fmt: skip
        before = self._before
        same = before is not None and before.boot == said.boot
        self._time(at_ms)
        pair = None
        if same and before is not None:
            span_ms = max((said.mono_us - before.mono_us) // US_PER_MS, 1)
            begin_ms = at_ms - span_ms
            pair = Pair(begin_ms, at_ms, self._span.overlap(begin_ms, at_ms))
        levels = before.counters if same and before is not None else {}
        if pair is not None:
            self._count(pair, levels, node, pods, facts)
        elif facts is not None:
            self._begin(facts, pods)
        self._before = Seen(said.boot, said.seq, at_ms, said.mono_us, levels | node)

    def close(self, at_ms: int) -> None:
        """The last sample, and the last minutes of all pods."""
        self._finish()
        for uid in list(self.pods):
            self._forget(uid)
        if self._before is not None and at_ms - self._before.log_ms > GAP_MS:
            self._time(at_ms)

    def keep(self, uids: set[str]) -> None:
        """Pods that are not among these are gone."""
        self._set = None
        for uid in [uid for uid in self.pods if uid not in uids]:
            self._forget(uid)

    def _forget(self, uid: str) -> None:
        pod = self.pods.pop(uid)
        self._close_minute(pod)
        minutes = pod.minutes
        if minutes.starved:
            self.starved.append(
                StarvedPod(
                    node=self._name, pod=uid, workload=pod.fact.workload, minutes=minutes.starved,
                    satisfaction=float(minutes.worst), first_ms=minutes.first_ms,
                )
            )  # fmt: skip

    def _time(self, at_ms: int) -> None:
        """The node was there since the sample before, or was not heard."""
        if self._before is None:
            return
        inside_ms = self._span.overlap(self._before.log_ms, at_ms)
        machines = self._cells.at(self.place).machines
        if at_ms - self._before.log_ms > GAP_MS:
            machines.silent_ms += inside_ms
        elif inside_ms:
            machines.nodes.add(self._name)
            machines.node_ms += inside_ms
            machines.capacity_us += self.capacity_milli * inside_ms
            begin_ms = max(self._before.log_ms, self._span.from_ms)
            self._cells.seen(self.place.stage, begin_ms, min(at_ms, self._span.to_ms))

    def _begin_anew(self) -> None:
        """Another start of the agent: its counters are compared with none before."""
        self._ooms = -1
        for pod in self.pods.values():
            pod.cpu_us = pod.pressure_us = pod.ooms = -1

    def _begin(self, facts: tuple[PodFact, ...], pods: dict[str, Values]) -> None:
        """Only what there is to compare with."""
        for i, pod in self._borrowing(facts):
            pod.cpu_us, pod.pressure_us = (
                _value(pods, name, i, -1) for name in ("cpu_usage_us", "psi_cpu_some_us")
            )

    def _borrowing(self, facts: tuple[PodFact, ...]) -> list[tuple[int, Pod]]:
        """Which pods of a set borrow, each with its place in the sample's columns."""
        if self._set is not facts:
            pods = ((i, self._pod(fact)) for i, fact in enumerate(facts))
            self._set, self._borrowers = facts, [one for one in pods if one[1].line]
        return self._borrowers

    def _pod(self, fact: PodFact) -> Pod:
        pod = self.pods.get(fact.uid)
        if pod is None or pod.fact is not fact:
            new = pod_of(fact)
            if pod is not None:
                self._set = None
                new.cpu_us, new.pressure_us, new.ooms = pod.cpu_us, pod.pressure_us, pod.ooms
                new.memory_bytes, new.minutes = pod.memory_bytes, pod.minutes
            pod = self.pods[fact.uid] = new
        return pod

    def _count(
        self, pair: Pair, before: dict[str, int], node: dict[str, int], pods: dict[str, Values],
        facts: tuple[PodFact, ...] | None,
    ) -> None:  # fmt: skip
        cell = self._cells.at(self.place)
        cell.machines.busy_us += pair.part(_rise(before, node, "cpu_busy_us"))
        root_us = pair.part(_rise(before, node, "be_cpu_usage_us"))
        root_bytes = (before | node).get("be_memory_used_bytes", 0) * pair.inside_ms
        if facts is not None:
            held_back = self._held_back(pair, before, node, facts)
            for i, pod in self._borrowing(facts):
                used_us, used_bytes = self._pod_pair(pair, pod, pods, i, held_back=held_back)
                if pod.best_effort:
                    root_us -= used_us
                    root_bytes -= used_bytes
        rest: Line = cell.lending.batch_cpu
        if "be_cpu_usage_us" in before and "be_cpu_usage_us" in node:
            rest.used += root_us
        if "be_memory_used_bytes" in (before | node):
            cell.lending.batch_memory.used += root_bytes

    def _held_back(
        self, pair: Pair, before: dict[str, int], node: dict[str, int], facts: tuple[PodFact, ...]
    ) -> bool:
        asked_milli = sum(
            max(pod.fact.cpu_request_milli, 0)
            for _, pod in self._borrowing(facts)
            if pod.best_effort
        )
        quota_milli = (before | node).get("be_cpu_quota_milli", -1)
        bound_milli = quota_milli if quota_milli >= 0 else self.command_milli
        throttled_us = _rise(before, node, "be_cpu_throttled_us")
        span_us = (pair.end_ms - pair.begin_ms) * US_PER_MS
        return is_suppressed(bound_milli, asked_milli, throttled_us, span_us)

    def _pod_pair(
        self, pair: Pair, pod: Pod, pods: dict[str, Values], i: int, *, held_back: bool
    ) -> tuple[int, int]:
        """What a pod used inside; core-microseconds and byte-milliseconds."""
        cpu_us = _value(pods, "cpu_usage_us", i, -1)
        pressure_us = _value(pods, "psi_cpu_some_us", i, -1)
        got_us = cpu_us - pod.cpu_us if cpu_us >= pod.cpu_us >= 0 else -1
        waited_us = pressure_us - pod.pressure_us if pressure_us >= pod.pressure_us >= 0 else 0
        pod.cpu_us, pod.pressure_us = cpu_us, pressure_us
        pod.memory_bytes = _value(pods, "memory_used_bytes", i, pod.memory_bytes)
        if not pair.inside_ms:
            return 0, 0
        cell = self._cells.at(self.place, pod.fact.workload)
        used_us, used_bytes = pair.part(max(got_us, 0)), pod.memory_bytes * pair.inside_ms
        cell.lending.line(pod.line, "cpu").used += used_us
        cell.lending.line(pod.line, "memory").used += used_bytes
        if pod.best_effort:
            cell.suppression.ran_ms += pair.inside_ms
            cell.suppression.suppressed_ms += pair.inside_ms if held_back else 0
            if got_us >= 0 and pod.fact.cpu_request_milli > 0 and _tells(pair):
                self._minutes(pair, pod, got_us, waited_us)
        return used_us, used_bytes

    def _minutes(self, pair: Pair, pod: Pod, got_us: int, waited_us: int) -> None:
        """Spread a pair over the minutes that it touches."""
        span_ms, minutes = pair.end_ms - pair.begin_ms, pod.minutes
        at_ms = max(pair.begin_ms, self._span.from_ms)
        end_ms = min(pair.end_ms, self._span.to_ms)
        while at_ms < end_ms:
            minute = at_ms // MINUTE_MS
            upto_ms = min((minute + 1) * MINUTE_MS, end_ms)
            if minute != minutes.minute:
                gap = minute != minutes.minute + 1
                self._close_minute(pod)
                minutes.minute = minute
                minutes.in_a_row = 0 if gap else minutes.in_a_row
            part_ms = upto_ms - at_ms
            minutes.ms += part_ms
            minutes.got_us += got_us * part_ms // span_ms
            minutes.waited_us += waited_us * part_ms // span_ms
            minutes.asked_us += pod.fact.cpu_request_milli * part_ms
            at_ms = upto_ms

    def _close_minute(self, pod: Pod) -> None:
        sums = self._cells.at(self.place, pod.fact.workload).satisfaction
        pod.minutes.close(sums, self._rule)

    def _note_ooms(
        self, node: dict[str, int], pods: dict[str, Values], facts: tuple[PodFact, ...] | None,
        at_ms: int,
    ) -> None:  # fmt: skip
        inside = self._span.holds(at_ms)
        if OOM in node:
            if inside and node[OOM] > self._ooms >= 0:
                self._cells.at(self.place).machines.node_ooms += node[OOM] - self._ooms
            self._ooms = node[OOM]
        if facts is None or OOM not in pods:
            return
        for i, fact in enumerate(facts):
            pod, count = self._pod(fact), _value(pods, OOM, i, -1)
            if inside and count > pod.ooms >= 0:
                machines = self._cells.at(self.place, fact.workload).machines
                if pod.best_effort:
                    machines.best_effort_pod_ooms += count - pod.ooms
                else:
                    machines.online_pod_ooms += count - pod.ooms
            pod.ooms = max(count, pod.ooms)


def _tells(pair: Pair) -> bool:
    return pair.end_ms - pair.begin_ms <= LONGEST_PAIR_MS


def _rise(before: dict[str, int], now: dict[str, int], name: str) -> int:
    """What a counter rose by; 0 where it is not known on both sides, or fell."""
    return max(now[name] - before[name], 0) if name in now and name in before else 0


def _value(pods: dict[str, Values], name: str, i: int, otherwise: int) -> int:
    values = pods.get(name)
    value = None if values is None else values[i]
    return otherwise if value is None else value
