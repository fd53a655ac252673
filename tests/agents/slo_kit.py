"""A node with an online service that reports, for the tests of the SLO guard."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from agents.log import Output
from schemas.records import Capacity, Decision, LedgerEntry, PolicyRecord, Sli
from tests.agents.worlds import GIB, PARTITION, WARM, Node, World, best_effort, of, online

WEB, API = "shop/web", "shop/api"
RULE = (
    "slo_guard: {step_permille: 500, step_wait_ms: 2000, calm_ms: 3000, return_permille: 500,"
    " most_nodes_permille: 1000, objectives: ["
    "{workload: shop/web, p99_us: 100000, errors_permille: 10, rounds: 2, window_ms: 10000},"
    "{workload: shop/api, p99_us: 50000, rounds: 1, window_ms: 10000}]}\n"
)
FAST = (
    WARM + "capacity: {raise_permille_per_min: 60000}\n"
    "mid: {mode: static, static_cpu_percent: 20, static_memory_percent: 20}\n"
)


def node(name: str = "n0", *more: Any) -> Node:
    pods = (
        online(f"{name}-web", workload=WEB), best_effort(f"{name}-b", cpu_request_milli=1500),
        best_effort(f"{name}-m", priority_class="mid", priority=7500, cpu_request_milli=1000),
        best_effort(f"{name}-f", priority_class="free", priority=3500),
    )  # fmt: skip
    return Node(name, (*pods, *more))


def sli(name: str = "n0", p99_ms: int = 10, **more: Any) -> tuple[str, int, bytes, Sli]:
    """A report as a side record; ``p99_ms`` 100 is the objective of the default workload."""
    said: dict[str, Any] = {"workload": WEB, "window_ms": 5_000, "p50_us": 0, "requests": 1_000}
    record = Sli(node=name, p99_us=p99_ms * 1000, **(said | more))
    return "slis", PARTITION, name.encode(), record


@dataclass
class Guarded:
    """A world in which all nodes are warm, and what was decided second by second."""

    nodes: tuple[Node, ...] = field(default_factory=lambda: (node(),))
    rule: str = RULE
    base: str = FAST

    def __post_init__(self) -> None:
        self.world = World(self.base + self.rule, *self.nodes)
        self.all: list[Output] = []
        for each in self.nodes:
            entry = LedgerEntry(each.name, "k8s", 1000, GIB, mid_cpu_milli=500)
            self.world.tick(10, ("ledger", PARTITION, each.name.encode(), entry))
        self.seconds(6)

    def second(self, *side: tuple[str, int, bytes, Any]) -> list[Output]:
        """A second: a sample of each node, then a tick that admits ``side``."""
        out: list[Output] = []
        for each in self.nodes:
            milli = [1000 if pod.qos == "LS" else 200 for pod in each.pods]
            quota = self.quota(each)
            out += self.world.say(each.sample(milli, quota=quota), 0)
        out += self.world.tick(1000, *side)
        self.all += out
        return out

    def seconds(self, count: int, *side: tuple[str, int, bytes, Any]) -> list[Output]:
        return [output for _ in range(count) for output in self.second(*side)]

    def quota(self, each: Node) -> int:
        """The node obeys at once."""
        said = [c for c in of(self.all, "commands", "suppress") if c.node == each.name]
        return said[-1].allow_milli if said else -1

    def put(self, text: str, version: int = 2) -> list[Output]:
        record = PolicyRecord("default", version, "", self.base + text)
        return self.second(("policies", 0, b"default", record))

    def capacity(self, name: str = "n0") -> Capacity:
        """What was published last."""
        found: Capacity = [c for c in of(self.all, "capacity") if c.node == name][-1]
        return found

    def reasons(self, name: str = "n0") -> list[str]:
        """What the guard decided of a node so far."""
        return [
            reason
            for record in decisions(self.all)
            for each, reason in zip(record.nodes, record.outcome, strict=True)
            if each == name
        ]


def decisions(outputs: list[Output]) -> list[Decision]:
    return of(outputs, "decisions", "slo_guard")
