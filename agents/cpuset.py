"""Which CPUs best-effort work may run on: how many, and which ones.

Called by `agents.suppress_pass` where the policy bounds best effort by CPU set. Selection:
koordinator `qosmanager/plugins/cpusuppress/cpu_suppress.go`; CPUs are the kernel's numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from agents.table import Bools, Ints

CORE_MILLI = 1000
NONE: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Processors:
    """The CPUs of one node, side by side [p]: number, core, socket, NUMA node; in any order."""

    cpu: Ints
    core: Ints
    socket: Ints
    node: Ints

    def where(self, chosen: Bools) -> Processors:
        return Processors(
            self.cpu[chosen], self.core[chosen], self.socket[chosen], self.node[chosen]
        )


@dataclass(frozen=True, slots=True)
class Pins:
    """CPUs of one node that somebody else was given."""

    lse: Ints = field(default_factory=NONE.copy)  # never lent
    lsr: Ints = field(default_factory=NONE.copy)  # lent in proportion
    reserved: Ints = field(default_factory=NONE.copy)
    system: Ints = field(default_factory=NONE.copy)  # of the daemons of class SYSTEM
    system_exclusive: bool = True


def wanted_cpus(
    allow_milli: Ints, in_force: Ints, total: Ints, floor_cpus: Ints | int,
    raise_permille: Ints | int,
) -> Ints:  # fmt: skip
    """How many CPUs [n]: the allowance rounded up, at least the floor; rises are bounded.

    ``in_force`` is the count now, -1: none is in force, any count is applied. A step up is at most
    ``raise_permille`` of the node's CPUs, rounded up; down is at once.
    """
    wanted = np.maximum(-(-allow_milli // CORE_MILLI), floor_cpus)
    ceiling = in_force - (-total * raise_permille // 1000)
    result: Ints = np.where(in_force >= 0, np.minimum(wanted, ceiling), wanted)
    return result


def lendable(cpu: Ints, pins: Pins) -> Bools:
    """[p]: neither reserved, nor exclusive to daemons, nor of a pod of class LSE."""
    barred = [pins.lse, pins.reserved]
    if pins.system_exclusive:
        barred.append(pins.system)
    return ~np.isin(cpu, np.concatenate(barred))


def without(cpus: tuple[int, ...], pins: Pins) -> tuple[int, ...]:
    """Those of ``cpus`` that may be lent; the last guard of who binds best effort to them."""
    found = np.array(cpus, dtype=np.int64)
    return tuple(found[lendable(found, pins)].tolist())


def select(processors: Processors, count: int) -> Ints:
    """``count`` CPUs in the order they are picked; none if there are fewer.

    CPUs lie in buckets by NUMA node and socket, each by core and number; larger buckets come
    first, then the one that begins lower. Whole sibling pairs are dealt from the buckets in turn,
    then single CPUs, from the bucket after the last pair (from the first, when pairs ran out).
    """
    if count <= 0 or len(processors.cpu) < count:
        return NONE.copy()
    order, bucket = _buckets(processors)
    buckets = int(bucket[-1]) + 1
    pair = _pairs(processors.core[order], bucket)
    heads = np.flatnonzero(pair)
    dealt = heads[np.lexsort((bucket[heads], _rank(bucket[heads])))][: count // 2]
    ran_out = len(heads) < count // 2
    begin = 0 if ran_out or not len(dealt) else (int(bucket[dealt[-1]]) + 1) % buckets
    free = np.ones(len(order), dtype=np.bool_)
    free[dealt] = free[dealt + 1] = False
    singles = np.flatnonzero(free)
    turn = (bucket[singles] - begin) % buckets
    singles = singles[np.lexsort((turn, _rank(bucket[singles])))][: count - 2 * len(dealt)]
    picked = np.concatenate([np.stack([dealt, dealt + 1], axis=1).reshape(-1), singles])
    result: Ints = processors.cpu[order[picked]]
    return result


def choose(processors: Processors, pins: Pins, count: int) -> Ints:
    """CPUs for best effort, ascending; empty when nothing can be given.

    CPUs of LSR pods give their share of ``count``; a pool too small for its share gives none.
    """
    open_to = processors.where(lendable(processors.cpu, pins))
    of_lsr = np.isin(open_to.cpu, pins.lsr)
    lsr, others = open_to.where(of_lsr), open_to.where(~of_lsr)
    both = len(open_to.cpu)
    share = count * len(lsr.cpu) // both if both else 0
    return np.sort(np.concatenate([select(lsr, share), select(others, count - share)]))


def _buckets(processors: Processors) -> tuple[Ints, Ints]:
    """(order, bucket) [p]: rows bucket by bucket, and the bucket's place of each."""
    by_place = np.lexsort((processors.cpu, processors.core, processors.socket, processors.node))
    node, socket = processors.node[by_place], processors.socket[by_place]
    begins = np.ones(len(by_place), dtype=np.bool_)
    begins[1:] = (node[1:] != node[:-1]) | (socket[1:] != socket[:-1])
    run = np.cumsum(begins) - 1
    size = np.bincount(run)
    first = processors.cpu[by_place[begins]]
    place = np.empty(len(size), dtype=np.int64)
    place[np.lexsort((first, -size))] = np.arange(len(size))
    bucket = place[run]
    order = np.argsort(bucket, kind="stable")
    return by_place[order], bucket[order]


def _pairs(core: Ints, bucket: Ints) -> Bools:
    """[p]: whether a CPU and the next one are a pair of siblings, none in two pairs."""
    begins = np.ones(len(core), dtype=np.bool_)
    begins[1:] = (core[1:] != core[:-1]) | (bucket[1:] != bucket[:-1])
    within = _rank(np.cumsum(begins))
    has_next = np.zeros(len(core), dtype=np.bool_)
    has_next[:-1] = ~begins[1:]
    result: Bools = (within % 2 == 0) & has_next
    return result


def _rank(group: Ints) -> Ints:
    """How many of its group come before each; equal groups lie together, in ascending order."""
    result: Ints = np.arange(len(group)) - np.searchsorted(group, group)
    return result
