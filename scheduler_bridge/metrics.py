"""The bridge's metrics, from one table, and the small server that shows them with its health.

The loop counts; `serve` answers /metrics, /healthz (the loop turns) and /readyz (caught up).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

Row = tuple[str, Callable[..., Counter | Gauge | Histogram], str, tuple[str, ...]]
ANSWERS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
latency = partial(Histogram, buckets=ANSWERS_S)
"""A histogram of seconds, fine where answers to a scheduler should lie."""

TABLE: tuple[Row, ...] = (
    ("slackwater_bridge_records", Counter, "records read, by topic and fate", ("topic", "fate")),
    ("slackwater_bridge_dead_letters", Counter, "records that could not be used", ("reason",)),
    ("slackwater_bridge_patches", Counter, "patches told to the sink", ("why",)),
    ("slackwater_bridge_sink_errors", Counter, "patches that a sink failed to apply", ()),
    ("slackwater_bridge_sink_events", Counter, "what a sink met on the way", ("event",)),
    ("slackwater_bridge_patches_waiting", Gauge, "patches due and not yet told", ()),
    ("slackwater_bridge_nodes", Gauge, "nodes with a desired capacity", ()),
    ("slackwater_bridge_nodes_unknown", Gauge, "of them, nodes that the sink does not know", ()),
    ("slackwater_bridge_leads", Gauge, "1: this bridge tells; 0: it stands by", ()),
    ("slackwater_bridge_cpu_milli", Gauge, "batch CPU published, all nodes", ()),
    ("slackwater_bridge_lent_cpu_milli", Gauge, "batch CPU lent, all nodes", ()),
    ("slackwater_bridge_lag_records", Gauge, "records between the log's end and what is read", ()),
    ("slackwater_bridge_ready", Gauge, "1: caught up with the log", ()),
)
HTTP_TABLE: tuple[Row, ...] = (
    (
        "slackwater_bridge_http_answers",
        Counter,
        "answers, by path and outcome",
        ("path", "outcome"),
    ),
    ("slackwater_bridge_http_seconds", latency, "from request to answer", ("path",)),
    ("slackwater_bridge_tls_reads", Counter, "changed TLS files, by whether used", ("fate",)),
)
"""Rows of `scheduler_bridge.http`, which answers the extender's and the webhook's questions."""
EXTENDER_TABLE: tuple[Row, ...] = (
    ("slackwater_bridge_extender_verdicts", Counter, "candidates judged, by reason", ("reason",)),
    ("slackwater_bridge_extender_bindings", Counter, "bindings asked for, by fate", ("fate",)),
    ("slackwater_bridge_extender_records", Counter, "records by topic and fate", ("topic", "fate")),
    ("slackwater_bridge_extender_annotations", Counter, "scores written on nodes", ()),
    ("slackwater_bridge_extender_data_age_seconds", Gauge, "age of the newest report", ()),
    ("slackwater_bridge_extender_stale_nodes", Gauge, "nodes whose report is too old", ()),
    ("slackwater_bridge_extender_nodes", Gauge, "nodes mirrored", ()),
    ("slackwater_bridge_extender_pods", Gauge, "pods mirrored", ()),
    ("slackwater_bridge_extender_unsure_bindings", Gauge, "slices taken and not seen bound", ()),
    ("slackwater_bridge_extender_lag_records", Gauge, "records not yet read", ()),
    ("slackwater_bridge_extender_ready", Gauge, "1: answers are given", ()),
)
"""Rows of `scheduler_bridge.extender.service`."""


class Metrics:
    """A table as counters, gauges and histograms by short name, in a registry of their own."""

    def __init__(self, table: tuple[Row, ...] = TABLE) -> None:
        self.registry = CollectorRegistry()
        self._rows: dict[str, Any] = {
            name.removeprefix("slackwater_bridge_"): kind(
                name, text, labels, registry=self.registry
            )
            for name, kind, text, labels in table
        }

    def count(self, name: str, *labels: str) -> None:
        """Add one to a counter of the table."""
        self.add(name, 1, *labels)

    def add(self, name: str, number: int, *labels: str) -> None:
        """Add ``number`` to a counter of the table."""
        row = self._rows[name]
        (row.labels(*labels) if labels else row).inc(number)

    def observe(self, name: str, value: float, *labels: str) -> None:
        """Add a value to a histogram of the table."""
        row = self._rows[name]
        (row.labels(*labels) if labels else row).observe(value)

    def set(self, name: str, value: float) -> None:
        """Set a gauge of the table."""
        self._rows[name].set(value)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Scrapes are not worth a line each."""


def serve(
    metrics: Metrics, host: str, port: int, alive: Callable[[], bool], ready: Callable[[], bool]
) -> tuple[WSGIServer, int]:
    """Answer on a thread until `shutdown`; ``port`` 0 takes a free one. Returns server and port."""

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path == "/metrics":
            start("200 OK", [("Content-Type", "text/plain; version=0.0.4; charset=utf-8")])
            return [generate_latest(metrics.registry)]
        checks = {"/healthz": alive, "/readyz": ready}
        if path not in checks:
            start("404 Not Found", [("Content-Type", "text/plain")])
            return [b"try /metrics, /healthz or /readyz\n"]
        good = checks[path]()
        status = "200 OK" if good else "503 Service Unavailable"
        start(status, [("Content-Type", "text/plain")])
        return [b"ok\n" if good else b"not yet\n"]

    server = make_server(host, port, answer, handler_class=_Quiet)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server, server.server_port
