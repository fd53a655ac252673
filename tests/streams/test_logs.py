"""A library that repeats itself is heard once in a while; our own lines always."""

from __future__ import annotations

import logging

from streams.logs import SAY_AGAIN_S, Sparing


def test_a_library_says_a_thing_once_in_a_while() -> None:
    now = [100.0]
    sparing = Sparing(lambda: now[0])

    def heard(name: str, message: str, *args: object) -> bool:
        return sparing.filter(logging.LogRecord(name, logging.ERROR, "", 0, message, args, None))

    template = "Failed fetch messages from %s"
    assert heard("aiokafka.consumer.fetcher", template, 1)
    assert not heard("aiokafka.consumer.fetcher", template, 2)
    assert heard("aiokafka.consumer.fetcher", "another %s", 2)
    assert heard("streams.worker", template, 1)
    assert heard("streams.worker", template, 1)
    now[0] += SAY_AGAIN_S
    assert heard("aiokafka.consumer.fetcher", template, 3)
