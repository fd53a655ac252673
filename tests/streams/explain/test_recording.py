"""`slackwater explain` of a recording: every command, eviction and act of a node has its answer."""

from __future__ import annotations

import dataclasses
import json
import logging
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from schemas import codec, keys, packed, topics
from schemas.errors import BadRecord
from schemas.records import (
    LEASE_KEY,
    Ack,
    Capacity,
    Cause,
    Command,
    Decision,
    EvictionReport,
    LedgerEntry,
    PolicyRecord,
)
from schemas.signing import Checker, WorkerSigner
from streams.explain import cli
from streams.explain.acts import Folded, every, is_local
from streams.explain.answers import NoAnswer
from streams.explain.capacity import Wish, compare, offers
from streams.explain.line import Line, of_command, of_decision, told
from streams.explain.node_words import has_words
from streams.explain.past import Past, Place
from streams.explain.read import Span
from streams.explain.recorded import of_recording
from streams.recording import open_recording
from streams.recording.manifest import Manifest
from streams.recording.pack import pack
from streams.topic_reader import CannotRun
from tests.schemas.keyhouse import house
from tests.sim import faults
from tests.sim.broker import Broker
from tests.sim.cluster import Cluster
from tests.sim.kernel import GIB
from tests.streams.recording import made

ROOT = Path(__file__).parents[3]
SEEDS = (4, 5, 11)
END = 1 << 50


def storm(seed: int) -> tuple[Broker, int]:
    """The topics of a cluster after a storm of faults; memory gets full on every node."""
    logging.disable(logging.CRITICAL)
    try:
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(seed, None, Path(folder))
            events = faults.draw(cluster, cluster.dice)
            while cluster.at_ms < cluster.plan.storm_ms:
                while events and events[0][0] <= cluster.at_ms:
                    events.pop(0)[3]()
                if cluster.at_ms > 6_000:
                    for node in cluster.nodes:
                        for pod in node.kernel.of("best_effort"):
                            pod.used_bytes = 9 * GIB
                cluster.quantum()
            cluster.close()
            return cluster.broker, cluster.plan.partitions
    finally:
        logging.disable(logging.NOTSET)


