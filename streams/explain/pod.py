"""Why a pod is treated as it is: who it is, what was done to it, what bounds it now. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.records import PodFact
from streams.explain.acts import Folded, last_act, of_pod
from streams.explain.line import Line, standing
from streams.explain.past import Past
from streams.explain.words import cores, size

BEST_EFFORT = "BE"


@dataclass(frozen=True, slots=True)
class Story:
    """One pod at a moment; ``lines``: what names it, by time; ``bounds``: what holds it now."""

    uid: str
    name: str
    namespace: str
    workload: str
    node: str
    here: bool  # the newest pod set of its node has it
    sentence: str
    bounds: tuple[Line, ...]
    lines: tuple[Line, ...]


def find(past: Past, named: str, at_ms: int) -> list[tuple[str, PodFact]]:
    """Node and facts of each pod that a uid, ``namespace/name`` or name may mean."""
    by_uid = past.sets.find(named, at_ms)
    if by_uid is not None:
        return [by_uid]
    namespace, _, name = named.rpartition("/")
    return past.sets.named(namespace, name)


def story(past: Past, node: str, pod: PodFact, samples: Folded, at_ms: int) -> Story:
    """All that is known of one pod."""
    facts = past.sets.of_node(node, at_ms)
    here = facts is not None and any(each.uid == pod.uid for each in facts.pods)
    lines = of_pod(past, pod.uid, samples)
    bounds: list[Line] = []
    if pod.qos == BEST_EFFORT and here:
        bounds = [line for line in standing(past, node) if line.decider == "suppress"]
        own = last_act(past, node, samples)
        if own is not None and (not bounds or own.log_ms > bounds[0].log_ms):
            bounds.append(own)
    return Story(
        uid=pod.uid,
        name=pod.name,
        namespace=pod.namespace,
        workload=pod.workload,
        node=node,
        here=here,
        sentence=_sentence(node, pod, lines, here),
        bounds=tuple(bounds),
        lines=tuple(lines),
    )


def _sentence(node: str, pod: PodFact, lines: list[Line], here: bool) -> str:
    name = f"{pod.namespace}/{pod.name}" if pod.namespace else pod.name
    of = f" of {pod.workload}" if pod.workload else ""
    kind = " ".join(word for word in (pod.priority_class, pod.qos) if word)
    asked = f"asks for {cores(pod.cpu_request_milli)} cores and {size(pod.memory_request_bytes)}"
    where = f"is on {node}" if here else f"is on {node} no longer"
    ends = [line for line in lines if line.decider in ("evict_memory", "evict_cpu")]
    what = f"; {len(ends)} lines say why it had to go" if ends else "; nothing told it to go"
    may = "" if pod.evictable else "; it may not be evicted"
    if pod.qos != BEST_EFFORT:
        may += "; it is no best-effort work, so nothing here suppresses it"
    return f"pod {name} ({pod.uid}){of}, {kind}, {asked}, {where}{what}{may}."
