"""What the topics say about a failover: first decisions, and capacity held at what is lent.

Pure but for `read_topic`; called by `tests.bench.failover` after everything has ended.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from schemas.ledger import parse
from schemas.records import LEASE_KEY
from schemas.topics import full_name
from streams import topic_reader
from streams.checker import Verdict, check

WORD_MS = 3_000  # a node is spoken of again within so much of its partition's first decision
LEDGER_LAG_MS = 8_000  # from an entry in the ledger to the tick that admits it, at most


@dataclass(frozen=True, slots=True)
class Kill:
    """Workers that went away. Times by the broker's clock, which is this machine's.

    ``dead_ms``: a record appended later was not for them any more.
    """

    at_ms: float
    dead_ms: float
    orphans: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """An output: when the broker got it, and the cause."""

    partition: int
    offset: int
    cause_ms: int
    appended_ms: int


def read_topic(brokers: str, prefix: str, topic: str) -> list[Any]:
    """Every record of a topic as it is now."""

    async def read() -> list[Any]:
        return [r async for r in topic_reader.whole(brokers, full_name(prefix, topic))]

    return asyncio.run(read())


def tick_decisions(records: Iterable[Any]) -> list[Said]:
    """Of topic `commands`: each tick of each partition says its decisions with a lease."""
    found = []
    for record in records:
        if record.key == LEASE_KEY:
            cause = orjson.loads(record.value)["cause"]
            found.append(
                Said(cause["partition"], cause["offset"], cause["log_ms"], record.timestamp)
            )
    return found


def first_decisions_s(kills: Sequence[Kill], said: Sequence[Said]) -> list[float | None]:
    """For each orphan of each kill: seconds from the kill to the first decision on a tick that was
    appended after the victim's death; None: never.
    """
    by_partition: dict[int, list[Said]] = defaultdict(list)
    for one in said:
        by_partition[one.partition].append(one)
    found: list[float | None] = []
    for kill in kills:
        for partition in kill.orphans:
            fresh = [s.appended_ms for s in by_partition[partition] if s.cause_ms > kill.dead_ms]
            found.append((min(fresh) - kill.at_ms) / 1000 if fresh else None)
    return found


@dataclass(slots=True)
class Hold:
    """How capacity held after every state was lost."""

    nodes: int = 0  # with capacity before the loss
    nodes_above: int = 0  # that were offered more than was lent, so that a hold means something
    nodes_lent: int = 0  # with something lent when they were first heard again
    held_records: int = 0
    silent_nodes: list[str] = field(default_factory=list)  # not heard again, or late
    wrong: list[str] = field(default_factory=list)  # another value than what was lent
    early: list[str] = field(default_factory=list)  # said to be warm too soon
    warm_nodes: int = 0  # that were offered by measurement again
    first_s: float = 0.0  # the latest first word of a node, after its partition's first decision


def judge_hold(
    capacity: Sequence[Any],
    ledger: Sequence[Any],
    resumed: dict[int, Said],
    lost_at: dict[int, int],
    cold_ms: int,
) -> Hold:
    """``resumed``: first decision of a partition by a worker that lost all; ``lost_at``: end of
    its log at the loss; ``cold_ms``: so long after that decision no node can be warm.
    """
    lent: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for entry in ledger:
        if entry.value is not None:
            lent[parse(entry.key).node].append(
                (entry.timestamp, orjson.loads(entry.value)["cpu_milli"])
            )
    before: dict[str, int] = {}
    after: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for record in capacity:
        said = orjson.loads(record.value) if record.value else None
        if said is None:
            continue
        if said["cause"]["offset"] < lost_at[said["cause"]["partition"]]:
            before[said["node"]] = said["batch_cpu_milli"]
        else:
            after[said["node"]].append(said)
    hold = Hold(nodes=len(before))
    for node, offered in before.items():
        _judge_node(node, offered, after[node], lent[node], resumed, cold_ms, hold)
    return hold


def _judge_node(
    node: str,
    offered: int,
    after: list[dict[str, Any]],
    lent: list[tuple[int, int]],
    resumed: dict[int, Said],
    cold_ms: int,
    hold: Hold,
) -> None:
    if not after:
        hold.silent_nodes.append(node)
        return
    first = after[0]
    begun_ms = resumed[first["cause"]["partition"]].cause_ms
    late_ms = first["cause"]["log_ms"] - begun_ms
    hold.first_s = max(hold.first_s, late_ms / 1000)
    if late_ms > WORD_MS:
        hold.silent_nodes.append(f"{node} for {late_ms} ms")
    hold.nodes_above += offered > first["cpu_terms"]["lent"]
    hold.nodes_lent += first["cpu_terms"]["lent"] > 0
    for said in after:
        now_ms = said["cause"]["log_ms"]
        if said["reason"] != "cold":
            hold.warm_nodes += 1
            if now_ms < begun_ms + cold_ms:
                hold.early.append(f"{node} {said['reason']} after {now_ms - begun_ms} ms")
            return
        hold.held_records += 1
        known = {0} if not lent or lent[0][0] > now_ms - LEDGER_LAG_MS else set[int]()
        for at, (appended_ms, milli) in enumerate(lent):
            replaced_ms = lent[at + 1][0] if at + 1 < len(lent) else float("inf")
            if appended_ms <= now_ms and replaced_ms > now_ms - LEDGER_LAG_MS:
                known.add(milli)
        if said["batch_cpu_milli"] not in known:
            hold.wrong.append(f"{node} {said['batch_cpu_milli']} of {sorted(known)}")


def check_share(
    brokers: str, prefix: str, journals: list[Path], share: tuple[int, int], nodes: str
) -> Verdict:
    """A part of the checker's work, for a process of its own."""
    return asyncio.run(check(brokers, prefix, journals, share, nodes))


def check_all(
    brokers: str, prefix: str, journals: list[Path], processes: int, nodes: str
) -> Verdict:
    """The checker's verdict, its work shared among processes."""
    with ProcessPoolExecutor(processes) as pool:
        parts = [
            pool.submit(check_share, brokers, prefix, [] if i else journals, (i, processes), nodes)
            for i in range(processes)
        ]
        verdict = parts[0].result()
        for part in parts[1:]:
            verdict.add(part.result())
    return verdict