class Told:
    """A recording and all that it tells."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.broker, self.partitions = storm(seed)
        self.path = folder / f"{seed}.slack"
        made.bundle_of(self.broker, self.partitions, self.path)
        self.past, self.samples = read(self.path)
        self.lines = list(every(self.past, self.samples))

    def whole(self, topic: str) -> Iterator[Any]:
        for partition in range(self.partitions):
            for record in self.broker.whole(topic, partition):
                if record.value is not None and record.key != LEASE_KEY:
                    try:
                        yield codec.read(topic, record.key, record.value, record.headers)
                    except BadRecord:
                        continue


def read(path: Path, check: Any = None) -> tuple[Past, Folded]:
    with open_recording(path) as recording:
        return of_recording(recording, Span(END), check=check)


@pytest.fixture(scope="module")
def storms(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Told]:
    folder = tmp_path_factory.mktemp("storm")
    return {seed: Told(seed, folder) for seed in SEEDS}


@pytest.fixture(params=SEEDS)
def recorded(request: pytest.FixtureRequest, storms: dict[int, Told]) -> Told:
    return storms[request.param]


def slackwater(path: Path, *arguments: str) -> Result:
    return CliRunner().invoke(cli.app, [*arguments, "--recording", str(path)])


def test_every_command_has_an_answer(recorded: Told) -> None:
    commands = {one.id: one for one in recorded.whole("commands")}
    answers = {line.command_id: line for line in recorded.lines if line.what == "command"}
    assert answers.keys() == commands.keys()
    assert {one.decider for one in commands.values()} >= {"suppress"}
    for name, line in answers.items():
        command: Command = commands[name]
        assert (line.node, line.decider) == (command.node, command.decider)
        assert line.reason == command.reason
        assert command.terms.items() <= line.terms.items()
        assert line.cause == command.cause
        assert line.pods == command.pods
        assert all(uid in line.sentence for uid in command.pods)
        complete(line)
        assert line.policy_version is not None
    acked = [ack for ack in recorded.whole("acks") if ack.command_id in commands]
    assert acked
    for ack in acked:
        assert ack.outcome in {each.outcome for each in answers[ack.command_id].became}


def test_every_act_of_a_node_has_an_answer(recorded: Told) -> None:
    acts = {(a.node, a.boot, a.seq): a for a in recorded.whole("acks") if is_local(a)}
    answers = [line for line in recorded.lines if line.what == "local act"]
    assert len(answers) == len(acts)
    by_place = {place: ack for place, ack in recorded.past.acks}  # noqa: C416  (typed)
    with_sample = 0
    for line in answers:
        assert line.said is not None
        ack: Ack = by_place[line.said]
        assert (line.node, line.decider, line.reason) == (ack.node, ack.decider, ack.reason)
        assert all(uid in line.sentence for uid in ack.pods)
        assert line.policy_version is not None
        complete(line)
        if line.cause is not None:
            with_sample += 1
            sample = sample_at(recorded, line.cause.partition, line.cause.offset)
            assert (sample.node, sample.boot) == (ack.node, ack.boot)
            assert sample.mono_us <= ack.mono_us
    assert with_sample >= len(answers) - 2  # a start may act before its first sample has arrived


def sample_at(recorded: Told, partition: int, offset: int) -> Any:
    record = recorded.broker.whole("samples", partition)[offset]
    return codec.read("samples", record.key, record.value or b"", record.headers)


def complete(line: Line) -> None:
    """Figures, a rule, words for the reason, policy and cause."""
    assert line.terms
    assert line.rule
    assert line.sentence.endswith(".")
    assert not line.reason or has_words(line.reason), line.reason
    assert line.policy
    text = told(line)
    assert f"rule: {line.rule}" in text
    assert "cause samples/" in text or "said in acks/" in text


def test_evictions_are_among_them(storms: dict[int, Told]) -> None:
    """Somebody was told to go, by the centre and by a node's own last gate."""
    found = {(line.what, line.decider) for each in storms.values() for line in each.lines}
    assert found >= {("command", "evict_memory"), ("local act", "evict_memory")}


def test_the_command_line_tells_them_too(recorded: Told) -> None:
    done = slackwater(recorded.path, "--every", "--json")
    assert done.exit_code == 0, done.output
    said = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(said) == len(recorded.lines)
    times = [line["log_ms"] for line in said]
    assert times == sorted(times)
    moment = ["--at", str(times[-1] - 1_000), "--minutes", "1"]
    done = slackwater(recorded.path, "--every", "--json", *moment)
    told_then = [json.loads(line)["log_ms"] for line in done.stdout.splitlines()]
    assert told_then
    assert max(told_then) <= times[-1] - 1_000
    one = next(line for line in said if line["what"] == "command")
    done = slackwater(recorded.path, "--command", one["command_id"], "--json")
    assert json.loads(done.stdout)["decisions"] == [one]
    place = f"{one['cause']['partition']}:{one['cause']['offset']}"
    done = slackwater(recorded.path, "--cause", place, "--json")
    ids = [line["command_id"] for line in json.loads(done.stdout)["decisions"]]
    assert one["command_id"] in ids
    done = slackwater(recorded.path, one["node"])
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith(f"{one['node']} now: stage expand")
    assert "suppress: " in done.stdout


def test_a_pod_that_had_to_go_is_told_with_what_named_it(recorded: Told) -> None:
    ends = [line for line in recorded.lines if line.decider == "evict_memory" and line.pods]
    for line in ends[:3]:
        uid = line.pods[0]
        done = slackwater(recorded.path, "--pod", uid, "--json")
        assert done.exit_code == 0, done.output
        (pod,) = json.loads(done.stdout)["pods"]
        assert (pod["uid"], pod["node"]) == (uid, line.node)
        assert line.sentence in [each["sentence"] for each in pod["lines"]]
    some = next(iter(recorded.whole("inventory"))).pods
    best_effort = next(pod for pod in some if pod.qos == "BE")
    words = slackwater(recorded.path, "--pod", best_effort.name)
    assert words.exit_code == 0, words.output
    assert f"({best_effort.uid})" in words.stdout
    nobody = slackwater(recorded.path, "--pod", "nobody")
    assert isinstance(nobody.exception, NoAnswer)


