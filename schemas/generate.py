"""Everything that is made from the topic table: JSON Schemas, AsyncAPI, ACLs, docs/topics.md.

``python -m schemas.generate`` writes the files; `slackwater topics doc|acls` prints them; a test
proves that the files are fresh. Nothing in ``schemas/generated`` is edited by hand.
"""

from __future__ import annotations

import json
import re
from typing import Any

import msgspec
import yaml

from schemas import codec, packed, records
from schemas.columns import COLUMNS
from schemas.topics import (
    HOUR_MS,
    PARTITIONS,
    PREFIX,
    READ_ALL,
    TOPICS,
    Component,
    Topic,
    configs_of,
    full_name,
    partitions_of,
)

REPLICATION = 3
GROUPS: dict[Component, str] = {"worker": "worker", "fleet": "fleet"}
"""Consumer groups by component; both are Faust apps, whose id (after the prefix) is the group."""
COMPONENTS: dict[Component, str] = {
    "node": "the agent of one machine",
    "worker": "folds samples and decides",
    "fleet": "second stage: what no single partition knows, and the public tables",
    "bridge": "tells the schedulers",
    "scheduler": "places batch work and keeps the ledger",
    "service": "an online service that measures itself",
    "operator": "people: creates topics, publishes policy",
    "recorder": "keeps what is on every topic; writes none",
    "any": "any subscriber: consoles, dashboards",
}
_KAFKA_BINDING = "0.5.0"
_BINDING_CONFIGS = {"retention.ms": int, "max.message.bytes": int}
_TOPICS_HEAD = """\
# Topics

Made from `schemas/topics.py` by `python -m schemas.generate`; do not edit. Names get the prefix of
the installation, `{prefix}` unless told otherwise. Partitioned topics have as many partitions as
`samples` (default {partitions}), the others one. Every record has the headers `enc` (`json`,
`packed`, `tick`) and `v` (schema version), except those of the changelog, which Faust writes. A
compacted topic keeps every record for at least its time, and the newest of each key for good.

| topic | key | records | written by | read by | partitioned | kept | what |
|---|---|---|---|---|---|---|---|"""
Json = dict[str, Any]


def record_types() -> tuple[type[Any], ...]:
    """Every record of the table, once, in the table's order."""
    return tuple(dict.fromkeys(kind for topic in TOPICS for kind in topic.records))


def json_schema(kind: type[Any]) -> Json:
    """JSON Schema (2020-12) of one record; fields that it does not name are allowed."""
    schema = msgspec.json.schema(kind)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | schema


def packed_layout() -> Json:
    """The packed encoding of samples, byte by byte, and the columns by id."""
    return {
        "version": packed.VERSION,
        "byte_order": "little-endian",
        "magic": packed.MAGIC.decode(),
        "limits": {
            "sample_bytes": packed.MAX_SAMPLE_BYTES,
            "pods": packed.MAX_PODS,
            "columns": packed.MAX_COLUMNS,
            "mono_us": packed.MAX_MONO_US,
        },
        "header": _struct_fields(packed.HEADER),
        "then": [
            "node name, UTF-8, zero-padded to a multiple of 8 bytes",
            "directory: one row a column",
            "payload: 64-bit words; a presence bitmap before the values of a column with flag 1",
        ],
        "row": _struct_fields(packed.ROW),
        "columns": [msgspec.to_builtins(column) for column in COLUMNS],
    }


