"""One pass over the tasks of a node: victims in order until every goal is covered, no more.

The bookkeeping is koordinator's `qosmanager/plugins/util/evict.go`: tasks of one target share what
was released; a pod counts once for a target, with the largest value a resource; what one task
releases counts for the later ones. Unlike there, nobody goes who releases nothing of what is still
missing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Task:
    """A goal in amounts by resource, counted for a target ("used", "request"); uids in order."""

    name: str
    target: str
    goal: Amounts
    order: Sequence[str]


@dataclass(slots=True)
class Outcome:
    """Who goes, in order, for which task; what that and those already going release."""

    evicted: list[str] = field(default_factory=list)
    task_of: dict[str, str] = field(default_factory=dict)
    released: dict[str, dict[str, int]] = field(default_factory=dict)

    def first(self, most: int, tasks: Collection[str]) -> Outcome:
        """The first ``most`` victims of these tasks; what the fewer release is not told."""
        evicted = [uid for uid in self.evicted if self.task_of[uid] in tasks][:most]
        return Outcome(evicted, {uid: self.task_of[uid] for uid in evicted})


class _Books:
    def __init__(
        self, tasks: Sequence[Task], releases: Mapping[str, Mapping[str, Amounts]]
    ) -> None:
        self.tasks = [task for task in tasks if any(amount > 0 for amount in task.goal.values())]
        self.releases = releases
        self.outcome = Outcome(released={task.target: {} for task in self.tasks})
        self.gone: set[str] = set()
        self._worth: dict[tuple[str, str], Amounts | None] = {}
        self._of = {
            target: [task.name for task in self.tasks if task.target == target]
            for target in self.outcome.released
        }

    def worth(self, uid: str, target: str) -> Amounts | None:
        """What a pod releases for a target: the largest value a resource; None: nobody knows."""
        key = uid, target
        if key not in self._worth:
            said = self.releases.get(uid, {})
            known = [said[name] for name in self._of[target] if name in said]
            self._worth[key] = _largest(known) if known else None
        return self._worth[key]

    def credit(self, uid: str) -> None:
        """Count a pod for every target, whichever task it goes for."""
        self.gone.add(uid)
        for target, total in self.outcome.released.items():
            for resource, amount in (self.worth(uid, target) or {}).items():
                total[resource] = total.get(resource, 0) + amount

    def missing(self, task: Task) -> list[str]:
        """Resources of the goal that are not covered yet."""
        total = self.outcome.released[task.target]
        return [name for name, amount in task.goal.items() if total.get(name, 0) < amount]

    def evict(self, uid: str, task: Task) -> None:
        self.outcome.evicted.append(uid)
        self.outcome.task_of[uid] = task.name
        self.credit(uid)

    def helps(self, uid: str, task: Task, missing: Sequence[str]) -> bool:
        worth = self.worth(uid, task.target) or {}
        return any(worth.get(name, 0) > 0 for name in missing)


def _largest(amounts: Sequence[Amounts]) -> Amounts:
    """The largest value of each resource."""
    if len(amounts) == 1:
        return amounts[0]
    largest: dict[str, int] = {}
    for one in amounts:
        for resource, amount in one.items():
            largest[resource] = max(largest.get(resource, 0), amount)
    return largest


def run(
    tasks: Sequence[Task], releases: Mapping[str, Mapping[str, Amounts]],
    going: Collection[str] = (), most: int | None = None,
) -> Outcome:  # fmt: skip
    """Serve the tasks one after the other, with at most ``most`` victims.

    ``releases``: uid -> task -> amounts; no entry for a task: nobody knows. ``going`` counts as
    released and is not evicted again. Pods of unknown size are taken one at a time, and only by a
    task for which nobody else went: a column without values must not clear a node.
    """
    books = _Books(tasks, releases)
    for uid in sorted(set(going)):
        books.credit(uid)
    limit = len(releases) if most is None else most
    for task in books.tasks:
        before, missing = len(books.outcome.evicted), books.missing(task)
        for uid in task.order:
            if len(books.outcome.evicted) >= limit or not missing:
                break
            if uid not in books.gone and books.helps(uid, task, missing):
                books.evict(uid, task)
                missing = books.missing(task)
        if len(books.outcome.evicted) == before < limit and books.missing(task):
            for uid in task.order:
                if uid not in books.gone and books.worth(uid, task.target) is None:
                    books.evict(uid, task)
                    break
    return books.outcome
