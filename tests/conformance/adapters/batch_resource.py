"""Family batch_resource: what batch work may borrow on a node."""

from __future__ import annotations

from agents.capacity import lendable, margin_of
from tests.conformance.adapters.common import Adapter, Amounts, Vector, amounts, array

CORE_MILLI = 1000


def add(left: Amounts, right: Amounts) -> Amounts:
    return left[0] + right[0], left[1] + right[1]


def cpus_in(text: str) -> int:
    """How many CPUs a list such as 0-1,5 names."""
    count = 0
    for part in filter(None, text.split(",")):
        low, _, high = part.partition("-")
        count += int(high or low) - int(low) + 1
    return count


def reserved_of(node: Vector) -> Amounts:
    capacity, allocatable = amounts(node["capacity"]), amounts(node["allocatable"])
    said = node["reservation"] or {}
    milli, size = amounts(said.get("resources"))
    if said.get("reserved_cpus"):
        milli = cpus_in(said["reserved_cpus"]) * CORE_MILLI
    return (
        max(capacity[0] - allocatable[0], 0, milli),
        max(capacity[1] - allocatable[1], 0, size),
    )


def is_high(priority_class: str) -> bool:
    return priority_class not in ("batch", "free")


class Needs:
    """What high-priority pods use, request, and the larger of both: the three policies' terms."""

    def __init__(self, given: Vector) -> None:
        metrics = {pod["key"]: pod for pod in given["metric"]["pods"]}
        self.used: list[tuple[Amounts, list[int] | None]] = []
        self.requested: list[tuple[Amounts, list[int] | None]] = []
        self.largest: list[tuple[Amounts, list[int] | None]] = []
        self.unreported: list[tuple[Amounts, list[int] | None]] = []
        listed = [pod for pod in given["pods"] if pod["phase"] in ("Running", "Pending")]
        for pod in listed:
            reported = metrics.pop(pod["key"], None)
            if is_high(pod["priority_class"]):
                self._add(pod, None if reported is None else amounts(reported["usage"]))
        for dangling in metrics.values():
            if is_high(dangling["priority_class"]):
                usage = amounts(dangling["usage"])
                self.used.append((usage, None))
                self.largest.append((usage, None))

    def _add(self, pod: Vector, usage: Amounts | None) -> None:
        request, zones = amounts(pod["requests"]), pod["numa_nodes"]
        self.requested.append((request, zones))
        if usage is None:
            self.used.append((request, zones))
            self.unreported.append((request, zones))
            return
        self.used.append(((request[0], usage[1]) if pod["qos_class"] == "LSE" else usage, zones))
        self.largest.append(((max(request[0], usage[0]), max(request[1], usage[1])), zones))


def system_of(metric: Vector) -> Amounts:
    system = amounts(metric["system_usage"])
    for app in metric["host_apps"]:
        if app["priority_class"] in ("prod", "mid"):
            system = add(system, amounts(app["usage"]))
    return system


def degraded(age_seconds: float | None, minutes: int) -> bool:
    return age_seconds is None or age_seconds > 60 * minutes


def batch_calculate(given: Vector) -> Vector:
    strategy, metric = given["strategy"], given["metric"]
    nothing = {"degraded": True, "cpu_m": None, "memory": None, "zones": None}
    if metric is None or degraded(metric["age_seconds"], strategy["degrade_minutes"]):
        return nothing
    needs, system, reserved = Needs(given), system_of(metric), reserved_of(given["node"])
    capacity = amounts(given["node"]["capacity"])
    milli, size = (
        one_resource(
            strategy, unit, capacity[unit], system[unit], reserved[unit], whole(needs, unit)
        )
        for unit in (0, 1)
    )
    zones = given["zones"]
    return {
        "degraded": False,
        "cpu_m": milli,
        "memory": size,
        "zones": None if zones is None else zone_amounts(strategy, zones, needs, system, reserved),
    }


def whole(needs: Needs, unit: int) -> dict[str, int]:
    """The node's sums for each policy."""
    return {
        "usage": sum(one[unit] for one, _ in needs.used),
        "request": sum(one[unit] for one, _ in needs.requested),
        "max_usage_request": sum(one[unit] for one, _ in needs.largest),
    }


def one_resource(
    strategy: Vector, unit: int, capacity: int, system: int, reserved: int, need: dict[str, int]
) -> int:
    """The law's sum for one resource, with the peer's choice of policy and its cap."""
    name = ("cpu", "memory")[unit]
    policy = strategy[f"{name}_policy"]
    if policy == "request" and name == "cpu":
        policy = "usage"
    margin = margin_of(array(capacity), strategy[f"{name}_reclaim_threshold_percent"])
    beside = 0 if policy == "request" else system
    amount = int(
        lendable(array(capacity), margin, array(beside), array(reserved), array(need[policy]))[0]
    )
    amount = max(amount, 0)
    cap = strategy[f"batch_{name}_threshold_percent"]
    return amount if cap is None else min(amount, int(float(capacity) * (float(cap) / 100)))


def zone_amounts(
    strategy: Vector, zones: list[Vector], needs: Needs, system: Amounts, reserved: Amounts
) -> list[Vector]:
    """The same sum for each zone, in thousandths of a unit, divisions rounded up."""
    count = len(zones)
    result = []
    for index, zone in enumerate(zones):
        answer: Vector = {"name": zone["name"]}
        for unit, name in enumerate(("cpu_m", "memory")):
            scale = 1 if unit == 0 else 1000
            need = {
                "usage": share_sum(needs.used, unit, index, count, scale),
                "request": share_sum(needs.requested, unit, index, count, scale),
                "max_usage_request": share_sum(
                    needs.largest + needs.unreported, unit, index, count, scale
                ),
            }
            amount = one_resource(
                strategy, unit, (zone[name] or 0) * scale,
                up(system[unit] * scale, count), up(reserved[unit] * scale, count), need,
            )  # fmt: skip
            answer[name] = amount if unit == 0 else amount / 1000
        result.append(answer)
    return result


def share_sum(
    items: list[tuple[Amounts, list[int] | None]], unit: int, index: int, count: int, scale: int
) -> int:
    total = 0
    for one, nodes in items:
        valid = [n for n in nodes or () if 0 <= n < count] or list(range(count))
        if index in valid:
            total += up(one[unit] * scale, len(valid))
    return total


def up(amount: int, parts: int) -> int:
    return -(-amount // parts)


def numa_split(given: Vector) -> Vector:
    count = given["zone_count"]

    def split(resources: Vector) -> list[Vector]:
        item = (amounts(resources), given["numa_nodes"])
        return [
            {
                "cpu_m": share_sum([item], 0, index, count, 1),
                "memory": share_sum([item], 1, index, count, 1000) / 1000,
            }
            for index in range(count)
        ]

    return {"request": split(given["request"]), "usage": split(given["usage"])}


def batch_degrade(given: Vector) -> Vector:
    present, age = given["metric_present"], given["age_seconds"]
    return {"degrade": not present or degraded(age, given["degrade_minutes"] or 0)}


ADAPTERS: dict[str, Adapter] = {
    "calculate": batch_calculate,
    "degrade": batch_degrade,
    "numa_split": numa_split,
}
