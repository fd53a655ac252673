"""Every act that a log holds, each with its answer: commands, local acts, evictions. Pure.

An act of a node itself stands in no line of the audit log: it is told by its ack, by the sample
that the node had folded before it (`Folded`), and by the policy that was in force.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Ack, Cause, EvictionReport
from streams.explain import node_words
from streams.explain.line import Line, became, of_command, of_decision
from streams.explain.past import Past, Place
from streams.explain.words import RULES

FIGURES = (
    "memory_total_bytes", "memory_available_bytes", "be_memory_used_bytes",
    "be_memory_limit_bytes", "be_cpu_quota_milli",
)  # fmt: skip
"""Of the sample that a local act follows from: levels, which need no other sample."""
ORDERS_OUT = ("evict_memory", "evict_cpu")
Key = tuple[str, str, int]  # node, boot, monotonic time


class Folded:
    """For each local act the newest sample of its node before it, for evictions the pod sets.

    `note` samples in log order, then `settle`.
    """

    def __init__(self, past: Past) -> None:
        self.found: dict[Key, tuple[Place, dict[str, int]]] = {}
        self._revisions = past.revisions
        times: dict[tuple[str, str], set[int]] = defaultdict(set)
        for _, ack in past.acks:
            if is_local(ack):
                times[ack.node, ack.boot].add(ack.mono_us)
        self._wanted = {at: sorted(each) for at, each in times.items()}
        ordered = [d for _, d in past.decisions if d.decider in ORDERS_OUT]
        self._causes = {(d.cause.partition, d.cause.offset) for d in ordered}
        self._nodes = {node.encode() for node, _ in self._wanted}
        self._nodes |= {node.encode() for d in ordered for node in d.nodes}
        self._last: dict[tuple[str, str], tuple[int, Any]] = {}

    @property
    def nodes(self) -> list[str]:
        """Those whose samples are needed."""
        return sorted(node.decode() for node in self._nodes)

    def note(self, record: Any) -> None:
        """Take a record of topic `samples` over."""
        if record.value is None or record.key not in self._nodes:
            return
        try:
            enc = codec.encoding_of(record.headers)
            sample = codec.parse_sample(record.value, record.key, enc)
        except BadRecord:
            return
        if (record.partition, record.offset) in self._causes:
            self._revisions[record.partition, record.offset] = sample.pods_rev
        at = sample.node.decode(), sample.boot.hex()
        before_us = self._last[at][0] if at in self._last else -1
        if at in self._wanted and sample.mono_us > before_us:
            self._settle(at, sample.mono_us)
            self._last[at] = sample.mono_us, record

    def settle(self) -> None:
        """No more samples come."""
        for at in list(self._last):
            self._settle(at, None)

    def _settle(self, at: tuple[str, str], end_us: int | None) -> None:
        """Acts up to ``end_us`` follow from the sample before."""
        if at not in self._last:
            return
        begin_us, record = self._last[at]
        times = self._wanted[at]
        end = len(times) if end_us is None else bisect_left(times, end_us)
        acts = times[bisect_left(times, begin_us) : end]
        if not acts:
            return
        columns = codec.read("samples", record.key, record.value, record.headers).node_columns
        figures = {name: columns[name] for name in FIGURES if columns.get(name) is not None}
        place = Place("samples", record.partition, record.offset, record.timestamp)
        for mono_us in acts:
            self.found[*at, mono_us] = place, figures


def is_local(ack: Ack) -> bool:
    """Whether a node acted, or failed to, without a command."""
    return ack.outcome == "local" or (ack.outcome == "failed" and not ack.command_id)


def of_act(past: Past, place: Place, ack: Ack, samples: Folded) -> Line:
    """What a node did by itself."""
    sample = samples.found.get((ack.node, ack.boot, ack.mono_us))
    policy = past.policies.at(place.log_ms)
    digest = policy.digest if policy else ""
    said = {"asked_milli": ack.asked_milli, "in_force_milli": ack.in_force_milli}
    figures = ack.terms | {name: value for name, value in said.items() if value >= 0}
    cause = None
    if sample is not None:
        at, levels = sample
        figures |= levels
        cause = Cause(ack.incarnation, at.partition, at.offset, at.log_ms, digest, 0)
    return Line(
        decider=ack.decider,
        log_ms=place.log_ms,
        reason=ack.reason,
        sentence=node_words.local_act(ack),
        rule=node_words.LOCAL_RULES.get(ack.decider, RULES.get(ack.decider, "")),
        terms=figures,
        policy=digest,
        policy_version=policy.record.version if policy else None,
        cause=cause,
        what="local act",
        node=ack.node,
        policy_by=policy.by if policy else "",
        policy_ms=policy.log_ms if policy else None,
        pods=ack.pods,
        said=place,
    )


def of_report(past: Past, place: Place, report: EvictionReport) -> Line:
    """What the bridge said of one pod; the command behind it is told with it where it is known."""
    known = past.commands.get(report.command_id)
    policy = past.policies.at(place.log_ms)
    cause = known[1].cause if known else None
    figures = {
        "tries": report.tries,
        "asked_log_ms": report.asked_log_ms,
        "until_log_ms": report.until_log_ms,
    }
    return Line(
        decider=report.source,
        log_ms=place.log_ms,
        reason=report.reason,
        sentence=node_words.evicted(report),
        rule=node_words.BRIDGE_RULE,
        terms={**figures, **(known[1].terms if known else {}), **report.terms},
        policy=policy.digest if policy else "",
        policy_version=policy.record.version if policy else None,
        cause=cause,
        command_id=report.command_id,
        what="eviction",
        node=report.node,
        policy_by=policy.by if policy else "",
        policy_ms=policy.log_ms if policy else None,
        pods=(report.pod,),
        said=place,
        became=became(past, report.command_id) if known else (),
    )


def every(past: Past, samples: Folded) -> Iterator[Line]:
    """An answer for each command, act of a node and word of the bridge, by time."""
    acts: list[tuple[int, Callable[[], Line]]] = []
    for place, command in past.commands.values():
        acts.append((command.cause.log_ms, partial(of_command, past, place, command)))
    for place, ack in past.acks:
        if is_local(ack):
            acts.append((place.log_ms, partial(of_act, past, place, ack, samples)))
    for place, report in past.reports:
        acts.append((place.log_ms, partial(of_report, past, place, report)))
    acts.sort(key=itemgetter(0))
    for _, line in acts:
        yield line()


def by_command(past: Past, command_id: str) -> list[Line]:
    """What was decided under an id, also where the command itself never went out."""
    known = past.commands.get(command_id)
    if known is not None:
        return [of_command(past, *known)]
    beside = past.decided(command_id)
    return [of_decision(past, *beside)] if beside is not None else []


def by_cause(past: Past, partition: int, offset: int) -> list[Line]:
    """All that was decided from one record of `samples`."""
    found, told = [], set()
    for place, decision in past.decisions:
        if (decision.cause.partition, decision.cause.offset) == (partition, offset):
            lines = [of_decision(past, place, decision, i) for i in range(len(decision.nodes))]
            found += lines
            told |= {line.command_id for line in lines}
    for place, command in past.commands.values():
        at = (command.cause.partition, command.cause.offset)
        if at == (partition, offset) and command.id not in told:
            found.append(of_command(past, place, command))
    return found


def of_pod(past: Past, uid: str, samples: Folded) -> list[Line]:
    """All that names a pod: orders, acts of its node, words of the bridge; by time."""
    found = [of_command(past, *each) for each in past.commands.values() if uid in each[1].pods]
    found += [
        of_act(past, place, ack, samples)
        for place, ack in past.acks
        if uid in ack.pods and is_local(ack)
    ]
    found += [of_report(past, *each) for each in past.reports if each[1].pod == uid]
    return sorted(found, key=lambda line: line.log_ms)


def last_act(past: Past, node: str, samples: Folded) -> Line | None:
    """The newest act of a node itself; None: it did nothing by itself."""
    acts: Iterable[tuple[Place, Ack]] = (e for e in past.acks if e[1].node == node)
    local = [each for each in acts if is_local(each[1])]
    return of_act(past, *local[-1], samples) if local else None
