"""Who may be a victim: the one place where a `BestEffortPod` is made.

`node_agent.obey` asks here before any eviction. Inventory (class and opt-out) and cgroup path must
both agree; an online pod, an unknown one, or a path that is not strictly inside the best-effort
root is refused with a reason code, and nothing else can stand in: `evict` takes this type alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from node_agent.actuators.beneath import Parts, UnsafePath, safe_parts
from node_agent.actuators.subtree import inside
from schemas.records import PodFact

_KEY = object()


class NotAVictim(Exception):
    """``reason``: a stable code; the text says what was found."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason


class BestEffortPod:
    """A best-effort pod of this node, checked; ``group`` is relative to the best-effort root."""

    __slots__ = ("group", "uid")

    def __init__(self, key: object, uid: str, group: Parts) -> None:
        """Only `best_effort_pod` holds the key. Raises TypeError for everybody else."""
        if key is not _KEY or not group:
            raise TypeError("a BestEffortPod is made by pods.best_effort_pod only")
        self.uid = uid
        self.group = group


def refusal(uid: str, facts: Mapping[str, PodFact]) -> str | None:
    """Why inventory alone forbids this victim, or None."""
    fact = facts.get(uid)
    if not uid or fact is None:
        return "unknown_pod"
    if fact.qos != "BE":
        return "not_best_effort"
    if not fact.evictable:
        return "opted_out"
    return None


def best_effort_pod(
    uid: str, facts: Mapping[str, PodFact], paths: Mapping[str, str], be_root: str
) -> BestEffortPod:
    """The victim, or NotAVictim. ``paths``: uid -> cgroup path from the hierarchy's root."""
    reason = refusal(uid, facts)
    if reason is not None:
        raise NotAVictim(reason, f"pod {uid!r}")
    path = paths.get(uid)
    if path is None:
        raise NotAVictim("no_path", f"pod {uid!r} has no cgroup path")
    try:
        group = inside(path, be_root)
        for other, other_path in paths.items():
            if other != uid and _holds(path, other_path):
                raise NotAVictim("holds_other_pod", f"the group of {uid!r} holds pod {other!r}")
    except UnsafePath as error:
        raise NotAVictim("unsafe_path", str(error)) from None
    return BestEffortPod(_KEY, uid, group)


def _holds(path: str, other: str) -> bool:
    """Whether ``other`` is the same group or one under it: killing it would kill that too."""
    mine, theirs = safe_parts(path), safe_parts(other)
    return theirs[: len(mine)] == mine
