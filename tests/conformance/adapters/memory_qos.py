"""Family memory_qos: memory protection and throttling settings."""

from __future__ import annotations

from agents.isolation import memory_qos as law
from agents.table import ABSENT
from tests.conformance.adapters.common import Adapter, Vector, array

TIER = {"Guaranteed": law.GUARANTEED, "Burstable": law.BURSTABLE, "BestEffort": law.BEST_EFFORT}


def known(value: int | None) -> int:
    return ABSENT if value is None else int(value)


def said(value: int) -> int | None:
    return None if value == ABSENT else int(value)


def container_memory(given: Vector) -> Vector:
    config = given["config"]
    request, limit = array(known(given["memory_request"])), array(known(given["memory_limit"]))
    least = law.protected(request, array(known(config["min_percent"])))
    low = law.protected(request, array(known(config["low_percent"])))
    high = law.high(
        request, limit, array(given["node_allocatable"]),
        array(known(config["throttling_percent"])),
    )  # fmt: skip
    return {
        "min": said(least[0]),
        "low": said(law.raised(low, least)[0]),
        "high": said(law.raised(high, least)[0]),
    }


def pod_memory(given: Vector) -> Vector:
    config = given["config"]
    request, limit = array(known(given["memory_request"])), array(known(given["memory_limit"]))
    least = law.protected(request, array(known(config["min_percent"])))
    low = law.protected(request, array(known(config["low_percent"])))
    cache = law.page_cache(
        array(known(config["page_cache_size"])), array(known(config["page_cache_percent"])),
        array(known(config["page_cache_enable"])), array(known(config["page_cache_reclaim_sync"])),
        limit,
    )  # fmt: skip
    return {
        "min": said(least[0]),
        "low": said(law.raised(low, least)[0]),
        "page_cache_enable": said(cache.enabled[0]),
        "page_cache_size": said(cache.size[0]),
        "page_cache_sync": said(cache.sync[0]),
    }


def qos_tier_memory(given: Vector) -> Vector:
    pods = given["pods"]
    tier = array(*(TIER[pod["kube_qos"]] for pod in pods))
    request = array(*(known(pod["memory_request"]) for pod in pods))
    sums = {
        name: law.tier_sums(
            tier * 0, tier,
            law.protected(request, array(*(known(pod[f"{name}_percent"]) for pod in pods))), 1,
        )
        for name in ("min", "low")
    }  # fmt: skip
    return {
        tier_name: {name: said(sums[name][0, place]) for name in sums}
        for tier_name, place in TIER.items()
    }


ADAPTERS: dict[str, Adapter] = {
    "container_memory": container_memory,
    "pod_memory": pod_memory,
    "qos_tier_memory": qos_tier_memory,
}
