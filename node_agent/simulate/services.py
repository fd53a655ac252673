"""How simulated online services fare, as they would measure it themselves: records of `slis`. Pure.

The world notes what the model made of each period and asks what is due. The model, per service and
node, over one window: with w the mean share of time that the service's threads waited for a CPU
(`model.wait`) and n a seeded noise of at most `NOISE_PERMILLE`:

- p50 = `P50_US` x (1 + `P50_BY_WAIT` x w) x (1 + n), p99 = `P99_US` x (1 + `P99_BY_WAIT` x w) x
  (1 + n): waiting hurts the tail first;
- requests = `REQUESTS_A_CORE_S` x CPU that the load asked for; of them (w - `ERRORS_FROM`) x
  `ERRORS_BY_WAIT` run into their deadline.

Calm nodes wait for 0.3 to 1 % of the time; where best-effort work fills a node it is 3 %, and where
it collides with online work 10 % and more. Known limits: no queue, so a service recovers at once;
load does not move elsewhere; memory and io slow nobody down.
"""

from __future__ import annotations

import numpy as np

from node_agent.simulate.fleet import SERVICES, Fleet
from node_agent.simulate.trace import FloatArray, IntArray, noise
from schemas.records import Sli

WINDOW_US = 5_000_000
P50_US, P50_BY_WAIT = 6_000, 6.0
P99_US, P99_BY_WAIT = 30_000, 45.0
REQUESTS_A_CORE_S = 400
ERRORS_FROM, ERRORS_BY_WAIT = 0.01, 1.5
NOISE_PERMILLE = 40


class Services:
    """One window at a time of each service on each node; the first pods of a node are theirs."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.count = min(len(SERVICES), fleet.online_pods)
        shape = (len(fleet.names), self.count)
        self._wait_us: FloatArray = np.zeros(shape)
        self._asked_us: FloatArray = np.zeros(shape)
        self._span_us: IntArray = np.zeros(len(fleet.names), np.int64)
        self._windows: IntArray = np.zeros(len(fleet.names), np.int64)

    def note(self, rows: slice, dt_us: int, wait: FloatArray, demand_milli: FloatArray) -> None:
        """A period of ``rows``: share waited and CPU asked for, both [row, online pod]."""
        self._wait_us[rows] += wait[:, : self.count] * dt_us
        self._asked_us[rows] += demand_milli[:, : self.count] * (dt_us / 1000)
        self._span_us[rows] += dt_us

    def due(self, rows: slice) -> list[Sli]:
        """What is said of windows that are over; they begin anew."""
        ended = np.flatnonzero(self._span_us[rows] >= WINDOW_US) + rows.start
        said = [self._sli(int(row), pod) for row in ended for pod in range(self.count)]
        self._windows[ended] += 1
        for sums in (self._wait_us, self._asked_us, self._span_us):
            sums[ended] = 0
        return said

    def _sli(self, row: int, pod: int) -> Sli:
        span_us = int(self._span_us[row])
        wait = float(self._wait_us[row, pod]) / span_us
        drawn = noise(self._fleet.seeds[row, pod : pod + 1], self._windows[row : row + 1])
        factor = 1.0 + float(drawn[0]) * (NOISE_PERMILLE / 1000)
        requests = round(float(self._asked_us[row, pod]) / 1e6 * REQUESTS_A_CORE_S)
        failing = min(1.0, max(0.0, wait - ERRORS_FROM) * ERRORS_BY_WAIT)
        return Sli(
            workload=SERVICES[pod],
            node=self._fleet.names[row],
            window_ms=span_us // 1000,
            p50_us=round(P50_US * (1 + P50_BY_WAIT * wait) * factor),
            p99_us=round(P99_US * (1 + P99_BY_WAIT * wait) * factor),
            requests=requests,
            errors=int(requests * failing),
        )
