"""Family qos_priority: classes and legal combinations."""

from __future__ import annotations

from agents.classes import Classes, classify
from agents.pod_rules import Claim, violations
from tests.conformance.adapters.common import Adapter, Vector


def classes(pod: Vector) -> Classes:
    return classify(
        pod["qos_label"], pod["priority_label"], pod["priority_value"], pod["kube_qos"]
    )  # fmt: skip


def claim(pod: Vector | None) -> Claim | None:
    if pod is None:
        return None
    said, requests = classes(pod), pod.get("requests") or {}
    return Claim(
        said.qos_raw,
        said.priority_raw,
        pod.get("sub_priority_label") or "",
        requests.get("cpu_m") or 0,
        requests.get("batch_cpu_m") or 0,
        requests.get("batch_memory") or 0,
    )


def qos_classify(given: Vector) -> Vector:
    said = classes(given)
    return {
        "qos_raw": said.qos_raw,
        "qos": said.qos,
        "priority_raw": said.priority_raw,
        "priority": said.priority_class,
        "priority_value": said.priority,
    }


def validate_pod(given: Vector) -> Vector:
    new, old = claim(given["new"]), claim(given["old"])
    assert new is not None, "a pod to judge"
    broken = violations(
        new,
        old if given["operation"] == "update" else None,
        skip_sub_priority=bool(given["skip_sub_priority_check"]),
    )
    return {"allowed": not broken, "violations": list(broken)}


ADAPTERS: dict[str, Adapter] = {"classify": qos_classify, "validate_pod": validate_pod}
