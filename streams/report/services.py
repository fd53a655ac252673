"""What online services said of themselves: reports of `slis` against what they are held against.

A report beyond its yardstick counts for the whole of its window. The yardstick is the objective in
the policy (`slo_guard.objectives`, enabled or not); a service without one is held against
`OWN_PERCENT` of its own median, and the report says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from schemas.policy import Objective
from streams.recording import Recording
from streams.report.columns import Codes, floats, read
from streams.report.grid import Floats, Grid, Ints
from streams.report.model import Service

OWN_PERCENT = 200
LEAST_REPORTS = 10  # fewer have no median
COLUMNS = ("node", "workload", "log_ms", "window_ms", "p99_us", "requests", "errors")
POLICY, OWN = "the policy's objective", f"{OWN_PERCENT} % of its own median"


@dataclass(slots=True)
class Reports:
    """Every report as columns; ``beyond`` says which left its yardstick."""

    nodes: Codes
    workloads: Codes
    node: Ints
    workload: Ints
    log_ms: Ints
    window_ms: Ints
    p99_ms: Floats
    errors_permille: Floats
    beyond: np.ndarray[tuple[int], np.dtype[np.bool_]]
    services: tuple[Service, ...]

    def beyond_s(self) -> dict[str, float]:
        """Node -> seconds in which any of its services was beyond; overlaps count once."""
        found: dict[str, float] = defaultdict(float)
        for node, spans in self.spans().items():
            found[node] = sum(to_ms - from_ms for from_ms, to_ms in spans) / 1000
        return found

    def spans(self) -> dict[str, list[tuple[int, int]]]:
        """Node -> times in which a service of it was beyond, joined and in order."""
        found: dict[str, list[tuple[int, int]]] = {}
        for at in np.flatnonzero(self.beyond):
            to_ms, width = int(self.log_ms[at]), int(self.window_ms[at])
            spans = found.setdefault(self.nodes.names[self.node[at]], [])
            if spans and to_ms - width <= spans[-1][1]:
                spans[-1] = (min(spans[-1][0], to_ms - width), max(spans[-1][1], to_ms))
            else:
                spans.append((to_ms - width, to_ms))
        return found

    def curve(self, grid: Grid, node: int | None, workload: int, values: Floats) -> Floats:
        """The worst report of each step (of one node, or of all), held for its window."""
        chosen = self.workload == workload
        if node is not None:
            chosen &= self.node == node
        out = np.full(grid.count, np.nan)
        for at in np.flatnonzero(chosen):
            steps = grid.at(np.array([self.log_ms[at] - self.window_ms[at], self.log_ms[at]]))
            span = out[steps[0] + 1 : steps[1] + 1]
            np.fmax(span, values[at], out=span)
        return out


def reports(recording: Recording, objectives: Mapping[str, Objective]) -> Reports:
    """All of a recording, by log time."""
    nodes, workloads = Codes(), Codes()
    parts: dict[str, list[Floats]] = defaultdict(list)
    for batch in read(recording, "slis", COLUMNS):
        parts["node"].append(nodes.of(batch["node"]).astype(np.float64))
        parts["workload"].append(workloads.of(batch["workload"]).astype(np.float64))
        for name in COLUMNS[2:]:
            parts[name].append(floats(batch[name]))
    took = {n: np.concatenate(parts[n]) if parts else np.zeros(0) for n in COLUMNS}
    order = np.argsort(took["log_ms"], kind="stable")
    took = {name: values[order] for name, values in took.items()}
    requests = took["requests"]
    found = Reports(
        nodes, workloads,
        node=took["node"].astype(np.int64), workload=took["workload"].astype(np.int64),
        log_ms=took["log_ms"].astype(np.int64), window_ms=took["window_ms"].astype(np.int64),
        p99_ms=took["p99_us"] / 1000,
        errors_permille=took["errors"] * 1000 / np.maximum(requests, 1),
        beyond=np.zeros(len(order), np.bool_), services=(),
    )  # fmt: skip
    found.services = tuple(
        _judge(found, code, requests, objectives.get(name))
        for code, name in enumerate(workloads.names)
    )
    return found


def _judge(all_: Reports, code: int, requests: Floats, objective: Objective | None) -> Service:
    """Mark what is beyond, and sum it up."""
    mine = all_.workload == code
    p99_ms, errors = 0.0, 1000
    least, yardstick = 0, POLICY
    if objective is not None:
        p99_ms, errors, least = (
            objective.p99_us / 1000, objective.errors_permille, objective.least_requests,
        )  # fmt: skip
    elif int(mine.sum()) >= LEAST_REPORTS:
        p99_ms, yardstick = float(np.median(all_.p99_ms[mine])) * OWN_PERCENT / 100, OWN
    slow = (all_.p99_ms > p99_ms) if p99_ms > 0 else np.zeros_like(mine)
    wrong = all_.errors_permille > errors
    beyond = mine & (slow | wrong) & (requests >= least)
    all_.beyond |= beyond
    at = np.flatnonzero(beyond)
    return Service(
        workload=all_.workloads.names[code],
        p99_ms=round(p99_ms, 3),
        errors_permille=errors,
        yardstick=yardstick,
        beyond_s=float(all_.window_ms[at].sum()) / 1000,
        worst_p99_ms=round(float(all_.p99_ms[mine].max()), 3),
        nodes_beyond=tuple(sorted({all_.nodes.names[code] for code in all_.node[at].tolist()})),
        from_ms=int((all_.log_ms[at] - all_.window_ms[at]).min()) if len(at) else -1,
        to_ms=int(all_.log_ms[at].max()) if len(at) else -1,
    )
