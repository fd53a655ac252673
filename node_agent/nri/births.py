"""What a best-effort container gets at its birth: the same as the knobs `extended_*` set later.

Amounts come from the kubelet's list, where the pod is in it already, else from what admission noted
on the pod; such a note counts only for a pod whose group lies below the best-effort root. What a
container has of its own is never widened.
"""

from __future__ import annotations

from agents.isolation.extended import NO_LIMIT, UNSAID, quota_us, shares
from node_agent.actuators.extended import part_of
from node_agent.actuators.knobs.cpu_bandwidth import PERIOD_US
from node_agent.actuators.knobs.extended_cpu import ExtendedCpu
from node_agent.actuators.knobs.extended_memory import ExtendedMemory
from node_agent.actuators.number import MOST_BYTES, PAGE
from node_agent.cgroup.paths import GroupPathError, normal_group, strictly_inside
from node_agent.containers import Container
from node_agent.isolation import BirthRules
from node_agent.kubelet import requests
from node_agent.nri.messages import Birth, Gift

SLICE = ".slice"


def gift(rules: BirthRules, birth: Birth) -> Gift | None:
    """None where nothing is to be adjusted."""
    container = _container(rules, birth) if rules.on else None
    if container is None:
        return None
    found: dict[str, int] = {}
    if ExtendedCpu.name in rules.on:
        found |= _cpu(rules, birth, container)
    if ExtendedMemory.name in rules.on:
        limit = min(part_of(container, "memory_bytes").limit, MOST_BYTES) // PAGE * PAGE
        if limit > 0 and not 0 < birth.limit_bytes <= limit:
            found["limit_bytes"] = limit
    return Gift(**found) if found else None


def _cpu(rules: BirthRules, birth: Birth, container: Container) -> dict[str, int]:
    part, ceiling = part_of(container, "cpu_milli"), rules.roster.ceiling_milli
    found = {} if part.request == UNSAID else {"shares": shares(part.request)}
    whole = quota_us(part.limit, rules.roster.cpu_ratio_permille)
    moot = rules.bounded and ceiling is not None and part.limit > ceiling
    if whole != NO_LIMIT and birth.quota_us <= 0 and not moot:
        found |= {"quota_us": whole, "period_us": PERIOD_US}
    return found


def _container(rules: BirthRules, birth: Birth) -> Container | None:
    """What is known of the container; None of an online pod's, and of one that nobody knows."""
    for pod in rules.roster.pods:
        if pod.fact.uid == birth.uid:
            named = (each for each in pod.containers if each.name == birth.name)
            return next(named, None) if pod.best_effort else None
    said = requests.noted(birth.annotations).get(birth.name)
    if said is None or not best_effort(birth.parent, rules.roster.be_root):
        return None
    return Container(
        id="",
        group="",
        name=birth.name,
        requests=requests.amounts(said.requests),
        limits=requests.amounts(said.limits),
    )


def best_effort(parent: str, root: str | None) -> bool:
    """Whether a pod's group, as the kubelet says it, lies below the best-effort root.

    With systemd it is the name of a slice alone, which begins as its parent's.
    """
    if root is None or not parent:
        return False
    if parent.endswith(SLICE) and "/" not in parent:
        above = root.rpartition("/")[2]
        return above.endswith(SLICE) and parent.startswith(above.removesuffix(SLICE) + "-")
    try:
        return strictly_inside(normal_group(parent.lstrip("/")), root)
    except GroupPathError:
        return False
