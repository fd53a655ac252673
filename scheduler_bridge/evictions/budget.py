"""How many evictions a node, a namespace and the fleet may see in a time. Pure.

Kept by the executor; after a restart filled again from the bridge's own reports.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Evictions within ``window_ms``; after one, its node rests for ``node_rest_ms``."""

    per_node: int = 2
    per_namespace: int = 20
    fleet: int = 60
    window_ms: int = 60_000
    node_rest_ms: int = 5_000

    def __post_init__(self) -> None:
        for name, most in (("per_node", 1000), ("per_namespace", 100_000), ("fleet", 100_000)):
            if not 1 <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed: 1 to {most}")
        if not 1_000 <= self.window_ms <= 3_600_000:
            raise ValueError(f"window_ms is {self.window_ms}; allowed: 1000 to 3600000")
        if not 0 <= self.node_rest_ms <= self.window_ms:
            raise ValueError(
                f"node_rest_ms is {self.node_rest_ms}; allowed: 0 to the window, {self.window_ms}"
            )


class Budget:
    """Evictions of the last window, by node and namespace; each pod counts once."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._spent: deque[tuple[int, str, str, str]] = deque()
        self._pods: set[str] = set()
        self._nodes: Counter[str] = Counter()
        self._namespaces: Counter[str] = Counter()
        self._last_ms: dict[str, int] = {}

    def learn(self, now_ms: int, node: str, namespace: str, uid: str) -> None:
        """One eviction at ``now_ms``, done here or read in a report of this or another instance."""
        if uid in self._pods:
            return
        self._pods.add(uid)
        self._spent.append((now_ms, node, namespace, uid))
        self._nodes[node] += 1
        self._namespaces[namespace] += 1
        self._last_ms[node] = max(now_ms, self._last_ms.get(node, now_ms))

    def refusal(self, now_ms: int, node: str, namespace: str) -> str:
        """What stands against one more now; "" when nothing does."""
        self._forget(now_ms)
        limits = self.limits
        if len(self._spent) >= limits.fleet:
            return "fleet_budget"
        if self._nodes[node] >= limits.per_node:
            return "node_budget"
        if node in self._last_ms and now_ms - self._last_ms[node] < limits.node_rest_ms:
            return "node_rests"
        if self._namespaces[namespace] >= limits.per_namespace:
            return "namespace_budget"
        return ""

    def _forget(self, now_ms: int) -> None:
        while self._spent and now_ms - self._spent[0][0] >= self.limits.window_ms:
            _, node, namespace, uid = self._spent.popleft()
            self._pods.discard(uid)
            self._nodes[node] -= 1
            self._namespaces[namespace] -= 1
            if not self._nodes[node]:
                del self._nodes[node]
                self._last_ms.pop(node, None)
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]
