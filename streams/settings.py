"""Where a worker finds its broker and how it paces itself; read from the command line and env.

Built by `streams.worker_cli` and by tests. What the law decides (thresholds, periods) is policy,
never a setting.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemas.topics import PREFIX, full_name

CHUNK_BYTES = 880 * 1024  # an image chunk with its header stays under 900 KB


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """Settings of one worker process.

    ``cold_lookback_ms``: how much of the log is folded when no image is found.
    ``image_records``: cut an image after so many folded records, whatever the time.

    How soon a killed worker's partitions decide again: ``session_timeout_s`` until the broker drops
    it, up to ``heartbeat_s`` until the others hear of it, a second or two to rebalance and read
    images, then what was logged since the images (``image_interval_s`` and the time until then) is
    folded again, about three times as fast as it came. 6 s is the shortest session that a broker
    allows by default (group.min.session.timeout.ms); four heartbeats fit into it, and they are
    sent by a thread of their own, so a busy event loop loses none. An image interval of 10 s keeps
    the refold below 5 s and costs a worker of 2,500 nodes about 3 % of a core.
    """

    brokers: str
    prefix: str = PREFIX
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    instance: str = ""  # static membership: a stable, unique name; "": dynamic
    image_interval_s: float = 10.0
    image_records: int = 50_000
    cold_lookback_ms: int = 600_000
    held_records: int = 20_000  # of one partition, while its side inputs are awaited
    inflight_outputs: int = 10_000
    session_timeout_s: float = 6.0
    heartbeat_s: float = 1.5
    request_timeout_s: float = 30.0
    stall_after_s: float = 60.0
    stall_grace_s: float = 30.0
    ready_lag: int = 5_000  # records of one partition
    keys: Path | None = None  # None: nothing is signed, nothing is checked
    accept_unsigned: bool = False  # while a fleet gets its keys

    @property
    def group(self) -> str:
        """Faust's app id, which is the consumer group."""
        return f"{self.prefix}worker"

    def topic(self, name: str) -> str:
        """The broker's name of a topic of the table."""
        return full_name(self.prefix, name)
