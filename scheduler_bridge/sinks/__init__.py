"""One system a file: a new sink is one file and its lines in `scheduler_bridge.build`.

A sink says what its system shows (`observed`) and tells it one patch at a time (`tell`); order,
pace and thresholds are decided before it is called.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import ClassVar, Protocol

from scheduler_bridge.reconcile import Observed, Patch


class Sink(Protocol):
    """What `scheduler_bridge.loop` needs of a system.

    `run` lives as long as the loop; until it has made the sink ``ready`` nothing is told.
    """

    NAME: ClassVar[str]

    @property
    def ready(self) -> bool:
        """Whether `observed` is whole. A bridge that only stands by is ready too."""

    @property
    def may_tell(self) -> bool:
        """Whether it falls to this bridge to tell, now; of several one leads."""

    @property
    def observed(self) -> Mapping[str, Observed]:
        """What the system shows, by node."""

    @property
    def nodes(self) -> Container[str] | None:
        """Whom the system knows, so that the others are passed over; None: it takes any."""

    async def run(self) -> None:
        """Keep `observed` fresh until cancelled, through every failure of the system."""

    async def tell(self, patch: Patch) -> None:
        """Apply one patch; afterwards `observed` shows it. Raises OSError: tried again later."""

    def close(self) -> None:
        """Release what was opened before `run`; called once, after it."""