def acls(prefix: str = PREFIX) -> list[Json]:
    """Kafka ACLs: one principal a component, literal names, nothing that the table does not say.

    A writer may also describe its topic; the operator may create and configure each.
    """
    rows: list[Json] = []

    def allow(component: Component, operation: str, resource: str, name: str) -> None:
        rows.append(
            {
                "principal": f"User:slackwater-{_component(component)}",
                "operation": operation,
                "resource": resource,
                "name": name,
                "pattern": "literal",
                "permission": "allow",
            }
        )

    for component in COMPONENTS:
        for topic in TOPICS:
            name = full_name(prefix, topic.name)
            writes = component in topic.writers
            reads = component in (*topic.readers, *READ_ALL)
            if writes:
                allow(component, "Write", "topic", name)
            if reads:
                allow(component, "Read", "topic", name)
            if writes or reads or component == "operator":
                allow(component, "Describe", "topic", name)
            if component == "operator":
                allow(component, "Create", "topic", name)
                allow(component, "DescribeConfigs", "topic", name)
        if component in GROUPS:
            allow(component, "Read", "group", prefix + GROUPS[component])
    return rows


def asyncapi() -> Json:
    """The AsyncAPI 3.0 document: every channel with its messages, every component's operations."""
    kinds = record_types()
    _, schemas = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "Slackwater",
            "version": str(codec.VERSION),
            "description": "Lends a fleet's idle capacity to batch work and takes it back in time.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "{brokers}",
                "protocol": "kafka",
                "description": "Apache Kafka 4.x",
                "variables": {"brokers": {"default": "127.0.0.1:9092"}},
            }
        },
        "channels": {topic.name: _channel(topic) for topic in TOPICS},
        "operations": dict(_operation(*use) for use in _uses()),
        "components": {
            "schemas": schemas | {"Packed": _packed_payload(), "Chunk": _chunk_payload()},
            "messages": _messages(kinds),
            "parameters": {
                "prefix": {
                    "description": "Separates installations on one cluster.",
                    "default": PREFIX,
                }
            },
        },
    }


