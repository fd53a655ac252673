"""What pods say of their own eviction, as columns of the pods' arena.

`agents.inventory` writes them with a pod set, `agents.eviction.node` reads them for the pods of a
node that is short of something. A slot that was never written says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from agents.eviction.candidate import NOTHING_SAID, Work
from agents.eviction.labels import FEATURES, GATES, INT32
from agents.table import ABSENT, Field, Table

if TYPE_CHECKING:
    from schemas.records import PodFact

OPTED_IN, RECOVERABLE, LOST, CHECKPOINTED = (1 << i for i in range(4))
"""Bits of ``will``; LOST: what was done is not done again by itself."""
NOT_SAID = -(1 << 40)
"""No number of 32 bits."""
POD_FIELDS = (
    Field("will", np.uint8),
    Field("spared", np.uint8),  # bits of the features (labels.FEATURES) that may not evict it
    Field("eviction_priority", np.int32),
    Field("sub_priority", fill=NOT_SAID),
    Field("retries_left", np.int32, fill=ABSENT),
)
_NOTHING: dict[str, Any] = {"policies": None}
_EVERY = (1 << len(FEATURES)) - 1
_BITS = {name: 1 << place for place, name in enumerate(FEATURES)}


def note(arena: Table, here: slice, pods: Sequence[PodFact]) -> None:
    """Write what these pods say into their slots; numbers are cut to 32 bits."""
    arena["will"][here] = [will_of(pod) for pod in pods]
    arena["spared"][here] = [spared(pod.evict_features) for pod in pods]
    arena["eviction_priority"][here] = [_int32(pod.eviction_priority) for pod in pods]
    arena["sub_priority"][here] = [
        NOT_SAID if pod.sub_priority is None else _int32(pod.sub_priority) for pod in pods
    ]
    arena["retries_left"][here] = [max(_int32(pod.retries_left), ABSENT) for pod in pods]


def spared(named: Sequence[str]) -> int:
    """Bits of the features that may not evict a pod which names these; none named: no bit.

    A name that is none of the features allows none.
    """
    if not named:
        return 0
    bits = _EVERY
    for name in named:
        bits &= ~_BITS.get(GATES.get(name, name), 0)
    return bits


def policies_of(bits: int) -> frozenset[str] | None:
    """The features that may evict a pod with these bits of `spared`; None: any."""
    if not bits:
        return None
    return frozenset(name for name, bit in _BITS.items() if not bits & bit)


def work_of(will: int, retries_left: int, age_ms: int) -> Work:
    """What is known of the work in a pod that has been seen for ``age_ms`` (negative: not yet)."""
    if not will & (RECOVERABLE | LOST | CHECKPOINTED) and retries_left < 0:
        return NOTHING_SAID
    known = will & (RECOVERABLE | LOST | CHECKPOINTED)
    return Work(
        recoverable=not will & LOST if known else None,
        unsaved_ms=0 if will & CHECKPOINTED else max(age_ms, 0),
        retries_left=retries_left if retries_left >= 0 else None,
    )


def said_by(
    arena: Table, here: slice, places: Sequence[int], now_ms: int
) -> list[dict[str, Any]]:  # fmt: skip
    """What the pods at these places of the slots ``here`` say, as fields of `Candidate`.

    ``now_ms`` is the event time.
    """
    columns = [arena[field.name][here].tolist() for field in POD_FIELDS]
    if all(
        column.count(field.fill) == len(column)
        for column, field in zip(columns, POD_FIELDS, strict=True)
    ):
        return [_NOTHING] * len(places)
    will, bits, first, sub, retries = columns
    since_ms = arena["since_ms"][here].tolist()
    return [
        {
            "opted_in": bool(will[at] & OPTED_IN),
            "policies": policies_of(bits[at]),
            "eviction_priority": first[at],
            "sub_priority": None if sub[at] == NOT_SAID else sub[at],
            "work": work_of(will[at], retries[at], _age_ms(since_ms[at], now_ms)),
        }
        for at in places
    ]


def _age_ms(since_ms: int, now_ms: int) -> int:
    return now_ms - since_ms if since_ms >= 0 else 0


def will_of(pod: PodFact) -> int:
    """Bits of what the pod says of its will and its work."""
    bits = OPTED_IN if pod.opted_in else 0
    if pod.checkpointed:
        return bits | CHECKPOINTED
    if pod.recoverable is not None:
        bits |= RECOVERABLE if pod.recoverable else LOST
    return bits


def _int32(number: int) -> int:
    return min(max(number, INT32[0]), INT32[-1])
