"""Why so much may be lent now and so much before, and why work is placed nowhere. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from schemas import policy as policies
from schemas.errors import BadPolicy
from schemas.records import Capacity
from streams import stages
from streams.explain.line import SAID_AGAIN
from streams.explain.past import Past, Place
from streams.explain.policies import Published
from streams.explain.words import because, cores, size
from streams.policy_text import differences, on_node

RESOURCES: tuple[tuple[str, str, str, str, Callable[[int], str]], ...] = (
    ("batch CPU", "batch_cpu_milli", "computed_cpu_milli", "cpu_terms", cores),
    ("batch memory", "batch_memory_bytes", "computed_memory_bytes", "memory_terms", size),
    ("mid CPU", "mid_cpu_milli", "computed_mid_cpu_milli", "mid_cpu_terms", cores),
    ("mid memory", "mid_memory_bytes", "computed_mid_memory_bytes", "mid_memory_terms", size),
)
"""Name, what is published, the sum before guards, its terms, and how an amount is said."""
POLICY_KEYS_TOLD = 12


@dataclass(frozen=True, slots=True)
class Term:
    """One term at both times, millicores or bytes."""

    name: str
    before: int
    now: int

    @property
    def change(self) -> int:
        return self.now - self.before


@dataclass(frozen=True, slots=True)
class Changed:
    """One resource: published and computed at both times, and the terms that differ."""

    resource: str
    before: int
    now: int
    computed_before: int
    computed_now: int
    terms: tuple[Term, ...]  # the largest change first
    sentence: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Capacity of a node at two times; ``policy``: what was changed by whom in between."""

    node: str
    before_ms: int
    now_ms: int
    reason_before: str
    reason_now: str
    new_work_before: bool
    new_work_now: bool
    cause_before: Place
    cause_now: Place
    changed: tuple[Changed, ...]
    policy: tuple[str, ...]
    sentence: str


def compare(past: Past, node: str, now_ms: int, before_ms: int) -> Comparison | None:
    """Capacity of a node at ``now_ms`` against ``before_ms``; None: not known at one of them."""
    then, now = past.capacity_at(node, before_ms), past.capacity_at(node, now_ms)
    if then is None or now is None:
        return None
    old, new = then[1], now[1]
    changed = tuple(_changed(old, new, *names) for names in RESOURCES)
    welcome = {True: "new work is taken", False: "no new work is taken"}
    said = f"it was said then because {because(old.reason)}"
    same = "is the same record" if old is new else f"because {because(new.reason)}"
    said = f"{said}, and now {same}; {welcome[old.new_work]} then, {welcome[new.new_work]} now"
    return Comparison(
        node=node,
        before_ms=old.cause.log_ms,
        now_ms=new.cause.log_ms,
        reason_before=old.reason,
        reason_now=new.reason,
        new_work_before=old.new_work,
        new_work_now=new.new_work,
        cause_before=_cause(old),
        cause_now=_cause(new),
        changed=changed,
        policy=_policy(past, old, new),
        sentence=said,
    )


def _cause(record: Capacity) -> Place:
    cause = record.cause
    return Place("samples", cause.partition, cause.offset, cause.log_ms)


def _changed(
    old: Capacity, new: Capacity, resource: str, published: str, computed: str, terms: str,
    unit: Callable[[int], str],
) -> Changed:  # fmt: skip
    before, now = getattr(old, published), getattr(new, published)
    sum_before, sum_now = getattr(old, computed), getattr(new, computed)
    differ = _differ(getattr(old, terms), getattr(new, terms))
    told = ", ".join(
        f"{t.name.replace('_', ' ')} {unit(t.before)} -> {unit(t.now)} ({_signed(t.change, unit)})"
        for t in differ
    )
    said = f"{resource} {unit(before)} -> {unit(now)} ({_signed(now - before, unit)})"
    if (sum_before, sum_now) != (before, now):
        said += f"; its sum {unit(sum_before)} -> {unit(sum_now)}, the rest is guards"
    said += f"; terms that changed: {told}" if told else "; no term changed"
    return Changed(resource, before, now, sum_before, sum_now, differ, said)


def _differ(old: Mapping[str, int], new: Mapping[str, int]) -> tuple[Term, ...]:
    """Terms that are not the same, the largest change first, then by name."""
    names = dict.fromkeys([*old, *new])
    terms = [Term(name, old.get(name, 0), new.get(name, 0)) for name in names]
    return tuple(sorted((t for t in terms if t.change), key=lambda t: (-abs(t.change), t.name)))


