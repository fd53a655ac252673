"""One system a file, and the explicit list of them: a new sink is one file and one line here.

A sink says what its system shows (`observed`) and tells it one patch at a time (`tell`); order,
pace and thresholds are decided before it is called.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from scheduler_bridge.reconcile import Observed, Patch
from scheduler_bridge.sinks.dry_run import DryRun


class Sink(Protocol):
    """What `scheduler_bridge.loop` needs of a system."""

    @property
    def observed(self) -> Mapping[str, Observed]:
        """What the system shows, by node."""

    async def tell(self, patch: Patch) -> None:
        """Apply one patch; afterwards `observed` shows it. Raises OSError: tried again later."""

    def close(self) -> None:
        """Release files and connections; called once."""


SINKS: tuple[type[DryRun], ...] = (DryRun,)

__all__ = ["SINKS", "DryRun", "Sink"]
