"""Family batch_resource: what batch work may borrow on a node."""

from __future__ import annotations

import numpy as np

from agents.classes import DEFAULT_PRIORITY
from agents.lending import batch, needs, zones
from agents.lending.amounts import sums
from agents.lending.publish import THOUSANDTHS, differs, left_over, normalised
from agents.table import ABSENT, Ints
from tests.conformance.adapters import lending
from tests.conformance.adapters.common import Adapter, Vector, array
from tests.conformance.adapters.lending import RESOURCES, known, pair, reserved_of, system_of

NONE = -1
MASK_BITS = 62


def policies_of(strategy: Vector) -> Ints:
    """The two policies; the peer takes "request" for "usage" where it is said of cpu."""
    cpu = "usage" if strategy["cpu_policy"] == "request" else strategy["cpu_policy"]
    return array(needs.POLICIES[cpu], needs.POLICIES[strategy["memory_policy"]])


def mask_of(numa_nodes: list[int] | None) -> int:
    mask = 0
    for node in numa_nodes or ():
        mask |= 1 << node if 0 <= node < MASK_BITS else 0
    return mask


def needs_of(given: Vector, codes: Ints) -> tuple[Ints, Ints]:
    """([p, 2] need, [p] zones) of every pod that counts, dangling ones last."""
    reported = {pod["key"]: pod for pod in given["metric"]["pods"]}
    usage, request, lse, masks = [], [], [], []
    for pod in lending.listed(given):
        seen = reported.pop(pod["key"], None)
        if lending.is_high(pod):
            usage.append([ABSENT, ABSENT] if seen is None else pair(seen["usage"])[0].tolist())
            request.append(pair(pod["requests"])[0].tolist())
            lse.append(lending.is_lse(pod))
            masks.append(mask_of(pod["numa_nodes"]))
    for pod in reported.values():
        if lending.is_high(pod):
            usage.append(pair(pod["usage"])[0].tolist())
            request.append([0, 0])
            lse.append(False)
            masks.append(0)
    used, asked = (np.array(each, dtype=np.int64).reshape(-1, 2) for each in (usage, request))
    return needs.by_policy(codes, used, asked, np.array(lse, dtype=np.bool_)), array(*masks)


def percents(strategy: Vector, name: str) -> Ints:
    said = (strategy[name.format(unit)] for unit in ("cpu", "memory"))
    return array(*(NONE if value is None else value for value in said))


def calculate(given: Vector) -> Vector:
    strategy, metric = given["strategy"], given["metric"]
    age = None if metric is None else metric["age_seconds"]
    if lending.too_old(age, strategy["degrade_minutes"]):
        return {"degraded": True, "cpu_m": None, "memory": None, "zones": None}
    codes = policies_of(strategy)
    need, masks = needs_of(given, codes)
    owner = np.zeros(len(need), dtype=np.int64)
    capacity, kept = pair(given["node"]["capacity"]), reserved_of(given["node"])
    system = batch.system_of(codes, system_of(metric, DEFAULT_PRIORITY["batch"]))
    reclaim = percents(strategy, "{}_reclaim_threshold_percent")
    caps = percents(strategy, "batch_{}_threshold_percent")
    margin = batch.margin_of(capacity, reclaim)
    amount = batch.lendable(capacity, margin, system, kept, sums(need, owner, 1))
    milli, size = np.maximum(batch.capped(amount, capacity, caps), 0)[0].tolist()
    answer: Vector = {"degraded": False, "cpu_m": milli, "memory": size, "zones": None}
    if given["zones"] is None:
        return answer
    here = zones.Zones.of(array(len(given["zones"])))
    whole = np.array([pair(zone)[0] for zone in given["zones"]]).reshape(-1, 2)
    parts = zones.split(zones.fine(need), masks, owner, here)
    margin = batch.margin_of(whole, reclaim)
    found = np.maximum(zones.lendable(whole, margin, system, kept, parts, here, caps), 0)
    names = (zone["name"] for zone in given["zones"])
    answer["zones"] = [{"name": n} | coarse(row) for n, row in zip(names, found, strict=True)]
    return answer


def coarse(row: Ints) -> Vector:
    values = (exact(*each) for each in zip(row, zones.FINE, strict=True))
    return dict(zip(RESOURCES, values, strict=True))


def exact(amount: int, scale: int) -> float:
    whole, rest = divmod(int(amount), int(scale))
    return int(amount) / int(scale) if rest else whole


def numa_split(given: Vector) -> Vector:
    here = zones.Zones.of(array(given["zone_count"]))
    masks, owner = array(mask_of(given["numa_nodes"])), array(0)

    def parts(resources: Vector) -> list[Vector]:
        found = zones.split(zones.fine(pair(resources)), masks, owner, here)
        return [coarse(row) for row in found]

    return {"request": parts(given["request"]), "usage": parts(given["usage"])}


def publish(given: Vector) -> Vector:
    """In thousandths of a millicore, and bytes."""
    ratio = given["cpu_normalization_ratio"]
    said = known(given["calculated"])
    for at, name in enumerate(("cpu", "memory")):
        said[0, at] = ABSENT if given["reset"][name] else said[0, at]
    fine = normalised(said[:, 0], np.array([ratio or 1.0]))
    origin = np.maximum(np.stack([fine, said[:, 1]], axis=1), 0)
    shown = origin
    if (said >= 0).all():
        shown = left_over(origin, pair(given["third_party_batch"]) * array(THOUSANDTHS, 1))
    removed = said[0] < 0
    answer: Vector = {}
    for name, row in (("published", shown[0]), ("origin", origin[0])):
        values = (exact(row[0], THOUSANDTHS), int(row[1]))
        answer[name] = dict(zip(RESOURCES, values, strict=True))
    for at in np.flatnonzero(removed).tolist():
        answer["published"][RESOURCES[at]] = None
    return answer


def resource_diff(given: Vector) -> Vector:
    old, new = given["old_m"], given["new_m"]
    if old is None or new is None:
        return {"need_sync": (old is None) != (new is None)}
    permille = round(given["threshold"] * 1000)
    return {"need_sync": bool(differs(array(old), array(new), permille)[0])}


ADAPTERS: dict[str, Adapter] = {
    "calculate": calculate,
    "degrade": lending.degrade,
    "numa_split": numa_split,
    "publish": publish,
    "resource_diff": resource_diff,
}
