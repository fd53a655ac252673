"""Which groups outside any kubelet's list are pods or host applications, and of what class.

`--discover PATTERN` makes a rule that says nothing of the class, the inventory file's ``groups``
make those that do: YARN containers, services of the host. `node_agent.discovery` applies them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, get_args

from node_agent.cgroup.names import class_group, container_id
from node_agent.cgroup.paths import normal_group, overlaps, strictly_inside
from schemas.packed import MAX_PODS
from schemas.records import PodFact

Base = Literal["root", "kubepods", "burstable", "besteffort"]
BASES: tuple[Base, ...] = get_args(Base)
_WILD = set("*?[")
GROUPS_MAX = 2 * MAX_PODS
"""Of one rule: what has more groups than a sample can name is not looked at to its end."""
UNNAMED = PodFact(uid="", name="")


@dataclass(frozen=True, slots=True)
class GroupRule:
    """Each group that ``match`` fits, level by level below ``base``, is one pod like ``like``.

    A ``like`` without a QoS class is BE below the best-effort root and LS elsewhere.
    """

    match: str
    base: Base = "root"
    like: PodFact = UNNAMED

    @classmethod
    def of(cls, match: str, base: Base = "root", like: PodFact = UNNAMED) -> GroupRule:
        """Raises `GroupPathError` for a pattern that is empty or climbs."""
        return cls(normal_group(match), base, like)

    def groups(self, tree: str | None, children: Callable[[str], list[str]]) -> Iterator[str]:
        """The groups that fit; none where the base is of a kubelet and there is no tree of one."""
        parts = self.match.split("/")
        plain = 0
        while plain < len(parts) - 1 and not set(parts[plain]) & _WILD:
            plain += 1
        top = "/".join(parts[:plain])
        if self.base != "root":
            if tree is None:
                return
            held = class_group(tree, "" if self.base == "kubepods" else self.base)
            top = f"{held}/{top}".rstrip("/")
        groups = [top]
        for part in parts[plain:]:
            groups = [
                f"{group}/{name}".lstrip("/")
                for group in groups
                for name in children(group)
                if fnmatchcase(name, part)
            ][:GROUPS_MAX]
        yield from groups

    def fact(self, group: str, be_root: str | None) -> PodFact | None:
        """What is known of a group that fits; None for the best-effort root and what holds it."""
        inside = be_root is not None and strictly_inside(group, be_root)
        if be_root is not None and not inside and overlaps(group, be_root):
            return None
        name = group.rpartition("/")[2]
        qos = self.like.qos or ("BE" if inside else "LS")
        return replace(self.like, uid=container_id(name) or group, name=name, qos=qos)


class RuleGroups:
    """What the rules match, asked once a second: the same facts while the groups are the same."""

    def __init__(self) -> None:
        self._key: tuple[object, ...] = ()
        self._facts: dict[str, PodFact] = {}

    def look(
        self,
        rules: tuple[GroupRule, ...],
        be_root: str | None,
        tree: str | None,
        children: Callable[[str], list[str]],
    ) -> dict[str, PodFact]:
        """Group -> fact; where several rules fit the first counts."""
        matched = [(rule, group) for rule in rules for group in rule.groups(tree, children)]
        key = ([group for _, group in matched], rules, be_root)
        if key != self._key:
            self._key = key
            self._facts = {}
            for rule, group in matched:
                fact = None if group in self._facts else rule.fact(group, be_root)
                if fact is not None:
                    self._facts[group] = fact
        return self._facts
