"""The pods that the kubelet has named, kept over answers that leave some of them out.

`node_agent.discovery` holds one. A kubelet that has just started answers with few pods or none,
which is no word that the others are gone: a pod that an answer leaves out is kept as it was while
its group stands, and for `GRACE_US` where it has none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node_agent.kubelet.facts import KubePod


GRACE_US = 30_000_000


@dataclass(slots=True)
class _Entry:
    pod: KubePod
    missed_us: int | None = None  # since when answers leave it out


class Roll:
    """Pods by uid; `index` finds them by what their directories may be called."""

    def __init__(self) -> None:
        self.index: Mapping[str, KubePod] = {}
        self._entries: dict[str, _Entry] = {}

    def hear(self, pods: Iterable[KubePod], mono_us: int) -> None:
        """Take over one answer."""
        named = {pod.fact.uid: pod for pod in pods}
        for uid, entry in self._entries.items():
            if uid not in named and entry.missed_us is None:
                entry.missed_us = mono_us
        self._entries |= {uid: _Entry(pod) for uid, pod in named.items()}
        self._arrange()

    def forget(self, standing: Collection[str], mono_us: int) -> None:
        """Let go of those long left out whose group is gone; ``standing``: names of groups."""
        gone = [
            uid
            for uid, entry in self._entries.items()
            if entry.missed_us is not None
            and mono_us - entry.missed_us >= GRACE_US
            and not any(spelt(key) in standing for key in entry.pod.keys)
        ]
        for uid in gone:
            del self._entries[uid]
        if gone:
            self._arrange()

    def pods(self) -> list[KubePod]:
        """All of them, in no order."""
        return [entry.pod for entry in self._entries.values()]

    def _arrange(self) -> None:
        """Uids before hashes: nobody's annotation takes the name of another pod."""
        pods = self.pods()
        by_hash = {spelt(key): pod for pod in pods for key in pod.keys[1:]}
        self.index = by_hash | {spelt(pod.keys[0]): pod for pod in pods}


def spelt(uid: str) -> str:
    """A uid as it is read from a directory's name, where dashes may be underscores."""
    return uid.replace("_", "-")
