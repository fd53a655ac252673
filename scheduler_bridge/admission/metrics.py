"""The rows of admission's metrics. Read by `service`; the HTTP server shows them."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

from scheduler_bridge.metrics import HTTP_TABLE, Row

ADMISSION_TABLE: tuple[Row, ...] = (
    *HTTP_TABLE,
    (
        "slackwater_bridge_admission_reviews",
        Counter,
        "pods judged, by webhook and verdict",
        ("webhook", "verdict"),
    ),
    ("slackwater_bridge_admission_refusals", Counter, "broken rules of pods refused", ("rule",)),
    ("slackwater_bridge_admission_unseen", Counter, "let in, but never created", ()),
    ("slackwater_bridge_admission_rules_reads", Counter, "changed rules, by fate", ("fate",)),
    ("slackwater_bridge_admission_gangs", Counter, "gangs let go or rejected", ("act",)),
    ("slackwater_bridge_admission_gangs_waiting", Gauge, "gangs that wait", ()),
    ("slackwater_bridge_admission_recalls", Counter, "pods called back, by outcome", ("outcome",)),
    ("slackwater_bridge_admission_recalls_due", Gauge, "pods to be called back", ()),
    ("slackwater_bridge_admission_leads", Gauge, "1: lets gangs go and calls back", ()),
    ("slackwater_bridge_admission_mirror_age_seconds", Gauge, "since the cluster was heard", ()),
    ("slackwater_bridge_admission_keeper_errors", Counter, "calls of keepers that failed", ()),
)
