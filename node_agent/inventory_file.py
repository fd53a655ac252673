"""The inventory as a plain YAML file: all of a machine without Kubernetes, or a part of any other.

    best_effort_root: slackwater-demo/besteffort   # needed as soon as a pod is best-effort
    daemons_group: system.slice                    # whose limits policy may set
    node:                                          # all optional
      cpu_allocatable_milli: 1900
      memory_allocatable_bytes: 8000000000
      cpu_reserved_milli: 100
      memory_reserved_bytes: 500000000
      reserved_cpus: 0-1                         # stands for cpu_reserved_milli; never lent
      system_cpus: "2"                           # of the daemons alone
      labels: {pool: demo}
      annotations: {slackwater.io/policy: '{"suppress": {"threshold_percent": 50}}'}
      cpu_ratios:                                # by CPU model, the first that fits; permille
        - {model: "Intel(R) Xeon(R) Platinum 8163*", base: 1000, smt: 1100, smt_turbo: 1200}
        - {model: "*", base: 1000}
    groups:                                      # each group that matches is a pod of this kind
      - match: hadoop-yarn/container_*
        base: besteffort                         # root (default) kubepods burstable besteffort
        workload: yarn/tasks                     # and all keys of pods but uid, cgroup, name
        qos: BE
        priority_class: batch
        host_app: true
    pods:
      - uid: web-0                                 # needed, unique
        cgroup: slackwater-demo/online/web         # needed, relative to the hierarchy's root
        name: web                                  # default: the uid
        namespace: shop
        workload: shop/web
        qos: LS                                    # LSE LSR LS BE SYSTEM; default LS
        priority_class: prod                       # prod mid batch free
        priority: 9500
        requests: {cpu_milli: 500, memory_bytes: 536870912}
        limits: {cpu_milli: 1000, memory_bytes: 1073741824}   # left out: no limit
        evictable: true
        host_app: false
        terminating: false
        opted_in: false                            # offers itself to eviction by priority
        eviction_priority: 0                       # lower goes first, also below 0
        sub_priority: 9500                         # default: the priority
        evict_features: [be_memory]                # left out: all of be_memory memory_allocatable
                                                   # memory be_cpu cpu_allocatable cpu; [none]
        recoverable: true                          # its work begins anew by itself
        checkpointed: false                        # it goes on from where it was saved
        retries_left: 3                            # left out: not known
        cpus: 0-3,8                                # pinned to it; left out: it runs anywhere
        cpu_burst: {policy: auto, cpu_burst_percent: 500}      # its own wish; any key, none needed

Unknown keys, wrong types and pods in the wrong place are refused; the message names file, key and
what is allowed. The file is read again when it changes; a bad one keeps the last good state.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, get_args

import yaml

from agents.pod_rules import FORBIDDEN
from node_agent import plain_file
from node_agent.cgroup.paths import GroupPathError, overlaps
from node_agent.cpu_ratio import Ratio, Ratios
from node_agent.group_rules import BASES, GroupRule
from node_agent.inventory import InventoryError, Pod, check_place
from node_agent.inventory_keys import Keys, fields_of
from node_agent.kubelet import node_object
from schemas.records import PodFact, PriorityClass, Qos

_LOG = logging.getLogger(__name__)
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FILE_BYTES = 8 << 20
_TOP = ("best_effort_root", "node", "pods", "groups", "daemons_group")
_NODE_AMOUNTS = (
    "cpu_allocatable_milli",
    "memory_allocatable_bytes",
    "cpu_reserved_milli",
    "memory_reserved_bytes",
    "third_party_cpu_milli",
    "third_party_memory_bytes",
)
_NODE_CPUS = ("reserved_cpus", "system_cpus")
_NODE_TEXTS = ("labels", "annotations")
_RATIO = ("base", "smt", "turbo", "smt_turbo")
_RATIOS_PERMILLE = range(1000, 5001)
_OWN = ("uid", "cgroup", "name", "terminating", "cpus")
_TEXTS = ("name", "namespace", "workload")
_FLAGS = ("evictable", "host_app", "terminating", "opted_in", "recoverable", "checkpointed")
_NUMBERS = ("priority", "eviction_priority", "sub_priority", "retries_left")
_CLASSES = (("qos", get_args(Qos)), ("priority_class", get_args(PriorityClass)))
_POD = (
    "uid", "cgroup", *_TEXTS, *dict(_CLASSES), *_NUMBERS, "requests", "limits", *_FLAGS,
    "evict_features", "cpus", "cpu_burst",
)  # fmt: skip
_GROUP = ("match", "base", *(key for key in _POD if key not in _OWN))
_AMOUNTS = ("cpu_milli", "memory_bytes")
_CONTRADICTIONS = {qos: classes - {""} for qos, classes in FORBIDDEN.items()}
"""Of classes that were said: what was left out follows from the QoS."""


class FileState(NamedTuple):
    """What one file says; ``node`` are fields of `schemas.records.Inventory`."""

    node: Mapping[str, Any]
    pods: tuple[Pod, ...]
    be_root: str | None
    rules: tuple[GroupRule, ...] = ()
    ratios: Ratios = Ratios()
    daemons: str | None = None


class InventoryFile:
    """One file, read again when it changes; a bad one keeps the last good state."""

    def __init__(self, path: str, be_root: str | None = None) -> None:
        """``be_root`` overrides the file's."""
        self.path = path
        self.state = FileState({}, (), None)
        self.error = ""  # why the latest reload was refused; empty: it was not
        self.reload_errors = 0
        self._be_root = be_root
        self._stamp: plain_file.Stamp | None = None
        self._good = False

    def look(self) -> bool:
        """Whether a new, good content was read; one stat when nothing has changed.

        Raises `InventoryError` when the first read fails.
        """
        stamp = None  # a file that is away is read again when it is back
        try:
            stamp = plain_file.stamp(self.path)
            if stamp == self._stamp:
                return False
            self.state = load(self.path, self._be_root)
        except (OSError, InventoryError) as error:
            if not self._good:
                if isinstance(error, InventoryError):
                    raise
                raise InventoryError(f"{self.path}: {error.strerror}; write the file") from error
            self._stamp = stamp
            if str(error) != self.error:
                self.error = str(error)
                self.reload_errors += 1
                _LOG.warning("inventory not reloaded, the last good one holds: %s", error)
            return False
        self._stamp = stamp
        self._good = True
        self.error = ""
        return True