def topics_page() -> str:
    """docs/topics.md."""
    lines = [_TOPICS_HEAD.format(prefix=PREFIX, partitions=PARTITIONS)]
    for topic in TOPICS:
        hours = topic.retention_ms // HOUR_MS
        kept = f"{hours} h" if hours < 48 else f"{hours // 24} d"
        if topic.compacted:
            kept += ", newest of a key" if topic.expiring else ", then newest of a key"
        cells = (
            f"`{topic.name}`",
            topic.key,
            ", ".join(f"`{kind.__name__}`" for kind in topic.records) or "chunks",
            ", ".join(topic.writers),
            ", ".join(topic.readers),
            "yes" if topic.partitioned else "no",
            kept,
            topic.doc,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def files() -> dict[str, str]:
    """Every generated file: path from the project's root -> text."""
    made = {
        f"schemas/generated/{_snake(kind.__name__)}.schema.json": _dump(json_schema(kind))
        for kind in record_types()
    }
    made["schemas/generated/packed.json"] = _dump(packed_layout())
    made["schemas/generated/acls.json"] = _dump(acls())
    made["schemas/generated/asyncapi.yaml"] = asyncapi_text()
    made["docs/topics.md"] = topics_page()
    return made


def asyncapi_text() -> str:
    """The AsyncAPI document as YAML."""
    return yaml.dump(asyncapi(), Dumper=_NoAliases, sort_keys=False, width=100, allow_unicode=True)


class _NoAliases(yaml.SafeDumper):
    """Writes equal parts out each time: anchors are hard to read and some tools refuse them."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML calls it so
        return True


def _uses() -> list[tuple[str, Component, Topic]]:
    sends = [("send", who, topic) for topic in TOPICS for who in topic.writers]
    return sends + [("receive", who, topic) for topic in TOPICS for who in topic.readers]


def _operation(action: str, who: Component, topic: Topic) -> tuple[str, Json]:
    name = f"{_component(who)}.{action}.{topic.name}"
    operation: Json = {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic.name}"},
        "summary": f"{_component(who)}: {COMPONENTS[who]}",
        "tags": [{"name": _component(who)}],
    }
    if action == "receive" and who in GROUPS and topic.name in ("samples", "fleet"):
        group = {"type": "string", "enum": [PREFIX + GROUPS[who]]}
        operation["bindings"] = {"kafka": {"groupId": group, "bindingVersion": _KAFKA_BINDING}}
    return name, operation


def _channel(topic: Topic) -> Json:
    configs = configs_of(topic, REPLICATION)
    known: Json = {"cleanup.policy": configs.pop("cleanup.policy").split(",")}
    for name, kind in _BINDING_CONFIGS.items():
        if name in configs:
            known[name] = kind(configs.pop(name))
    return {
        "address": "{prefix}" + topic.name,
        "title": topic.name,
        "description": topic.doc,
        "messages": {
            name: {"$ref": f"#/components/messages/{name}"} for name in _messages_of(topic)
        },
        "parameters": {"prefix": {"$ref": "#/components/parameters/prefix"}},
        "bindings": {
            "kafka": {
                "partitions": partitions_of(topic, PARTITIONS),
                "replicas": REPLICATION,
                "topicConfiguration": known,
                "bindingVersion": _KAFKA_BINDING,
            }
        },
        "x-key": topic.key,
        "x-topic-settings": configs,
    }


def _messages_of(topic: Topic) -> list[str]:
    names = [kind.__name__ for kind in topic.records]
    if topic.name == "samples":
        return ["NodeSamplePacked", *names]
    return names or ["ImageChunk"]


def _messages(kinds: tuple[type[Any], ...]) -> Json:
    made: Json = {
        "NodeSamplePacked": {
            "summary": "A node sample as packed columns, what node agents send; see packed.json.",
            "contentType": "application/vnd.slackwater.packed",
            "headers": _headers(codec.ENC_PACKED),
            "payload": {"$ref": "#/components/schemas/Packed"},
        },
        "ImageChunk": {
            "summary": "One chunk of a partition's state; private to the workers.",
            "contentType": "application/octet-stream",
            "payload": {"$ref": "#/components/schemas/Chunk"},
        },
    }
    for kind in kinds:
        made[kind.__name__] = {
            "summary": (kind.__doc__ or "").strip().splitlines()[0],
            "contentType": "application/json",
            "payload": {"$ref": f"#/components/schemas/{kind.__name__}"},
        }
        if kind is not records.NodeMinute:  # Faust writes the table's log, without headers
            enc = codec.ENC_TICK if kind is records.Tick else codec.ENC_JSON
            made[kind.__name__]["headers"] = _headers(enc)
    return made


def _headers(enc: bytes) -> Json:
    return {
        "type": "object",
        "required": ["enc", "v"],
        "properties": {
            "enc": {"type": "string", "const": enc.decode()},
            "v": {"type": "string", "description": "schema version", "const": str(codec.VERSION)},
        },
    }


def _packed_payload() -> Json:
    return {
        "type": "string",
        "format": "binary",
        "maxLength": packed.MAX_SAMPLE_BYTES,
        "description": "Header, node name, directory, payload; laid out in packed.json.",
    }


def _chunk_payload() -> Json:
    return {"type": "string", "format": "binary", "description": "Opaque to everyone else."}


def _struct_fields(rows: tuple[tuple[str, str, str], ...]) -> list[Json]:
    names = {"H": "u16", "I": "u32", "Q": "u64", "q": "i64", "4s": "4 bytes", "16s": "16 bytes"}
    sizes = {"H": 2, "I": 4, "Q": 8, "q": 8, "4s": 4, "16s": 16}
    fields, at = [], 0
    for name, code, doc in rows:
        fields.append({"offset": at, "name": name, "type": names[code], "doc": doc})
        at += sizes[code]
    return fields


def _component(component: Component) -> str:
    return "subscriber" if component == "any" else component


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def _dump(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    """Write every file; run from the project's root, whatever the current folder."""
    root = __file__.rpartition("/schemas/")[0]
    for path, text in files().items():
        with open(f"{root}/{path}", "w", encoding="utf-8") as file:  # noqa: PTH123 - no pathlib here
            file.write(text)


if __name__ == "__main__":
    main()