def test_a_node_that_nobody_knows_is_not_told_what_its_partition_was(recorded: Told) -> None:
    stranger = slackwater(recorded.path, "node-o0001")
    assert isinstance(stranger.exception, NoAnswer), stranger.output
    assert "nothing is known of a node node-o0001" in str(stranger.exception)


def test_capacity_then_and_now_is_told_by_its_terms(recorded: Told) -> None:
    said = sorted(
        (c for c in recorded.whole("capacity") if c.node == "n0"), key=lambda c: c.cause.offset
    )
    old, new = said[2], said[-1]
    done = slackwater(recorded.path, "n0", "--against", str(old.cause.log_ms), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)["capacity"]
    assert found["cause_before"]["offset"] == old.cause.offset
    assert found["cause_now"]["offset"] == new.cause.offset
    cpu = found["changed"][0]
    assert (cpu["before"], cpu["now"]) == (old.batch_cpu_milli, new.batch_cpu_milli)
    assert (cpu["computed_before"], cpu["computed_now"]) == (
        old.computed_cpu_milli, new.computed_cpu_milli,
    )  # fmt: skip
    differ = {k for k in old.cpu_terms if old.cpu_terms[k] != new.cpu_terms[k]}
    assert {term["name"] for term in cpu["terms"]} == differ
    sizes = [abs(term["now"] - term["before"]) for term in cpu["terms"]]
    assert sizes == sorted(sizes, reverse=True)
    words = slackwater(recorded.path, "n0", "--against", str(old.cause.log_ms))
    assert "batch CPU " in words.stdout


def test_why_work_is_placed_nowhere(recorded: Told) -> None:
    done = slackwater(recorded.path, "--not-scheduled", "sort", "--cpu-milli", "900000", "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert (said["fits"], said["wanted"]) == (0, "sort")
    assert {offer["node"] for offer in said["nodes"]} == set(recorded.past.nodes())
    assert all("900.00 wanted" in " ".join(offer["why"]) for offer in said["nodes"]
               if offer["said"])  # fmt: skip
    newest = {c.node: c for c in recorded.whole("capacity")}
    for offer in said["nodes"]:
        if offer["said"]:
            assert offer["offered_milli"] == newest[offer["node"]].batch_cpu_milli
            assert offer["new_work"] == newest[offer["node"]].new_work


def test_the_pod_that_stays_is_named_by_the_set_of_the_sample(tmp_path: Path) -> None:
    with open_recording(ROOT / "tests/fixtures/recordings/incident.slack") as recording:
        past, _ = of_recording(recording, Span(END), check=None)
        orders = [each for each in past.commands.values() if each[1].decider == "evict_memory"]
        assert orders
        for place, command in orders:
            beside = past.decided(command.id)
            assert beside is not None
            sample = next(
                recording.records(
                    "samples", command.cause.partition, command.cause.offset - 1,
                    command.cause.offset,
                )
            )  # fmt: skip
            revision = packed.decode(sample.value or b"").pods_rev
            pods = past.sets.of_revision(command.node, revision, command.cause.log_ms)
            assert pods is not None
            (at,) = beside[1].columns["next_place"]
            assert (
                f"next in line is {pods[at].uid}, which stays"
                in of_command(past, place, command).sentence
            )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "ask one question"),
        (("n0", "--pod", "a"), "ask one question"),
        (("--against", "1"), "ask one question"),
        (("--cause", "3"), "PARTITION:OFFSET"),
        (("--command", "nonsense"), "no id of a command"),
        (("a/b",), "no node name"),
        (("n0", "--against", "2999-01-01"), "earlier"),
    ],
)
def test_what_is_no_question_is_refused(
    recorded: Told, arguments: tuple[str, ...], says: str
) -> None:
    done = slackwater(recorded.path, *arguments)
    assert isinstance(done.exception, CannotRun)
    assert says in str(done.exception)


