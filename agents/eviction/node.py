"""What the eviction deciders share of a node's state: its candidates, the budget, the books.

`agents.evict_memory` and `agents.evict_cpu` call this; `agents.side` hands acks in. Only a pod that
is best effort by its raw QoS and no host application becomes a candidate here, so that no order
can name an online pod.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

from agents.classes import BEST_EFFORT, EVICTABLE, HOST, TERMINATING
from agents.eviction import worth
from agents.eviction.candidate import Candidate
from agents.eviction.labels import allows
from agents.eviction.ladder import RUNGS
from agents.fleet import budget_of
from agents.table import ABSENT

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat
    from schemas.records import Ack

EVICTORS = ("evict_memory", "evict_cpu")
EVICTED_MS = ("evicted_ms", "cpu_evicted_ms")
"""Columns of the deciders' last orders."""
FLEET_UNKNOWN, FLEET_ILL = "fleet_unknown", "fleet_ill"
MID_ABOVE = RUNGS[0]
_COLUMNS = {"cpu": ("milli", 0), "memory": ("size", 1)}


def kinds_of(resource: str) -> tuple[str, str]:
    """What requests draw on: up to batch's priorities on batch, above on mid.

    Free work has no quota of its own: what it asks for is booked as batch, and it goes first.
    """
    return f"batch-{resource}", f"mid-{resource}"


def best_effort_pods(
    state: PartitionState, seat: Seat, log_ms: int, resource: Literal["cpu", "memory"]
) -> list[Candidate]:
    """The node's best-effort pods, in millicores or bytes. A use of 0 counts as unknown.

    A pod whose list of features leaves out the one that takes the best-effort pods is no victim of
    that one: where the peer overlooks the list, here it holds for every feature.
    """
    start = int(state.nodes["start"][seat.row])
    here = slice(start, start + len(seat.uids))
    pods, (column, unit), kinds = state.pods, _COLUMNS[resource], kinds_of(resource)
    roles = pods["roles"][here].tolist()
    mine = [at for at, bits in enumerate(roles) if bits & (BEST_EFFORT | HOST) == BEST_EFFORT]
    priorities, uses, ordered_ms, tries = (
        pods[name][here].tolist() for name in ("priority", column, "ordered_ms", "tries")
    )
    requests = pods["request"][here, unit].tolist()
    stands_since_ms = log_ms - state.law.loop.command_ttl_ms
    said = worth.said_by(pods, here, mine, int(state.nodes["event_ms"][seat.row]))
    return [
        Candidate(
            uid=seat.uids[at],
            priority=priorities[at],
            used=uses[at] if uses[at] > 0 else None,
            request=requests[at],
            kind=kinds[priorities[at] > MID_ABOVE],
            best_effort=allows(words["policies"], f"be_{resource}"),
            opted_out=not roles[at] & EVICTABLE,
            going=roles[at] & TERMINATING > 0
            or (ordered_ms[at] >= 0 and ordered_ms[at] > stands_since_ms),
            tries=tries[at],
            slot=start + at,
            **words,
        )
        for at, words in zip(mine, said, strict=True)
    ]


def budget(state: PartitionState, log_ms: int) -> tuple[int, str]:
    """Pods that may be ordered out now by the fleet's facts, and what stands against more."""
    facts, blast = state.facts, state.law.blast
    oldest = log_ms - state.law.evict_memory.cooldown_ms
    state.orders_ms = [order_ms for order_ms in state.orders_ms if order_ms > oldest]
    if facts is None or log_ms - state.facts_ms > blast.facts_stale_ms:
        return 0, FLEET_UNKNOWN
    if facts.ill_permille >= blast.stop_ill_permille:
        return 0, FLEET_ILL
    return max(budget_of(facts, state.partition) - len(state.orders_ms), 0), ""


def book(state: PartitionState, row: int, log_ms: int, chosen: Sequence[Candidate]) -> None:
    """Note an order that is given in earnest, whichever decider gave it."""
    slots = [pod.slot for pod in chosen]
    for column in EVICTED_MS:  # one cool-down a node
        state.nodes[column][row] = log_ms
    state.orders_ms += [log_ms] * len(chosen)
    state.pods["ordered_ms"][slots] = log_ms
    state.pods["tries"][slots] += 1


def note_ack(state: PartitionState, ack: Ack) -> None:
    """What the node did: an order that it refused no longer counts as released."""
    seat = state.seats.get(ack.node.encode())
    if seat is None or ack.decider not in EVICTORS or ack.dry_run:
        return
    if ack.outcome == "duplicate":
        return
    when_ms = ABSENT if ack.outcome in ("refused", "failed") else state.log_ms
    start = int(state.nodes["start"][seat.row])
    gone = set(ack.pods)
    for place, uid in enumerate(seat.uids):
        if uid in gone and int(state.pods["roles"][start + place]) & BEST_EFFORT:
            state.pods["ordered_ms"][start + place] = when_ms
