"""Samples of simulated nodes: which columns are due, in which order the pods stand, sequence.

The live loop and the load generator call `sample` for the rows whose period has come.
"""

from __future__ import annotations

import numpy as np

from node_agent.simulate import wire
from node_agent.simulate.model import SLOW_COLUMNS, Model
from node_agent.simulate.trace import IntArray
from schemas.columns import FAST_POD_COLUMNS, SLOW_MS
from schemas.records import NodeSample


class Sampler:
    """Sequence and pod-set revision of each node; rotation of the slow columns."""

    def __init__(self, model: Model, period_ms: int) -> None:
        fleet = model.fleet
        self.model, self.period_ms = model, period_ms
        self.seq: IntArray = np.zeros(len(fleet.names), np.int64)
        self.pods_rev: IntArray = np.ones(len(fleet.names), np.int64)
        self.keys = [name.encode() for name in fleet.names]
        self._boots = [bytes.fromhex(boot) for boot in fleet.boots]
        self._kernel_boot = bytes.fromhex(fleet.kernel_boot)
        # One slow column a turn, each at least SLOW_MS apart.
        self._turn = max(1, SLOW_MS // len(SLOW_COLUMNS) // period_ms)

    def sample(self, rows: slice, mono_us: int, wall_ms: int) -> list[bytes]:
        """Packed samples of ``rows``, in order; their sequence moves on."""
        self.seq[rows] += 1
        first = rows.start
        there = self.model.present[rows]
        counts = self.model.fleet.online_pods + there.sum(axis=1)
        out: list[bytes] = [b""] * len(counts)
        for slow in np.unique(self._slow_of(self.seq[rows])):
            due = self._slow_of(self.seq[rows]) == slow
            for pods in np.unique(counts[due]):
                some = np.flatnonzero(due & (counts == pods))
                packed = wire.encode(
                    self._batch(some + first, int(pods), int(slow), mono_us, wall_ms)
                )
                for at, raw in zip(some, packed, strict=True):
                    out[at] = raw
        return out

    def record(self, row: int, mono_us: int, wall_ms: int) -> NodeSample:
        """The newest sample of one node as a record, value by value."""
        model = self.model
        order = self._order(np.array([row]))[0]
        names = self._pod_columns(int(self._slow_of(self.seq[row : row + 1])[0]))
        return NodeSample(
            node=model.fleet.names[row],
            boot=model.fleet.boots[row],
            kernel_boot=model.fleet.kernel_boot,
            seq=int(self.seq[row]),
            mono_us=mono_us,
            wall_ms=wall_ms,
            period_ms=self.period_ms,
            pods_rev=int(self.pods_rev[row]),
            pods=len(order),
            node_columns={name: int(values[row]) for name, values in model.node.items()},
            pod_columns={
                name: [int(model.pod[name][row, slot]) for slot in order] for name in names
            },
        )

    def _slow_of(self, seq: IntArray) -> IntArray:
        """Which slow column goes with a sample of this sequence; -1: none this time."""
        turn = seq // self._turn % len(SLOW_COLUMNS)
        return np.where(seq % self._turn == 0, turn, -1)

    def _pod_columns(self, slow: int) -> tuple[str, ...]:
        return FAST_POD_COLUMNS if slow < 0 else (*FAST_POD_COLUMNS, SLOW_COLUMNS[slow])

    def _order(self, rows: IntArray) -> IntArray:
        """Slots in column order, [row, pod]: online pods, then the batch slots that are taken."""
        online = self.model.fleet.online_pods
        there = self.model.present[rows]
        taken = int(there[0].sum())
        slots = np.argsort(~there, axis=1, kind="stable")[:, :taken] + online
        heads = np.broadcast_to(np.arange(online), (len(rows), online))
        return np.concatenate([heads, slots], axis=1)

    def _batch(
        self, rows: IntArray, pods: int, slow: int, mono_us: int, wall_ms: int
    ) -> wire.Batch:
        model = self.model
        names = self._pod_columns(slow)
        if pods == model.fleet.slots:
            pod = {name: model.pod[name][rows] for name in names}
        else:
            order = self._order(rows)
            pod = {name: model.pod[name][rows[:, None], order] for name in names}
        return wire.Batch(
            names=[self.keys[row] for row in rows],
            boots=[self._boots[row] for row in rows],
            kernel_boot=self._kernel_boot,
            seq=self.seq[rows],
            mono_us=np.full(len(rows), mono_us, np.int64),
            wall_ms=wall_ms,
            period_ms=self.period_ms,
            pods_rev=self.pods_rev[rows],
            pods=pods,
            node={name: values[rows] for name, values in model.node.items()},
            pod=pod,
        )
