"""`slackwater record status` and `verify`: what is there, and whether it is sound."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from streams.recording.cli import app
from streams.recording.manifest import Manifest
from streams.recording.pack import Place, pack
from streams.recording.segment import Consumed, Record

PLACES = (("samples", 0), ("samples", 1), ("commands", 1), ("policies", 0))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "incident.slack"
    manifest = Manifest("bundle", "slackwater.", 7, 2, "test", 1, 0)
    records: dict[Place, list[Consumed]] = {
        (topic, partition): [
            Record(topic, partition, i, 1_000 * i, b"key", b"value" * i, (("enc", b"json"),))
            for i in range(30)
        ]
        for topic, partition in PLACES
    }
    pack(path, manifest, records)
    return path


def test_status_counts_what_is_there(path: Path) -> None:
    said = orjson.loads(CliRunner().invoke(app, ["status", str(path), "--json"]).stdout)
    topics = {line["topic"]: line for line in said["topics"]}
    assert topics.keys() == {topic for topic, _ in PLACES}
    samples = topics["samples"]
    assert (samples["partitions"], samples["records"], samples["segments"]) == (2, 60, 2)
    assert (samples["first_ms"], samples["last_ms"]) == (0, 29_000)
    assert (said["gaps"], said["problems"]) == ([], [])
    told = CliRunner().invoke(app, ["status", str(path)]).stdout
    assert all(name in told for name in topics)


def test_verify_names_what_is_damaged(path: Path, tmp_path: Path) -> None:
    good = CliRunner().invoke(app, ["verify", str(path)])
    assert (good.exit_code, good.stdout.endswith("0 problems\n")) == (0, True)
    raw = bytearray(path.read_bytes())
    raw[raw.index(b"PAR1") + 60] ^= 1
    damaged = tmp_path / "damaged.slack"
    damaged.write_bytes(raw)
    bad = CliRunner().invoke(app, ["verify", str(damaged), "--json"])
    assert bad.exit_code == 1
    (problem,) = orjson.loads(bad.stdout)["problems"]
    assert "checksum" in problem["why"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--max-bytes", "5MB"], "at least 10 MB"),
        (["--max-bytes", "many"], "a size such as 50GB"),
        (["--topics", "samples,dreams"], "no topic 'dreams'"),
        (["--from", "yesterday"], "--from 'yesterday'"),
        (["--brokers", "kafka"], "want host:port"),
        ([], "--folder"),
    ],
)
def test_bad_settings_are_refused_before_anything_starts(
    tmp_path: Path, options: list[str], says: str
) -> None:
    folder = tmp_path / "recording"
    given = ["--folder", str(folder), *options] if options else []
    done = CliRunner(env={"SLACKWATER_RECORDING": ""}).invoke(app, given)
    assert done.exit_code != 0
    assert says in " ".join(f"{done.output}{done.exception}".replace("│", " ").split())
    assert not folder.exists()
