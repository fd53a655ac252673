"""What every text in every record is: a name to hide, a word of ours, or text to leave out.

The one list by which pseudonyms are given (`streams.recording.hiding`); a test walks all records
and fails for a text that is not in it. A field of numbers or of fixed words (a Literal) needs no
row; a record in a field is looked up by its own type. A pair speaks of keys and values of a dict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from schemas import records as r
from schemas.isolation import IsolationSettings
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from streams.recording.naming import (
    AUTHOR,
    BOOT,
    BRIDGE,
    CLAIM,
    DIGEST,
    JOB,
    KINDS,
    NAMESPACE,
    NODE,
    POD,
    POLICY,
    SCHEDULER,
    UID,
    WORKLOAD,
    ZONE,
    Names,
)

WORD = "word"  # of ours, such as a reason; anything else is withheld
OURS = "ours"  # written by the rules from fixed words and numbers
CPUS = "cpus"  # a list such as 0-1,5
TEXT = "text"  # free text of people: left out
TERM = "term"  # a word, or "for WORKLOAD"
COMMAND = "command"  # incarnation.partition.offset.node.decider
LABELS, ANNOTATIONS, POLICY_TEXT = "labels", "annotations", "policy text"
How = Any
"""One of the above, a kind of name, or a pair of them for a dict."""

FIELDS: dict[type[Any], dict[str, How]] = {
    r.NodeSample: {
        "node": NODE, "boot": BOOT, "kernel_boot": BOOT,
        "node_columns": (WORD, None), "pod_columns": (WORD, None),
    },
    r.Tick: {"side": (OURS, None)},
    r.Cause: {"policy": DIGEST},
    r.Command: {
        "id": COMMAND, "node": NODE, "reason": WORD, "pods": UID, "terms": (TERM, None),
    },
    r.Lease: {},
    r.Ack: {
        "node": NODE, "boot": BOOT, "command_id": COMMAND, "pods": UID, "reason": WORD,
        "terms": (TERM, None),
    },
    r.Capacity: {
        "node": NODE, "reason": WORD, "mid_reason": WORD, "cpu_terms": (WORD, None),
        "memory_terms": (WORD, None), "mid_cpu_terms": (WORD, None),
        "mid_memory_terms": (WORD, None), "workloads": WORKLOAD,
    },
    r.Reservation: {
        "node": NODE, "cpu_milli": (WORD, None), "memory_bytes": (WORD, None),
        "cpu_percentiles_milli": (WORD, None), "memory_percentiles_bytes": (WORD, None),
        "pods": UID, "pod_cpu_milli": (WORD, None), "pod_memory_bytes": (WORD, None),
        "pods_against_rules": (WORD, UID),
    },
    r.Signal: {"node": NODE, "pods": UID},
    r.Decision: {
        "nodes": NODE, "outcome": WORD, "columns": (TERM, None), "command_ids": COMMAND,
    },
    r.PartitionHealth: {},
    r.FleetFacts: {"reason": WORD},
    r.NodeMinute: {"node": NODE, "seen": (WORD, None)},
    r.Installation: {},
    r.LedgerEntry: {"node": NODE, "scheduler": SCHEDULER, "pods": UID},
    LedgerClaim: {"node": NODE, "scheduler": SCHEDULER, "claim": CLAIM},
    LedgerGrant: {"node": NODE, "scheduler": SCHEDULER, "claim": CLAIM, "reason": WORD},
    LedgerReign: {"bridge": BRIDGE},
    r.Sli: {"workload": WORKLOAD, "node": NODE},
    r.Job: {"job": JOB, "node": NODE},
    r.PolicyRecord: {
        "name": POLICY, "digest": DIGEST, "text": POLICY_TEXT, "author": AUTHOR, "note": TEXT,
        "canary": LABELS, "elsewhere": POLICY_TEXT,
    },
    # Made anew from the record it speaks of (`streams.recording.letters`).
    r.DeadLetter: {
        "topic": WORD, "reason": WORD, "detail": TEXT, "key_hex": TEXT, "head_hex": TEXT,
    },
    r.EvictionReport: {
        "node": NODE, "pod": UID, "reason": WORD, "why": WORD, "command_id": COMMAND,
        "namespace": NAMESPACE, "name": POD, "workload": WORKLOAD, "terms": (TERM, None),
    },
    r.Inventory: {
        "node": NODE, "kernel": TEXT, "capabilities": (WORD, None), "labels": LABELS,
        "annotations": ANNOTATIONS, "reserved_cpus": CPUS, "system_cpus": CPUS,
    },
    r.PodFact: {
        "uid": UID, "name": POD, "namespace": NAMESPACE, "workload": WORKLOAD,
        "evict_features": WORD,
    },
    r.BurstWish: {},
    r.Zone: {"name": ZONE},
    r.CpuTopology: {},
    r.ResctrlFacts: {},
    IsolationSettings: {
        "classes": (OURS, (OURS, None)), "pods": UID, "pod_knobs": (OURS, None),
        "tiers": (OURS, (OURS, None)), "daemons": (OURS, None), "schemata": (OURS, OURS),
        "bandwidths": (OURS, (OURS, None)),
    },
}  # fmt: skip

WITHHELD = "withheld"
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)
_CPUS = re.compile(r"[0-9, -]*", re.ASCII)
_COMMAND = re.compile(r"(\d{1,20}\.\d{1,6}\.\d{1,20}\.)(.+)(\.[a-z_]{1,20})", re.ASCII | re.DOTALL)
FOR = "for "
"""Before a workload's name, in a column of a decision (`agents.slo_guard`)."""


def hidden(value: Any, names: Names, special: dict[str, Callable[[Any, Names], Any]]) -> Any:
    """A record with other names. ``special``: how to change labels, annotations, policy texts."""
    changes = {}
    rows = FIELDS[type(value)]
    for each in fields(value):
        said = getattr(value, each.name)
        how = rows.get(each.name)
        if how is not None:
            changes[each.name] = _one(said, how, names, special)
        elif is_dataclass(said):
            changes[each.name] = hidden(said, names, special)
        elif isinstance(said, tuple) and said and is_dataclass(said[0]):
            changes[each.name] = tuple(hidden(one, names, special) for one in said)
    return replace(value, **changes)


def _one(said: Any, how: How, names: Names, special: dict[str, Callable[[Any, Names], Any]]) -> Any:
    if how is None or said is None:
        return said
    if how in (LABELS, ANNOTATIONS, POLICY_TEXT):
        return special[how](said, names)
    if isinstance(said, dict):
        of_key, of_value = how
        return {
            _text(key, of_key, names): _one(value, of_value, names, special)
            for key, value in said.items()
        }
    if isinstance(said, list | tuple):
        return type(said)(_one(one, how, names, special) for one in said)
    return _text(said, how, names)


def _text(said: str, how: How, names: Names) -> str:
    if how in KINDS:
        return names(how, said)
    if how == COMMAND:
        return command_id(said, names)
    if how == TERM and said.startswith(FOR):
        return FOR + names(WORKLOAD, said.removeprefix(FOR))
    if how in (WORD, TERM):
        return said if not said or _WORD.fullmatch(said) else WITHHELD
    if how == CPUS:
        return said if _CPUS.fullmatch(said) else WITHHELD
    return "" if how == TEXT else said


def command_id(said: str, names: Names) -> str:
    """A command's id with another node in it; one of another form is a name by itself."""
    parts = _COMMAND.fullmatch(said)
    if parts is None:
        return names("Id", said)
    return parts[1] + names(NODE, parts[2]) + parts[3]
