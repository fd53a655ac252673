"""The node agent's metrics: one table of names, filled when somebody asks.

`node_agent.loop` starts the exporter when a port was given. Nothing is counted twice: each row
reads the object that counts. The table is also the documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal
from wsgiref.simple_server import WSGIRequestHandler, make_server

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from node_agent.health import Health

if TYPE_CHECKING:
    from node_agent.loop import NodeAgent
    from node_agent.signals.meter import SignalStats

Kind = Literal["counter", "gauge"]
PATIENCE_S = 2.0
PLAIN = ("Content-Type", "text/plain")
Samples = list[tuple[tuple[str, ...], float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One metric: ``read`` gives (label values, value) pairs."""

    name: str
    kind: Kind
    doc: str
    labels: tuple[str, ...]
    read: Callable[[NodeAgent], Samples]


def _one(value: float) -> Samples:
    return [((), float(value))]


def _of_signals(read: Callable[[SignalStats], float], agent: NodeAgent) -> Samples:
    return [((name,), float(read(s))) for name, s in agent.sampler.stats.signals.items()]


_SIGNAL_FIGURES: tuple[tuple[str, Kind, str, Callable[[SignalStats], float]], ...] = (
    ("seconds", "counter", "Time that reading a signal took.", lambda s: s.cost_us_total / 1e6),
    ("last_seconds", "gauge", "The same, in the last sweep with it.", lambda s: s.cost_us / 1e6),
    ("sweeps", "counter", "Sweeps that asked a signal.", lambda s: s.sweeps),
    ("ok", "gauge", "1 while the last sweep that asked a signal met no error.", lambda s: s.ok),
    ("reads", "counter", "Values asked for.", lambda s: s.reads),
    ("absent", "counter", "Of these: not there on this machine.", lambda s: s.absent),
    ("errors", "counter", "Reads of a signal that failed.", lambda s: s.errors),
    ("rests", "counter", "Times a signal was too slow and was left alone.", lambda s: s.rests),
)

