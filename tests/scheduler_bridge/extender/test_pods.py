"""What is read of pods and nodes: classes, sums, owners; hostile quantities and notes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from lightkube.resources.core_v1 import Node, Pod

from scheduler_bridge.extender import nodes, pods
from scheduler_bridge.extender.nodes import RAW_ALLOCATABLE, THRESHOLDS_ANNOTATION
from scheduler_bridge.extender.pods import FACTORS_ANNOTATION, PodRow
from scheduler_bridge.extender.settings import Annotating, ExtenderSettings, Resources
from scheduler_bridge.http import HttpSettings
from schemas.records import LedgerEntry
from tests.scheduler_bridge.extender.world import (
    NAMES,
    NOW_MS,
    World,
    batch,
    document,
    node_document,
    row,
)

OPEN = HttpSettings(host="0.0.0.0")


def read(spec: dict[str, Any], **more: Any) -> PodRow:
    made = document("p", **more)
    made["spec"].update(spec)
    return pods.read(msgspec.convert(made, Pod), NAMES)


def one(asks: dict[str, str], **more: str) -> dict[str, Any]:
    return {"name": "c", "image": "i", "resources": {"requests": asks}, **more}


def test_a_pod_asks_for_the_larger_of_running_and_starting_and_its_overhead() -> None:
    found = read(
        {
            "containers": [one({"cpu": "300m"}), one({"cpu": "200m", "memory": "1Mi"})],
            "initContainers": [
                one({"cpu": "100m"}, restartPolicy="Always"), one({"cpu": "2"}),
            ],
            "overhead": {"cpu": "50m"},
        },
        asks={"cpu": "1"},
    )  # fmt: skip
    assert found.asked == (2_150, 1 << 20)


def test_classes_ask_in_their_own_resources() -> None:
    mid = {NAMES.mid_cpu: "700", NAMES.mid_memory: "4Ki"}
    plain = row("p", asks=batch(500), limits={"cpu": "1"})
    assert (plain.priority_class, plain.asked, plain.allowed) == ("batch", (500, 1 << 20), (0, 0))
    found = row("p", asks=mid, priority=7500)
    assert (found.priority_class, found.asked, found.borrows) == (
        "mid",
        (700, 4096),
        (0, 0, 700, 4096),
    )
    free = row("p", asks={"cpu": "1"}, priority=3500)
    assert (free.priority_class, free.asked) == ("free", (0, 0))


def test_whose_pod_it_is() -> None:
    assert row("p", owner="DaemonSet").daemonset
    assert not row("p", owner="ReplicaSet").daemonset
    assert row("p", owner="ReplicaSet").workload == "test/o"
    assert (row("p", node="n").holds, row("p", node="n", phase="Failed").holds) == (True, False)
    assert not row("p").holds


@pytest.mark.parametrize("note", ["", "[]", '{"cpu": "much"}', '{"cpu": 1001}', '{"cpu": -1}'])
def test_factors_that_cannot_be_read_were_not_said(note: str) -> None:
    assert row("p", annotations={FACTORS_ANNOTATION: note}).factors == (-1, -1)


def test_a_quantity_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="'x' is no quantity"):
        row("p", asks={"cpu": "x"})
    made = node_document("n")
    made["status"]["allocatable"]["memory"] = "x"
    node = msgspec.convert(made, Node)
    with pytest.raises(ValueError, match="'x' is no quantity"):
        nodes.read(node, "")


@pytest.mark.parametrize(
    ("notes", "expected"),
    [
        ({}, ((-1, -1),) * 3),
        ({THRESHOLDS_ANNOTATION: '{"usageThresholds": {"cpu": 101}}'}, ((-1, -1),) * 3),
        (
            {THRESHOLDS_ANNOTATION: '{"usageThresholds": {"cpu": 7}, "prodUsageThresholds": {}}'},
            ((7, -1), (-1, -1), (-1, -1)),
        ),
        (
            {THRESHOLDS_ANNOTATION: '{"aggregatedUsage": {"usageThresholds": {"memory": 9}}}'},
            ((-1, -1),) * 3,
        ),
        (
            {
                THRESHOLDS_ANNOTATION: '{"aggregatedUsage": {"usageThresholds": {"memory": 9},'
                ' "usageAggregationType": "p95"}}'
            },
            ((-1, -1), (-1, -1), (-1, 9)),
        ),
    ],
)
def test_bounds_of_a_node(notes: dict[str, str], expected: Any) -> None:
    made = nodes.read(msgspec.convert(node_document("n", notes=notes), Node), "")
    assert made.bounds == expected


def test_the_true_size_of_an_amplified_node() -> None:
    notes = {RAW_ALLOCATABLE: '{"cpu": "4", "memory": 1024}'}
    assert nodes.read(msgspec.convert(node_document("n", notes=notes), Node), "").allocatable == (
        4_000, 1024,
    )  # fmt: skip
    half = {RAW_ALLOCATABLE: '{"cpu": "4", "memory": "much"}'}
    assert nodes.read(msgspec.convert(node_document("n", notes=half), Node), "").allocatable == (
        16_000, 64 << 30,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "said"),
    [
        (Annotating, {"writes_per_s": 0}, "writes_per_s is 0; allowed: 1 to 1000"),
        (Annotating, {"change": 101}, "change is 101; allowed: 1 to 100"),
        (ExtenderSettings, {"brokers": "b:1", "unsure_ms": 1}, "unsure_ms is 1; allowed: 1000"),
        (ExtenderSettings, {"brokers": "b:1", "http": OPEN}, "anyone could have pods bound"),
        (Resources, {"batch_cpu": "cpu"}, "want one with a domain"),
        (Resources, {"batch_cpu": "x.org/föö bar"}, "want one with a domain"),
        (Resources, {"batch_cpu": NAMES.mid_cpu}, "each must be another"),
    ],
)
def test_bad_settings_are_refused(kind: Any, given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        kind(**given)


def test_open_to_all_nothing_is_bound() -> None:
    assert not ExtenderSettings("b:1", http=OPEN, binds=False).binds


def test_sums_over_pods_that_ask_for_all_that_a_number_can_say_stay_numbers() -> None:
    most = str(2**63 - 1)  # what the API server makes of 8Ei
    world = World()
    world.join("n")
    world.hear(LedgerEntry("n", "yarn", 2**63 - 1, 2**63 - 1))
    for name in "abc":
        asks = {NAMES.batch_cpu: most, NAMES.batch_memory: most}
        world.fleet.put(row(name, asks=asks, node="n"), NOW_MS, True)
    assert world.fleet.refresh() == 1
    pending = world.fleet.loads(np.array([world.fleet.rows_of(["n"])[0]])).pending
    assert pending.min() > 0
