"""Does a broker answer? Used by `DevBroker` to know when it is ready."""

from __future__ import annotations

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor

from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError

CONNECT_TIMEOUT_S = 1.0
REQUEST_TIMEOUT_MS = 5_000


def accepts(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


def answers(bootstrap: str) -> bool:
    """Whether the broker there answers an API request and says that it is its own controller.

    Runs in a thread with a loop of its own, so that it may be called from inside another loop.
    """
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(_answers(bootstrap))).result()


async def _answers(bootstrap: str) -> bool:
    client = AIOKafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=REQUEST_TIMEOUT_MS)
    try:
        await client.start()
        cluster = await client.describe_cluster()
    except KafkaError:
        return False
    finally:
        await client.close()
    return bool(cluster["brokers"]) and cluster["controller_id"] >= 0
