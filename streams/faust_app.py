"""The Faust app of a worker: it delivers `samples`, in batches of one partition, to the worker.

Built by `streams.worker`. One non-isolated agent; no tables, no web, no topics of its own.
"""

from __future__ import annotations

import logging
from typing import Any, Protocol

import faust

from streams.settings import WorkerSettings
from streams.transport import BatchTransport, Desk

log = logging.getLogger(__name__)

TAKE = 64  # batches at once; one fetch brings at most one of each partition
WITHIN_S = 0.01
POLL_RECORDS = 1_000
FETCH_BYTES = 1024 * 1024


class Receiver(Desk, Protocol):
    """The worker, as its Faust app sees it."""

    async def deliver(self, partition: int, records: Any) -> None:
        """Records of one partition, in offset order; raises nothing."""

    def on_bug(self, error: BaseException) -> None:
        """An exception that should not exist."""


class DisklessApp(faust.App):
    """A Faust app that leaves no folders where it is started: its tables are in memory."""

    def _create_directories(self) -> None:
        """What Faust would make here is for RocksDB."""


class WorkerApp(DisklessApp):
    """A Faust app whose consumer asks the worker for positions."""

    receiver: Receiver
    samples: str

    def _new_transport(self) -> BatchTransport:
        transport = BatchTransport(self.conf.broker_consumer, self)
        transport.desk, transport.samples = self.receiver, self.samples
        return transport


def build(settings: WorkerSettings, receiver: Receiver) -> WorkerApp:
    """The app, ready for `start()`. Offsets are committed by `BatchConsumer`, never by acks."""
    app = WorkerApp(
        settings.group,
        broker=[f"kafka://{broker.strip()}" for broker in settings.brokers.split(",")],
        autodiscover=False,
        consumer_group_instance_id=settings.instance or None,
        consumer_auto_offset_reset="earliest",
        consumer_max_fetch_size=FETCH_BYTES,
        broker_max_poll_records=POLL_RECORDS,
        broker_commit_interval=2.0,
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.heartbeat_s,
        broker_request_timeout=max(settings.request_timeout_s, settings.session_timeout_s),
        broker_rebalance_timeout=20.0,
        broker_max_poll_interval=300.0,
        stream_buffer_maxsize=64,
        stream_wait_empty=False,
        stream_recovery_delay=0.0,
        stream_publish_on_commit=False,
        table_standby_replicas=1,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        producer_request_timeout=settings.request_timeout_s,
        loghandlers=[],
    )
    app.receiver = receiver
    app.samples = settings.topic("samples")
    topic = app.topic(
        app.samples, key_serializer="raw", value_serializer="raw", value_type=bytes, acks=False
    )

    async def samples(stream: Any) -> None:
        async for events in stream.noack_take(TAKE, within=WITHIN_S):
            for event in events:
                try:
                    await receiver.deliver(event.message.partition, event.message.value)
                except Exception as error:  # noqa: BLE001  # nothing may leave the loop body
                    receiver.on_bug(error)

    app.agent(topic, name="samples")(samples)
    return app
