"""The whole fleet in one pass over the recording: coarse curves, and who is most concerned. Pure.

`Overview` keeps a few numbers a node and step, so a thousand nodes for an hour are a few megabytes.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from streams.recording import Recording
from streams.recording.manifest import BadRecording
from streams.report.columns import Codes, floats, ints, read, rows
from streams.report.grid import Floats, Grid, empty, held, put, rates, rounded
from streams.report.model import Fleet, Node
from streams.report.services import Reports

STEPS = 600  # about, over the whole recording
LEAST_STEP_MS = 2_000
SAMPLES = ("node", "log_ms", "mono_us", "cpu_busy_us", "be_cpu_usage_us", "be_cpu_quota_milli")
NAMING = ("inventory", "capacity", "ledger")  # a node may be known without a sample of it
HELD_STEPS = 3


class Overview:
    """Curves [node, step] in cores, and sums a node."""

    def __init__(self, recording: Recording, reports: Reports) -> None:
        """Raises BadRecording for a recording without samples."""
        segments = [s for s in recording.manifest.segments if s.topic == "samples"]
        if not segments:
            raise BadRecording("there are no samples in it: nothing to report")
        self.from_ms = min(s.first_ms for s in segments)
        self.to_ms = max(s.last_ms for s in segments)
        cut = recording.manifest.cut
        if cut is not None:
            self.from_ms = min(max(self.from_ms, cut.from_ms), self.to_ms)
            self.to_ms = max(min(self.to_ms, cut.to_ms), self.from_ms)
        step_ms = max((self.to_ms - self.from_ms) // STEPS // 1000 * 1000, LEAST_STEP_MS)
        self.grid = Grid.over(self.from_ms, self.to_ms, step_ms)
        self.nodes, self.reports = Codes(), reports
        self._read_samples(recording)
        self._read_levels(recording)
        self._count(recording)

    def _read_samples(self, recording: Recording) -> None:
        named = {row["node"] for table in NAMING for row in rows(recording, table, ("node",))}
        self.nodes = Codes(sorted(name for name in named if name))
        kept: dict[str, Floats] = {name: empty(0, self.grid) for name in SAMPLES[2:]}
        for batch in read(recording, "samples", SAMPLES):
            log_ms = ints(batch["log_ms"])
            inside = (log_ms >= self.from_ms) & (log_ms <= self.to_ms)
            who = self.nodes.of(batch["node"])
            kept = {name: self._grown(grid) for name, grid in kept.items()}
            for name, grid in kept.items():
                put(grid, self.grid, who[inside], log_ms[inside], floats(batch[name])[inside])
        kept = {name: self._grown(grid) for name, grid in kept.items()}
        clock = kept["mono_us"]
        self.busy = rates(kept["cpu_busy_us"], clock)
        self.best_effort = rates(kept["be_cpu_usage_us"], clock)
        quota = held(kept["be_cpu_quota_milli"], HELD_STEPS)
        self.allowed = np.where(quota < 0, np.nan, quota / 1000)

    def _grown(self, grid: Floats) -> Floats:
        """With a row for every node that is known by now."""
        missing = len(self.nodes.names) - len(grid)
        return np.concatenate([grid, empty(missing, self.grid)]) if missing else grid

    def _read_levels(self, recording: Recording) -> None:
        count = len(self.nodes.names)
        self.offered, self.lent = empty(count, self.grid), empty(count, self.grid)
        lent: dict[str, Floats] = {}
        for row in rows(recording, "capacity", ("node", "log_ms", "batch_cpu_milli")):
            self._level(self.offered, row["node"], row["log_ms"], row["batch_cpu_milli"])
        for row in rows(recording, "ledger", ("node", "log_ms", "scheduler", "cpu_milli")):
            into = lent.setdefault(row["scheduler"], empty(count, self.grid))
            self._level(into, row["node"], row["log_ms"], row["cpu_milli"])
        self.offered = held(self.offered)
        if lent:
            self.lent = np.nansum(np.stack([held(each) for each in lent.values()]), axis=0)
        self.cores = np.zeros(count)
        for row in rows(recording, "inventory", ("node", "cpu_capacity_milli")):
            if row["node"] and row["cpu_capacity_milli"]:
                self.cores[self.nodes.code(row["node"])] = row["cpu_capacity_milli"] / 1000

    def _level(self, into: Floats, node: str, log_ms: int, milli: int | None) -> None:
        if node and milli is not None and log_ms <= self.to_ms:
            into[self.nodes.code(node), self.grid.at(np.array([log_ms]))[0]] = milli / 1000

    def _count(self, recording: Recording) -> None:
        self.evictions: Counter[str] = Counter()
        gone: set[tuple[str, str]] = set()
        for row in rows(recording, "acks", ("node", "decider", "outcome", "pods", "dry_run")):
            if row["decider"].startswith("evict") and not row["dry_run"]:
                gone |= {(row["node"], pod) for pod in row["pods"] or ()}
        self.evicted = gone
        self.evictions.update(node for node, _ in gone)
        self.ill_s: Counter[str] = Counter()
        seen: dict[str, int] = {}
        for batch in read(recording, "signals", ("node", "log_ms", "ill")):
            for node, log_ms, ill in zip(
                *(batch[name].to_pylist() for name in ("node", "log_ms", "ill")), strict=True
            ):
                before = seen.get(node)
                if before == log_ms:
                    continue
                if ill and before is not None:
                    self.ill_s[node] += min(log_ms - before, 60_000) // 1000
                seen[node] = log_ms

    def fleet(self) -> Fleet:
        """Sums over all nodes; a node that is not known counts as nothing."""

        def summed(curves: Floats) -> Floats:
            found: Floats = np.nansum(curves, axis=0)
            found[np.isnan(curves).all(axis=0)] = np.nan
            return found

        online = self.busy - self.best_effort
        curves = {
            "online": summed(online), "best_effort": summed(self.best_effort),
            "allowed": summed(self.allowed), "offered": summed(self.offered),
            "lent": summed(self.lent), "capacity": np.full(self.grid.count, self.cores.sum()),
        }  # fmt: skip
        reports, grid = self.reports, self.grid
        p99 = {
            name: rounded(reports.curve(grid, None, code, reports.p99_ms), 2)
            for code, name in enumerate(reports.workloads.names)
        }
        beyond = np.zeros(grid.count)
        for spans in reports.spans().values():
            for from_ms, to_ms in spans:
                steps = grid.at(np.array([from_ms, to_ms]))
                beyond[steps[0] : steps[1] + 1] += 1
        return Fleet(
            rounded(grid.times_s, 3), {name: rounded(each, 2) for name, each in curves.items()},
            p99, rounded(beyond, 0),
        )  # fmt: skip

    def ranked(self) -> list[str]:
        """Nodes, the most concerned first: time beyond, evictions, illness, peak of use."""
        beyond, peak = self.reports.beyond_s(), self.peak_percent()
        return sorted(
            self.nodes.names,
            key=lambda name: (
                -beyond[name], -self.evictions[name], -self.ill_s[name], -peak[name], name,
            ),
        )  # fmt: skip

    def peak_percent(self) -> dict[str, float]:
        """Node -> its busiest step, percent of its CPU."""
        busy = np.nan_to_num(self.busy).max(axis=1, initial=0.0)
        share = 100 * busy / np.where(self.cores > 0, self.cores, np.inf)
        return dict(zip(self.nodes.names, np.round(share, 1).tolist(), strict=True))

    def lines(self, detailed: list[str]) -> tuple[Node, ...]:
        """A line a node, in order of concern."""
        beyond, peak = self.reports.beyond_s(), self.peak_percent()
        online, best_effort = _mean(self.busy - self.best_effort), _mean(self.best_effort)
        found = []
        for name in self.ranked():
            code = self.nodes.code(name)
            found.append(
                Node(
                    name, float(self.cores[code]), beyond[name], self.evictions[name],
                    float(self.ill_s[name]), float(online[code]), float(best_effort[code]),
                    peak[name], name in detailed,
                )
            )  # fmt: skip
        return tuple(found)


def _mean(curves: Floats) -> Floats:
    known = np.maximum((~np.isnan(curves)).sum(axis=1), 1)
    found: Floats = np.round(np.nansum(curves, axis=1) / known, 2)
    return found
