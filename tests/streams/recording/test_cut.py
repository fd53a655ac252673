"""A cut holds what it needs to be replayed, and what happened in its time; and nothing half."""

from __future__ import annotations

import json
import os
import resource
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from schemas import codec
from schemas.policy import published
from schemas.records import Inventory, PolicyRecord
from streams.moments import BadMoment
from streams.recording import BadRecording, Manifest, Recording, open_recording
from streams.recording.cli import app
from streams.recording.cut import Wanted, choose, write
from streams.recording.pack import pack
from streams.recording.segment import Consumed
from streams.recording.target import BadTarget
from tests.sim.broker import START_MS, Broker
from tests.streams.recording import made
from tests.streams.recording.refold import recorded, refolded


@pytest.fixture(scope="module")
def log() -> tuple[Broker, int]:
    return made.log_of(seconds=60)


@pytest.fixture(scope="module")
def whole(log: tuple[Broker, int], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("whole") / "whole.slack"
    made.bundle_of(*log, path)
    return path


def cut(source: Recording, wanted: Wanted, path: Path) -> tuple[Manifest, list[str]]:
    chosen = choose(source, wanted)
    return write(chosen, path), chosen.notes


def times(source: Recording) -> tuple[int, int]:
    segments = [s for p in source.partitions() for s in source.segments("samples", p)]
    return min(s.first_ms for s in segments), max(s.last_ms for s in segments)


def some(source: Recording, begin: float, end: float, **what: tuple[str, ...]) -> Wanted:
    """A part of the recorded time, in shares of it."""
    first, last = times(source)
    return Wanted(
        first + int((last - first) * begin), first + int((last - first) * end),
        what.get("nodes", ()), what.get("workloads", ()),
    )  # fmt: skip


@pytest.mark.parametrize(("begin", "end"), [(0.5, 0.75), (0.0, 0.3), (0.4, 1.0)])
def test_a_cut_gives_back_every_decision(
    whole: Path, tmp_path: Path, begin: float, end: float
) -> None:
    path = tmp_path / "cut.slack"
    with open_recording(whole) as source:
        manifest, notes = cut(source, some(source, begin, end), path)
    assert not notes
    assert manifest.cut is not None
    with open_recording(path) as bundle:
        assert bundle.verify()
        starts = {start.partition: start.at for start in manifest.cut.starts}
        assert starts.keys() == set(bundle.partitions())
        outputs = 0
        for partition, at in starts.items():
            samples = list(bundle.records("samples", partition))
            assert [r.offset for r in samples] == list(range(at + 1, samples[-1].offset + 1))
            law, topics = refolded(bundle, partition), recorded(bundle, partition, at)
            upto = max(key[2] for key in topics)
            assert {k: v for k, v in law.items() if k[2] <= upto} == topics
            outputs += len(topics)
        assert outputs > 50
        if begin:
            assert all(at >= 0 for at in starts.values()), "it begins at an image"


def test_what_stood_before_the_start_goes_along(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.slack"
    with open_recording(whole) as source:
        cut(source, some(source, 0.6, 0.7), path)
    with open_recording(path) as bundle:
        seen = {r.key for p in bundle.partitions() for r in bundle.records("samples", p) if r.key}
        known = {
            codec.decode(Inventory, r.value).node.encode()
            for p in bundle.partitions("inventory") for r in bundle.records("inventory", p)
            if r.value
        }  # fmt: skip
        assert seen and seen <= known
        policies = [
            codec.decode(PolicyRecord, r.value or b"") for r in bundle.records("policies", 0)
        ]
        assert {published(each).digest for each in policies} == set(bundle.manifest.policies)
        assert bundle.manifest.law_versions


def test_only_the_partitions_of_the_nodes_and_workloads_asked_for(
    whole: Path, tmp_path: Path
) -> None:
    with open_recording(whole) as source:
        assert len(source.partitions()) > 1, "the test needs several partitions"
        place = source.partitions()[-1]
        inventory = next(
            codec.decode(Inventory, r.value) for r in source.records("inventory", place) if r.value
        )
        workload = next(pod.workload for pod in inventory.pods if pod.workload)
        one, two = tmp_path / "one.slack", tmp_path / "two.slack"
        made_of, _ = cut(source, some(source, 0.4, 0.9, nodes=(inventory.node,)), one)
        cut(source, some(source, 0.4, 0.9, workloads=(workload,)), two)
        with pytest.raises(BadRecording, match=r"no-such-node.*it knows "):
            cut(source, some(source, 0, 1, nodes=("no-such-node",)), tmp_path / "x.slack")
        with pytest.raises(BadRecording, match=r"workload no-such.*it knows "):
            cut(source, some(source, 0, 1, workloads=("no-such",)), tmp_path / "x.slack")
    assert made_of.cut is not None and made_of.cut.nodes == (inventory.node,)
    with open_recording(one) as bundle:
        assert bundle.partitions() == (place,)
        assert {p for t, p in bundle.places if t in ("commands", "inventory", "images")} == {place}
    with open_recording(two) as bundle:
        assert place in bundle.partitions()


def test_the_same_cut_is_the_same_file(whole: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.slack", tmp_path / "two.slack"
    with open_recording(whole) as source:
        for path in (one, two):
            cut(source, some(source, 0.3, 0.6), path)
    assert one.read_bytes() == two.read_bytes()


def test_nothing_in_that_time(whole: Path, tmp_path: Path) -> None:
    with open_recording(whole) as source:
        _, last = times(source)
        with pytest.raises(BadRecording, match=r"the recording holds \d{4}-.* to \d{4}-"):
            cut(source, Wanted(last + 60_000, last + 90_000), tmp_path / "x.slack")
        with pytest.raises(BadRecording, match="not before"):
            cut(source, Wanted(last, last), tmp_path / "x.slack")
    assert not list(tmp_path.iterdir())


def test_without_an_image_it_begins_at_a_later_one_and_says_so(
    log: tuple[Broker, int], tmp_path: Path
) -> None:
    broker, partitions = log
    path, late = tmp_path / "whole.slack", tmp_path / "late.slack"
    made.bundle_of(broker, partitions, path, from_ms=START_MS + 20_000)
    with open_recording(path) as source:
        manifest, notes = cut(source, some(source, 0, 1), late)
    assert manifest.cut is not None and len(manifest.cut.starts) == partitions
    assert len(notes) == partitions and all("where the first image lies" in n for n in notes)


def test_a_full_disk_leaves_nothing(whole: Path, tmp_path: Path) -> None:
    pid = os.fork()
    if not pid:  # in a child: the limit is for good
        code = 1
        try:
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
            with open_recording(whole) as source:
                cut(source, some(source, 0.3, 0.9), tmp_path / "x.slack")
        except OSError:
            code = 0
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    assert not list(tmp_path.iterdir())


def test_the_command(whole: Path, tmp_path: Path) -> None:
    path = tmp_path / "cut.slack"
    asked = ["cut", str(whole), "-o", str(path), "--from", "-20s", "--to", "now", "--json"]
    done = CliRunner().invoke(app, asked, catch_exceptions=False)
    told = json.loads(done.stdout)
    assert done.exit_code == 0 and told["size_bytes"] == path.stat().st_size
    assert told["cut"]["to_ms"] - told["cut"]["from_ms"] == 20_000
    for more, why in (
        ([], "is there already"),
        (["--force", "--from", "yesterday"], "--from 'yesterday'"),
        (["--force", "--node", "no/name"], "node name"),
        (["-o", str(tmp_path / "cut.zip")], "ends in .slack"),
        (["-o", str(tmp_path / "none" / "cut.slack")], "no folder"),
    ):
        with pytest.raises((BadRecording, BadTarget, BadMoment), match=why):
            CliRunner().invoke(app, [*asked, *more], catch_exceptions=False)
    assert CliRunner().invoke(app, [*asked, "--force"]).exit_code == 0
    Path(f"{path}.partial").touch()
    with pytest.raises(BadRecording, match="another cut is at work"):
        CliRunner().invoke(app, [*asked, "--force"], catch_exceptions=False)


def test_a_partition_that_ends_before_the_others_is_named(
    log: tuple[Broker, int], tmp_path: Path
) -> None:
    broker, partitions = log
    last_ms = max(each.timestamp for each in broker.whole("samples", 0))
    places: dict[tuple[str, int], list[Consumed]] = {
        ("samples", one): [
            each for each in broker.whole("samples", one)
            if one != 0 or each.timestamp < last_ms - 30_000
        ]
        for one in range(partitions)
    }  # fmt: skip
    pack(tmp_path / "short.slack", made.manifest_of(broker, partitions), places)
    with open_recording(tmp_path / "short.slack") as source:
        notes = choose(source, Wanted(last_ms - 20_000, last_ms)).notes
        assert [note for note in notes if "start it again" in note and "partition 0" in note]
        assert not [note for note in notes if "start it again" in note and "partition 1" in note]
        asked_before = choose(source, Wanted(last_ms - 50_000, last_ms - 40_000)).notes
        assert not [note for note in asked_before if "start it again" in note]
