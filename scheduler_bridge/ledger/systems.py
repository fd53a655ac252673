"""What the keeper needs of a system that borrows: what it shows, holds and waits for, node by node.

`scheduler_bridge.ledger.kubernetes` and `scheduler_bridge.ledger.yarn_system` are such.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scheduler_bridge.ledger.amounts import within
from scheduler_bridge.ledger.book import Held
from scheduler_bridge.ledger.shares import Seen, System
from scheduler_bridge.reconcile import Amount


class Borrower(Protocol):
    """One system of this bridge. Nothing here waits; what is asked was seen before."""

    @property
    def system(self) -> System:
        """Its name in the ledger, and how it is dealt with."""

    @property
    def nodes(self) -> frozenset[str]:
        """Nodes that it shows something of, holds something on, or would show if it were told."""

    def held_on(self, node: str) -> Mapping[str, Held]:
        """What it holds there under its own name and under others that it speaks for.

        Each of those names, also with nothing; empty while it does not answer.
        """

    def seen(self, node: str, mono_ms: int) -> Seen:
        """One node as it is now."""

    def wants(self, node: str, amount: Amount) -> None:
        """What it should show of a node from now on; told as soon as its pace allows."""


class Steady:
    """Since when something has been shown: a fall counts once it is ``settle_ms`` old."""

    def __init__(self, settle_ms: int) -> None:
        self._settle_ms = settle_ms
        self._shown: dict[str, tuple[Amount, int]] = {}

    def settled(self, node: str, shows: Amount, mono_ms: int) -> bool:
        """Whether no more than this was shown for the last ``settle_ms``."""
        before = self._shown.get(node)
        if before is None or not within(before[0], shows):
            self._shown[node] = (shows, mono_ms)
            return self._settle_ms == 0
        if before[0] != shows:  # a rise: nothing is waited for
            self._shown[node] = (shows, before[1])
        return mono_ms - before[1] >= self._settle_ms
