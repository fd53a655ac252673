"""The inventory as a plain YAML file, for a machine without Kubernetes.

    best_effort_root: slackwater-demo/besteffort   # needed as soon as a pod is best-effort
    node:                                          # all optional
      cpu_allocatable_milli: 1900
      memory_allocatable_bytes: 8000000000
      cpu_reserved_milli: 100
      memory_reserved_bytes: 500000000
      reserved_cpus: 0-1                         # stands for cpu_reserved_milli; never lent
      system_cpus: "2"                           # of the daemons alone
      labels: {pool: demo}
      annotations: {slackwater.io/policy: '{"suppress": {"threshold_percent": 50}}'}
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
import os
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, get_args

import msgspec
import yaml

from agents.eviction.labels import FEATURES, INT32, NO_FEATURE
from agents.lending.reserved import cpus_of
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.paths import GroupPathError, normal_group
from node_agent.inventory import Census, InventoryError, Pod, Revisions, check_place
from node_agent.inventory_node import REFRESH_US, NodeFactsError, node_facts
from schemas.records import BurstWish, Inventory, PodFact, PriorityClass, Qos

_LOG = logging.getLogger(__name__)
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TOP = ("best_effort_root", "node", "pods")
_NODE_AMOUNTS = (
    "cpu_allocatable_milli",
    "memory_allocatable_bytes",
    "cpu_reserved_milli",
    "memory_reserved_bytes",
)
_NODE_CPUS = ("reserved_cpus", "system_cpus")
_NODE_TEXTS = ("labels", "annotations")
_TEXTS = ("name", "namespace", "workload")
_FLAGS = ("evictable", "host_app", "terminating", "opted_in", "recoverable", "checkpointed")
_NUMBERS = ("priority", "eviction_priority", "sub_priority", "retries_left")
_FEATURES = (*FEATURES, NO_FEATURE)
_CLASSES = (("qos", get_args(Qos)), ("priority_class", get_args(PriorityClass)))
_POD = (
    "uid", "cgroup", *_TEXTS, *dict(_CLASSES), *_NUMBERS, "requests", "limits", *_FLAGS,
    "evict_features", "cpus", "cpu_burst",
)  # fmt: skip
_AMOUNTS = ("cpu_milli", "memory_bytes")
_CONTRADICTIONS = {("BE", "prod"), ("LSR", "mid"), ("LSR", "batch"), ("LSR", "free")}


class FileInventory:
    """An `InventorySource` over one file."""

    def __init__(
        self, path: str, node: str, layout: Layout, *, first_rev: int, be_root: str | None = None
    ) -> None:
        """``be_root`` overrides the file's. Raises `InventoryError` when the first read fails."""
        self.path = path
        self.error = ""  # why the latest reload was refused; empty: it was not
        self.reload_errors = 0
        self._node = node
        self._layout = layout
        self._be_root = be_root
        self._revisions = Revisions(first_rev)
        self._stamp: tuple[int, int, int] | None = None
        self._facts: Inventory | None = None
        self._facts_us = 0
        self._text: tuple[Mapping[str, Any], tuple[Pod, ...], str | None] = ({}, (), None)
        self._census: Census | None = None

    def poll(self, mono_us: int) -> Census:
        """One stat when nothing has changed."""
        changed = self._reload()
        due = mono_us - self._facts_us >= REFRESH_US
        node, pods, be_root = self._text
        if self._facts is None or due or changed:
            self._facts = self._look(be_root)
            self._facts_us = mono_us
        if self._census is None or changed or due:
            facts = replace(self._facts, **node)
            self._census = self._revisions.census(facts, pods, be_root)
        return self._census

    def _look(self, be_root: str | None) -> Inventory:
        """The node's facts now, or the last ones. Raises NodeFactsError when there are none."""
        try:
            return node_facts(self._node, self._layout, be_root)
        except NodeFactsError as error:
            if self._facts is None:
                raise
            _LOG.warning("node facts not refreshed, the last ones hold: %s", error)
            return self._facts

    def _reload(self) -> bool:
        """Whether a new, good content was read."""
        stamp = None  # a file that is away is read again when it is back
        try:
            status = os.stat(self.path)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
            if stamp == self._stamp:
                return False
            self._text = load(self.path, self._be_root)
        except (OSError, InventoryError) as error:
            if self._census is None:
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
        self.error = ""
        return True


