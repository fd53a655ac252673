"""What happens on simulated nodes: use, contention, progress of batch work, memory. Pure numpy.

The shell sets `allow_milli`, places batch pods and calls `step` for a span of rows; the counters
are those of a kernel and only grow. The model, all elementwise over [node] and [node, pod]:

- Online pods demand their trace's share of their request. System work takes a fixed share.
- Batch pods want what their work wants, together at most the quota in force, shared in proportion;
  they run at the lowest weight: they get what online and system leave, at least `LEFT_PERMILLE`.
- ``over`` = online + min(batch want, quota) + system above capacity: the collision. The share of
  time that an online thread waits is `IDLE_WAIT` + `BUSY_WAIT` x load^4 + `COLLISION_WAIT` x
  over / capacity, at most 1; it feeds the pods' cpu pressure and, times use, run-queue wait.
- Throttled batch pods show pressure for the share they were refused, and drag the node's up.
- Batch progress is CPU really used. Anonymous memory follows load; page cache grows with io and
  is available memory; a batch pod's memory fills within seconds and goes with the pod.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from node_agent.simulate.fleet import MIB, SYSTEM_BYTES, SYSTEM_CPU_PERMILLE, Fleet
from node_agent.simulate.trace import FloatArray, IntArray, Trace
from schemas.columns import FAST_POD_COLUMNS

UNLIMITED = -1
LEFT_PERMILLE = 10
IDLE_WAIT, BUSY_WAIT, COLLISION_WAIT = 0.002, 0.03, 0.8
ANON_BASE, ANON_BY_LOAD = 0.45, 0.4
CACHE_OF_REQUEST = 0.5
INACTIVE_OF_CACHE = 0.6
IO_BYTES_A_CORE_S = 4 * MIB
FILL_S = 5.0
MEMORY_PRESSURE_FROM = 0.9
US = 1_000_000
# What a simulated node measures; of the other columns it knows nothing and says nothing.
NODE_COLUMNS = (
    "cpu_busy_us",
    "cpu_steal_us",
    "memory_total_bytes",
    "memory_available_bytes",
    "psi_cpu_some_us",
    "psi_memory_some_us",
    "psi_memory_full_us",
    "psi_io_some_us",
    "be_cpu_usage_us",
    "be_cpu_throttled_us",
    "be_cpu_quota_milli",
    "samples_dropped",
    "oom_kills",
)
SLOW_COLUMNS = (
    "memory_current_bytes",
    "memory_file_bytes",
    "memory_inactive_file_bytes",
    "memory_shmem_bytes",
    "memory_unevictable_bytes",
    "memory_limit_bytes",
    "psi_memory_some_us",
    "psi_io_some_us",
    "io_bytes",
    "cpu_throttled_periods",
)
POD_COLUMNS = FAST_POD_COLUMNS + SLOW_COLUMNS


class Model:
    """State of the whole fleet; ``node`` and ``pod`` hold one int64 array a column name."""

    def __init__(self, fleet: Fleet, trace: Trace) -> None:
        nodes, slots = len(fleet.names), fleet.slots
        self.fleet, self.trace = fleet, trace
        self.node: dict[str, IntArray] = {n: np.zeros(nodes, np.int64) for n in NODE_COLUMNS}
        self.pod: dict[str, IntArray] = {n: np.zeros((nodes, slots), np.int64) for n in POD_COLUMNS}
        self.node["memory_total_bytes"][:] = fleet.memory_bytes
        self.allow_milli = self.node["be_cpu_quota_milli"]
        self.allow_milli[:] = UNLIMITED
        self.pod["memory_limit_bytes"][:] = -1
        batch = (nodes, fleet.batch_slots)
        self.present: NDArray[np.bool_] = np.zeros(batch, np.bool_)
        self.running: NDArray[np.bool_] = np.zeros(batch, np.bool_)
        self.want_milli: IntArray = np.zeros(batch, np.int64)
        self.work_us: IntArray = np.zeros(batch, np.int64)
        self.done_us: IntArray = np.zeros(batch, np.int64)
        self.got_us: IntArray = np.zeros(batch, np.int64)
        self.batch_bytes: IntArray = np.zeros(batch, np.int64)
        self.online_milli: FloatArray = np.zeros(nodes)
        self.demand_milli: FloatArray = np.zeros((nodes, fleet.online_pods))
        self.wait: FloatArray = np.zeros((nodes, fleet.online_pods))  # share of the last period
        self.batch_milli: FloatArray = np.zeros(nodes)
        self._shift = fleet.shift_days * trace.day_steps + fleet.jitter_steps

    def place(self, row: int, slot: int, want_milli: int, work_us: int, memory_bytes: int) -> None:
        """A batch pod starts in a free slot; its counters begin at 0."""
        assert not self.present[row, slot], f"slot {slot} of {self.fleet.names[row]} is taken"
        self.present[row, slot] = self.running[row, slot] = True
        self.want_milli[row, slot], self.work_us[row, slot] = want_milli, work_us
        self.done_us[row, slot] = 0
        self.batch_bytes[row, slot] = memory_bytes
        for values in self.pod.values():
            values[row, self.fleet.online_pods + slot] = 0
        self.pod["memory_limit_bytes"][row, self.fleet.online_pods + slot] = memory_bytes

    def end(self, row: int, slot: int) -> None:
        """Its processes are gone: no CPU, no memory; the slot is held until `free`."""
        self.running[row, slot] = False
        for name in ("memory_used_bytes", "memory_file_bytes", "memory_current_bytes"):
            self.pod[name][row, self.fleet.online_pods + slot] = 0

    def free(self, row: int, slot: int) -> None:
        """The pod has left the node."""
        self.present[row, slot] = self.running[row, slot] = False

    def step(self, rows: slice, dt_us: int, trace_s: float) -> None:
        """Let ``dt_us`` microseconds pass on ``rows``, at ``trace_s`` seconds of trace time."""
        fleet = self.fleet
        share = self.trace.share(fleet.entity[rows], self._shift[rows], fleet.seeds[rows], trace_s)
        demand = share * fleet.online_cpu_milli[rows]
        self._cpu(rows, dt_us, share, demand)
        self._memory(rows, dt_us, share)

    def _cpu(self, rows: slice, dt_us: int, share: FloatArray, demand: FloatArray) -> None:
        online_pods = self.fleet.online_pods
        capacity = self.fleet.cpu_milli[rows].astype(np.float64)
        system = capacity * (SYSTEM_CPU_PERMILLE / 1000)
        online = demand.sum(axis=1)
        wants = np.where(self.running[rows], self.want_milli[rows], 0)
        want = wants.sum(axis=1).astype(np.float64)
        allow = self.allow_milli[rows]
        allowed = np.where(allow < 0, want, np.minimum(want, allow))
        left = np.maximum(capacity - system - online, capacity * (LEFT_PERMILLE / 1000))
        batch = np.minimum(allowed, left)
        fits = np.minimum(1.0, (capacity - system - batch) / np.maximum(online, 1.0))
        self.online_milli[rows], self.batch_milli[rows] = online * fits, batch
        busy = online * fits + batch + system
        over = np.maximum(online + allowed + system - capacity, 0.0)
        load = busy / capacity
        wait = IDLE_WAIT + BUSY_WAIT * load**4 + COLLISION_WAIT * over / capacity
        refused = 1.0 - allowed / np.maximum(want, 1.0)
        refused[want == 0] = 0.0
        used_us = demand * (fits[:, None] * (dt_us / 1000))
        waits = np.minimum(wait[:, None] * (0.5 + share), 1.0)
        self.demand_milli[rows], self.wait[rows] = demand, waits
        got_us = wants * ((batch / np.maximum(want, 1.0))[:, None] * (dt_us / 1000))
        got = _whole(got_us)
        self.got_us[rows] = got
        self.done_us[rows] += got
        pod = self.pod
        pod["cpu_usage_us"][rows, :online_pods] += _whole(used_us)
        pod["cpu_usage_us"][rows, online_pods:] += got
        pod["psi_cpu_some_us"][rows, :online_pods] += _whole(waits * dt_us)
        pod["runq_wait_us"][rows, :online_pods] += _whole(waits * used_us)
        stalled = np.where(self.running[rows], np.maximum(refused, wait)[:, None] * dt_us, 0.0)
        pod["psi_cpu_some_us"][rows, online_pods:] += _whole(np.minimum(stalled, dt_us))
        node = self.node
        node["cpu_busy_us"][rows] += _whole(busy * (dt_us / 1000))
        node["be_cpu_usage_us"][rows] += got.sum(axis=1)
        node["be_cpu_throttled_us"][rows] += _whole(refused * dt_us)
        node["psi_cpu_some_us"][rows] += _whole(np.minimum(np.maximum(refused, wait), 1.0) * dt_us)

    def _memory(self, rows: slice, dt_us: int, share: FloatArray) -> None:
        online_pods, pod = self.fleet.online_pods, self.pod
        request = self.fleet.online_memory_bytes[rows]
        used = pod["memory_used_bytes"]
        used[rows, :online_pods] = _whole(request * (ANON_BASE + ANON_BY_LOAD * share))
        target = np.where(self.running[rows], self.batch_bytes[rows], 0)
        missing = target - used[rows, online_pods:]
        used[rows, online_pods:] += _whole(missing * min(1.0, dt_us / (FILL_S * US)))
        io = self._io(rows, dt_us, share)
        pod["io_bytes"][rows, :online_pods] += io
        file = pod["memory_file_bytes"]
        most = _whole(request * CACHE_OF_REQUEST)
        file[rows, :online_pods] = np.minimum(file[rows, :online_pods] + io, most)
        pod["memory_inactive_file_bytes"][rows] = _whole(file[rows] * INACTIVE_OF_CACHE)
        pod["memory_current_bytes"][rows] = used[rows] + file[rows]
        total = self.node["memory_total_bytes"][rows]
        taken = used[rows].sum(axis=1) + SYSTEM_BYTES
        self.node["memory_available_bytes"][rows] = np.maximum(total - taken, 0)
        short = np.clip(taken / total - MEMORY_PRESSURE_FROM, 0.0, 1.0)
        self.node["psi_memory_some_us"][rows] += _whole(short * dt_us)

    def _io(self, rows: slice, dt_us: int, share: FloatArray) -> IntArray:
        """Bytes that online pods read and wrote: in proportion to the CPU they wanted."""
        cores = share * (self.fleet.online_cpu_milli[rows] / 1000)
        return _whole(cores * (IO_BYTES_A_CORE_S * dt_us / US))


def _whole(values: NDArray[np.floating[Any]]) -> IntArray:
    whole: IntArray = np.rint(values).astype(np.int64)
    return whole
