"""What a pod asks for as a whole, and the QoS class that Kubernetes gives it for that.

Called by whoever reads pods of Kubernetes: the node agent's kubelet source and the scheduler
bridge. Sum of a pod: Kubernetes `component-helpers/resource`; QoS: `kubelet/qos`.
"""

from __future__ import annotations

from collections.abc import Iterable


def pod_request(asked: Iterable[tuple[str, int]]) -> int:
    """The larger of what runs for good and of what runs while it is prepared.

    ``asked``: (kind, amount) of each container, init containers first and in their order. Kind
    ``init`` runs alone and ends; every other one (``sidecar``: an init container that restarts
    always) runs on. An amount below 0 is none.
    """
    running, dearest = 0, 0
    for kind, amount in asked:
        if kind == "init":
            dearest = max(dearest, running + max(amount, 0))
        else:
            running += max(amount, 0)
    return max(running, dearest)


def kubernetes_qos(asked: Iterable[tuple[int, int]]) -> str:
    """BestEffort, Burstable or Guaranteed, by (request, limit) of CPU and memory of each container.

    A limit without a request is the request too: the caller has filled it in. 0 or less is none.
    """
    anything, whole = False, True
    for request, limit in asked:
        anything |= request > 0 or limit > 0
        whole &= limit > 0 and request == limit
    if not anything:
        return "BestEffort"
    return "Guaranteed" if whole else "Burstable"
