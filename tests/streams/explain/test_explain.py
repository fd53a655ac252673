"""`slackwater explain`: the newest decision of each decider, in words, from the log alone."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from agents import capacity_record, suppress
from agents.eviction.plan import ALLOCATABLE, FEATURES, USAGE
from agents.log import Output
from schemas import codec
from schemas.records import Capacity, Cause, Command, Decision, FleetFacts, Inventory, PolicyRecord
from schemas.topics import full_name
from streams import stages
from streams.dev_broker import DevBroker
from streams.explain import cli, victims
from streams.explain.answers import NoAnswer
from streams.explain.line import clock, standing, told
from streams.explain.past import DECIDED, Past, Place
from streams.explain.words import REASONS, RULES, because
from streams.policy_gate import digest_of
from streams.topic_reader import CannotRun, producer, started
from streams.topics_admin import create, publish
from tests.agents.worlds import GIB, PARTITION, Node, World, best_effort, online

POLICY = "rollout: {stage: expand}\nreservation: {warm_ms: 0}\n"
RECORD = PolicyRecord("default", 1, "", POLICY, "ana", "begin")
PARTITIONS = PARTITION + 1


@pytest.fixture(scope="module")
def outputs() -> list[Output]:
    """Half a minute of two nodes, whose names hash to this partition; one's memory gets full."""
    full, calm = Node("n4", (online("a"), best_effort("b"), best_effort("c"))), Node("n7")
    world = World(POLICY, full, calm)
    found: list[Output] = list(world.out)
    facts = FleetFacts(1, 4, 2, 0, 0, 0, 5, 3_600_000)
    found += world.tick(0, ("fleet", 0, b"fleet", facts))
    for second in range(30):
        available = 20 * GIB if second < 20 else 4 * GIB
        found += world.say(full.sample(available=available, used=[GIB, 3 * GIB, 2 * GIB]), 500)
        found += world.say(calm.sample(), 0)
        found += world.tick(500)
    return found


def read(outputs: list[Output], node: str, at_ms: int) -> dict[str, Any]:
    past = Past(at_ms)
    past.policies.note(RECORD)
    for output in outputs:
        if isinstance(output.record, Decision | Command | Capacity):
            past.take(Place(output.topic, PARTITION, output.offset, at_ms), output.record)
    return {line.decider: line for line in standing(past, node)}


def end(outputs: list[Output]) -> int:
    return int(max(o.record.cause.log_ms for o in outputs if isinstance(o.record, Decision)))


def test_each_decider_is_told_once_by_its_newest_decision(outputs: list[Output]) -> None:
    lines = read(outputs, "n4", end(outputs))
    assert set(lines) == {"suppress", "capacity", "evict_memory", "health"}
    for line in lines.values():
        assert line.sentence.endswith(".")
        assert line.rule == RULES[line.decider]
        if line.decider != "health":
            assert (line.policy, line.policy_version) == (digest_of(RECORD), 1)
        assert f"offset {line.cause.offset}" in told(line)
        assert clock(line.log_ms) in told(line)
    assert set(read(outputs, "n7", end(outputs))) == {"suppress", "capacity", "health"}


def test_suppression_is_told_with_every_term_of_its_sum(outputs: list[Output]) -> None:
    line = read(outputs, "n7", end(outputs))["suppress"]
    terms = line.terms
    beside = max(terms["system"], terms["reserved"])
    total = terms["allow"] + terms["online"] + terms["host"] + beside
    assert total == terms["capacity"] * 65 // 100
    for milli in (terms["target"], total, terms["capacity"], terms["online"], terms["allow"]):
        assert f"{milli / 1000:.2f}" in line.sentence


def test_an_eviction_names_the_pods_and_why(outputs: list[Output]) -> None:
    line = read(outputs, "n4", end(outputs))["evict_memory"]
    order = next(o.record for o in outputs if getattr(o.record, "id", "") == line.command_id)
    assert all(uid in line.sentence for uid in order.pods)
    assert "28.00 GiB of 32.00 GiB memory (87 %)" in line.sentence
    assert "memory is nearly full" in line.sentence


def test_an_eviction_tells_its_order_and_why_the_next_pod_stays(outputs: list[Output]) -> None:
    line = read(outputs, "n4", end(outputs) - 8_000)["evict_memory"]
    assert (
        "; first b (best effort, priority 5500, nothing known of its work, 3.00 GiB in use of 0.00 "
        "GiB asked for); next in line is the pod at place 2 of its node's set, which stays because "
        "it uses less (2.00 GiB): memory is nearly full" in line.sentence
    )
    assert "pod0" not in line.sentence


def keys(prefix: str, place: int, **more: int) -> dict[str, int]:
    said = dict.fromkeys(
        ("feature", "rung", "tries", "eviction_priority", "priority", "sub_priority", "cost",
         "lost_ms", "used", "request"), 0,
    )  # fmt: skip
    return {f"{prefix}{name}": value for name, value in ({"place": place} | said | more).items()}


