"""Views over the decoded tables: questions that everybody asks, as SQL that anybody can read.

`streams.recording.sql` makes them; docs/tables.md lists them. DuckDB's dialect.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class View:
    """``reads``: the tables behind it, all of them, also those of views that it reads."""

    name: str
    row: str
    meaning: str
    reads: tuple[str, ...]
    sql: str


VIEWS = (
    View(
        "pod_use", "a pod in a sample but its first",
        "what each pod used since the sample before: CPU as a rate, memory as it stood",
        ("pods",),
        """
        select time, log_ms, partition, log_offset, node, uid, namespace, name, workload, qos,
          priority_class, (cpu_usage_us - lag(cpu_usage_us) over w) * 1000
            // nullif(mono_us - lag(mono_us) over w, 0) as cpu_milli, memory_used_bytes,
          (psi_cpu_some_us - lag(psi_cpu_some_us) over w) * 1000000
            // nullif(mono_us - lag(mono_us) over w, 0) as pressure_us_per_s
        from pods
        window w as (partition by node, boot, uid order by mono_us, log_offset)
        qualify lag(mono_us) over w is not null
        """,
    ),
    View(
        "node_use", "a sample of a node but its first",
        "what each node used since the sample before, and best-effort work of it",
        ("samples",),
        """
        select time, log_ms, partition, log_offset, node, pods, cpus_online,
          (cpu_busy_us - lag(cpu_busy_us) over w) * 1000
            // nullif(mono_us - lag(mono_us) over w, 0) as cpu_milli,
          (be_cpu_usage_us - lag(be_cpu_usage_us) over w) * 1000
            // nullif(mono_us - lag(mono_us) over w, 0) as be_cpu_milli,
          be_cpu_quota_milli, memory_total_bytes,
          memory_total_bytes - memory_available_bytes as memory_used_bytes
        from samples
        window w as (partition by node, boot order by mono_us, log_offset)
        qualify lag(mono_us) over w is not null
        """,
    ),
    View(
        "capacity_changes", "a capacity that differs from the one before on its node",
        "what may be lent, before and after, and why",
        ("capacity",),
        """
        select time, log_ms, node, reason, new_work,
          lag(batch_cpu_milli) over w as before_cpu_milli, batch_cpu_milli,
          lag(batch_memory_bytes) over w as before_memory_bytes, batch_memory_bytes,
          policy, cause_partition, cause_offset
        from capacity
        window w as (partition by node order by incarnation, cause_offset)
        qualify (batch_cpu_milli, batch_memory_bytes)
          is distinct from (lag(batch_cpu_milli) over w, lag(batch_memory_bytes) over w)
        """,
    ),
    View(
        "decided", "a node in a line of the audit log",
        "decisions with the version of their policy, and who published it",
        ("decisions", "policies"),
        """
        select d.time, d.log_ms, d.node, d.decider, d.reason, d.command_id, d.terms, d.policy,
          p.version as policy_version, p.author, p.note, d.signer, d.cause_partition,
          d.cause_offset
        from decisions d left join (
          select digest, max(version) as version, arg_max(author, version) as author,
            arg_max(note, version) as note
          from policies where digest <> '' group by digest
        ) p on p.digest = d.policy
        """,
    ),
    View(
        "evicted_pods", "a pod that a command of an eviction names",
        "who had to go, why, and what its node and the Eviction API said of it last",
        ("commands", "acks", "evictions", "pod_facts"),
        """
        with named as (
          select time, log_ms, node, id, decider, reason, dry_run, policy, unnest(pods) as uid
          from commands where decider in ('evict_memory', 'evict_cpu')
        ), facts as (
          select node, uid, arg_max(namespace, log_offset) as namespace,
            arg_max(name, log_offset) as name, arg_max(workload, log_offset) as workload
          from pod_facts group by node, uid
        ), acked as (
          select command_id, arg_max(outcome, log_offset) as outcome,
            arg_max(reason, log_offset) as reason
          from acks where command_id <> '' and outcome <> 'duplicate' group by command_id
        ), api as (
          select uid, command_id, arg_max(outcome, log_offset) as outcome
          from evictions group by uid, command_id
        )
        select n.time, n.log_ms, n.node, n.uid, f.namespace, f.name, f.workload, n.decider,
          n.reason, n.dry_run, a.outcome as node_said, a.reason as node_reason,
          e.outcome as api_said, n.id as command_id, n.policy
        from named n
        left join facts f using (node, uid)
        left join acked a on a.command_id = n.id
        left join api e on e.command_id = n.id and e.uid = n.uid
        """,
    ),
)  # fmt: skip
