"""Pods of the nodes that are shown closely: use, memory and pressure over time, one node at a time.

`uses` reads them in one pass; `lines` makes the table of pods of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from streams.recording import Recording
from streams.report.columns import Codes, floats, ints, read, rows
from streams.report.grid import Floats, Grid, Ints, empty, held, put, rates
from streams.report.model import Pod

COLUMNS = (
    "node", "partition", "log_offset", "log_ms", "uid", "cpu_usage_us", "psi_cpu_some_us",
    "memory_used_bytes",
)  # fmt: skip
FACTS = ("uid", "namespace", "name", "workload", "qos", "priority_class", "cpu_request_milli")
GIB = 1 << 30
HELD_STEPS = 3


@dataclass(frozen=True, slots=True)
class Fact:
    """Who a pod is, by inventory."""

    label: str
    workload: str
    qos: str
    priority_class: str
    request_cores: float

    @property
    def online(self) -> bool:
        """Whether best-effort work has to make room for it."""
        return self.qos not in ("BE", "")


@dataclass(slots=True)
class Use:
    """The pods of one node, curves [pod, step]: cores, share of time waiting, GiB."""

    node: str
    uids: list[str]
    facts: list[Fact]
    cores: Floats
    waiting: Floats
    gib: Floats

    def rows(self, *, online: bool) -> Ints:
        """Which pods are online, or best effort."""
        wanted = [i for i, fact in enumerate(self.facts) if fact.online == online and fact.qos]
        return np.array(wanted, np.int64)

    def waiting_most(self) -> Floats:
        """Of the online pods, the one that waits most; nan where none is known."""
        return _over(np.fmax, self.waiting[self.rows(online=True)])

    def waiting_mean(self) -> Floats:
        """The mean over the online pods."""
        mine = self.waiting[self.rows(online=True)]
        known = (~np.isnan(mine)).sum(axis=0)
        found: Floats = np.where(known > 0, np.nansum(mine, axis=0) / np.maximum(known, 1), np.nan)
        return found


def uses(recording: Recording, nodes: Collection[str], grid: Grid) -> Iterator[Use]:
    """Each node's pods, in the order of ``nodes``; nothing for a node without pods."""
    facts = _facts(recording, nodes)
    clocks = _clocks(recording, nodes)
    who, uids = Codes(nodes), Codes()
    parts: dict[str, list[Floats]] = defaultdict(list)
    for batch in read(recording, "pods", COLUMNS, nodes):
        parts["node"].append(who.of(batch["node"]).astype(np.float64))
        parts["uid"].append(uids.of(batch["uid"]).astype(np.float64))
        for name in ("partition", "log_offset", "log_ms", *COLUMNS[5:]):
            parts[name].append(floats(batch[name]))
    if not parts:
        return
    whole = {name: np.concatenate(arrays) for name, arrays in parts.items()}
    for code, node in enumerate(nodes):
        mine = np.flatnonzero(whole["node"] == code)
        if len(mine):
            yield _use(node, {n: v[mine] for n, v in whole.items()}, uids, facts, clocks, grid)


def _use(
    node: str, rows_: dict[str, Floats], uids: Codes, facts: dict[str, Fact],
    clocks: dict[int, tuple[Ints, Floats]], grid: Grid,
) -> Use:  # fmt: skip
    here, row = np.unique(rows_["uid"].astype(np.int64), return_inverse=True)
    names = [uids.names[code] for code in here.tolist()]
    log_ms = rows_["log_ms"].astype(np.int64)
    clock = np.full(len(log_ms), np.nan)
    for partition, (offsets, mono_us) in clocks.items():
        own = rows_["partition"] == partition
        at = np.searchsorted(offsets, rows_["log_offset"][own])
        clock[own] = mono_us[np.minimum(at, len(mono_us) - 1)]
    curves = {}
    values: dict[str, Floats] = {"clock": clock} | {name: rows_[name] for name in COLUMNS[5:]}
    for name, column in values.items():
        curves[name] = empty(len(names), grid)
        put(curves[name], grid, row.astype(np.int64), log_ms, column)
    unknown = Fact("", "", "", "", 0.0)
    return Use(
        node, names, [facts.get(uid, unknown) for uid in names],
        cores=rates(curves["cpu_usage_us"], curves["clock"]),
        waiting=rates(curves["psi_cpu_some_us"], curves["clock"]),
        gib=held(curves["memory_used_bytes"], HELD_STEPS) / GIB,
    )  # fmt: skip


def _clocks(recording: Recording, nodes: Collection[str]) -> dict[int, tuple[Ints, Floats]]:
    """Partition -> offsets of samples and their nodes' monotonic clocks."""
    found: dict[int, list[tuple[Ints, Floats]]] = defaultdict(list)
    for batch in read(recording, "samples", ("partition", "log_offset", "mono_us"), nodes):
        partition = ints(batch["partition"])
        offsets, clock = ints(batch["log_offset"]), floats(batch["mono_us"])
        for number in np.unique(partition).tolist():
            own = partition == number
            found[number].append((offsets[own], clock[own]))
    return {
        number: (np.concatenate([o for o, _ in each]), np.concatenate([c for _, c in each]))
        for number, each in found.items()
    }


def _facts(recording: Recording, nodes: Collection[str]) -> dict[str, Fact]:
    found = {}
    for row in rows(recording, "pod_facts", FACTS, nodes):
        name = row["name"] or row["uid"]
        label = f"{row['namespace']}/{name}" if row["namespace"] else name
        request = (row["cpu_request_milli"] or 0) / 1000
        found[row["uid"]] = Fact(
            label, row["workload"] or "", row["qos"] or "", row["priority_class"] or "",
            max(request, 0.0),
        )  # fmt: skip
    return found


def lines(
    use: Use, beyond: np.ndarray[tuple[int], np.dtype[np.bool_]], evicted: set[str]
) -> list[Pod]:
    """The pods of a node in lines; ``beyond`` [step]: a service of it left its objective."""
    found = []
    for i, (uid, fact) in enumerate(zip(use.uids, use.facts, strict=True)):
        cores, waiting = use.cores[i], use.waiting[i]
        known = cores[~np.isnan(cores)]
        during = cores[beyond & ~np.isnan(cores)]
        waits, gib = waiting[~np.isnan(waiting)], use.gib[i][~np.isnan(use.gib[i])]
        found.append(
            Pod(
                node=use.node, pod=fact.label or uid, workload=fact.workload, qos=fact.qos,
                priority_class=fact.priority_class, request_cores=fact.request_cores,
                mean_cores=_mean(known) or 0.0, peak_cores=round(float(known.max(initial=0.0)), 2),
                beyond_cores=_mean(during), peak_gib=round(float(gib.max(initial=0.0)), 2),
                pressure_percent=None if not len(waits) else round(100 * float(waits.mean()), 2),
                evicted=uid in evicted,
            )
        )  # fmt: skip
    return found


def _mean(values: Floats) -> float | None:
    return round(float(values.mean()), 2) if len(values) else None


def _over(rule: np.ufunc, curves: Floats) -> Floats:
    if not len(curves):
        return np.full(curves.shape[1], np.nan)
    found: Floats = rule.reduce(curves, axis=0)
    return found