BY_REQUEST, BY_USE = (FEATURES.index(name) for name in (ALLOCATABLE, USAGE))


@pytest.mark.parametrize(
    ("victim", "stays", "why"),
    [
        ({}, {}, "by its name alone"),
        ({"used": 9}, {"used": 4}, "because it uses less (4)"),
        ({"used": 9}, {"used": -1}, "because nobody knows what it uses"),
        ({"used": 1}, {"used": 9, "priority": 3}, "because its priority is higher (3 against 0)"),
        ({"cost": 0}, {"cost": 2, "used": 9}, "because its work is dearer"),
        ({"lost_ms": 5}, {"lost_ms": 6}, "because more of its work would be done again"),
        ({"tries": 1}, {"tries": 4}, "because it was asked more often already (4 times against 1)"),
        ({"rung": 0}, {"rung": 1}, "because its priority is of a higher class"),
        ({"feature": BY_REQUEST, "request": 9, "used": 1}, {"request": 4, "used": 9},
         "because it asked for less (4)"),
        ({"feature": BY_USE, "used": 9}, {"used": 9, "sub_priority": 7},
         "because its sub-priority is higher (7 against 0)"),
        ({"feature": BY_USE, "priority": 9}, {"priority": 1, "eviction_priority": 2},
         "because its eviction priority is higher (2 against 0)"),
    ],
)  # fmt: skip
def test_the_key_that_set_the_victim_and_the_next_apart(
    victim: dict[str, int], stays: dict[str, int], why: str
) -> None:
    terms = keys("pod0_", 0, **victim) | keys("next_", 3, **stays)
    said = victims.order(terms, ["a"], str, by_share=False)
    assert said.endswith(f"next in line is the pod at place 3 of its node's set, which stays {why}")


def test_starved_work_goes_by_its_use_of_what_it_asked_for() -> None:
    terms = keys("pod0_", 0, used=2, request=1) | keys("next_", 1, used=3, request=9)
    said = victims.order(terms, ["a"], str, by_share=True)
    assert said.endswith("because it uses less of what it asked for")


def test_many_victims_are_counted_and_none_says_nothing() -> None:
    terms = {"untold": 4} | keys("pod0_", 0) | keys("pod1_", 5) | keys("pod2_", 2)
    said = victims.order(terms | keys("pod3_", 7), ["a"], str, by_share=False)
    assert said.startswith("; first a (best effort")
    assert "then the pod at place 5 of its node's set (" in said
    assert said.endswith("then 5 more")
    assert victims.order({"used": 1}, ["a"], str, by_share=False) == ""


def test_capacity_is_told_with_the_terms_that_were_published(outputs: list[Output]) -> None:
    line = read(outputs, "n7", end(outputs))["capacity"]
    record = next(
        o.record
        for o in outputs
        if isinstance(o.record, Capacity) and o.record.cause == line.cause and o.node == "n7"
    )
    for name, milli in record.cpu_terms.items():
        told_of = milli and name != "cap"
        assert not told_of or f"{name} {milli / 1000:.2f}" in line.sentence
    assert "margin 3.20" in line.sentence
    assert "third party" not in line.sentence
    assert "new work is welcome" in line.sentence


def test_pods_that_break_a_rule_are_told_by_rule() -> None:
    half = online("h", qos="LSR", qos_said=True, cpu_request_milli=1500)
    world = World(POLICY, node := Node("n4", (half, best_effort("b", priority_class="prod"))))
    at_ms = world.log_ms
    line = read(list(world.out), "n4", at_ms)["health"]
    assert line.sentence.startswith(
        "2 pods on n4 (qos priority combination 1, cpu request integer 1): their QoS, class"
    )
    node.pods = (online("a"),)
    line = read(world.know(node), "n4", at_ms)["health"]
    assert line.sentence == "pods on n4: none breaks a rule any more."


def test_nothing_later_than_the_moment_is_told(outputs: list[Output]) -> None:
    last = end(outputs)
    for at_ms in range(last - 30_000, last, 1_700):
        for line in read(outputs, "n4", at_ms).values():
            assert line.log_ms <= at_ms
    early = read(outputs, "n4", last - 15_000)
    assert "evict_memory" not in early
    assert read(list(reversed(outputs)), "n4", last) == read(outputs, "n4", last)


def test_a_repetition_names_what_it_repeats() -> None:
    past = Past(10_000)
    cause = Cause(1, 0, 5, 1_000, "d", 1)
    later = Cause(1, 0, 9, 9_000, "d", 1)
    for at, reason in ((cause, "lower"), (later, "refresh")):
        decision = Decision("suppress", at, ("n4",), (reason,), {"target": [500]}, ("id",))
        past.take(Place("decisions", 0, at.offset, at.log_ms), decision)
    (line,) = standing(past, "n4")
    assert (line.reason, line.since_ms, line.since_reason) == ("refresh", 1_000, "lower")
    assert "In force since 1970-01-01 00:00:01: others need more" in told(line)
    assert "unknown version (d)" in told(line)


