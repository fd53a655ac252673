"""How kubelets and container runtimes name the groups of pods and containers.

Read by `node_agent.trees`, which walks them, and by `node_agent.kubelet.facts`. Both drivers:

    cgroupfs   kubepods/besteffort/pod<uid>/<container>
    systemd    kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod<uid>.slice/<scope>

where systemd writes the dashes of a uid as underscores, and a scope is ``cri-containerd-<id>``,
``crio-<id>``, ``docker-<id>`` or ``libpod-<id>``, with ``.scope`` at its end.
"""

from __future__ import annotations

import re
from functools import lru_cache

from schemas.records import Qos

SLICE = ".slice"
CLASS_OF_KUBERNETES = {"BestEffort": "besteffort", "Burstable": "burstable", "Guaranteed": ""}
"""The directory of each class below the tree; guaranteed pods have none of their own."""
QOS_OF_CLASS: dict[str, Qos] = {"besteffort": "BE", "burstable": "LS", "": "LSR"}
"""What a pod of that directory is taken for, when nobody says more."""
KEPT = 4096
"""Names of directories whose meaning is remembered: they are listed once a second."""
_POD = re.compile(r"(?:^|-)pod(?P<uid>[0-9a-f][0-9a-f_-]+)(?:\.slice)?$")
_CONTAINER = re.compile(
    r"^(?:(?:cri-containerd|crio|docker|libpod)-)?(?P<id>[0-9a-f]{12,64})(?:\.scope)?$"
)
_TREE = re.compile(r"^(?:.*-)?kubepods(?:\.slice)?$")
_CLASS = re.compile(r"(?:^|-)(?P<name>besteffort|burstable)(?:\.slice)?$")


def is_tree(name: str) -> bool:
    """Whether a group of this name holds a kubelet's pods."""
    return _TREE.match(name) is not None


@lru_cache(KEPT)
def pod_uid(name: str) -> str | None:
    """The uid in a pod's directory name; a static pod's is its config hash."""
    match = _POD.search(name)
    return None if match is None else match["uid"].replace("_", "-")


@lru_cache(KEPT)
def class_name(name: str) -> str | None:
    """``besteffort`` or ``burstable`` when the directory is that of a class."""
    match = _CLASS.search(name)
    return None if match is None else match["name"]


def container_id(name: str) -> str | None:
    """The id in a container's directory name, as each runtime writes it."""
    match = _CONTAINER.match(name)
    return None if match is None else match["id"]


def class_group(tree: str, class_of: str) -> str:
    """The group of a class below its tree; "" names the tree itself."""
    if not class_of:
        return tree
    if not tree.endswith(SLICE):
        return f"{tree}/{class_of}"
    return f"{tree}/{_stem(tree)}-{class_of}{SLICE}"


def pod_group(tree: str, class_of: str, uid: str) -> str:
    """Where the kubelet makes the group of a pod; the form of the tree says which driver it has."""
    parent = class_group(tree, class_of)
    if not tree.endswith(SLICE):
        return f"{parent}/pod{uid}"
    return f"{parent}/{_stem(parent)}-pod{uid.replace('-', '_')}{SLICE}"


def _stem(group: str) -> str:
    return group.rpartition("/")[2].removesuffix(SLICE)
