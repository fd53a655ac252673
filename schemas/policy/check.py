"""Rules between keys of a policy; called once a document has been read key by key."""

from __future__ import annotations

from schemas.errors import BadPolicy
from schemas.policy.document import Policy

UNJUDGED_PERMILLE = 1000
"""Of requests that may fail: all of them."""


def check(policy: Policy, source: str) -> None:
    """Rules between keys."""
    for key, high in (
        ("evict_memory.lower_percent", "threshold_percent"),
        ("evict_memory.allocatable_lower_percent", "allocatable_threshold_percent"),
        ("evict_memory.limit_margin_bytes", "limit_lower_bytes"),
        ("evict_cpu.usage_lower_percent", "usage_threshold_percent"),
        ("evict_cpu.allocatable_lower_percent", "allocatable_threshold_percent"),
    ):
        section, _, name = key.partition(".")
        part = getattr(policy, section)
        lower, threshold = getattr(part, name), getattr(part, high)
        if lower >= threshold:
            raise BadPolicy(
                f"{source}: {key} is {lower}; allowed: 0 to {high} - 1 = {threshold - 1}"
            )
    starved = policy.evict_cpu
    if starved.satisfaction_upper_percent < starved.satisfaction_lower_percent:
        raise BadPolicy(
            f"{source}: evict_cpu.satisfaction_upper_percent is "
            f"{starved.satisfaction_upper_percent}; allowed: satisfaction_lower_percent = "
            f"{starved.satisfaction_lower_percent} to 99"
        )
    loop = policy.loop
    if loop.command_ttl_ms < 3 * loop.tick_ms:
        raise BadPolicy(
            f"{source}: loop.command_ttl_ms is {loop.command_ttl_ms}; allowed: at least three "
            f"ticks, {3 * loop.tick_ms}"
        )
    for key in ("grace_ms", "memory_grace_ms"):
        grace_ms = getattr(policy.eviction, key)
        if grace_ms >= loop.command_ttl_ms:
            raise BadPolicy(
                f"{source}: eviction.{key} is {grace_ms}; allowed: less than loop.command_ttl_ms = "
                f"{loop.command_ttl_ms}, for so long a pod counts as on its way"
            )
    if not loop.silent_after_ms < loop.withdraw_after_ms <= loop.forget_after_ms:
        raise BadPolicy(
            f"{source}: loop.silent_after_ms < withdraw_after_ms <= forget_after_ms must hold, "
            f"not {loop.silent_after_ms}, {loop.withdraw_after_ms}, {loop.forget_after_ms}"
        )
    for i, peak in enumerate(policy.margins.peaks):
        if peak.start_minute == peak.end_minute:
            raise BadPolicy(
                f"{source}: margins.peaks[{i}].end_minute is {peak.end_minute}; allowed: any "
                "minute but start_minute"
            )
    _check_slo(policy, source)
    _check_isolation(policy, source)
    _check_balance(policy, source)


def _check_slo(policy: Policy, source: str) -> None:
    """Objectives that judge something, each workload and each class once."""
    guard = policy.slo_guard
    if len(set(guard.order)) < len(guard.order):
        said = ", ".join(guard.order)
        raise BadPolicy(f"{source}: slo_guard.order is {said}; allowed: each class once")
    seen: set[str] = set()
    for i, one in enumerate(guard.objectives):
        where = f"{source}: slo_guard.objectives[{i}]"
        if one.workload in seen:
            raise BadPolicy(f"{where}.workload is {one.workload:.80}; allowed: each workload once")
        if one.p99_us == 0 and one.errors_permille == UNJUDGED_PERMILLE:
            raise BadPolicy(
                f"{where} judges nothing; allowed: p99_us from 1, or errors_permille below "
                f"{UNJUDGED_PERMILLE}"
            )
        seen.add(one.workload)


def _check_isolation(policy: Policy, source: str) -> None:
    """Partitions that are none, and settings that work against each other."""
    for name in ("lsr", "ls", "be"):
        part = getattr(policy.resctrl, name)
        if part.l3_start_percent >= part.l3_end_percent:
            raise BadPolicy(
                f"{source}: resctrl.{name}.l3_start_percent is {part.l3_start_percent}; allowed: "
                f"0 to l3_end_percent - 1 = {part.l3_end_percent - 1}"
            )
    identity, oom = policy.group_identity, policy.oom
    on = [part.enabled for part in (identity.lsr, identity.ls, identity.be, identity.system)]
    if policy.core_sched.enabled and any(on):
        raise BadPolicy(
            f"{source}: core_sched.enabled is true; allowed: only without group_identity, the "
            "kernel has one of the two at a time"
        )
    for name in ("lsr", "ls", "system"):
        part = getattr(oom, name)
        if part.enabled and oom.be.enabled and part.score_adj >= oom.be.score_adj:
            raise BadPolicy(
                f"{source}: oom.{name}.score_adj is {part.score_adj}; allowed: below that of best "
                f"effort, {oom.be.score_adj}"
            )
    _check_network(policy, source)


def _check_network(policy: Policy, source: str) -> None:
    """Guarantees that can be kept, and maxima that do not undercut them."""
    parts = {name: getattr(policy.network, name) for name in ("system", "ls", "be")}
    for way in ("egress", "ingress"):
        promised = 0
        for name, part in parts.items():
            least, most = getattr(part, f"{way}_min_percent"), getattr(part, f"{way}_max_percent")
            promised += least if part.enabled else 0
            if 0 < most < least:
                raise BadPolicy(
                    f"{source}: network.{name}.{way}_max_percent is {most}; allowed: 0, or at "
                    f"least {way}_min_percent = {least}"
                )
        if promised > 100:
            raise BadPolicy(
                f"{source}: network {way}_min_percent of all classes is {promised}; allowed: 0 to "
                "100 together"
            )


def _check_balance(policy: Policy, source: str) -> None:
    """Low bounds lie at or below high ones; by deviation both are distances."""
    rule = policy.low_node_load
    bounds = (
        ("low_cpu_percent", rule.low_cpu_percent, rule.high_cpu_percent),
        ("low_memory_percent", rule.low_memory_percent, rule.high_memory_percent),
        ("prod_low_cpu_percent", rule.prod_low_cpu_percent, rule.prod_high_cpu_percent),
        ("prod_low_memory_percent", rule.prod_low_memory_percent, rule.prod_high_memory_percent),
    )
    for name, low, high in bounds:
        if low > high and not rule.deviation:
            raise BadPolicy(
                f"{source}: low_node_load.{name} is {low}; allowed: 0 to the high one, {high}"
            )