def test_what_the_bridge_said_is_told_with_the_order_behind_it(tmp_path: Path) -> None:
    broker, partitions = storm(SEEDS[0])
    order = next(
        one
        for partition in range(partitions)
        for record in broker.whole("commands", partition)
        if record.key != LEASE_KEY and record.value
        and (one := codec.decode(Command, record.value)).decider == "evict_memory"
    )  # fmt: skip
    report = EvictionReport(order.node, order.pods[0], "evict_memory", "refused", "expired",
                            order.reason, order.id, "batch", "sort-1", tries=3)  # fmt: skip
    own = EvictionReport("n0", "u9", "low_node_load", "evicted", "", "busy", "r1", "batch", "two",
                         terms={"load_permille": 910})  # fmt: skip
    for each in (report, own):
        broker.append("evictions", 0, each.node.encode(), codec.encode(each))
    made.bundle_of(broker, partitions, tmp_path / "a.slack")
    past, samples = read(tmp_path / "a.slack")
    first, second = (line for line in every(past, samples) if line.what == "eviction")
    assert first.cause == order.cause
    assert order.terms.items() <= first.terms.items()
    assert "batch/sort-1" in first.sentence
    assert "after 3 calls: the node refused it: it came after its time" in first.sentence
    assert "load permille 910" in second.sentence
    assert second.terms["load_permille"] == 910
    for line in (first, second):
        assert line.rule
        assert line.policy_version is not None
    command = next(line for line in every(past, samples) if line.command_id == order.id)
    assert "refused" in {each.outcome for each in command.became}


def test_s10_the_audit_log_alone_explains_and_names_causes_policy_and_signer(
    tmp_path: Path,
) -> None:
    row = topics.BY_NAME["decisions"]
    assert not row.compacted, "a line is never replaced by another"
    assert row.retention_ms > topics.BY_NAME["samples"].retention_ms
    assert topics.configs_of(row, 3)["cleanup.policy"] == "delete"

    broker, partitions = storm(SEEDS[0])
    held, name = house("first"), topics.full_name(topics.PREFIX, "decisions")
    signer, places = WorkerSigner(held), {}
    for partition in range(partitions):
        for record in broker.whole("decisions", partition):
            headers = signer.sign(name, record.key, list(record.headers), record.value)
            record.headers = tuple(headers)
        places["decisions", partition] = list(broker.whole("decisions", partition))
    said = [
        codec.decode(Decision, record.value or b"") for log in places.values() for record in log
    ]
    altered = places["decisions", 0][3]
    altered.value = (altered.value or b"").replace(b'"offset":', b'"offset": ', 1)
    manifest = Manifest("bundle", topics.PREFIX, 7, partitions, "test", codec.VERSION, 0)
    pack(tmp_path / "audit.slack", manifest, places)

    past, _ = read(tmp_path / "audit.slack", Checker(topics.PREFIX, held, lambda: None).check)
    key = held.of(keys.WORKER_KEY)[0].id.hex()
    lines = [
        of_decision(past, place, decision, at)
        for place, decision in past.decisions
        for at in range(len(decision.nodes))
    ]
    assert len(lines) == sum(len(each.nodes) for each in {repr(d): d for d in said}.values())
    doubted = 0
    for line in lines:
        assert line.cause is not None
        assert line.said is not None
        assert line.terms
        assert line.rule
        assert has_words(line.reason)
        assert line.cause.law_version > 0
        assert line.policy_version is None  # the versions stand in another topic
        assert line.policy
        assert line.said.signer == key
        assert f"unknown version ({line.policy})" in told(line)
        if line.said.doubt:
            doubted += 1
            assert line.said.offset == altered.offset
            assert "NOT BELIEVED: bad_signature" in told(line)
        else:
            assert f"signed with key {key} (checked)" in told(line)
    assert doubted
    assert {"suppress", "capacity", "evict_memory"} <= {line.decider for line in lines}
    done = slackwater(tmp_path / "audit.slack", "n0")
    assert done.exit_code == 0, done.output
    assert "suppress: Best-effort work on n0 may use" in done.stdout


CAUSE = Cause(7, 0, 5, 1_000, "", 6)


def offered(log_ms: int, milli: int, policy: str, **more: Any) -> Capacity:
    cause = dataclasses.replace(CAUSE, offset=log_ms, log_ms=log_ms, policy=policy)
    terms = {"capacity": 16_000, "need": 15_000 - milli, "system": 1_000}
    return Capacity(
        "n1", cause, milli, GIB, "fall", computed_cpu_milli=milli, cpu_terms=terms, **more
    )


