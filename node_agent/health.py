"""Whether the agent works, for who asks its metrics port: `/healthz` and `/readyz`.

`node_agent.metrics` answers with it. Sweeps are what shows life: they are counted by the loop that
also folds and decides, so a loop that hangs counts no more.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from node_agent.loop import NodeAgent

STILL_S = 60.0  # six of the longest periods that may be asked for


class Health:
    """Compares two askings; the first one finds an agent alive."""

    def __init__(self, agent: NodeAgent, now_s: Callable[[], float] = monotonic) -> None:
        self._agent, self._now_s = agent, now_s
        self._sweeps, self._grew_s = -1, 0.0

    def alive(self) -> str:
        """Empty, or what is wrong: no sweep for `STILL_S`."""
        sweeps, now_s = self._agent.sampler.stats.sweeps, self._now_s()
        if sweeps != self._sweeps:
            self._sweeps, self._grew_s = sweeps, now_s
        still_s = now_s - self._grew_s
        return f"no sweep for {still_s:.0f} s" if still_s > STILL_S else ""

    def ready(self) -> str:
        """Empty, or what is wrong: it has not measured, or no broker takes what it measured."""
        if not self._agent.sampler.stats.sweeps:
            return "no sweep yet"
        return self.alive() or ("" if self._agent.outbox.connected else "no broker")
