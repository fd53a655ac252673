"""What is made from the topic table is fresh, well formed, and agrees with the records."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml
from jsonschema.validators import validator_for

from schemas import codec, generate, packed
from schemas.columns import BY_ID
from schemas.topics import (
    BY_NAME,
    MAX_MESSAGE_BYTES,
    READ_ALL,
    SIDE_TOPICS,
    TOPICS,
    configs_of,
    full_name,
    partitions_of,
)
from tests.schemas.examples import EXAMPLES

ROOT = Path(__file__).parents[2]
GENERATED = ROOT / "schemas" / "generated"
# The official schema of AsyncAPI 3.0.0, from the npm package @asyncapi/specs 6.11.1 (Apache-2.0).
OFFICIAL = Path(__file__).parent / "asyncapi-3.0.0.json.gz"


def test_every_generated_file_is_fresh_and_no_other_lies_there() -> None:
    made = generate.files()
    for path, text in made.items():
        there = ROOT / path
        assert there.exists(), f"{path} is missing: run `python -m schemas.generate`"
        assert there.read_text() == text, f"{path} is stale: run `python -m schemas.generate`"
    lying = {f"schemas/generated/{path.name}" for path in GENERATED.iterdir()}
    assert lying <= set(made), "left over from a record that is gone: delete them"


def document() -> dict[str, Any]:
    loaded: dict[str, Any] = yaml.safe_load((GENERATED / "asyncapi.yaml").read_text())
    return loaded


def official() -> Any:
    schema = json.loads(gzip.decompress(OFFICIAL.read_bytes()))
    return validator_for(schema)(schema)


def test_the_asyncapi_document_is_valid_by_the_official_schema() -> None:
    errors = [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message[:300]}"
        for error in official().iter_errors(document())
    ]
    assert errors == []


@pytest.mark.parametrize(
    "path", [("info", "title"), ("asyncapi",), ("operations", "worker.send.commands", "action")]
)
def test_the_official_schema_notices_what_is_missing(path: tuple[str, ...]) -> None:
    broken = document()
    inner = broken
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    assert not official().is_valid(broken)


def test_every_reference_of_the_asyncapi_document_resolves() -> None:
    whole = document()

    def walk(part: Any) -> int:
        if isinstance(part, list):
            return sum(map(walk, part))
        if not isinstance(part, dict):
            return 0
        target = part.get("$ref")
        if target is None:
            return sum(map(walk, part.values()))
        found = whole
        for name in target.removeprefix("#/").split("/"):
            found = found[name]
        assert found
        return 1

    assert walk(whole) > 3 * len(TOPICS)


def test_channels_and_operations_are_those_of_the_table() -> None:
    whole = document()
    assert list(whole["channels"]) == [topic.name for topic in TOPICS]
    expected = {
        f"{'subscriber' if who == 'any' else who}.{action}.{topic.name}"
        for topic in TOPICS
        for action, whos in (("send", topic.writers), ("receive", topic.readers))
        for who in whos
    }
    assert set(whole["operations"]) == expected
    for topic in TOPICS:
        channel = whole["channels"][topic.name]
        kinds = {kind.__name__ for kind in topic.records} or {"ImageChunk"}
        assert kinds <= set(channel["messages"])
        kafka = channel["bindings"]["kafka"]
        assert kafka["partitions"] == partitions_of(topic, 24)
        assert channel["address"] == "{prefix}" + topic.name


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_every_record_fits_its_json_schema(example: Any) -> None:
    schema = generate.json_schema(type(example))
    checker = jsonschema.Draft202012Validator
    checker.check_schema(schema)
    said = orjson.loads(codec.encode(example))
    checker(schema).validate(said)
    checker(schema).validate(said | {"field_of_a_newer_version": [1]})
    for name in schema["$defs"][type(example).__name__]["required"]:
        lacking = {key: value for key, value in said.items() if key != name}
        assert not checker(schema).is_valid(lacking)
    first = next(iter(said))
    assert not checker(schema).is_valid(said | {first: {"no": "record says this"}})


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_the_asyncapi_schemas_say_the_same(example: Any) -> None:
    components = document()["components"]
    name = type(example).__name__
    schema = {"$ref": f"#/components/schemas/{name}", "components": components}
    said = orjson.loads(codec.encode(example))
    jsonschema.Draft202012Validator(schema).validate(said)
    assert components["messages"][name]["payload"] == {"$ref": f"#/components/schemas/{name}"}


def test_acls_are_the_table_and_nothing_else() -> None:
    rows = json.loads((GENERATED / "acls.json").read_text())
    assert rows == generate.acls()
    assert {row["pattern"] for row in rows} == {"literal"}
    assert not any("*" in row["name"] or row["name"] == "" for row in rows)
    assert {row["permission"] for row in rows} == {"allow"}
    names = {full_name("slackwater.", topic.name): topic for topic in TOPICS}
    for verb, column, more in (("Write", "writers", ()), ("Read", "readers", READ_ALL)):
        told = {
            (row["name"], row["principal"])
            for row in rows
            if row["operation"] == verb and row["resource"] == "topic"
        }
        expected = {
            (name, f"User:slackwater-{'subscriber' if who == 'any' else who}")
            for name, topic in names.items()
            for who in (*getattr(topic, column), *more)
        }
        assert told == expected
    groups = {(row["principal"], row["name"]) for row in rows if row["resource"] == "group"}
    assert groups == {
        ("User:slackwater-worker", "slackwater.worker"),
        ("User:slackwater-fleet", "slackwater.fleet"),
    }


def test_s2_only_workers_command_and_nodes_reach_only_their_own_topics() -> None:
    rows = generate.acls("x.")
    commanders = {
        row["principal"]
        for row in rows
        if row["name"] == "x.commands" and row["operation"] == "Write"
    }
    assert commanders == {"User:slackwater-worker"}
    node = {
        (row["operation"], row["name"])
        for row in rows
        if row["principal"] == "User:slackwater-node" and row["operation"] != "Describe"
    }
    assert node == {
        ("Write", "x.samples"),
        ("Write", "x.inventory"),
        ("Write", "x.acks"),
        ("Read", "x.commands"),
        ("Read", "x.policies"),
    }


def test_the_packed_layout_is_told_byte_by_byte() -> None:
    layout = json.loads((GENERATED / "packed.json").read_text())
    assert layout["header"][-1]["offset"] + 4 == packed._HEAD.size == 88
    assert [column["id"] for column in layout["columns"]] == list(BY_ID)


def test_topic_settings() -> None:
    for topic in TOPICS:
        configs = configs_of(topic, 3)
        assert configs["min.insync.replicas"] == "2"
        assert configs["message.timestamp.type"] == "LogAppendTime"
        assert int(configs["max.message.bytes"]) == MAX_MESSAGE_BYTES > codec.MAX_RECORD_BYTES
        assert int(configs["segment.ms"]) <= topic.retention_ms
        if topic.compacted and not topic.expiring:
            assert configs["cleanup.policy"] == "compact"
            assert configs["min.compaction.lag.ms"] == str(topic.retention_ms)
            assert "retention.ms" not in configs
        else:
            assert configs["retention.ms"] == str(topic.retention_ms)
    assert configs_of(TOPICS[0], 1)["min.insync.replicas"] == "1"


def test_side_topics_and_names() -> None:
    assert {"inventory", "policies", "acks", "fleet", "ledger", "slis"} == set(SIDE_TOPICS)
    assert len(BY_NAME) == len(TOPICS)
    with pytest.raises(KeyError):
        full_name("x.", "nope")
