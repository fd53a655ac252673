"""Which policy holds on which node, and its thresholds as columns for the deciders.

`agents.side` puts a policy in force (`enact`); inventories and new seats are given theirs
(`settle`); deciders ask for a `column` of their rows, so that the common case, one policy for all,
costs no more than a number. Nodes that the same layers reach share one effective policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from agents.lending import mid, needs
from agents.table import Bools, Field, Ints
from schemas.policy import Effective, Policy, Published, Reach, effective, named, reach

if TYPE_CHECKING:
    from agents.state import PartitionState, Seat

NODE_FIELDS = (Field("policy_no", np.int32),)  # place in `Laws`; 0: the cluster's
POD_FIELDS: tuple[Field, ...] = ()
CODES = needs.POLICIES | mid.MODES
"""Choices among names, as columns hold them."""
SPARE = 64
"""Effective policies that nodes have left behind are kept up to so many and as many as nodes."""


class Laws:
    """The effective policies of a partition, each once; number 0 is the cluster's, of no node."""

    def __init__(self, published: Published | None) -> None:
        self.published = published
        # Without a policy no stage holds either: best-effort work stays at its floor.
        whole = Effective(Policy()) if published is None else effective(published.policy, Reach())
        self._found: list[Effective] = [whole]
        self._numbers: dict[tuple[bool, Reach], int] = {(False, Reach()): 0}
        self._columns: dict[str, Ints] = {}

    def __len__(self) -> int:
        return len(self._found)

    def __getitem__(self, number: int) -> Policy:
        return self._found[number].policy

    def refused(self, number: int) -> tuple[str, ...]:
        """What is wrong with the layers that nodes of this number say themselves."""
        return self._found[number].refused

    def number(self, seat: Seat) -> int:
        """The effective policy of a node; without a policy in force there is only one."""
        if self.published is None:
            return 0
        labels = named(seat.name, seat.labels)
        policy = self.published.on(labels)
        key = (policy is self.published.trial, reach(policy, labels, seat.annotation))
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._found)
            self._found.append(effective(policy, key[1]))
            self._columns.clear()
        return number

    def column(self, key: str) -> Ints:
        """``section.key`` of every effective policy; false and true are 0 and 1.

        A choice among names is its code in `CODES`.
        """
        values = self._columns.get(key)
        if values is None:
            section, _, name = key.partition(".")
            said = [getattr(getattr(each.policy, section), name) for each in self._found]
            coded = [CODES[one] if isinstance(one, str) else int(one) for one in said]
            values = self._columns[key] = np.array(coded, dtype=np.int64)
        return values

    def policies(self) -> Iterator[Policy]:
        """Every effective policy, by number."""
        return (each.policy for each in self._found)

    def choice(self, key: str, value: str) -> Bools:
        """Whether ``section.key`` is ``value``, of every effective policy."""
        section, _, name = key.partition(".")
        said = [getattr(getattr(each.policy, section), name) == value for each in self._found]
        return np.array(said, dtype=np.bool_)


def enact(state: PartitionState, published: Published | None) -> list[str]:
    """Put a policy in force on every node, those that are known and those that come.

    Returns the nodes of whose own layers something was refused.
    """
    state.laws = Laws(published)
    return [seat.name for seat in state.seats.values() if settle(state, seat)]


def settle(state: PartitionState, seat: Seat) -> tuple[str, ...]:
    """Find the node's effective policy; says what of its own layers was refused."""
    laws = state.laws
    if len(laws) > 2 * len(state.seats) + SPARE:
        laws = state.laws = Laws(laws.published)
        for other in state.seats.values():
            state.nodes["policy_no"][other.row] = laws.number(other)
    number = laws.number(seat)
    state.nodes["policy_no"][seat.row] = number
    state.nodes["isolate_looked"][seat.row] = 0
    return laws.refused(number)


def of(state: PartitionState, row: int) -> Policy:
    """The effective policy of one node."""
    return state.laws[int(state.nodes["policy_no"][row])]


def of_node(state: PartitionState, node: str) -> Policy | None:
    """What a node must obey; the cluster's while nothing is known of it, None without any."""
    if state.laws.published is None:
        return None
    seat = state.seats.get(node.encode())
    return state.laws[0] if seat is None else of(state, seat.row)


def column(state: PartitionState, rows: Ints, key: str) -> Ints:
    """``section.key`` as it holds on each of ``rows`` [n]; a switch is 0 or 1."""
    values = state.laws.column(key)
    if len(values) == 1:
        return values.repeat(len(rows))
    return values.take(state.nodes["policy_no"].take(rows))


def columns(state: PartitionState, rows: Ints, keys: tuple[str, ...]) -> Ints:
    """[n, k] of several keys, as `column` gives each; [1, k] while one policy holds on all."""
    one = rows if len(state.laws) > 1 else rows[:1]
    return np.stack([column(state, one, key) for key in keys], axis=1)


def switch(state: PartitionState, rows: Ints, key: str) -> Bools:
    """A switch ``section.key`` as it stands on each of ``rows`` [n]."""
    result: Bools = column(state, rows, key) != 0
    return result


def choice(state: PartitionState, rows: Ints, key: str, value: str) -> Bools:
    """Whether ``section.key`` is ``value`` on each of ``rows`` [n]."""
    chosen = state.laws.choice(key, value)
    if len(chosen) == 1:
        return chosen.repeat(len(rows))
    return chosen.take(state.nodes["policy_no"].take(rows))
