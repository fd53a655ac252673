"""Every metric of the streams shell, in one place: name, type, help, labels.

`Metrics` makes them in a registry of its own; `streams.health` serves that registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest


@dataclass(frozen=True, slots=True)
class Metric:
    """One row. Names carry units; label values are bounded (partition, topic, reason)."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


METRICS: tuple[Metric, ...] = (
    Metric("slackwater_folded_total", "counter", "Records of samples folded", ("partition",)),
    Metric("slackwater_law_noted_total", "counter", "Noted by the law", ("partition", "what")),
    Metric("slackwater_skipped_total", "counter", "Records at or below `at`", ("partition",)),
    Metric("slackwater_ignored_total", "counter", "Records while a gate was shut", ("partition",)),
    Metric("slackwater_seeks_total", "counter", "Seeks to at+1", ("partition", "why")),
    Metric("slackwater_lost_total", "counter", "Records that retention removed", ("partition",)),
    Metric("slackwater_dead_letters_total", "counter", "Unusable records", ("topic", "reason")),
    Metric("slackwater_outputs_total", "counter", "Outputs acknowledged by Kafka", ("topic",)),
    Metric("slackwater_outputs_failed_total", "counter", "Outputs Kafka did not take", ("topic",)),
    Metric("slackwater_outputs_muted_total", "counter", "Outputs of a cold refold", ("partition",)),
    Metric("slackwater_commands_expired_total", "counter", "Commands withheld as expired"),
    Metric("slackwater_outputs_inflight", "gauge", "Outputs not yet acknowledged"),
    Metric("slackwater_bugs_total", "counter", "Exceptions of our own code", ("partition",)),
    Metric("slackwater_gate_open", "gauge", "1 while the partition's gate is open", ("partition",)),
    Metric("slackwater_at_offset", "gauge", "Last offset folded", ("partition",)),
    Metric("slackwater_lag_records", "gauge", "End offset - next offset", ("partition",)),
    Metric("slackwater_images_total", "counter", "Images acknowledged", ("partition",)),
    Metric("slackwater_image_at_offset", "gauge", "`at` of the newest image", ("partition",)),
    Metric("slackwater_image_bytes", "gauge", "Size of the newest image", ("partition",)),
    Metric("slackwater_image_cut_seconds", "histogram", "Time a cut holds the loop"),
    Metric("slackwater_images_refused_total", "counter", "Images passed over", ("reason",)),
    Metric("slackwater_cold_starts_total", "counter", "Partitions begun without image"),
    Metric("slackwater_recovery_seconds", "histogram", "Assignment to known state"),
    Metric("slackwater_side_waits_total", "counter", "Ticks awaiting side input", ("partition",)),
    Metric("slackwater_side_read_total", "counter", "Side records read", ("topic",)),
    Metric("slackwater_side_lost_total", "counter", "Side records gone before reading", ("topic",)),
    Metric("slackwater_ticks_total", "counter", "Ticks acknowledged", ("partition",)),
    Metric("slackwater_ticks_missed_total", "counter", "Ticks not written in time", ("partition",)),
    Metric("slackwater_step_seconds", "histogram", "One call of step"),
    Metric("slackwater_fold_delay_seconds", "histogram", "Append time to folded, newest record"),
    Metric("slackwater_loop_lag_seconds", "gauge", "How late the event loop wakes"),
    Metric("slackwater_live", "gauge", "0 when the liveness probe fails"),
)

FLEET_METRICS: tuple[Metric, ...] = (
    Metric("slackwater_fleet_records_total", "counter", "Records read", ("topic", "outcome")),
    Metric("slackwater_fleet_facts_total", "counter", "Fleet facts published"),
    Metric("slackwater_fleet_revision", "gauge", "Offset of the newest record counted"),
    Metric("slackwater_fleet_nodes", "gauge", "Nodes of fresh partitions"),
    Metric("slackwater_fleet_silent_nodes", "gauge", "Silent nodes"),
    Metric("slackwater_fleet_ill_permille", "gauge", "Ill nodes of all, in permille"),
    Metric("slackwater_fleet_partitions_missing", "gauge", "Partitions not heard, or stale"),
    Metric("slackwater_fleet_eviction_budget", "gauge", "Evictions of this cool-down, fleet-wide"),
    Metric("slackwater_fleet_minutes_rows", "gauge", "Rows of the windowed table in memory"),
    Metric("slackwater_fleet_pruned_total", "counter", "Rows dropped as old"),
    Metric("slackwater_dead_letters_total", "counter", "Unusable records", ("topic", "reason")),
    Metric("slackwater_bugs_total", "counter", "Exceptions of our own code", ("topic",)),
)
"""Those of `slackwater fleet`."""

RECORD_METRICS: tuple[Metric, ...] = (
    Metric("slackwater_record_records_total", "counter", "Records read", ("topic",)),
    Metric("slackwater_record_bytes_total", "counter", "Bytes of values read", ("topic",)),
    Metric("slackwater_record_lag_records", "gauge", "Records not yet read", ("topic",)),
    Metric("slackwater_record_gaps_total", "counter", "Spans of offsets that were not had"),
    Metric("slackwater_record_removed_segments_total", "counter", "Segments gone for the bound"),
    Metric("slackwater_record_disk_full_total", "counter", "Writes for which there was no room"),
    Metric("slackwater_record_segments", "gauge", "Finished segments in the folder"),
    Metric("slackwater_record_disk_bytes", "gauge", "Size of the recording"),
    Metric("slackwater_record_disk_bound_bytes", "gauge", "What it may grow to"),
)
"""Those of `slackwater record`."""

_MAKERS = {"counter": Counter, "gauge": Gauge, "histogram": Histogram}
_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one process; short names leave out the prefix ``slackwater_``."""

    def __init__(self, rows: tuple[Metric, ...] = METRICS) -> None:
        self.registry = CollectorRegistry()
        self._made: dict[str, Counter | Gauge | Histogram] = {}
        for row in rows:
            extra = {"buckets": _BUCKETS} if row.kind == "histogram" else {}
            self._made[row.name.removeprefix("slackwater_")] = _MAKERS[row.kind](
                row.name, row.help, row.labels, registry=self.registry, **extra
            )

    def add(self, name: str, *labels: object, by: float = 1) -> None:
        """Raise a counter."""
        made = self._at(name, labels)
        assert isinstance(made, Counter)
        made.inc(by)

    def put(self, name: str, *labels: object, value: float) -> None:
        """Set a gauge."""
        made = self._at(name, labels)
        assert isinstance(made, Gauge)
        made.set(value)

    def time(self, name: str, seconds: float) -> None:
        """Note a duration in a histogram."""
        made = self._made[name]
        assert isinstance(made, Histogram)
        made.observe(seconds)

    def value(self, name: str, **labels: str) -> float:
        """The value now, summed over the series with these labels; for tests and figures.

        Of a histogram, `name` ends in ``_sum`` or ``_count``.
        """
        full = f"slackwater_{name}"
        made = self._made.get(name) or self._made[name.removesuffix("_sum").removesuffix("_count")]
        return sum(
            sample.value
            for family in made.collect()
            for sample in family.samples
            if sample.name == full and labels.items() <= sample.labels.items()
        )

    def text(self) -> bytes:
        """The exposition."""
        return generate_latest(self.registry)

    def _at(self, name: str, labels: tuple[object, ...]) -> Counter | Gauge | Histogram:
        made = self._made[name]
        return made.labels(*map(str, labels)) if labels else made
