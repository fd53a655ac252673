"""The fast encoder says byte for byte what the slow one says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.simulate import fleet, wire
from node_agent.simulate.model import Model
from node_agent.simulate.sampler import Sampler
from node_agent.simulate.trace import load
from schemas import packed
from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.records import NodeSample

INT64 = st.integers(-(2**63), 2**63 - 1)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_batch_is_byte_equal(data: st.DataObject) -> None:
    rows, pods = data.draw(st.integers(1, 4)), data.draw(st.integers(0, 70))
    length = data.draw(st.integers(1, 20))
    letters = st.text("abcdefgh-0123", min_size=length, max_size=length)
    names = [data.draw(letters).encode() for _ in range(rows)]
    boots = [data.draw(st.binary(min_size=16, max_size=16)) for _ in range(rows)]
    seed = data.draw(st.integers(0, 2**32))
    rng = np.random.default_rng(seed)
    node_names = data.draw(st.sets(st.sampled_from(sorted(NODE_COLUMNS))))
    pod_names = data.draw(st.sets(st.sampled_from(sorted(POD_COLUMNS))))
    low, high = -(2**63), 2**63 - 1
    batch = wire.Batch(
        names=names,
        boots=boots,
        kernel_boot=data.draw(st.binary(min_size=16, max_size=16)),
        seq=rng.integers(0, high, rows),
        mono_us=np.array([data.draw(INT64) for _ in range(rows)]),
        wall_ms=data.draw(INT64),
        period_ms=data.draw(st.integers(0, 2**32 - 1)),
        pods_rev=rng.integers(0, 2**32, rows),
        pods=pods,
        node={name: rng.integers(low, high, rows) for name in node_names},
        pod={name: rng.integers(low, high, (rows, pods)) for name in pod_names},
    )
    for row, raw in enumerate(wire.encode(batch)):
        sample = NodeSample(
            node=names[row].decode(),
            boot=boots[row].hex(),
            kernel_boot=batch.kernel_boot.hex(),
            seq=int(batch.seq[row]),
            mono_us=int(batch.mono_us[row]),
            wall_ms=batch.wall_ms,
            period_ms=batch.period_ms,
            pods_rev=int(batch.pods_rev[row]),
            pods=pods,
            node_columns={name: int(values[row]) for name, values in batch.node.items()},
            pod_columns={name: values[row].tolist() for name, values in batch.pod.items()},
        )
        assert raw == packed.encode(sample)


def test_a_living_fleet_is_byte_equal_in_every_rotation() -> None:
    trace = load("azure")
    model = Model(fleet.build(12, 20, 3, 60), trace)
    sampler = Sampler(model, 200)
    rng = np.random.default_rng(0)
    for turn in range(60):
        row, slot = int(rng.integers(12)), int(rng.integers(4))
        if model.present[row, slot]:
            model.free(row, slot)
        else:
            model.place(row, slot, 1500, 10**9, 1 << 30)
        sampler.pods_rev[row] += 1
        model.step(slice(0, 12), 200_000, turn * 60.0)
        for first, last in ((0, 5), (5, 12)):
            raws = sampler.sample(slice(first, last), turn * 200_000, 99)
            for row, raw in enumerate(raws, start=first):
                assert raw == packed.encode(sampler.record(row, turn * 200_000, 99))
                parsed = packed.PackedSample(raw)
                assert parsed.node == model.fleet.names[row].encode()
                assert parsed.pods == 16 + int(model.present[row].sum())


def test_fifty_pods_fit_three_kibibytes() -> None:
    model = Model(fleet.build(2, 50, 0, 60), load("azure"))
    for slot in range(10):
        model.place(0, slot, 1000, 1, 1)
    assert len(Sampler(model, 1000).sample(slice(0, 2), 1, 1)[0]) <= 3072


def test_another_start_has_other_boots_and_is_the_same_fleet_otherwise() -> None:
    first, second = fleet.build(3, 10, 1, 60, start=1), fleet.build(3, 10, 1, 60, start=2)
    assert set(first.boots).isdisjoint(second.boots)
    assert np.array_equal(first.online_cpu_milli, second.online_cpu_milli)


def test_same_seed_same_samples_and_another_seed_others() -> None:
    def samples(seed: int) -> list[bytes]:
        model = Model(fleet.build(5, 10, seed, 60), load("azure"))
        sampler = Sampler(model, 1000)
        out = []
        for turn in range(5):
            model.place(turn, 0, 2000, 10**9, 1 << 30)
            model.step(slice(0, 5), 1_000_000, turn * 1.0)
            out += sampler.sample(slice(0, 5), turn, turn)
        return out

    assert samples(1) == samples(1)
    assert samples(1) != samples(2)
