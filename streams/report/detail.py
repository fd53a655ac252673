"""Timelines of the nodes that are shown closely, second by second, thinned to a screen."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from streams.recording import Recording
from streams.report.columns import Codes, floats, ints, read
from streams.report.grid import Floats, Grid, empty, held, put, rates, rounded, thin
from streams.report.marks import Marks
from streams.report.model import Detail
from streams.report.overview import Overview
from streams.report.pods import GIB, Use

STEP_MS = 1_000
MOST_STEPS = 20_000  # longer recordings get longer steps
POINTS = 1_600  # of one curve, about: two a pixel column
SAMPLES = (
    "mono_us", "cpu_busy_us", "be_cpu_usage_us", "be_cpu_quota_milli", "psi_cpu_some_us",
    "memory_total_bytes", "memory_available_bytes",
)  # fmt: skip
LEVELS = {
    "capacity": ("batch_cpu_milli", "batch_memory_bytes"),
    "reservations": (
        "cpu_limit_milli", "cpu_usage_milli", "cpu_short_milli", "cpu_long_milli",
    ),
    "ledger": ("cpu_milli",),
    "inventory": ("cpu_capacity_milli",),
}  # fmt: skip
LINE_HELD_MS = 60_000
GAP_STEPS = 3
SHOWN = {
    "batch_cpu_milli": "offered", "batch_memory_bytes": "memory_offered",
    "cpu_limit_milli": "limit", "cpu_usage_milli": "usage", "cpu_short_milli": "short",
    "cpu_long_milli": "long", "cpu_milli": "lent", "cpu_capacity_milli": "capacity",
}  # fmt: skip


def grid_of(from_ms: int, to_ms: int) -> Grid:
    """A second a step, or what keeps it within `MOST_STEPS`."""
    seconds = max(1, -(-(to_ms - from_ms) // (MOST_STEPS * STEP_MS)))
    return Grid.over(from_ms, to_ms, seconds * STEP_MS)


class Timelines:
    """Curves of ``nodes`` by name, [node, step]; `detail` thins those of one node."""

    def __init__(self, recording: Recording, overview: Overview, nodes: Sequence[str]) -> None:
        self.grid = grid_of(overview.from_ms, overview.to_ms)
        self._overview, self._codes = overview, Codes(nodes)
        self._count = len(nodes)
        self.curves: dict[str, Floats] = {}
        self._samples(recording, nodes)
        for table, columns in LEVELS.items():
            self._levels(recording, table, columns, nodes)
        self._scores(recording, nodes)

    def _samples(self, recording: Recording, nodes: Sequence[str]) -> None:
        kept = {name: empty(self._count, self.grid) for name in SAMPLES}
        for batch in read(recording, "samples", ("node", "log_ms", *SAMPLES), nodes):
            self._put(kept, batch)
        clock = kept["mono_us"]
        busy, best_effort = (rates(kept[n], clock) for n in ("cpu_busy_us", "be_cpu_usage_us"))
        quota = held(kept["be_cpu_quota_milli"], GAP_STEPS)
        total = held(kept["memory_total_bytes"], GAP_STEPS)
        self.curves |= {
            "node": busy,
            "online": np.maximum(busy - best_effort, 0.0),
            "best_effort": best_effort,
            "allowed": np.where(quota < 0, np.nan, quota / 1000),
            "node_waiting": 100 * rates(kept["psi_cpu_some_us"], clock),
            "memory_total": total / GIB,
            "memory_used": (total - held(kept["memory_available_bytes"], GAP_STEPS)) / GIB,
        }

    def _levels(
        self, recording: Recording, table: str, columns: Sequence[str], nodes: Sequence[str]
    ) -> None:
        kept = {name: empty(self._count, self.grid) for name in columns}
        for batch in read(recording, table, ("node", "log_ms", *columns), nodes):
            self._put(kept, batch)
        most = LINE_HELD_MS // self.grid.step_ms if table == "reservations" else None
        for name, levels in kept.items():
            unit = GIB if name.endswith("_bytes") else 1000
            self.curves[SHOWN[name]] = held(levels, most) / unit

    def _scores(self, recording: Recording, nodes: Sequence[str]) -> None:
        score = empty(self._count, self.grid)
        columns = ("node", "log_ms", "pressure_score_permille", "wait_score_permille")
        for batch in read(recording, "signals", columns, nodes):
            who = self._codes.of(batch["node"])
            steps = self.grid.at(ints(batch["log_ms"]))
            worst = np.fmax(*(floats(batch[name]) for name in columns[2:])) / 1000
            np.fmax.at(score, (who, steps), worst)
        self.curves["score"] = held(score, LINE_HELD_MS // self.grid.step_ms)

    def _put(self, kept: dict[str, Floats], batch: dict[str, object]) -> None:
        who, log_ms = self._codes.of(batch["node"]), ints(batch["log_ms"])
        for name, into in kept.items():
            values = floats(batch[name])
            known = ~np.isnan(values)
            put(into, self.grid, who[known], log_ms[known], values[known])

    def beyond(self, node: str) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Steps in which a service of the node was beyond its objective."""
        out = np.zeros(self.grid.count, np.bool_)
        for from_ms, to_ms in self._overview.reports.spans().get(node, ()):
            steps = self.grid.at(np.array([from_ms, to_ms]))
            out[steps[0] : steps[1] + 1] = True
        return out

    def detail(self, node: str, use: Use | None, marks: Marks) -> Detail:
        """One node for the page."""
        row, reports = self._codes.code(node), self._overview.reports
        curves = {name: each[row] for name, each in self.curves.items()}
        if use is not None:
            curves["online_waiting_most"] = 100 * use.waiting_most()
            curves["online_waiting"] = 100 * use.waiting_mean()
        here = reports.nodes.code(node)
        shown = {int(code) for code in np.unique(reports.workload[reports.node == here])}
        names = {code: reports.workloads.names[code] for code in sorted(shown)}
        p99 = {n: reports.curve(self.grid, here, c, reports.p99_ms) for c, n in names.items()}
        errors = {
            n: reports.curve(self.grid, here, c, reports.errors_permille) for c, n in names.items()
        }
        every = [*curves.values(), *p99.values(), *errors.values()]
        steps, thinned = thin(np.stack(every), POINTS)
        lists = iter(rounded(curve, 3) for curve in thinned)
        kept, left_out = marks.of(node)
        times_s = (self.grid.begin_ms + steps * self.grid.step_ms) / 1000
        return Detail(
            times_s=times_s.tolist(),
            series={name: next(lists) for name in curves},
            p99_ms={name: next(lists) for name in p99},
            errors_permille={name: next(lists) for name in errors},
            marks=kept,
            left_out=left_out,
        )
