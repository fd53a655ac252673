"""How much of a node each system may show: the bridge's own claims, for systems that cannot ask.

Kubernetes and YARN lend whatever they are shown. So what each is shown at most is an answer in the
ledger (claim `SHARE`), and a slice passes from one to the other in this order only: told the one
that it has less; seen that it shows less and holds no more; its answer lowered in the log, and read
back; the other's raised, and read back; told the other. Whenever the bridge dies in between, the
log says at least what is shown. Pure; `scheduler_bridge.ledger.keeper` does the telling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scheduler_bridge.ledger.amounts import NOTHING, each, larger, less, smaller, total
from scheduler_bridge.ledger.book import SHARE, NodeBook, Slot, amount_of
from scheduler_bridge.ledger.claims import Lendable
from scheduler_bridge.reconcile import Amount

ONE = Amount(1, 1, 1, 1)
ENDLESS = Amount(2**60, 2**60, 2**60, 2**60)


@dataclass(frozen=True, slots=True)
class System:
    """``weight``: its part of what nobody asks for. ``grain``: it can be shown multiples only.

    ``led``: it shows what the keeper tells it and nothing else, and knows no "no new work"; else a
    sink tells it, which by itself follows capacity.
    """

    name: str
    weight: int = 1
    grain: Amount = ONE
    led: bool = False


@dataclass(frozen=True, slots=True)
class Seen:
    """A system as it is now on one node: what it shows, what it holds, what waits for room.

    ``settled``: it has shown this for long enough that nothing started on more is under way.
    ``sure``: False while the system does not answer; then ``shows`` and ``held`` are the last seen.
    ``here``: whether it could start anything on this node at all.
    """

    shows: Amount
    held: Amount
    waits: Amount = NOTHING
    settled: bool = True
    sure: bool = True
    here: bool = True


@dataclass(frozen=True, slots=True)
class Move:
    """What a system should be shown now, and its answer in the log (None: it stands)."""

    tell: Amount
    share: Amount | None


def moves(
    book: NodeBook,
    lendable: Lendable | None,
    systems: Sequence[System],
    seen: Mapping[str, Seen],
    now_ms: int,
    wanted: Amount = NOTHING,
) -> dict[str, Move]:
    """The next step of every system on a node; calling it again when all was done gives the same.

    ``seen`` has an entry for each system; ``wanted`` is kept free for a claim that waits.
    """
    names = [system.name for system in systems]
    share = {name: _share(book, name) for name in names}
    held = {name: larger(seen[name].held, book.holds(name)) for name in names}
    counts = {name: larger(larger(share[name], held[name]), seen[name].shows) for name in names}
    others = book.counted(now_ms, without=names)
    if lendable is None:
        return {name: Move(smaller(counts[name], seen[name].shows), None) for name in names}
    for_us = less(less(lendable.amount, others), wanted)
    waits = {name: seen[name].waits for name in names}
    here = [system for system in systems if seen[system.name].here]
    aims = targets(for_us, systems, held, waits, share, here)
    room = less(for_us, total(counts.values()))
    grows = lendable.new_work and all(seen[name].sure for name in names)
    found = {}
    for system in systems:
        name = system.name
        aim = aims[name]
        if not lendable.new_work:
            kept = held[name] if system.led else larger(share[name], held[name])
            aim = smaller(aim, kept)
        shown = seen[name].shows
        low = larger(larger(aim, held[name]), shown if seen[name].settled else share[name])
        new = smaller(share[name], low)
        if grows:
            top = smaller(aim, total([counts[name], room]))
            room = less(room, less(top, counts[name]))
            new = larger(new, top)
        tell = smaller(aim, larger(share[name], shown))
        found[name] = Move(tell, new if new != share[name] else None)
    return found


def targets(
    for_us: Amount,
    systems: Sequence[System],
    held: Mapping[str, Amount],
    waits: Mapping[str, Amount],
    share: Mapping[str, Amount],
    here: Sequence[System],
) -> dict[str, Amount]:
    """What each should have in the end: never more in all than there is.

    Each has what it holds; who is not ``here`` no more than that. What is free goes first to those
    with work that waits, then stays with who has it already, then by weight. Where more is held
    than there is, each is left what the others do not hold: all are shown the fall, and evictions
    follow.
    """
    names = [system.name for system in systems]
    free = less(for_us, total(held[name] for name in names))
    given = dict.fromkeys(names, NOTHING)
    for want in (
        {name: waits[name] for name in names},
        {name: less(share[name], total([held[name], given[name]])) for name in names},
        dict.fromkeys(names, ENDLESS),
    ):
        more = {**dict.fromkeys(names, NOTHING), **_dealt(free, here, want)}
        free = less(free, total(more.values()))
        given = {name: total([given[name], more[name]]) for name in names}
    found = {}
    for system in systems:
        aim = total([held[system.name], given[system.name]])
        whole = each(lambda figure, grain: figure - figure % grain, aim, system.grain)
        found[system.name] = larger(whole, smaller(aim, held[system.name]))
    left = less(for_us, total(found.values()))
    for system in here:
        if system.grain == ONE:
            found[system.name] = total([found[system.name], left])
            break
    for name in names:
        elsewhere = total(held[other] for other in names if other != name)
        found[name] = smaller(found[name], larger(less(for_us, elsewhere), NOTHING))
    return found


def _share(book: NodeBook, name: str) -> Amount:
    grant = book.grants.get(Slot(name, SHARE))
    return amount_of(grant) if grant is not None else NOTHING


def _dealt(
    free: Amount, systems: Sequence[System], want: Mapping[str, Amount]
) -> dict[str, Amount]:
    """``free`` among those who want some, by weight, nobody more than wanted."""
    if not systems:
        return {}
    figures = [
        _deal(one, [system.weight for system in systems], list(wants))
        for one, *wants in zip(
            free.each(), *(want[system.name].each() for system in systems), strict=True
        )
    ]
    return {
        system.name: Amount(*(figure[at] for figure in figures))
        for at, system in enumerate(systems)
    }


def _deal(free: int, weights: Sequence[int], wants: list[int]) -> list[int]:
    """One figure. Whole numbers; what does not divide goes to the first who still wants it."""
    given = [0] * len(wants)
    while free > 0:
        open_ = [at for at, want in enumerate(wants) if want > given[at]]
        if not open_:
            break
        weight = sum(weights[at] for at in open_)
        parts = {at: free * weights[at] // weight for at in open_}
        parts[open_[0]] += free - sum(parts.values())
        for at, part in parts.items():
            taken = min(part, wants[at] - given[at])
            given[at] += taken
            free -= taken
    return given
