"""Recordings made from the simulated cluster's log: small, seeded, with all that usually is."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from random import Random

from agents.log import LAW_VERSION
from schemas import codec
from schemas.topics import BY_NAME, PREFIX, partitions_of
from streams.recording.manifest import Manifest
from streams.recording.pack import Place, pack
from streams.recording.segment import Consumed
from tests.sim import plan
from tests.sim.broker import Broker
from tests.sim.cluster import Cluster
from tests.sim.plan import Plan
from tests.sim.worker import INCARNATION

SEED = 20_261_130


def log_of(
    seed: int = SEED, seconds: int = 60, happens: Callable[[Cluster, int], None] | None = None,
    drawn: Plan | None = None,
) -> tuple[Broker, int]:  # fmt: skip
    """A cluster's topics after so many seconds without faults, and its number of partitions.

    ``happens(cluster, at_ms)`` is called before every quantum and may change the cluster.
    """
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(seed, drawn or plan.draw(Random(seed)), Path(folder))
        try:
            while cluster.at_ms < seconds * 1_000:
                if happens is not None:
                    happens(cluster, cluster.at_ms)
                cluster.quantum()
        finally:
            cluster.close()
    return cluster.broker, cluster.plan.partitions


def bundle_of(broker: Broker, partitions: int, path: Path, from_ms: int = 0) -> Manifest:
    """All of a simulated cluster's topics as one bundle at ``path``, or what came since a time."""
    places: dict[Place, list[Consumed]] = {}
    for topic in BY_NAME.values():
        for partition in range(partitions_of(topic, partitions)):
            records = [r for r in broker.whole(topic.name, partition) if r.timestamp >= from_ms]
            if records:
                places[topic.name, partition] = list(records)
    return pack(path, manifest_of(broker, partitions), places)


def manifest_of(broker: Broker, partitions: int) -> Manifest:
    """What a bundle of that log says of itself."""
    return Manifest(
        kind="bundle", prefix=PREFIX, incarnation=INCARNATION, partitions=partitions,
        software="test", schema_version=codec.VERSION, made_ms=broker.now_ms,
        law_versions=(LAW_VERSION,),
    )  # fmt: skip
