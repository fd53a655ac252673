"""The state: exact images, what they hold, and that they stay small."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
import yaml

import agents
from agents.state import NODE_FIELDS, POD_FIELDS, PartitionState
from agents.table import Field, Table
from schemas.policy import Policy, parse
from tests.agents.worlds import WARM, Node, World, best_effort, online, said


def busy_world() -> tuple[World, list[Node]]:
    nodes = [Node(f"n{i}", tuple(online(f"{i}-{k}") for k in range(i * 3))) for i in range(5)]
    world = World(WARM, *nodes)
    for _ in range(15):
        for node in nodes:
            world.say(node.sample([100 + k for k in range(len(node.pods))]), after_ms=200)
        world.tick(0)
    return world, nodes


def test_an_image_is_an_exact_round_trip() -> None:
    world, nodes = busy_world()
    meta, arrays = world.state.to_arrays()
    restored = PartitionState.from_arrays(orjson.loads(orjson.dumps(meta)), arrays)
    again, others = restored.to_arrays()
    assert again == meta
    assert {k: (v.dtype, v.tobytes()) for k, v in others.items()} == {
        k: (v.dtype, v.tobytes()) for k, v in arrays.items()
    }
    assert restored.digest() == world.state.digest()
    other = World(None)
    other.state, other.offset, other.log_ms = restored, world.offset, world.log_ms
    samples = [node.sample() for node in nodes]
    assert [said(world.say(s)) for s in samples] == [said(other.say(s)) for s in samples]


def test_an_image_holds_used_rows_only_and_shares_no_memory() -> None:
    world, nodes = busy_world()
    world.tick(1000, ("inventory", 3, b"n4", None))
    meta, arrays = world.state.to_arrays()
    assert len(meta["seats"]) == 4
    assert arrays["node.usage"].shape[0] == 4
    assert arrays["pod.milli"].shape[0] == 0 + 3 + 6 + 9
    before = arrays["pod.milli"].tolist()
    world.run(nodes[1], 3, milli=[999] * 3)
    assert arrays["pod.milli"].tolist() == before


def test_the_digest_is_of_the_content_not_of_where_it_lies() -> None:
    world, nodes = busy_world()
    for _ in range(2):  # move n1 to another span and back to a set of the same size
        kept = nodes[1].pods
        nodes[1].pods = tuple(best_effort(f"x{i}") for i in range(30))
        world.know(nodes[1])
        nodes[1].pods = kept
        world.know(nodes[1])
    meta, arrays = world.state.to_arrays()
    assert PartitionState.from_arrays(meta, arrays).digest() == world.state.digest()
    before = world.state.digest()
    world.say(nodes[2].sample())
    assert world.state.digest() != before


def test_an_image_of_another_version_is_refused() -> None:
    meta, arrays = PartitionState(0, 1).to_arrays()
    meta["version"] = 99
    with pytest.raises(ValueError, match="image version 99, this reads"):
        PartitionState.from_arrays(meta, arrays)


def test_r12_a_pod_costs_less_than_two_kilobytes() -> None:
    def width(fields: tuple[Field, ...]) -> int:
        return sum(
            np.dtype(f.dtype).itemsize * int(np.prod(f.shape, dtype=np.int64)) for f in fields
        )

    assert width(POD_FIELDS) < 1000
    assert width(NODE_FIELDS) < 8192


def test_tables_write_whole_rows_and_keep_what_they_had_when_they_grow() -> None:
    table = Table([Field("a", np.int32, (3,), -1), Field("b", np.uint8)])
    table.grow(4)
    rows = np.array([3, 1])
    table.put("a", rows, np.array([[1, 2, 3], [4, 5, 6]]))
    table.grow(9)
    assert table.take("a", rows).tolist() == [[1, 2, 3], [4, 5, 6]]
    assert table["a"][[0, 8]].tolist() == [[-1] * 3] * 2
    table.put("a", rows, np.array([[7, 7, 7], [8, 8, 8]]))
    assert table["a"][3].tolist() == [7, 7, 7]
    table.clear(slice(0, 4))
    assert table["a"][3].tolist() == [-1] * 3


def test_the_shipped_policy_writes_out_every_default() -> None:
    text = (Path(agents.__file__).parent / "policies" / "default.yaml").read_text()
    assert parse(text, "default.yaml") == Policy()
    document = yaml.safe_load(text)
    for name in Policy.__struct_fields__:
        part = getattr(Policy(), name)
        if name not in ("name", "nodes", "control_group"):
            assert list(document[name]) == list(part.__struct_fields__)
