"""What each answer of the API server means, and who may order at all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from lightkube import ApiError
from lightkube.models.meta_v1 import Status, StatusCause, StatusDetails
from typer.testing import CliRunner

from scheduler_bridge.cli import app
from scheduler_bridge.evictions import inputs
from scheduler_bridge.evictions.api import answer_to
from scheduler_bridge.evictions.budget import Budget, Limits
from scheduler_bridge.evictions.flights import Flights
from scheduler_bridge.evictions.queue import Queue
from scheduler_bridge.evictions.settings import EvictorSettings
from scheduler_bridge.keyring import Keyring
from scheduler_bridge.kube.errors import KubeError, KubeUnreachable, translated
from schemas import codec, keys
from schemas.errors import BadRecord
from schemas.keys import WORKER_PUB, BadKeys
from schemas.signing import WorkerSigner
from tests.scheduler_bridge.evictions.said import ack, command
from tests.schemas.keyhouse import house


def refused(
    code: int, message: str = "", cause: str = "", name: str | None = None, after_s: int = 0
) -> KubeError:
    """The error of a Status, as the client makes it."""
    causes = [StatusCause(reason=cause)] if cause else None
    details = StatusDetails(causes=causes, name=name, retryAfterSeconds=after_s)
    status = Status(code=code, message=message, details=details)
    with pytest.raises(KubeError) as error, translated("evict"):
        raise ApiError(status=status)
    return error.value


@pytest.mark.parametrize(
    ("error", "kind", "reason", "wait_ms"),
    [
        (refused(429, cause="DisruptionBudget", after_s=10), "wait", "disruption_budget", 10_000),
        (refused(429, cause="DisruptionBudget"), "wait", "disruption_budget", 2_000),
        (refused(500, "more than one PodDisruptionBudget, which"), "wait", "disruption_budget",
         2_000),
        (refused(429, after_s=3), "wait", "api_busy", 3_000),
        (refused(429, after_s=900), "wait", "api_busy", 30_000),
        (refused(503), "wait", "api_busy", 1_000),
        (refused(409), "wait", "conflict", 1_000),
        (refused(403), "wait", "api_refuses", 10_000),
        (refused(404, name="one"), "gone", "no_such_pod", 0),
        (refused(404), "unserved", "", 0),
        (refused(405), "unserved", "", 0),
        (KubeUnreachable("no answer"), "wait", "api_away", 1_000),
    ],
)  # fmt: skip
def test_what_an_answer_means(error: KubeError, kind: str, reason: str, wait_ms: int) -> None:
    answer = answer_to(error, "one")
    assert (answer.kind, answer.reason, answer.wait_ms) == (kind, reason, wait_ms)


class Said:
    """A record as the source hands it over."""

    timestamp = 5

    def __init__(self, key: bytes, value: bytes | None, headers: codec.Headers) -> None:
        self.key, self.value, self.headers = key, value, headers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "keys"
    path.mkdir()
    lines = [keys.line(WORKER_PUB, key) for key in HELD.of(WORKER_PUB)]
    (path / WORKER_PUB).write_text("".join(lines))
    (path / WORKER_PUB).chmod(0o644)
    return path


HELD = house("one")


def test_s1_only_what_a_worker_signed_moves_anybody(folder: Path) -> None:
    ring = Keyring(folder, "t.")
    queue, budget, flights = Queue(), Budget(Limits()), Flights()
    value = codec.encode(command(1, "a"))
    good = WorkerSigner(HELD).sign("t.commands", b"n1", codec.JSON_HEADERS, value)
    forged = WorkerSigner(house("two")).sign("t.commands", b"n1", codec.JSON_HEADERS, value)

    def fold(topic: str, value: bytes, headers: codec.Headers) -> str:
        return inputs.fold(topic, Said(b"n1", value, headers), queue, budget, flights, ring.check)

    assert fold("acks", codec.encode(ack(1, "a")), codec.JSON_HEADERS) == "read"
    for headers, reason in ((codec.JSON_HEADERS, "unsigned"), (forged, "unknown_key")):
        with pytest.raises(BadRecord) as error:
            fold("commands", value, headers)
        assert error.value.reason == reason
        assert not queue.pending
    with pytest.raises(BadRecord) as error:
        fold("commands", codec.encode(command(1, "a", "b")), good)
    assert error.value.reason == "bad_signature"
    assert fold("commands", value, good) == "read"
    assert list(queue.pending) == ["a"]


def test_a_folder_without_the_workers_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadKeys, match=WORKER_PUB):
        Keyring(tmp_path, "t.")


def test_records_that_concern_nobody_are_not_even_decoded() -> None:
    queue, budget, flights = Queue(), Budget(Limits()), Flights()
    for topic, key, value in (
        ("commands", b"n1", b'{"decider": "suppress", broken'),
        ("commands", b"~lease", b'"evict_cpu" broken'),
        ("commands", b"n1", None),
        ("acks", b"n1", b'{"decider": "isolate", broken'),
        ("acks", b"n1", None),
    ):
        said = Said(key, value, codec.JSON_HEADERS)
        assert inputs.fold(topic, said, queue, budget, flights, inputs.unchecked) == "other"
    other = Said(b"n2", codec.encode(ack(1, "a")), codec.JSON_HEADERS)
    with pytest.raises(BadRecord) as error:
        inputs.fold("acks", other, queue, budget, flights, inputs.unchecked)
    assert error.value.reason == "key_mismatch"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"brokers": ""}, "set --brokers"),
        ({"per_s": 0}, r"evictions a second: 0; allowed: 1 to 1000"),
        ({"expire_ms": 4_999}, r"expire_ms is 4999; allowed: 5000 to 3600000"),
        ({"grace_s": 0}, r"grace_s is 0; allowed: 1 to 3600"),
    ],
)
def test_bad_settings_are_refused_by_name(changes: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        EvictorSettings(**{"brokers": "b:1", **changes})


def test_the_command_refuses_what_cannot_be_before_anything_starts(tmp_path: Path) -> None:
    for options, text in (
        (("--window-s", "1", "--node-rest-s", "9"), "node_rest_ms is 9000; allowed: 0 to the"),
        (("--kubeconfig", str(tmp_path / "none")), "give a valid --kubeconfig"),
        (("--rate", "0"), "--rate"),
    ):
        found = CliRunner().invoke(app, ["evict", *options])
        assert found.exit_code == 2
        assert text in found.output
