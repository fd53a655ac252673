"""The evictor's metrics, for `scheduler_bridge.metrics.Metrics`."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from scheduler_bridge.metrics import Row

TABLE: tuple[Row, ...] = (
    (
        "slackwater_bridge_evictor_records",
        Counter,
        "records read, by topic and fate",
        ("topic", "fate"),
    ),
    (
        "slackwater_bridge_evictor_dead_letters",
        Counter,
        "records that could not be used",
        ("reason",),
    ),
    (
        "slackwater_bridge_evictor_outcomes",
        Counter,
        "what became of pods, and what they wait for",
        ("source", "outcome", "reason", "dry_run"),
    ),
    ("slackwater_bridge_evictor_calls", Counter, "calls of the Eviction API", ()),
    ("slackwater_bridge_evictor_pending", Gauge, "pods that are to go and have not gone", ()),
    ("slackwater_bridge_evictor_reports_waiting", Gauge, "reports the broker has not taken", ()),
    ("slackwater_bridge_evictor_leads", Gauge, "1: this instance evicts", ()),
    ("slackwater_bridge_evictor_ready", Gauge, "1: caught up with log and API server", ()),
    ("slackwater_bridge_evictor_rounds", Counter, "rounds over hot nodes, by result", ("result",)),
    ("slackwater_bridge_evictor_hot_nodes", Gauge, "nodes above their limits for long enough", ()),
    ("slackwater_bridge_evictor_migrating", Gauge, "pods on their way to another node", ()),
)