def _signed(amount: int, unit: Callable[[int], str]) -> str:
    return f"{'-' if amount < 0 else '+'}{unit(abs(amount))}"


def _policy(past: Past, old: Capacity, new: Capacity) -> tuple[str, ...]:
    """What differs between the policies of two decisions, and who brought the newer one."""
    if old.cause.policy == new.cause.policy:
        return ()
    before = past.policies.of(old.cause.policy, old.cause.log_ms)
    now = past.policies.of(new.cause.policy, new.cause.log_ms)
    if before is None or now is None:
        return (f"another policy: {old.cause.policy or 'none'} -> {new.cause.policy or 'none'}",)
    head = f"policy version {before.record.version} -> {now.record.version}{now.by}"
    return (head, *_keys(before, now))


def _keys(before: Published, now: Published) -> list[str]:
    """Keys of the cluster's policy that differ, in words."""
    try:
        parsed = [policies.published(each.record).policy for each in (before, now)]
    except BadPolicy:
        return []
    found: list[tuple[str, Any, Any]] = differences(*parsed)
    said = [f"{key}: {old} -> {new}" for key, old, new in found[:POLICY_KEYS_TOLD]]
    more = len(found) - POLICY_KEYS_TOLD
    return said + ([f"and {more} more"] if more > 0 else [])


@dataclass(frozen=True, slots=True)
class Wish:
    """What wants to be placed; 0: any amount."""

    cpu_milli: int = 0
    memory_bytes: int = 0
    workload: str = ""
    mid: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """What one node has for a wish, and why it is not taken; no ``why``: it fits."""

    node: str
    offered_milli: int
    offered_bytes: int
    lent_milli: int
    lent_bytes: int
    new_work: bool
    reason: str
    why: tuple[str, ...]
    said: Place | None


def offers(past: Past, wish: Wish, at_ms: int) -> list[Offer]:
    """Every node, those first where it fits, then those that have most left."""
    found = [_offer(past, node, wish, at_ms) for node in past.nodes()]
    return sorted(found, key=lambda o: (bool(o.why), o.lent_milli - o.offered_milli, o.node))


def _offer(past: Past, node: str, wish: Wish, at_ms: int) -> Offer:
    held = [entry for (name, _), entry in past.held.items() if name == node]
    lent = (
        sum(e.mid_cpu_milli if wish.mid else e.cpu_milli for e in held),
        sum(e.mid_memory_bytes if wish.mid else e.memory_bytes for e in held),
    )
    known = past.capacity_at(node, at_ms)
    if known is None:
        return Offer(node, 0, 0, lent[0], lent[1], False, "", (_unsaid(past, node, at_ms),), None)
    place, record = known
    if wish.mid:
        offered = (record.mid_cpu_milli, record.mid_memory_bytes)
        reason = record.mid_reason
    else:
        offered, reason = (record.batch_cpu_milli, record.batch_memory_bytes), record.reason
    why = []
    if not record.new_work:
        why.append(f"it takes no new work: {because(reason)}")
    if record.workloads and wish.workload not in record.workloads:
        why.append(f"only {', '.join(record.workloads)} may borrow there")
    why += _short("CPU", offered[0], lent[0], wish.cpu_milli, cores, reason)
    why += _short("memory", offered[1], lent[1], wish.memory_bytes, size, reason)
    facts = past.sets.of_node(node, at_ms)
    if facts is not None and facts.removed:
        why.append("the node has left")
    return Offer(node, *offered, *lent, record.new_work, reason, tuple(why), place)


def _short(
    what: str, offered: int, lent: int, wanted: int, unit: Callable[[int], str], reason: str
) -> list[str]:
    left = offered - lent
    if left >= max(wanted, 1):
        return []
    asked = f"{unit(wanted)} wanted" if wanted else "anything wanted"
    why = f" ({because(reason)})" if reason and reason not in SAID_AGAIN else ""
    said = f"{unit(offered)} of {what} are offered{why}, {unit(lent)} lent"
    return [f"{said}, {unit(max(left, 0))} left, {asked}"]


def _unsaid(past: Past, node: str, at_ms: int) -> str:
    """Why nothing was ever offered on a node."""
    published, facts = past.policies.at(at_ms), past.sets.of_node(node, at_ms)
    if published is None:
        return stages.NO_POLICY
    if facts is None:
        return "it has said nothing of itself: no inventory"
    try:
        return f"nothing is offered: {on_node(published.record, facts).means}"
    except BadPolicy as error:
        return f"nothing is offered: {error}"
