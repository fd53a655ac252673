"""Tables of what nodes, schedulers, services and operators said: acks, ledger, SLIs, policies."""

from __future__ import annotations

from schemas import ledger
from schemas.ledger_records import LedgerClaim, LedgerGrant
from schemas.records import (
    Ack,
    DeadLetter,
    EvictionReport,
    Inventory,
    Job,
    LedgerEntry,
    PolicyRecord,
    Sli,
    Tick,
)
from streams.policy_gate import digest_of
from streams.recording.segment import Record
from streams.recording.tables.column import (
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
    part,
    said,
)
from streams.recording.tables.decided import NODE

TICKS = Table(
    "ticks", "samples", Tick, "a tick",
    (
        *WHERE,
        said("incarnation", INT, "of the installation"),
        said("law_version", INT, "version of the law that decides it"),
        said("side", FIGURES, "offset up to which each side topic's partition is admitted"),
        SIGNER,
    ),
)  # fmt: skip

ACKS = Table(
    "acks", "acks", Ack, "what a node did, with a command or by itself",
    (
        *WHERE, NODE,
        said("boot", TEXT, "start of the agent"),
        said("seq", INT, "number of the ack in that start"),
        said("mono_us", INT, "the node's monotonic clock"),
        said("decider", TEXT, "whose command it was, or which local law"),
        said("outcome", TEXT, "applied, refused, local, failed, duplicate, started, handed_over"),
        said("reason", TEXT, "reason code"),
        said("command_id", TEXT, "empty: an act of its own"),
        said("incarnation", INT, "of the command's cause"),
        said("cause_order", INT, "offset of the command's cause; -1: none", "offset"),
        said("asked_milli", INT, "what was asked for; -1: nothing"),
        said("in_force_milli", INT, "what best-effort work may use now; -1: not known"),
        said("pods", TEXTS, "uids of the pods it is about"),
        said("dry_run", FLAG, "nothing was done"),
        said("terms", FIGURES, "figures of an act of its own"),
        SIGNER,
    ),
    keyed=True,
)  # fmt: skip

EVICTIONS = Table(
    "evictions", "evictions", EvictionReport, "a word on a pod that goes by the Eviction API",
    (
        *WHERE, NODE,
        said("uid", TEXT, "the pod's", "pod"),
        said("namespace", TEXT, "the pod's"),
        said("name", TEXT, "the pod's"),
        said("workload", TEXT, "the pod's"),
        said("source", TEXT, "who wants it gone"),
        said("outcome", TEXT, "waiting, evicted, gone, refused, expired"),
        said("reason", TEXT, "why, or what it waits for"),
        said("why", TEXT, "reason code of the order"),
        said("command_id", TEXT, "of the order"),
        said("tries", INT, "calls of the API so far"),
        said("asked_log_ms", INT, "when it was handed over, log time"),
        said("until_log_ms", INT, "when it would have expired, log time"),
        said("dry_run", FLAG, "nobody went"),
        said("terms", FIGURES, "figures of an order of the bridge"),
    ),
    keyed=True,
)  # fmt: skip


def _returned(record: Record) -> LedgerEntry | None:
    """What a tombstone says: nothing is held any more."""
    key = ledger.parse(record.key)
    return LedgerEntry(key.node, key.scheduler, 0, 0)


_AMOUNTS = (
    said("cpu_milli", INT, "batch's CPU"),
    said("memory_bytes", INT, "batch's memory"),
    said("mid_cpu_milli", INT, "mid's CPU, not part of batch's"),
    said("mid_memory_bytes", INT, "mid's memory"),
)
LEDGER = Table(
    "ledger", "ledger", LedgerEntry, "what a scheduler holds on a node from then on, in all",
    (
        *WHERE, NODE,
        said("scheduler", TEXT, "who; empty: all that is held there is given back"),
        *_AMOUNTS,
        said("releasing_cpu_milli", INT, "of it on its way back"),
        said("releasing_memory_bytes", INT, "the same of memory"),
        said("pods", TEXTS, "uids of the pods that hold it"),
    ),
    erased=_returned,
)  # fmt: skip

LEDGER_CLAIMS = Table(
    "ledger_claims", "ledger", LedgerClaim, "what a scheduler asks for",
    (
        *WHERE, NODE,
        said("scheduler", TEXT, "who"),
        said("claim", TEXT, "its id"),
        said("ttl_ms", INT, "how long it lasts"),
        *_AMOUNTS,
    ),
)  # fmt: skip

LEDGER_GRANTS = Table(
    "ledger_grants", "ledger", LedgerGrant, "what a scheduler was answered",
    (
        *WHERE, NODE,
        said("scheduler", TEXT, "who"),
        said("claim", TEXT, "its id"),
        said("granted", FLAG, "whether it was"),
        said("reason", TEXT, "why no more"),
        *_AMOUNTS,
        said("lendable_cpu_milli", INT, "what could be lent on the node then"),
        said("lendable_memory_bytes", INT, "the same of memory"),
    ),
)  # fmt: skip

