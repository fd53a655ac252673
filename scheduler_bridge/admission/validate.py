"""Which pods may come in and which changes of one are allowed. Pure.

Called by `webhook`, after all mutating webhooks, so what it sees is what will be stored. Each
answer begins with a stable identifier of the rule and says what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scheduler_bridge.admission import gang, legal
from scheduler_bridge.admission.names import QUOTA_LABEL, Resources
from scheduler_bridge.admission.pod import PodView
from scheduler_bridge.admission.quota import NOBODYS, QuotaRefused, Tree
from scheduler_bridge.admission.quota_book import Entry, QuotaBook, entry_of
from scheduler_bridge.admission.rules import Rules


@dataclass(frozen=True, slots=True)
class Verdict:
    """Empty ``complaints``: allowed; ``entry`` is then what its quota counts."""

    complaints: list[str] = field(default_factory=list)
    entry: Entry | None = None


def creation(
    pod: PodView,
    rules: Rules,
    names: Resources,
    tree: Tree,
    book: QuotaBook,
    total: Mapping[str, int],
) -> Verdict:
    """A pod that is to be created. Its quota is asked only if nothing else is wrong."""
    complaints = legal.broken(pod, None, rules, names)
    try:
        gang.membership(pod.labels, pod.annotations)
    except ValueError as error:
        complaints.append(f"gang_unclear: {error}")
    try:
        quota = tree.quota_of(pod)
    except QuotaRefused as error:
        complaints.append(f"quota_unknown: {error}")
        quota = NOBODYS
    if complaints:
        return Verdict(complaints)
    entry = entry_of(pod, quota, names, rules.free)
    over = tree.judge(entry, book, total)
    return Verdict([over]) if over else Verdict(entry=entry)


def update(new: PodView, old: PodView, rules: Rules, names: Resources) -> Verdict:
    """A change of a pod; of one that is on its way out everything is allowed."""
    if new.going:
        return Verdict()
    complaints = legal.broken(new, old, rules, names)
    before, after = old.labels.get(QUOTA_LABEL), new.labels.get(QUOTA_LABEL)
    if before != after:
        complaints.append(
            f"quota_immutable: the quota of a pod stays for its life, {before or 'none'} would "
            f"become {after or 'none'}; allowed: a new pod"
        )
    return Verdict(complaints)
