"""What a run did, counted while it runs: progress lines, metrics and the summary read it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

GAUGES: dict[str, str] = {
    "nodes": "nodes simulated",
    "offered_milli": "batch CPU that nodes offer",
    "offered_mid_milli": "mid CPU that nodes offer; the simulated scheduler has no mid work",
    "lent_milli": "batch CPU lent by the simulated scheduler",
    "allow_milli": "CPU that best-effort work may use, nodes with a limit",
    "batch_milli": "CPU that best-effort work uses",
    "online_milli": "CPU that online pods use",
    "jobs_running": "jobs on nodes",
}
COUNTERS: dict[str, str] = {
    "samples": "samples made",
    "samples_dropped": "samples given up before they were sent",
    "jobs_done": "jobs that ended",
    "evictions": "batch pods evicted",
    "retries": "jobs queued again after an eviction",
    "batch_core_s": "CPU time delivered to batch work",
    "commands": "commands and leases that reached a node",
    "beats_late": "periods that came late",
    "law_failures": "times the local law failed",
}


@dataclass(slots=True)
class Summary:
    """Totals are since the start; ``*_milli`` are of the last period, all nodes."""

    nodes: int
    pods: int
    seed: int
    trace: str
    seconds: float = 0.0
    samples: int = 0
    samples_dropped: int = 0
    sample_bytes: int = 0
    samples_per_s: float = 0.0
    cores: float = 0.0  # CPU of this process itself
    jobs_done: int = 0
    jobs_running: int = 0
    evictions: int = 0
    retries: int = 0
    batch_core_s: float = 0.0
    online_milli: int = 0
    batch_milli: int = 0
    allow_milli: int = 0
    offered_milli: int = 0
    offered_mid_milli: int = 0
    lent_milli: int = 0
    lent_peak_milli: int = 0
    commands: int = 0
    beats_late: int = 0
    law_failures: int = 0
    acks: dict[str, int] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return asdict(self)

    def line(self) -> str:
        """One line of progress."""
        return (
            f"{self.seconds:.0f} s: {self.samples} samples "
            f"({self.samples_per_s:.0f} a second, {self.samples_dropped} dropped), "
            f"offered {self.offered_milli / 1000:.1f} cores (mid "
            f"{self.offered_mid_milli / 1000:.1f}), lent {self.lent_milli / 1000:.1f}, "
            f"batch uses {self.batch_milli / 1000:.1f}, online {self.online_milli / 1000:.1f}; "
            f"jobs {self.jobs_running} running, {self.jobs_done} done, "
            f"{self.evictions} evicted; {self.commands} commands"
        )


class Exported(Collector):
    """The summary as Prometheus metrics."""

    def __init__(self, summary: Summary) -> None:
        self._summary = summary

    def collect(self) -> list[GaugeMetricFamily | CounterMetricFamily]:
        """Read at each scrape."""
        prefix = "slackwater_simulate_"
        found: list[GaugeMetricFamily | CounterMetricFamily] = [
            GaugeMetricFamily(prefix + name, text, value=getattr(self._summary, name))
            for name, text in GAUGES.items()
        ]
        found += [
            CounterMetricFamily(prefix + name, text, value=getattr(self._summary, name))
            for name, text in COUNTERS.items()
        ]
        return found


def serve(summary: Summary, host: str, port: int) -> int:
    """Answer /metrics on a thread until the process ends; ``port`` 0 is a free one. The port."""
    registry = CollectorRegistry()
    registry.register(Exported(summary))
    server, _ = start_http_server(port, addr=host, registry=registry)
    return int(server.server_port)
