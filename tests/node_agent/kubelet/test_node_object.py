"""The node object and the contract of its annotations."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from node_agent.kubelet import node_object
from node_agent.kubelet.wire import BadAnswer

GI = 1 << 30


def node(annotations: dict[str, Any] | None = None, **status: Any) -> bytes:
    notes = {
        key: text if isinstance(text, str) else orjson.dumps(text).decode()
        for key, text in (annotations or {}).items()
    }
    about = {"name": "node-1", "labels": {"pool": "a"}, "annotations": notes}
    return orjson.dumps({"kind": "Node", "metadata": about, "status": status})


def read(annotations: dict[str, Any] | None = None, **status: Any) -> dict[str, Any]:
    return node_object.read(node(annotations, **status), "node-1")


def test_labels_and_what_can_be_allocated() -> None:
    said = read({"slackwater.io/policy": "{}", "other/x": "y"}, allocatable={"cpu": "15800m"})
    assert said == {
        "labels": {"pool": "a"},
        "annotations": {"slackwater.io/policy": "{}"},
        "cpu_allocatable_milli": 15_800,
    }


def test_an_amplified_allocatable_is_not_believed() -> None:
    raw = {node_object.RAW_ALLOCATABLE: {"cpu": "16"}}
    said = read(raw, allocatable={"cpu": "24", "memory": "62Gi"})
    assert (said["cpu_allocatable_milli"], said["memory_allocatable_bytes"]) == (16_000, 62 * GI)


def test_what_other_systems_were_given_of_batch_is_added_up() -> None:
    def given(priority: str, cpu: object, memory: object) -> dict[str, Any]:
        resources = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
        return {"name": "hadoop-yarn", "priority": priority, "resources": resources}

    allocations = [
        given("koord-batch", "4000", "8Gi"),
        given("koord-batch", 1000, str(GI)),
        given("koord-mid", "7", "7"),
        given("koord-batch", "-3", "lots"),
    ]
    said = read({node_object.THIRD_PARTY: {"allocations": allocations}})
    assert (said["third_party_cpu_milli"], said["third_party_memory_bytes"]) == (5000, 9 * GI)


def test_reservation_daemons_and_ratio() -> None:
    said = read(
        {
            node_object.RESERVATION: {
                "resources": {"cpu": "2", "memory": "1Gi"},
                "reservedCPUs": "0,1",
            },
            node_object.SYSTEM: {"cpuset": "2-3"},
            node_object.RATIO: "1.25",
        }
    )
    assert (said["cpu_reserved_milli"], said["memory_reserved_bytes"]) == (2000, GI)
    assert (said["reserved_cpus"], said["system_cpus"]) == ("0,1", "2-3")
    assert said["cpu_ratio_permille"] == 1250
    assert "system_cpus" not in read(
        {node_object.SYSTEM: {"cpuset": "2-3", "cpusetExclusive": False}}
    )


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"reservedCPUs": "x"}', "[" * 70_000])
def test_annotations_that_cannot_be_read_say_nothing(text: str) -> None:
    keys = (node_object.THIRD_PARTY, node_object.RESERVATION, node_object.SYSTEM)
    said = read(dict.fromkeys((*keys, node_object.RAW_ALLOCATABLE), text))
    numbers = {key: value for key, value in said.items() if key not in ("labels", "annotations")}
    assert not any(numbers.values())
    assert not read({node_object.RATIO: "-1.5"}).get("cpu_ratio_permille")


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (b"", "not a node"),
        (b'{"kind": "Status", "metadata": {}}', "not a node"),
        (orjson.dumps({"kind": "Node", "metadata": {"name": "node-2"}}), "instead of node node-1"),
        (orjson.dumps({"kind": "Pod", "metadata": {"name": "node-1"}}), "instead of node node-1"),
    ],
)
def test_another_object_is_refused(raw: bytes, word: str) -> None:
    with pytest.raises(BadAnswer, match=word):
        node_object.read(raw, "node-1")