SLIS = Table(
    "slis", "slis", Sli, "what an online service measured of its pods on a node",
    (
        *WHERE, NODE,
        said("workload", TEXT, "which service"),
        said("window_ms", INT, "over how long"),
        said("end_ms", INT, "when that ended, by the service's clock; -1: not said"),
        said("p50_us", INT, "median latency"),
        said("p99_us", INT, "99th percentile of latency"),
        said("p90_us", INT, "90th; -1: not measured"),
        said("p999_us", INT, "99.9th; -1: not measured"),
        said("requests", INT, "in the window"),
        said("errors", INT, "of which failed"),
    ),
    keyed=True,
)  # fmt: skip

JOBS = Table(
    "jobs", "jobs", Job, "what a piece of batch work achieved",
    (
        *WHERE, NODE,
        said("job", TEXT, "its name"),
        said("state", TEXT, "queued, running, suppressed, evicted, done"),
        said("progress_permille", INT, "how much is done"),
        said("cpu_us", INT, "CPU it used so far"),
        said("retries", INT, "times it began again"),
        said("recoverable", FLAG, "whether it may begin again"),
    ),
)  # fmt: skip

POLICIES = Table(
    "policies", "policies", PolicyRecord, "a version of the policy as it was published",
    (
        *WHERE,
        said("name", TEXT, "of the policy"),
        said("version", INT, "of the policy"),
        said("digest", TEXT, "names it: the `policy` of what was decided", take=digest_of),
        said("author", TEXT, "who published it"),
        said("note", TEXT, "what for"),
        said("forced", FLAG, "a refusal was overruled"),
        said("canary", TEXT, "labels of the nodes on which it holds; empty: on all",
             take=lambda said: ",".join(f"{k}={v}" for k, v in sorted(said.canary.items()))),
        said("text", TEXT, "as it was written"),
    ),
)  # fmt: skip

INVENTORY = Table(
    "inventory", "inventory", Inventory, "the facts of a node, as it said them",
    (
        *WHERE, NODE,
        said("pods_rev", INT, "revision of its pod set"),
        said("pods", INT, "pods in the set", take=lambda said: len(said.pods)),
        said("cpu_capacity_milli", INT, "of the machine"),
        said("memory_capacity_bytes", INT, "of the machine"),
        said("cpu_allocatable_milli", INT, "of it for pods; -1: all"),
        said("memory_allocatable_bytes", INT, "the same of memory"),
        said("cpu_reserved_milli", INT, "kept for the system"),
        said("memory_reserved_bytes", INT, "the same of memory"),
        said("third_party_cpu_milli", INT, "batch that another system has given away"),
        said("third_party_memory_bytes", INT, "the same of memory"),
        said("kernel", TEXT, "its version"),
        said("labels", TEXT, "of the node",
             take=lambda said: ",".join(f"{k}={v}" for k, v in sorted(said.labels.items()))),
        said("removed", FLAG, "the node has left"),
        SIGNER,
    ),
    keyed=True,
)  # fmt: skip


def _fact(name: str, meaning: str, *, numbers: bool = False) -> Column:
    return part(name, INT if numbers else TEXT, meaning)


POD_FACTS = Table(
    "pod_facts", "inventory", Inventory, "a pod in the facts of its node",
    (
        *WHERE, NODE,
        said("pods_rev", INT, "revision of the pod set"),
        _fact("uid", "the pod's"),
        _fact("namespace", "the pod's"),
        _fact("name", "the pod's"),
        _fact("workload", "what it is a part of"),
        _fact("qos", "LSE, LSR, LS, BE, SYSTEM"),
        _fact("priority_class", "prod, mid, batch, free"),
        _fact("priority", "higher stays longer", numbers=True),
        _fact("cpu_request_milli", "asked for, of its own class", numbers=True),
        _fact("cpu_limit_milli", "at most; -1: none", numbers=True),
        _fact("memory_request_bytes", "asked for, of its own class", numbers=True),
        _fact("memory_limit_bytes", "at most; -1: none", numbers=True),
        part("host_app", FLAG, "a program outside Kubernetes"),
        part("evictable", FLAG, "whether it may be evicted"),
        part("terminating", FLAG, "on its way out"),
        part("recoverable", FLAG, "its work begins anew by itself; null: nobody knows"),
        part("checkpointed", FLAG, "its work goes on from where it was saved"),
        _fact("retries_left", "-1: nobody knows; 0: its work is lost for good", numbers=True),
        _fact("eviction_priority", "lower goes first", numbers=True),
        part("numa_nodes", INTS, "zones it is bound to; empty: all"),
    ),
    parts=lambda record: record.pods,
    keyed=True,
)  # fmt: skip

DEAD_LETTERS = Table(
    "dead_letters", "dead-letters", DeadLetter, "a record that could not be used",
    (
        *WHERE,
        said("topic", TEXT, "where it was"),
        said("of_partition", INT, "where it was", "partition"),
        said("of_offset", INT, "where it was", "offset"),
        said("reason", TEXT, "why not"),
        said("detail", TEXT, "why not, in words"),
        said("size_bytes", INT, "of the record"),
        said("key_hex", TEXT, "its key"),
        said("head_hex", TEXT, "its first bytes"),
    ),
)  # fmt: skip

TABLES = (
    TICKS, ACKS, EVICTIONS, LEDGER, LEDGER_CLAIMS, LEDGER_GRANTS, SLIS, JOBS, POLICIES, INVENTORY,
    POD_FACTS, DEAD_LETTERS,
)  # fmt: skip
