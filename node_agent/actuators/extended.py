"""What best-effort pods asked for in extended resources, group by group; the knobs `extended_*`
set it.

Kubelet and runtime know nothing of kubernetes.io/batch-cpu and its kin: a pod that asked for eight
CPUs of batch runs with the least of shares and without any limit. Amounts come from the pod's
containers, so only pods that a kubelet has named have any. Law: `agents.isolation.extended`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from agents.isolation.extended import UNSAID, Part, pod_limit, pod_request
from node_agent.actuators.knob import Ask
from node_agent.actuators.roster import Roster
from node_agent.containers import Amounts, Container
from node_agent.inventory import Pod
from schemas.records import IsolationSettings

Resource = Literal["cpu_milli", "memory_bytes"]
TIERS = ("batch", "mid")
REQUEST, LIMIT = "request", "limit"
Amount = dict[str, int]
"""`REQUEST` and `LIMIT` of one group; what was not said is left out."""


def asks(settings: IsolationSettings, roster: Roster, name: str, of: Resource) -> Iterator[Ask]:
    """One ask for each group of a best-effort pod; online pods are asked without figures."""
    on = {
        unit: online
        for unit, said, online in roster.of_pods(settings, frozenset({name}))
        if said[name] > 0
    }
    for pod in roster.pods:
        online = on.get(pod.group)
        if online is None:
            continue
        if online:
            yield Ask(pod.group, {name: 1}, online)
            continue
        for group, figures in amounts(pod, of).items():
            if figures:
                yield Ask(group, {name: 1}, alone=True, figures=figures)


def amounts(pod: Pod, of: Resource) -> dict[str, Amount]:
    """Of the pod's group and of each container that stands; none where nothing was asked for."""
    named = [each for each in pod.containers if each.kind != "unknown"]
    parts = [part_of(each, of) for each in named]
    if all(part.request == part.limit == UNSAID for part in parts):
        return {}
    own = pod.fact.cpu_limit_milli if of == "cpu_milli" else pod.fact.memory_limit_bytes
    found = {pod.group: _said(pod_request(parts), pod_limit(parts, own))}
    for container, part in zip(named, parts, strict=True):
        if container.group:
            found[container.group] = _said(part.request, part.limit)
    return found


def part_of(container: Container, of: Resource) -> Part:
    """A limit alone is the request too."""
    request, limit = _first(container.requests, of), _first(container.limits, of)
    return Part(limit if request == UNSAID else request, limit, container.kind == "init")


def _first(said: Amounts, of: Resource) -> int:
    named = (getattr(said, f"{tier}_{of}") for tier in TIERS)
    return next((amount for amount in named if amount != UNSAID), UNSAID)


def _said(request: int, limit: int) -> Amount:
    found = {} if request == UNSAID else {REQUEST: request}
    return {**found, LIMIT: limit} if limit > 0 else found
