"""The planted incident: the bundle is what its command makes, and in it happens what it says."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from schemas import codec
from schemas.records import Ack, PolicyRecord, Sli
from streams.recording import Recording, open_recording
from tests.sim.broker import START_MS
from tests.sim.incident import BAD_S, GOOD_S, PARTITIONS, VERSIONS, Scene

BUNDLE = Path(__file__).parents[1] / "fixtures" / "recordings" / "incident.slack"
AGAIN_S = 15
P99_US = 48_000


@pytest.fixture(scope="module")
def recording() -> Iterator[Recording]:
    with open_recording(BUNDLE) as opened:
        assert opened.verify(), opened.problems
        yield opened


def records(recording: Recording, topic: str) -> list[tuple[int, object]]:
    return [
        (
            (one.timestamp - START_MS) // 1000,
            codec.read(topic, one.key, one.value or b"", one.headers),
        )
        for number in recording.partitions(topic)
        for one in recording.records(topic, number)
    ]


def test_the_bundle_is_what_its_command_makes(recording: Recording) -> None:
    broker = Scene().play(AGAIN_S)
    for number in range(PARTITIONS):
        made = broker.whole("samples", number)
        kept = list(recording.records("samples", number))[: len(made)]
        assert len(made) > AGAIN_S
        assert [(r.timestamp, r.key, r.value) for r in kept] == [
            (r.timestamp, r.key, r.value) for r in made
        ], "make it anew: python -m tests.sim.incident tests/fixtures/recordings/incident.slack"


def test_three_policies_and_who_published_them(recording: Recording) -> None:
    said = [one for _, one in records(recording, "policies")]
    assert [(one.version, one.author) for one in said if isinstance(one, PolicyRecord)] == [
        (version, author) for _, version, _, _, author, _ in VERSIONS
    ]


def test_services_leave_their_objective_under_the_bad_policy_only(recording: Recording) -> None:
    beyond: dict[str, int] = defaultdict(int)
    for second, one in records(recording, "slis"):
        assert isinstance(one, Sli)
        if one.p99_us > P99_US:
            assert BAD_S <= second <= GOOD_S + 10, one
            beyond[one.node] += 1
    assert sum(beyond.values()) > 50


def test_batch_pods_are_evicted_under_the_bad_policy_only(recording: Recording) -> None:
    evicted = [
        second
        for second, one in records(recording, "acks")
        if isinstance(one, Ack) and one.decider == "evict_memory" and one.pods
    ]
    assert evicted
    assert min(evicted) > BAD_S
    assert max(evicted) < GOOD_S + 10
