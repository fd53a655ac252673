"""One example of every record, and their golden bytes.

``python -m tests.schemas.examples`` adds a golden file where the bytes are new: the first, or the
next generation after a field was added. It never rewrites one: what went out once must be
readable for good.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from schemas import codec, packed
from schemas.columns import COLUMNS, FAST_POD_COLUMNS, SLOW_POD_COLUMNS
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.records import (
    Ack,
    Capacity,
    Cause,
    Command,
    CpuTopology,
    DeadLetter,
    Decision,
    EvictionReport,
    FleetFacts,
    Installation,
    Inventory,
    IsolationSettings,
    Job,
    Lease,
    LedgerEntry,
    NodeMinute,
    NodeSample,
    PartitionHealth,
    PodFact,
    PolicyRecord,
    ResctrlFacts,
    Reservation,
    Signal,
    Sli,
    Tick,
    Zone,
)

GOLDEN = Path(__file__).parent / "golden"
CAUSE = Cause(1_790_000_000_000, 3, 4711, 1_790_000_123_456, "deac2d420b5cb107", 1)
POD_A, POD_B = "0d5c1f3e-a", "77aa01b2-b"
OLDEST_NODE_COLUMNS = [c.name for c in COLUMNS if c.scope == "node" and c.id <= 13]
SAMPLE = NodeSample(
    node="node-0001",
    boot="00112233445566778899aabbccddeeff",
    kernel_boot="ffeeddccbbaa99887766554433221100",
    seq=42,
    mono_us=98_765_432_100,
    wall_ms=1_790_000_123_400,
    period_ms=1000,
    pods_rev=7,
    pods=3,
    node_columns={
        **{name: 1_000_003 * place for place, name in enumerate(OLDEST_NODE_COLUMNS, 1)},
        "be_cpu_quota_milli": -1,
        "cpu_steal_us": None,
    },
    pod_columns={name: [10 + place, None, 2**62] for place, name in enumerate(FAST_POD_COLUMNS)}
    | {SLOW_POD_COLUMNS[5]: [-1, 4 * 2**30, 0]},
)
EXAMPLES: tuple[Any, ...] = (
    SAMPLE,
    Tick(3, 1_790_000_000_000, 1, {"fleet/0": 99, "inventory/3": 12, "policies/0": 1}),
    Inventory(
        node="node-0001",
        pods_rev=7,
        cpu_capacity_milli=64_000,
        memory_capacity_bytes=256 * 2**30,
        cpu_allocatable_milli=62_000,
        cpu_reserved_milli=2_000,
        kernel="6.18.5",
        capabilities={"psi": True, "resctrl": False},
        labels={"pool": "pilot"},
        reserved_cpus="0-1",
        cpu_ratio_permille=1_200,
        third_party_cpu_milli=500,
        zones=(Zone("node0", 32_000, 2**37), Zone("node1", 30_000, 2**37)),
        pods=(
            PodFact(POD_A, "web-0", "shop", "web", "LS", "prod", 9_000, 4_000, 8_000, 2**33),
            PodFact(POD_B, "etl-9", "batch", "etl", "BE", "batch", 5_000, evictable=False),
        ),
        topology=CpuTopology((0, 1, 2, 3), (0, 0, 1, 1), (0, 0, 0, 0), (0, 0, 0, 0)),
        resctrl=ResctrlFacts(0xFFF, (0, 1), bandwidth=True),
        system_cpus="3",
    ),
    Command(
        id="1790000000000.3.4711.node-0001.suppress",
        node="node-0001",
        decider="suppress",
        cause=CAUSE,
        expires_log_ms=1_790_000_153_456,
        reason="online_rose",
        allow_milli=12_500,
        terms={"capacity": 64_000, "online": 29_100},
        cpus=(4, 5, 36, 37),
        settings=IsolationSettings(
            classes={"BE": {"bvt": -1, "oom_score_adj": 1000}},
            pods=(POD_A, POD_B),
            pod_knobs={"cpu_quota_us": [120_000, None], "memory_min_bytes": [2**33, 0]},
            tiers={"BestEffort": {"bvt": -1}},
            schemata={"BE": "L3:0=f;1=f;"},
        ),
    ),
    Lease(CAUSE, 1_790_000_153_456),
    Ack(
        node="node-0001",
        boot=SAMPLE.boot,
        seq=43,
        mono_us=98_766_000_000,
        decider="suppress",
        outcome="applied",
        command_id="1790000000000.3.4711.node-0001.suppress",
        incarnation=CAUSE.incarnation,
        offset=CAUSE.offset,
        asked_milli=12_500,
        in_force_milli=12_500,
        terms={"before_milli": 13_000, "beyond_permille": 430},
    ),
    Capacity(
        node="node-0001",
        cause=CAUSE,
        batch_cpu_milli=0,
        batch_memory_bytes=34_359_738_368,
        reason="fell",
        new_work=False,
        computed_cpu_milli=-2_600,
        computed_memory_bytes=34_359_738_368,
        cpu_terms={"capacity": 16_000, "margin": 5_600, "system": 2_000, "need": 11_000},
        memory_terms={"capacity": 2**36},
        mid_cpu_milli=3_000,
        mid_reason="raise",
        computed_mid_cpu_milli=3_200,
        mid_cpu_terms={"capacity": 16_000, "long": 9_000},
        zone_cpu_milli=[0, 0],
        zone_memory_bytes=[2**34, 2**34],
    ),
    Reservation(
        node="node-0001",
        cause=CAUSE,
        warm_ms=3_600_000,
        cpu_milli={"limit": 40_000, "usage": 21_000, "short": 24_000, "long": 30_000},
        memory_bytes={"limit": 2**37, "usage": 2**36, "short": 2**36, "long": 2**36},
        cpu_percentiles_milli={"p50": 20_000, "p99": 23_000},
        system_cpu_milli=900,
        pods=(POD_A,),
        pod_cpu_milli={"usage": [3_100], "short": [3_500]},
    ),
    Signal(
        node="node-0001",
        cause=CAUSE,
        ill=True,
        pods=(POD_A, POD_B),
        pressure_us_per_s=[120_000, None],
        pressure_median=[4_000, None],
        pressure_score_permille=[7_300, None],
    ),
    Decision(
        decider="suppress",
        cause=CAUSE,
        nodes=("node-0001", "node-0002"),
        outcome=("lowered", "held"),
        columns={"allow_milli": [12_500, 9_000]},
        command_ids=("1790000000000.3.4711.node-0001.suppress", ""),
    ),
    FleetFacts(4711, 24, 5_000, 3, 41, 8, 0, 10_000, "", (1, 0, 2)),
    Installation(CAUSE.incarnation, 24),
    PartitionHealth(CAUSE, 208, 1, 2, 1),
    EvictionReport(
        node="node-0001",
        pod="6f1c0d5e-0000-4000-8000-000000000007",
        source="evict_cpu",
        outcome="waiting",
        reason="disruption_budget",
        why="cpu_starved",
        command_id="1790000000000.3.4711.node-0001.evict_cpu",
        namespace="batch",
        name="etl-9",
        workload="batch/etl",
        tries=2,
        asked_log_ms=1_790_000_100_000,
        until_log_ms=1_790_000_160_000,
    ),
    LedgerEntry("node-0001", "kubernetes", 8_000, 2**34, 500, 0, ("batch/etl-9",), 1_000, 2**30),
    LedgerClaim("node-0001", "yarn", "share", 30_000, 4_000, 2**33),
    LedgerGrant(
        "node-0001",
        "yarn",
        "share",
        False,
        "no_room",
        7,
        4711,
        1_790_000_130_000,
        2_000,
        2**32,
        lendable_cpu_milli=9_000,
        lendable_memory_bytes=2**35,
    ),
    LedgerReign(7, "bridge-0"),
    Sli("web", "node-0001", 10_000, 1_900, 8_700, 41_233, 2, 1_790_000_123_000, 4_100, 21_300),
    Job("etl-9", "node-0001", "suppressed", 412, 9_000_000_000, 1, recoverable=False),
    PolicyRecord("default", 3, "deac2d420b5cb107", "name: default\n", "ana", "first pilot"),
    DeadLetter(
        "samples", 3, 4712, "checksum", "crc32 of 2768 bytes differs", "6e31", "53575331", 9
    ),
    NodeMinute(
        node="node-0001",
        start_ms=1_790_000_100_000,
        reservations=6,
        cpu_usage_max_milli=21_000,
        signals=5,
        ill_signals=1,
        score_max_permille=7_300,
        capacities=1,
        batch_cpu_milli=0,
        batch_memory_bytes=2**35,
        new_work=False,
        seen={"capacity": (CAUSE.incarnation, CAUSE.offset)},
    ),
)


def current() -> dict[str, str]:
    """Stem of the golden file -> what it says, as the code has it now."""
    made = {type(example).__name__: codec.encode(example).decode() for example in EXAMPLES}
    return made | {"packed": packed.encode(SAMPLE).hex()}


def generations(stem: str) -> list[str]:
    """What went out so far under a stem, oldest first."""
    return [path.read_text().rstrip("\n") for path in sorted(GOLDEN.glob(f"{stem}.*.golden"))]


def main() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for stem, text in current().items():
        known = generations(stem)
        if not known or known[-1] != text:
            path = GOLDEN / f"{stem}.{len(known) + 1:03}.golden"
            path.write_text(text + "\n")
            sys.stderr.write(f"wrote {path.name}\n")


if __name__ == "__main__":
    main()