TABLE: tuple[Row, ...] = (
    Row("samples", "counter", "Sweeps taken.", (), lambda a: _one(a.sampler.stats.sweeps)),
    Row(
        "groups_vanished",
        "counter",
        "Pods whose group went while it was read.",
        (),
        lambda a: _one(a.sampler.stats.vanished),
    ),
    Row(
        "nri_connected",
        "gauge",
        "1 while the container runtime asks this agent before it makes a container.",
        (),
        lambda a: [] if a.nri is None else _one(a.nri.connected),
    ),
    Row(
        "nri_adjusted",
        "counter",
        "Containers that were given what they asked for at their birth.",
        (),
        lambda a: [] if a.nri is None else _one(a.nri.adjusted),
    ),
    Row(
        "descriptors_kept",
        "gauge",
        "Kernel files held open.",
        (),
        lambda a: _one(a.sampler.stats.descriptors_kept),
    ),
    Row(
        "samples_dropped",
        "counter",
        "Samples the outbox gave up.",
        (),
        lambda a: _one(a.outbox.spool.samples_dropped),
    ),
    Row(
        "sweep_seconds",
        "gauge",
        "Cost of the last sweep.",
        (),
        lambda a: _one(a.sampler.stats.sweep_cost_us / 1e6),
    ),
    *(
        Row(f"signal_{name}", kind, doc, ("signal",), partial(_of_signals, read))
        for name, kind, doc, read in _SIGNAL_FIGURES
    ),
    Row("beats_late", "counter", "Periods that began late.", (), lambda a: _one(a.beats_late)),
    Row("law_failures", "counter", "Local folds that failed.", (), lambda a: _one(a.law_failures)),
    Row(
        "outbox_parcels",
        "gauge",
        "Records waiting to be sent.",
        (),
        lambda a: _one(len(a.outbox.spool)),
    ),
    Row(
        "records_too_large",
        "counter",
        "Records that no broker would take.",
        (),
        lambda a: _one(a.outbox.too_large),
    ),
    Row("outbox_bytes", "gauge", "Their size.", (), lambda a: _one(a.outbox.spool.size_bytes)),
    Row("records_sent", "counter", "Records acknowledged.", (), lambda a: _one(a.outbox.sent)),
    Row(
        "connected",
        "gauge",
        "1 while a connection to the broker works.",
        ("direction",),
        lambda a: [
            (("out",), float(a.outbox.connected)),
            *(((name,), float(reader.connected)) for name, reader in a.readers.items()),
        ],
    ),
    Row(
        "acks",
        "counter",
        "Acks by decider and outcome.",
        ("decider", "outcome"),
        lambda a: [(key, float(count)) for key, count in a.obey.answers.counts.items()],
    ),
    Row(
        "refused_records",
        "counter",
        "What the centre said and was refused: unreadable, unknown, or signed by no worker.",
        ("topic", "reason"),
        lambda a: [
            ((name, reason), float(n))
            for name, reader in a.readers.items()
            for reason, n in reader.refused.items()
        ],
    ),
    Row(
        "accepted_unsigned",
        "counter",
        "Records believed without a signature (--accept-unsigned).",
        (),
        lambda a: _one(a.authentic.accepted_unsigned),
    ),
    Row(
        "in_force_milli",
        "gauge",
        "CPU that best-effort work may use, read back; -1 for no limit.",
        (),
        lambda a: _one(-1 if a.obey.lease.in_force_milli is None else a.obey.lease.in_force_milli),
    ),
    Row(
        "command_live",
        "gauge",
        "1 while the standing command may raise.",
        (),
        lambda a: _one(a.obey.lease.is_live(a.mono_us())),
    ),
    Row(
        "drift",
        "counter",
        "Foreign writes put right.",
        (),
        lambda a: _one(a.obey.hold.drift + a.obey.isolation.keeper.drift),
    ),
    Row(
        "kernel_refusals",
        "counter",
        "Writes that the kernel refused.",
        (),
        lambda a: _one(a.obey.kernel_refusals),
    ),
    Row(
        "journal_failures",
        "counter",
        "Journal lines that could not be kept.",
        (),
        lambda a: _one(a.obey.answers.journal_failures),
    ),
    Row(
        "reflex_cuts",
        "counter",
        "Times the reflex cut best-effort work.",
        (),
        lambda a: _one(a.reflex.cuts),
    ),
    Row(
        "memory_alarms",
        "counter",
        "Samples taken at once because a memory limit was nearly reached.",
        (),
        lambda a: _one(a.reflex.alarms),
    ),
    Row("reflex_looks", "counter", "Looks at pods.", (), lambda a: _one(a.reflex.polls)),
    Row(
        "reflex_own_limits",
        "counter",
        "Pods held up by a quota of their own: nothing was cut.",
        (),
        lambda a: _one(a.reflex.own_limits),
    ),
    Row("reflex_failures", "counter", "Looks that failed.", (), lambda a: _one(a.reflex.failures)),
    Row(
        "pods_left_out",
        "gauge",
        "Groups and answers about pods that could not be taken.",
        (),
        lambda a: _one(a.source.left_out()),
    ),
    Row(
        "inventory_file_errors",
        "counter",
        "Contents of the inventory file that were refused.",
        (),
        lambda a: _one(0 if a.source.file is None else a.source.file.reload_errors),
    ),
    Row(
        "kubernetes_age_seconds",
        "gauge",
        "Age of the last good answer; -1 before the first.",
        ("source",),
        lambda a: [((watch.name,), watch.age_s()) for watch in a.source.watches],
    ),
    Row(
        "kubernetes_errors",
        "counter",
        "Questions without a good answer.",
        ("source",),
        lambda a: [((watch.name,), float(watch.errors)) for watch in a.source.watches],
    ),
    Row(
        "cpu_set_changes",
        "counter",
        "Changes of the set of online CPUs.",
        (),
        lambda a: _one(a.source.facts.changes),
    ),
    Row(
        "evicted_pods",
        "counter",
        "Pods killed here.",
        (),
        lambda a: _one(a.obey.evictions.evicted_pods),
    ),
)


class _Exporter(Collector):
    """Walks the table for every scrape."""

    def __init__(self, agent: NodeAgent) -> None:
        self._agent = agent

    def collect(self) -> Iterable[Metric]:
        """Every row with its values now."""
        for row in TABLE:
            family_of = CounterMetricFamily if row.kind == "counter" else GaugeMetricFamily
            family = family_of(f"slackwater_node_{row.name}", row.doc, labels=row.labels)
            for labels, value in row.read(self._agent):
                family.add_metric(labels, value)
            yield family


class _Handler(WSGIRequestHandler):
    """Quiet, and patient for a moment only: whoever sends nothing is let go."""

    timeout = PATIENCE_S

    def log_message(self, *_: object) -> None:
        """A scrape is no news."""


def serve(agent: NodeAgent, host: str, port: int) -> int:
    """Answer /metrics, /healthz and /readyz, one after the other, from one thread; the port.

    However many connect, the agent gets no further thread and no further memory. Raises OSError
    when the port is taken.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Exporter(agent))
    health = Health(agent)
    checks = {"/healthz": health.alive, "/readyz": health.ready}

    def answer(environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        if path in checks:
            wrong = checks[path]()
            start("503 Service Unavailable" if wrong else "200 OK", [PLAIN])
            return [f"{wrong or 'ok'}\n".encode()]
        if path != "/metrics":
            start("404 Not Found", [PLAIN])
            return [b"try /metrics, /healthz or /readyz\n"]
        start("200 OK", [("Content-Type", CONTENT_TYPE_PLAIN_0_0_4)])
        return [generate_latest(registry)]

    server = make_server(host, port, answer, handler_class=_Handler)
    Thread(target=server.serve_forever, daemon=True, name="metrics").start()
    return server.server_port
