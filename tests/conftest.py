"""Fixtures for all tests: one real broker a session, and a topic prefix of one's own a test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from streams.dev_broker import BrokerError, DevBroker
from streams.dev_broker.jars import cache_folder, find_java
from tests.support import BROKER_VARIABLE, unavailable


@pytest.fixture(scope="session")
def broker() -> Iterator[DevBroker]:
    """A real Kafka for the whole session; keep to topics under `prefix`, never stop or pause it.

    A test that must harm a broker starts a `DevBroker` of its own.
    """
    standing = os.environ.get(BROKER_VARIABLE)
    if standing:
        host, _, port = standing.rpartition(":")
        yield DevBroker(listen=host, port=int(port))
        return
    try:
        find_java()
    except BrokerError as error:
        unavailable(str(error))
    own = DevBroker()
    try:
        own.start()
    except BrokerError as error:
        own.close()
        if not cache_folder().is_dir():  # the jars could not be had
            unavailable(str(error))
        raise
    try:
        yield own
    finally:
        own.close()


@pytest.fixture
def prefix() -> str:
    """A topic prefix that no other test uses."""
    return f"t{uuid.uuid4().hex[:8]}."
