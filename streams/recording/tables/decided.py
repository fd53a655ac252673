"""Tables of what was decided: commands, capacity, the audit log, reservations, signals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any

import msgspec

from agents.capacity_terms import MID_TERMS, TERMS
from agents.reservation import LINES, RANK_NAMES
from schemas.records import (
    Capacity,
    Command,
    Decision,
    FleetFacts,
    Lease,
    PartitionHealth,
    Reservation,
    Signal,
)
from streams.recording.tables.column import (
    CAUSE,
    FIGURES,
    FLAG,
    INT,
    INTS,
    SIGNER,
    TEXT,
    TEXTS,
    WHERE,
    Column,
    Table,
    figure,
    part,
    said,
)

NODE = said("node", TEXT, "its name")


def _settings(command: Command) -> str | None:
    return None if command.settings is None else msgspec.json.encode(command.settings).decode()


COMMANDS = Table(
    "commands", "commands", Command, "a command to a node",
    (
        *WHERE, NODE,
        said("id", TEXT, "INCARNATION.PARTITION.OFFSET.NODE.DECIDER"),
        said("decider", TEXT, "who decided"),
        said("reason", TEXT, "reason code; `slackwater explain --command ID` says it in words"),
        said("allow_milli", INT, "CPU that best-effort work may use; -1: not said"),
        said("cpus", INTS, "CPUs that best-effort work runs on; empty: any"),
        said("pods", TEXTS, "uids of pods that have to go, in order"),
        said("release_bytes", INT, "memory that their going frees, at least"),
        said("dry_run", FLAG, "nobody acts on it"),
        said("expires_log_ms", INT, "log time at which it lapses unless renewed"),
        said("terms", FIGURES, "figures it was decided from, by name"),
        said("settings", TEXT, "of `isolate`: all that is set, as JSON", take=_settings),
        SIGNER, *CAUSE,
    ),
    keyed=True,
)  # fmt: skip

LEASES = Table(
    "leases", "commands", Lease, "a renewal of a partition's standing commands",
    (*WHERE, said("expires_log_ms", INT, "log time up to which they hold"), SIGNER, *CAUSE),
)  # fmt: skip


def _terms() -> Iterator[Column]:
    """Every term of the four sums, flat."""
    sums = (
        ("cpu", "cpu_terms", "milli", TERMS, "batch CPU"),
        ("memory", "memory_terms", "bytes", TERMS, "batch memory"),
        ("mid_cpu", "mid_cpu_terms", "milli", MID_TERMS, "mid CPU"),
        ("mid_memory", "mid_memory_terms", "bytes", MID_TERMS, "mid memory"),
    )
    for prefix, field, unit, names, what in sums:
        for name in names:
            meaning = f"term `{name}` of the sum of {what}"
            yield figure(f"{prefix}_{name}_{unit}", meaning, field, name)


CAPACITY = Table(
    "capacity", "capacity", Capacity, "a node's capacity as it was published",
    (
        *WHERE, NODE,
        said("reason", TEXT, "reason code of batch's figure"),
        said("mid_reason", TEXT, "of mid's"),
        said("new_work", FLAG, "false: nothing new is placed, what runs is kept"),
        said("batch_cpu_milli", INT, "what batch work may borrow"),
        said("batch_memory_bytes", INT, "the same of memory"),
        said("mid_cpu_milli", INT, "what mid work may borrow"),
        said("mid_memory_bytes", INT, "the same of memory"),
        said("computed_cpu_milli", INT, "batch's sum before guards; may be negative"),
        said("computed_memory_bytes", INT, "the same of memory"),
        said("computed_mid_cpu_milli", INT, "mid's sum before guards"),
        said("computed_mid_memory_bytes", INT, "the same of memory"),
        *_terms(),
        said("zone_cpu_milli", INTS, "batch's CPU by NUMA zone, in the inventory's order"),
        said("zone_memory_bytes", INTS, "batch's memory by NUMA zone"),
        said("workloads", TEXTS, "only these may borrow; empty: any"),
        *CAUSE,
    ),
    keyed=True,
)  # fmt: skip


def _lines(what: str, cpu: str, memory: str) -> Iterator[Column]:
    words = {
        "limit": f"what {what} asked for", "usage": f"what {what} use",
        "short": f"short-term reservation of {what}", "long": f"long-term reservation of {what}",
    }  # fmt: skip
    for name in LINES:
        yield figure(f"cpu_{name}_milli", words[name], cpu, name)
    for name in LINES:
        yield figure(f"memory_{name}_bytes", words[name], memory, name)


RESERVATIONS = Table(
    "reservations", "reservations", Reservation, "a report of a node's four lines",
    (
        *WHERE, NODE,
        said("warm_ms", INT, "how much history stands behind it"),
        *_lines("high-priority pods", "cpu_milli", "memory_bytes"),
        said("system_cpu_milli", INT, "CPU outside pods"),
        said("system_memory_bytes", INT, "memory outside pods"),
        said("reclaimable_cpu_milli", INT, "asked for by prod pods and not needed"),
        said("reclaimable_memory_bytes", INT, "the same of memory"),
        said("peak_cpu_milli", INT, "predicted to stay with prod pods; -1: nothing is predicted"),
        said("peak_memory_bytes", INT, "the same of memory"),
        *(
            figure(f"cpu_{name}_milli", "percentile of use over the last window (online_: online "
                   "pods, system_: outside pods, else the node)", "cpu_percentiles_milli", name)
            for name in RANK_NAMES
        ),
        *(
            figure(f"memory_{name}_bytes", "the same of memory", "memory_percentiles_bytes", name)
            for name in RANK_NAMES
        ),
        *CAUSE,
    ),
    keyed=True,
)  # fmt: skip


def _reserved_pods(record: Reservation) -> Iterator[tuple[str, list[int | None]]]:
    """Uid and the eight lines of each pod; a line that is -1 has no value."""
    columns: list[Any] = []
    for lines in (record.pod_cpu_milli, record.pod_memory_bytes):
        columns += [lines.get(name, [None] * len(record.pods)) for name in LINES]
    for uid, *values in zip(record.pods, *columns, strict=False):
        yield uid, [None if value is None or value < 0 else value for value in values]


def _nth(place: int) -> Callable[[Any], Any]:
    """The figure at that place of a part (uid, figures)."""
    return lambda part: part[1][place]


UID = part("uid", TEXT, "the pod's", lambda part: part[0])
_POD_LINES = (
    *((f"cpu_{name}_milli", f"line `{name}` of the pod's CPU") for name in LINES),
    *((f"memory_{name}_bytes", f"line `{name}` of its memory") for name in LINES),
)
POD_RESERVATIONS = Table(
    "pod_reservations", "reservations", Reservation, "a pod in a report of its node's lines",
    (
        *WHERE, NODE, UID,
        *(
            part(name, INT, meaning, _nth(i))
            for i, (name, meaning) in enumerate(_POD_LINES)
        ),
        *CAUSE,
    ),
    parts=_reserved_pods,
    keyed=True,
)  # fmt: skip

_SCORES = (
    ("pressure_us_per_s", "pressure on the pod's own CPU: time some of it waited"),
    ("pressure_median", "its median of the last hour"),
    ("pressure_score_permille", "robust z-score against that hour; null: history too short"),
    ("wait_us_per_s", "time its threads waited in the run queue"),
    ("wait_median", "its median of the last hour"),
    ("wait_score_permille", "robust z-score against that hour"),
)


def _felt(record: Signal) -> Iterator[tuple[str | None, list[int | None]]]:
    """Uid and figures of each pod; a node without any has one row all the same."""
    if not record.pods:
        yield None, [None] * len(_SCORES)
        return
    columns = [getattr(record, name) or repeat(None) for name, _ in _SCORES]
    for uid, *values in zip(record.pods, *columns, strict=False):
        yield uid, values


SIGNALS = Table(
    "signals", "signals", Signal, "an online pod in a report of interference on its node",
    (
        *WHERE, NODE, UID,
        said("ill", FLAG, "of the node: its online pods suffer"),
        *(
            part(name, INT, meaning, _nth(i))
            for i, (name, meaning) in enumerate(_SCORES)
        ),
        *CAUSE,
    ),
    parts=_felt,
    keyed=True,
)  # fmt: skip


def _decided(record: Decision) -> Iterator[tuple[str, str, dict[str, int], str]]:
    """Node, outcome, figures and command id of each node that a decision is about."""
    for i, node in enumerate(record.nodes):
        terms = {name: values[i] for name, values in record.columns.items() if i < len(values)}
        outcome = record.outcome[i] if i < len(record.outcome) else ""
        yield node, outcome, terms, record.command_ids[i] if i < len(record.command_ids) else ""


_DECIDED = (
    *WHERE,
    part("node", TEXT, "its name; empty: the whole partition", lambda part: part[0]),
    said("decider", TEXT, "who decided"),
)
DECISIONS = Table(
    "decisions", "decisions", Decision, "a node in a line of the audit log",
    (
        *_DECIDED,
        part("reason", TEXT, "reason code", lambda part: part[1]),
        part("command_id", TEXT, "of the command that went out with it; empty: none",
             lambda part: part[3]),
        part("terms", FIGURES, "figures it was decided from, by name", lambda part: part[2]),
        SIGNER, *CAUSE,
    ),
    parts=_decided,
)  # fmt: skip


def _figures(record: Decision) -> Iterator[tuple[str, str, str, int]]:
    for node, outcome, terms, _ in _decided(record):
        for name, value in terms.items():
            yield node, outcome, name, value


DECISION_TERMS = Table(
    "decision_terms", "decisions", Decision, "one figure of a node in a line of the audit log",
    (
        *_DECIDED,
        part("reason", TEXT, "reason code", lambda part: part[1]),
        part("term", TEXT, "name of the figure", lambda part: part[2]),
        part("value", INT, "of the figure, in the unit of its decider", lambda part: part[3]),
        *CAUSE,
    ),
    parts=_figures,
)  # fmt: skip

FLEET = Table(
    "fleet", "fleet", FleetFacts, "what the second stage said of the whole fleet",
    (
        *WHERE,
        said("revision", INT, "offset in `fleet` of the newest record that was counted"),
        said("partitions_seen", INT, "partitions that have been heard of"),
        said("nodes", INT, "all nodes"),
        said("silent", INT, "of which silent"),
        said("ill", INT, "of which ill"),
        said("ill_permille", INT, "share of ill nodes among those that speak"),
        said("evictions_per_partition", INT, "budget of one partition for one cool-down"),
        said("budgets", INTS, "budget of each partition; empty: all have the same"),
        said("stale_after_ms", INT, "how long it may be believed"),
        said("reason", TEXT, "why there is no budget; empty: there is one"),
    ),
)  # fmt: skip

PARTITION_HEALTH = Table(
    "partition_health", "fleet", PartitionHealth, "what a partition knew of its nodes at a tick",
    (
        *WHERE,
        said("nodes", INT, "all nodes"),
        said("silent", INT, "of which silent"),
        said("ill", INT, "of which ill"),
        said("evictions_wanted", INT, "pods that would go, had the fleet a budget for all"),
        said("pods_against_rules", INT, "pods whose QoS, class and request do not go together"),
        *CAUSE,
    ),
)  # fmt: skip

TABLES = (
    COMMANDS, LEASES, CAPACITY, RESERVATIONS, POD_RESERVATIONS, SIGNALS, DECISIONS, DECISION_TERMS,
    FLEET, PARTITION_HEALTH,
)  # fmt: skip
