"""What each network class is promised and may have of the uplink, outwards: a token-bucket tree.

Online pods' class may always have the whole: it is promised a share and never bounded. A root queue
that somebody else has set up is left alone (`foreign_qdisc`). Law: `agents.isolation.network`.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence

from agents.isolation.network import ONLINE_CLASS, WHOLE_CLASS
from node_agent.actuators.failure import Named
from node_agent.actuators.knob import Ask, Found, Knob, Values
from node_agent.actuators.roster import Roster
from node_agent.actuators.traffic import (
    FILTER,
    FOREIGN,
    NONE,
    OURS,
    ROOT,
    TREE,
    UPLINK,
    line_of,
    sayable,
)
from schemas.records import IsolationSettings


class Bandwidths(Knob):
    """One unit: the device of the default route."""

    name = "bandwidths"
    turns = frozenset({"bandwidths"})
    surface = "traffic"
    always_there = True

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        if settings.bandwidths:
            yield Ask(UPLINK, texts={self.name: tree_of(settings.bandwidths)})

    def files(self, version: int) -> tuple[str, ...]:
        return (ROOT, TREE)

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        """Raises Named for a device whose root queue somebody has set up."""
        (found,) = members
        own = originals[found.place][ROOT]
        if own.startswith(FOREIGN):
            text = f"{found.place}: its root queue is {own}; take it away, or switch network off"
            raise Named(errno.EBUSY, "foreign_qdisc", text)
        return {found.place: {ROOT: OURS, TREE: ask.texts[self.name]}}

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        if after[ROOT] != OURS:
            return [(ROOT, NONE)] if before[ROOT] == OURS else []
        made = [] if before[ROOT] == OURS else [(ROOT, OURS)]
        return made + ([] if before[TREE] == after[TREE] else [(TREE, after[TREE])])

    def is_word(self, key: str, text: str) -> bool:
        return key == ROOT  # who changes a class of ours has said nothing of what was before

    def agrees(self, now: Values, then: Values) -> bool:
        root = then.get(ROOT, OURS)
        return now[ROOT] == root and (root != OURS or super().agrees(now, then))


def tree_of(bandwidths: Mapping[str, Mapping[str, int]]) -> str:
    """Classes of the settings in the canonical form of `traffic`, and the filter."""
    shares = [share for share in bandwidths.values() if share["minor"] != WHOLE_CLASS]
    total = sayable(max(share["egress_max_bit_per_s"] for share in bandwidths.values()))
    lines = [line_of(f"1:{WHOLE_CLASS:x}", ROOT, 0, total, total)]
    for share in shares:
        online = share["minor"] == ONLINE_CLASS
        most = total if online else sayable(min(share["egress_max_bit_per_s"], total))
        least = sayable(min(share["egress_min_bit_per_s"], most))
        lines.append(
            line_of(f"1:{share['minor']:x}", f"1:{WHOLE_CLASS:x}", share["turn"], least, most)
        )
    return "\n".join([*sorted(lines), FILTER])
