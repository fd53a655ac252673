"""A kubelet that says what a test wants, through the real watch and the real reader."""

from __future__ import annotations

from typing import Any

from node_agent.kubelet import facts
from node_agent.kubelet.ask import KubeletSaid
from node_agent.kubelet.watch import Watch
from tests.node_agent.kubelet.pods import answer


class Said(Watch[KubeletSaid]):
    """Its thread never runs: each `say` is one question and its answer. ``woken`` counts wishes."""

    def __init__(self, *pods: Any, reserved_cpus: str = "") -> None:
        super().__init__("kubelet", self._answer, 10.0)
        self._body = b""
        self._reserved_cpus = reserved_cpus
        self.woken = 0
        self.say(*pods)

    def say(self, *pods: Any) -> None:
        """The next answer names these pods."""
        self.say_raw(answer(*pods))

    def say_raw(self, body: bytes) -> None:
        self._body = body
        self._once()

    def wake(self) -> None:
        self.woken += 1

    def _answer(self) -> KubeletSaid:
        return KubeletSaid(facts.read(self._body), self._reserved_cpus)