def test_every_reason_that_suppress_and_capacity_give_has_words() -> None:
    """Reason codes are words of the deciders' sources; escalations are told by their beginning."""
    given = {code for code in capacity_record.REASONS if code}
    for module in (suppress, capacity_record):
        tree = ast.parse(Path(module.__file__ or "").read_text())
        for function in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)):
            if function.name in ("_reason", "_direction"):
                words = {n.value for n in ast.walk(function) if isinstance(n, ast.Constant)}
                given |= {w for w in words if isinstance(w, str) and re.fullmatch("[a-z_]+", w)}
    assert given >= {"no_policy", "lower", "withdrawn", "steady"}
    assert given - {"target"} <= REASONS.keys()
    assert because("memory_full_escalated_to_mid") == "memory is nearly full (escalated to mid)"
    assert because("some_new_code") == "some new code"


async def stage(broker: DevBroker, prefix: str, outputs: list[Output]) -> None:
    """An installation with the outputs in its topics, appended where a worker appends them."""
    await create(broker.bootstrap, prefix, PARTITIONS, None, POLICY)
    await publish(broker.bootstrap, full_name(prefix, "policies"), b"default", RECORD)
    async with started(producer(broker.bootstrap), broker.bootstrap) as client:
        for output in outputs:
            if output.topic not in DECIDED:
                continue
            await client.send_and_wait(
                full_name(prefix, output.topic), codec.encode(output.record), output.key or None,
                partition=PARTITION, headers=codec.JSON_HEADERS,
            )  # fmt: skip


def slackwater(broker: DevBroker, prefix: str, *arguments: str) -> Result:
    environment = {"SLACKWATER_BROKERS": broker.bootstrap, "SLACKWATER_PREFIX": prefix}
    return CliRunner().invoke(cli.app, list(arguments), env=environment)


def test_of_a_node_that_only_observes_it_says_so_and_which_command_comes_next(
    broker: DevBroker, prefix: str
) -> None:
    async def install() -> None:
        await create(broker.bootstrap, prefix, PARTITIONS, None, "name: default")
        seen = Inventory("n1", 1, 8000, 1 << 30)
        await publish(broker.bootstrap, full_name(prefix, "inventory"), b"n1", seen)

    asyncio.run(install())
    done = slackwater(broker, prefix, "n1")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("n1 now: stage observe: measured and reported only, no command")
    assert "next: `slackwater policy put FILE --canary LABEL=VALUE`" in done.stdout
    said = json.loads(slackwater(broker, prefix, "n1", "--json").stdout)
    assert (said["decisions"], said["stage"]) == ([], stages.means("observe"))


def test_explain_reads_the_partition_of_the_node(
    broker: DevBroker, prefix: str, outputs: list[Output]
) -> None:
    node = "n4"
    asyncio.run(stage(broker, prefix, outputs))
    done = slackwater(broker, prefix, node, "--json")
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    found = {line["decider"]: line for line in said["decisions"]}
    assert set(found) == {"suppress", "capacity", "evict_memory", "health"}
    assert found["suppress"]["policy_version"] == 1
    assert found["suppress"]["terms"]["capacity"] == 8000
    words = slackwater(broker, prefix, node)
    assert words.exit_code == 0
    assert "suppress: Best-effort work on n4 may use" in words.stdout
    before = slackwater(broker, prefix, node, "--at", "1999-01-01T00:00:00")
    assert isinstance(before.exception, NoAnswer)
    assert "no decision about node n4" in str(before.exception)
    assert words.stdout.startswith("n4 now: it has no inventory; the fleet: stage expand: ")
    other = slackwater(broker, prefix, "a/b")
    assert isinstance(other.exception, CannotRun)
    evicted = found["evict_memory"]
    assert evicted["policy_by"] == " by slackwater (shipped)"
    done = slackwater(broker, prefix, "--command", evicted["command_id"], "--json")
    (again,) = json.loads(done.stdout)["decisions"]
    assert again["sentence"] == evicted["sentence"]
    place = f"{PARTITION}:{evicted['cause']['offset']}"
    done = slackwater(broker, prefix, "--cause", place)
    assert done.exit_code == 0, done.output
    assert "evict_memory: Pod" in done.stdout
    ids = {o.record.id for o in outputs if isinstance(o.record, Command)}
    done = slackwater(broker, prefix, "--every", "--json")
    assert {json.loads(line)["command_id"] for line in done.stdout.splitlines()} == ids
    done = slackwater(broker, prefix, "--every", "n7", "--json")
    assert {json.loads(line)["node"] for line in done.stdout.splitlines()} == {"n7"}
    done = slackwater(broker, prefix, "--not-scheduled", "sort", "--cpu-milli", "99000")
    assert done.exit_code == 0, done.output
    assert "sort wants 99.00 cores and 0.00 GiB of batch: it fits on 0 of 2 nodes" in done.stdout