def load(
    path: str, be_root: str | None = None
) -> tuple[Mapping[str, Any], tuple[Pod, ...], str | None]:
    """(node fields of `Inventory`, pods, best-effort root) of one file.

    Raises `InventoryError` naming file, key and what is allowed; OSError when it cannot be read.
    """
    try:
        content = yaml.load(Path(path).read_text(encoding="utf-8"), _LOADER)  # noqa: S506  (safe)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InventoryError(f"{path}: not YAML: {' '.join(str(error).split())}") from error
    top = _mapping(path, "the file", content, _TOP)
    root_text = top.get("best_effort_root")
    if be_root is None and root_text is not None:
        be_root = _group(path, "best_effort_root", root_text)
    node = _node(path, top.get("node"))
    entries = top.get("pods", [])
    if not isinstance(entries, list):
        raise InventoryError(f"{path}: pods: expected a list of pods, found {_kind(entries)}")
    pods: list[Pod] = []
    uids: dict[str, str] = {}
    groups: dict[str, str] = {}
    for index, entry in enumerate(entries):
        key = f"pods[{index}]"
        pod = _pod(path, key, entry)
        for seen, mine, what in ((uids, pod.fact.uid, "uid"), (groups, pod.group, "cgroup")):
            if mine in seen:
                raise InventoryError(f"{path}: {key}.{what}: {mine!r} is also {seen[mine]}'s")
            seen[mine] = key
        trouble = check_place(pod, be_root)
        if trouble is not None:
            raise InventoryError(f"{path}: {key} ({pod.fact.uid}): {trouble}")
        pods.append(pod)
    return node, tuple(pods), be_root


def _node(path: str, content: object) -> dict[str, Any]:
    node = _mapping(path, "node", content or {}, (*_NODE_AMOUNTS, *_NODE_CPUS, *_NODE_TEXTS))
    amounts = (name for name in _NODE_AMOUNTS if name in node)
    found: dict[str, Any] = {k: _amount(path, f"node.{k}", node[k]) for k in amounts}
    for name in _NODE_CPUS:
        if name in node:
            _cpus(path, f"node.{name}", node[name])
            found[name] = str(node[name])
    for name in _NODE_TEXTS:
        if name in node:
            said = _mapping(path, f"node.{name}", node[name], None)
            found[name] = {k: _text(path, f"node.{name}.{k}", v) for k, v in said.items()}
    return found


def _pod(path: str, key: str, content: object) -> Pod:
    entry = _mapping(path, key, content, _POD)
    for needed in ("uid", "cgroup"):
        if needed not in entry:
            raise InventoryError(f"{path}: {key}.{needed}: missing; every pod needs one")
    uid = _text(path, f"{key}.uid", entry["uid"])
    found: dict[str, Any] = {"uid": uid, "name": uid}
    found |= {k: _text(path, f"{key}.{k}", entry[k]) for k in _TEXTS if k in entry}
    for name, allowed in _CLASSES:
        if name in entry:
            found[name] = _choice(path, f"{key}.{name}", entry[name], allowed)
    found["qos"] = _class(path, key, found.get("qos", ""), found.get("priority_class", ""))
    for name in _NUMBERS:
        if name in entry:
            found[name] = _number(path, f"{key}.{name}", entry[name])
    readers: dict[str, Callable[[str, str, object], Any]] = {
        "evict_features": _features,
        "cpus": _cpus,
        "cpu_burst": _wish,
    }
    for name, read in readers.items():
        if name in entry:
            found[name] = read(path, f"{key}.{name}", entry[name])
    for what in ("requests", "limits"):
        amounts = _mapping(path, f"{key}.{what}", entry.get(what) or {}, _AMOUNTS)
        for name, amount in amounts.items():
            resource, unit = name.split("_")
            field = f"{resource}_{what.rstrip('s')}_{unit}"
            found[field] = _amount(path, f"{key}.{what}.{name}", amount)
    for name in _FLAGS:
        if name in entry:
            if not isinstance(entry[name], bool):
                raise InventoryError(f"{path}: {key}.{name}: expected true or false")
            found[name] = entry[name]
    return Pod(PodFact(**found), _group(path, f"{key}.cgroup", entry["cgroup"]))