def test_why_capacity_is_3200_now_and_9000_before() -> None:
    past = Past(9_000)
    for version, percent, who in ((1, 65, "ana"), (2, 40, "bo")):
        text = f"suppress: {{threshold_percent: {percent}}}"
        past.policies.note(PolicyRecord("default", version, "", text, who, "why"), version * 1_000)
    old, new = (each.digest for each in past.policies.versions)
    for record in (offered(2_000, 9_000, old), offered(8_000, 3_200, new)):
        place = Place("capacity", 0, record.cause.offset, record.cause.log_ms)
        past.take(place, record)
    found = compare(past, "n1", 9_000, 3_000)
    assert found is not None
    cpu = found.changed[0]
    assert [(t.name, t.before, t.now, t.change) for t in cpu.terms] == [
        ("need", 6_000, 11_800, 5_800)
    ]
    assert cpu.sentence == (
        "batch CPU 9.00 -> 3.20 (-5.80); terms that changed: need 6.00 -> 11.80 (+5.80)"
    )
    assert found.policy == (
        "policy version 1 -> 2 by bo (why)", "suppress.threshold_percent: 65 -> 40",
    )  # fmt: skip
    assert compare(past, "n1", 9_000, 1_000) is None


def test_no_name_writes_on_the_terminal(tmp_path: Path) -> None:
    broker = Broker()
    ack = Ack("n1\x1b[2J", "ab" * 16, 1, 5, "suppress", "local", reason="local\x07")
    broker.append("acks", 0, b"n1", codec.encode(ack))
    made.bundle_of(broker, 1, tmp_path / "a.slack")
    done = slackwater(tmp_path / "a.slack", "--every")
    assert done.exit_code == 0, done.output
    assert "n1\\x1b[2J" in done.stdout
    assert all(c.isprintable() or c == "\n" for c in done.stdout)


def test_a_policy_put_back_counts_from_then_on() -> None:
    past = Past(9_000)
    texts = ("suppress: {threshold_percent: 65}", "suppress: {threshold_percent: 40}")
    for version, text in enumerate((*texts, texts[0]), 1):
        past.policies.note(PolicyRecord("default", version, "", text), version * 1_000)
    digest = past.policies.versions[0].digest
    versions = []
    for log_ms in (500, 1_500, 2_500, 3_500):
        found = past.policies.of(digest, log_ms)
        assert found is not None
        versions.append(found.record.version)
    assert versions == [1, 1, 1, 3]
    assert past.policies.of("", 500) is None
    known = past.policies.at(2_500)
    assert known is not None
    assert known.record.version == 2


@pytest.mark.parametrize(
    ("more", "wish", "why"),
    [
        ({"new_work": False}, Wish(500), "it takes no new work: less can be lent"),
        ({"workloads": ("etl",)}, Wish(500, workload="sort"), "only etl may borrow there"),
        ({}, Wish(2_500), "it fell at once), 1.00 lent, 2.20 left, 2.50 wanted"),
        ({}, Wish(500, 2 * GIB), "1.00 GiB of memory are offered"),
        ({}, Wish(500, mid=True), "0.00 of CPU are offered"),
        ({}, Wish(500), ""),
    ],
)  # fmt: skip
def test_each_reason_why_work_does_not_fit(more: dict[str, Any], wish: Wish, why: str) -> None:
    past = Past(9_000)
    past.take(Place("capacity", 0, 5, 2_000), offered(2_000, 3_200, "", **more))
    past.held["n1", "yarn"] = LedgerEntry("n1", "yarn", 1_000, 0)
    (offer,) = offers(past, wish, 9_000)
    assert (offer.offered_milli, offer.lent_milli) == ((0, 0) if wish.mid else (3_200, 1_000))
    assert why in " | ".join(offer.why)
    assert bool(offer.why) == bool(why)


def test_a_cluster_is_asked_without_arrow() -> None:
    code = (
        "import sys, streams.explain.cli\n"
        "heavy = {'pyarrow', 'duckdb', 'faust'} & sys.modules.keys()\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