def load(path: str, be_root: str | None = None) -> FileState:
    """One file. Raises `InventoryError` naming file, key and what is allowed; OSError when it
    cannot be read.
    """
    keys = Keys(path)
    try:
        content = yaml.load(plain_file.read(path, FILE_BYTES).decode(), _LOADER)  # noqa: S506  (safe)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InventoryError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    except ValueError as error:
        raise InventoryError(str(error)) from error
    top = keys.mapping("the file", content, _TOP)
    root_text = top.get("best_effort_root")
    if be_root is None and root_text is not None:
        be_root = keys.group("best_effort_root", root_text)
    node, ratios = _node(keys, top.get("node"))
    pods = _pods(keys, top.get("pods", []), be_root)
    groups = keys.listed("groups", top.get("groups", []), "groups")
    rules = tuple(_rule(keys, f"groups[{i}]", entry) for i, entry in enumerate(groups))
    return FileState(node, pods, be_root, rules, ratios, _daemons(keys, top, be_root))


def _daemons(keys: Keys, top: Mapping[str, Any], be_root: str | None) -> str | None:
    if "daemons_group" not in top:
        return None
    found = keys.group("daemons_group", top["daemons_group"])
    if be_root is not None and overlaps(found, be_root):
        raise keys.wrong("daemons_group", f"{found!r} overlaps the best-effort root {be_root!r}")
    return found


def _pods(keys: Keys, content: object, be_root: str | None) -> tuple[Pod, ...]:
    pods: list[Pod] = []
    uids: dict[str, str] = {}
    groups: dict[str, str] = {}
    for index, entry in enumerate(keys.listed("pods", content, "pods")):
        key = f"pods[{index}]"
        pod = _pod(keys, key, entry)
        for seen, mine, what in ((uids, pod.fact.uid, "uid"), (groups, pod.group, "cgroup")):
            if mine in seen:
                raise keys.wrong(f"{key}.{what}", f"{mine!r} is also {seen[mine]}'s")
            seen[mine] = key
        trouble = check_place(pod, be_root)
        if trouble is not None:
            raise keys.wrong(f"{key} ({pod.fact.uid})", trouble)
        pods.append(pod)
    return tuple(pods)