def _features(path: str, key: str, value: object) -> tuple[str, ...]:
    """Who may evict the pod; to allow nobody has a word of its own, an empty list has none."""
    if not isinstance(value, list) or not value:
        raise InventoryError(f"{path}: {key}: expected a list of features, found {_kind(value)}")
    return tuple(_choice(path, f"{key}[{i}]", name, _FEATURES) for i, name in enumerate(value))


def _class(path: str, key: str, qos: str, priority_class: str) -> str:
    """The QoS class; a pod that says none is online. Refuses pairs that contradict each other."""
    if (qos, priority_class) in _CONTRADICTIONS:
        raise InventoryError(
            f"{path}: {key}: qos {qos} and priority_class {priority_class} contradict each other;"
            " LSR goes with prod, BE with mid, batch or free"
        )
    return qos or "LS"


def _mapping(
    path: str, key: str, content: object, allowed: tuple[str, ...] | None
) -> Mapping[str, Any]:
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise InventoryError(f"{path}: {key}: expected keys and values, found {_kind(content)}")
    for name in content:
        if allowed is not None and name not in allowed:
            names = ", ".join(allowed)
            raise InventoryError(f"{path}: {key}: unknown key {name!r}; allowed: {names}")
    return content


def _text(path: str, key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise InventoryError(f"{path}: {key}: expected text, found {_kind(value)}; quote numbers")
    return value


def _choice(path: str, key: str, value: object, allowed: tuple[str, ...]) -> str:
    if value not in allowed or not value:
        names = ", ".join(name for name in allowed if name)
        raise InventoryError(f"{path}: {key}: {value!r} is unknown; allowed: {names}")
    return str(value)


def _integer(path: str, key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InventoryError(f"{path}: {key}: expected a whole number, found {_kind(value)}")
    return value


def _number(path: str, key: str, value: object) -> int:
    number = _integer(path, key, value)
    if number not in INT32:
        raise InventoryError(f"{path}: {key}: {number} is outside {INT32[0]} .. {INT32[-1]}")
    return number


def _amount(path: str, key: str, value: object) -> int:
    amount = _integer(path, key, value)
    if not 0 <= amount < 1 << 63:
        raise InventoryError(f"{path}: {key}: {amount} is outside 0 .. 2^63-1")
    return amount


def _cpus(path: str, key: str, value: object) -> tuple[int, ...]:
    """A list such as 0-3,8; YAML takes a single CPU for a number."""
    text = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    try:
        return tuple(sorted(cpus_of(_text(path, key, text))))
    except ValueError as error:
        raise InventoryError(f"{path}: {key}: expected CPUs such as 0-3,8; {error}") from error


def _wish(path: str, key: str, value: object) -> BurstWish:
    said = _mapping(path, key, value, tuple(field.name for field in fields(BurstWish)))
    try:
        return msgspec.convert(dict(said), BurstWish)
    except msgspec.ValidationError as error:
        raise InventoryError(f"{path}: {key}: {error}") from error


def _group(path: str, key: str, value: object) -> str:
    try:
        return normal_group(_text(path, key, value))
    except GroupPathError as error:
        raise InventoryError(f"{path}: {key}: {error}") from error


def _kind(value: object) -> str:
    return "nothing" if value is None or value == "" else f"{type(value).__name__} {value!r}"
