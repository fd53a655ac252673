"""What a Kubernetes pod belongs to, by a name that its successors have too.

Asked by the node agent for the kubelet's pods, and by the scheduler bridge for those of the API
server, so that both mean the same by a workload.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

TEMPLATE_LABEL = "pod-template-hash"
_RUN_OF_A_SCHEDULE = re.compile(r"-[0-9]{8,10}\Z")


def workload_of(
    namespace: str, name: str, node: str, made_by: tuple[str, str] | None,
    labels: Mapping[str, str],
) -> str:  # fmt: skip
    """The same for all pods of a maker on all nodes and after a rollout.

    ``made_by`` is the kind and name of the controller; None, or a node: the pod stands for itself,
    by its name without the node's.
    """
    kind, maker = made_by or ("Node", "")
    if kind == "Node":
        maker = name.removesuffix(f"-{node}")
    elif kind == "ReplicaSet" and TEMPLATE_LABEL in labels:
        maker = maker.removesuffix(f"-{labels[TEMPLATE_LABEL]}")
    elif kind == "Job":
        maker = _RUN_OF_A_SCHEDULE.sub("", maker)
    return f"{namespace}/{maker}" if namespace else maker