def _node(keys: Keys, content: object) -> tuple[dict[str, Any], Ratios]:
    allowed = (*_NODE_AMOUNTS, *_NODE_CPUS, *_NODE_TEXTS, "cpu_ratios")
    node = keys.mapping("node", content or {}, allowed)
    found: dict[str, Any] = {}
    for name in _NODE_TEXTS:
        if name in node:
            found[name] = keys.texts(f"node.{name}", node[name])
    if "annotations" in found:
        found |= node_object.of_annotations(found["annotations"])
    for name, value in fields_of(node, _NODE_AMOUNTS).items():
        found[name] = keys.amount(f"node.{name}", value)
    for name, value in fields_of(node, _NODE_CPUS).items():
        keys.cpus(f"node.{name}", value)
        found[name] = str(value)
    rows = keys.listed("node.cpu_ratios", node.get("cpu_ratios", []), "CPU models")
    return found, Ratios(
        tuple(_ratio(keys, f"node.cpu_ratios[{i}]", r) for i, r in enumerate(rows))
    )


def _ratio(keys: Keys, key: str, content: object) -> Ratio:
    entry = keys.mapping(key, content, ("model", *_RATIO))
    for needed in ("model", "base"):
        if needed not in entry:
            raise keys.wrong(f"{key}.{needed}", "missing; every row needs one")
    permille = {
        name: keys.integer(f"{key}.{name}", value, _RATIOS_PERMILLE)
        for name, value in fields_of(entry, _RATIO).items()
    }
    return Ratio(keys.text(f"{key}.model", entry["model"]), **permille)


def _rule(keys: Keys, key: str, content: object) -> GroupRule:
    entry = keys.mapping(key, content, _GROUP)
    if "match" not in entry:
        raise keys.wrong(f"{key}.match", "missing; name a pattern such as hadoop-yarn/container_*")
    base = keys.choice(f"{key}.base", entry.get("base", "root"), BASES)
    like = PodFact(uid="", name="", **_facts(keys, key, entry))
    try:
        return GroupRule.of(
            keys.text(f"{key}.match", entry["match"]), BASES[BASES.index(base)], like
        )
    except GroupPathError as error:
        raise keys.wrong(f"{key}.match", str(error)) from error


def _pod(keys: Keys, key: str, content: object) -> Pod:
    entry = keys.mapping(key, content, _POD)
    for needed in ("uid", "cgroup"):
        if needed not in entry:
            raise keys.wrong(f"{key}.{needed}", "missing; every pod needs one")
    uid = keys.text(f"{key}.uid", entry["uid"])
    found = {"name": uid, "qos": "LS"} | _facts(keys, key, entry)
    return Pod(PodFact(uid=uid, **found), keys.group(f"{key}.cgroup", entry["cgroup"]))


def _facts(keys: Keys, key: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of `PodFact` that were said."""
    readers: dict[str, Callable[[str, object], Any]] = {
        **dict.fromkeys(_TEXTS, keys.text),
        **dict.fromkeys(_NUMBERS, keys.number),
        **dict.fromkeys(_FLAGS, keys.flag),
        "evict_features": keys.features,
        "cpus": keys.cpus,
        "cpu_burst": keys.wish,
    }
    found = {
        name: readers[name](f"{key}.{name}", value)
        for name, value in fields_of(entry, tuple(readers)).items()
    }
    for name, allowed in _CLASSES:
        if name in entry:
            found[name] = keys.choice(f"{key}.{name}", entry[name], allowed)
    found["qos_said"] = "qos" in entry
    if found.get("priority_class") in _CONTRADICTIONS.get(found.get("qos", ""), ()):
        raise keys.wrong(
            key,
            f"qos {found['qos']} and priority_class {found['priority_class']} contradict each"
            " other; LSR goes with prod, BE with mid, batch or free",
        )
    for what in ("requests", "limits"):
        amounts = keys.mapping(f"{key}.{what}", entry.get(what) or {}, _AMOUNTS)
        for name, amount in amounts.items():
            resource, unit = name.split("_")
            field = f"{resource}_{what.rstrip('s')}_{unit}"
            found[field] = keys.amount(f"{key}.{what}.{name}", amount)
    return found
