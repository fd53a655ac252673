"""Family elastic_quota: fair shares and quota trees."""

from __future__ import annotations

from agents.placement.quota import Group, redistribute, scaled_minimums
from agents.placement.quota_tree import Quota, refresh
from tests.conformance.adapters.common import Adapter, Vector


def redistribute_one(given: Vector) -> Vector:
    groups = [
        Group(
            group["name"], group["weight"], group["request"], group["min"],
            group.get("guarantee") or 0, group["allow_lent"],
        )
        for group in given["groups"]
    ]  # fmt: skip
    runtime = redistribute(given["total"], groups)
    return {"runtime": runtime, "sum": sum(runtime.values())}


def quota_tree(given: Vector) -> Vector:
    quotas = [
        Quota(
            name=quota["name"],
            parent=quota["parent"],
            maximum=quota["max"] or {},
            minimum=quota["min"] or {},
            request=quota["request"] or {},
            weight=quota["shared_weight"],
            guarantee=quota.get("guarantee") or {},
            lends=quota["allow_lent"],
        )
        for quota in given["quotas"]
    ]
    shares = refresh(given["total"], quotas, given["scale_min_enabled"])
    return {
        "runtime": {name: share.runtime for name, share in shares.items()},
        "limited_request": {name: share.limited_request for name, share in shares.items()},
        "effective_min": {name: share.effective_min for name, share in shares.items()},
    }


def scaled_min(given: Vector) -> Vector:
    children = given["children"]
    scales = [child["enable_scale"] for child in children]
    by_resource = {
        resource: scaled_minimums(
            total, [(child["min"] or {}).get(resource, 0) for child in children], scales
        )
        for resource, total in given["total"].items()
    }
    return {
        "scaled": {
            child["name"]: {resource: amounts[i] for resource, amounts in by_resource.items()}
            for i, child in enumerate(children)
            if scales[i]
        }
    }


ADAPTERS: dict[str, Adapter] = {
    "redistribute": redistribute_one,
    "quota_tree": quota_tree,
    "scaled_min": scaled_min,
}
