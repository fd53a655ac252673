"""S1 and S3: what is unsigned, forged, altered, moved or said for another is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import codec, signing
from schemas.codec import JSON_HEADERS, PACKED_HEADERS, TICK_HEADERS, Headers
from schemas.errors import BadRecord
from schemas.keys import BadKeys, Keys
from schemas.records import LEASE_KEY, Cause, Command, Lease
from schemas.signing import HEADER, Checker, NodeSigner, WorkerSigner
from schemas.topics import TOPICS
from tests.schemas.keyhouse import PREFIX, house, of_node

HELD = house("first")
CAUSE = Cause(1, 0, 5, 1_000, "digest", 1)
COMMAND = codec.encode(Command("1.0.5.n1.suppress", "n1", "suppress", CAUSE, 31_000, "lower", 300))
LEASE = codec.encode(Lease(CAUSE, 31_000))


@dataclass(frozen=True)
class Record:
    topic: str
    key: bytes | None
    headers: Headers
    value: bytes | None

    def by(self, signer: WorkerSigner | NodeSigner) -> Record:
        headers = signer.sign(PREFIX + self.topic, self.key, self.headers, self.value)
        return replace(self, headers=headers)


WORKER, NODE = WorkerSigner(HELD), NodeSigner.of(HELD, "n1")
GOOD = {
    "command": Record("commands", b"n1", JSON_HEADERS, COMMAND).by(WORKER),
    "lease": Record("commands", LEASE_KEY, JSON_HEADERS, LEASE).by(WORKER),
    "tick": Record("samples", None, TICK_HEADERS, b'{"partition":0}').by(WORKER),
    "sample": Record("samples", b"n1", PACKED_HEADERS, b"columns").by(NODE),
    "ack": Record("acks", b"n1", JSON_HEADERS, b"{}").by(NODE),
    "inventory": Record("inventory", b"n1", JSON_HEADERS, b"{}").by(NODE),
    "tombstone": Record("inventory", b"n1", JSON_HEADERS, None).by(NODE),
}


def checker(held: Keys = HELD, *, prefix: str = PREFIX, accept_unsigned: bool = False) -> Checker:
    return Checker(prefix, held, lambda: None, accept_unsigned=accept_unsigned)


def verdict(record: Record, by: Checker) -> str:
    try:
        by.check(record.topic, record.key, tuple(record.headers), record.value)
    except BadRecord as error:
        return error.reason
    return "good"


def unsigned(record: Record) -> Record:
    return replace(record, headers=[h for h in record.headers if h[0] != HEADER])


def with_seal(record: Record, change: Callable[[bytes], bytes]) -> Record:
    seal = dict(record.headers)[HEADER]
    return replace(unsigned(record), headers=[*unsigned(record).headers, (HEADER, change(seal))])


@pytest.mark.parametrize("name", GOOD)
def test_what_is_signed_is_taken(name: str) -> None:
    assert verdict(GOOD[name], checker()) == "good"


ATTACKS: dict[str, tuple[Callable[[Record], Record], str]] = {
    "no signature": (unsigned, "unsigned"),
    "an empty one": (lambda r: with_seal(r, lambda _: b""), "unknown_key"),
    "cut short": (lambda r: with_seal(r, lambda s: s[:-1]), "bad_signature"),
    "longer": (lambda r: with_seal(r, lambda s: s + b"\0"), "bad_signature"),
    "only the id": (lambda r: with_seal(r, lambda s: s[:8]), "bad_signature"),
    "zeros": (lambda r: with_seal(r, lambda s: s[:8] + bytes(len(s) - 8)), "bad_signature"),
    "a key nobody has": (lambda r: with_seal(r, lambda s: b"8 octets" + s[8:]), "unknown_key"),
    "another value": (lambda r: replace(r, value=b"[]"), "bad_signature"),
    "another node's key": (lambda r: replace(r, key=b"n2"), "bad_signature"),
    "another encoding": (
        lambda r: replace(r, headers=[("enc", b"x"), *r.headers[1:]]),
        "bad_signature",
    ),
    "a later header that overrules": (
        lambda r: replace(r, headers=[*r.headers, ("v", b"2")]),
        "bad_signature",
    ),
    "a part of the key moved into the value": (
        lambda r: replace(
            r, key=(r.key or b"") + (r.value or b"x")[:1], value=(r.value or b"")[1:]
        ),
        "bad_signature",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("name", GOOD)
def test_s1_a_table_of_forgeries(name: str, attack: str) -> None:
    change, reason = ATTACKS[attack]
    if (name, attack) == ("tick", "another encoding"):
        reason = "unknown_key"  # it would be a node's then
    forged = change(GOOD[name])
    assert verdict(forged, checker()) == reason
    if reason != "unsigned":  # also during a change-over
        assert verdict(forged, checker(accept_unsigned=True)) == reason


@pytest.mark.parametrize("name", GOOD)
@given(data=st.data())
def test_no_bit_may_change(name: str, data: st.DataObject) -> None:
    record = GOOD[name]
    if record.value is None:
        return
    whole = bytearray(record.value)
    bit = data.draw(st.integers(0, 8 * len(whole) - 1))
    whole[bit // 8] ^= 1 << bit % 8
    assert verdict(replace(record, value=bytes(whole)), checker()) == "bad_signature"


def test_the_same_record_elsewhere_is_another() -> None:
    ack, command = GOOD["ack"], GOOD["command"]
    assert verdict(replace(ack, topic="inventory"), checker()) == "bad_signature"
    assert verdict(command, checker(prefix="other-installation.")) == "bad_signature"
    assert verdict(replace(GOOD["tick"], topic="commands"), checker()) == "bad_signature"


def test_s3_a_node_speaks_for_itself_only() -> None:
    stolen = NodeSigner.of(of_node(HELD, "n2"), "n2")  # all that n2 has
    for_another = Record("samples", b"n1", PACKED_HEADERS, b"columns").by(stolen)
    assert verdict(for_another, checker()) == "bad_signature"
    tick = Record("samples", None, TICK_HEADERS, b"{}").by(stolen)
    assert verdict(tick, checker()) == "unknown_key"
    order = Record("commands", b"n1", JSON_HEADERS, COMMAND).by(stolen)
    assert verdict(order, checker(of_node(HELD, "n1"))) == "unknown_key"
    with pytest.raises(BadKeys, match="this is 'n1'"):
        NodeSigner.of(of_node(HELD, "n2"), "n1")


def test_a_tombstone_is_no_empty_value() -> None:
    assert verdict(replace(GOOD["tombstone"], value=b""), checker()) == "bad_signature"


def test_signing_twice_gives_the_same_bytes() -> None:
    """What a second worker or a crash says again is byte-identical, headers included."""
    for signer in (WorkerSigner(house("first")), WorkerSigner(HELD)):
        record = Record("commands", b"n1", JSON_HEADERS, COMMAND).by(signer)
        assert record == GOOD["command"]


def test_a_key_is_changed_without_a_gap() -> None:
    old, both = house("first"), house("first", "second")
    turned = house("second", "first")
    by_old, by_new = WorkerSigner(old), WorkerSigner(turned)
    record = Record("commands", b"n1", JSON_HEADERS, COMMAND)
    for held in (both, turned):
        assert {verdict(record.by(s), checker(held)) for s in (by_old, by_new)} == {"good"}
    assert verdict(record.by(by_new), checker(old)) == "unknown_key"
    assert verdict(record.by(by_old), checker(house("second"))) == "unknown_key"
    sample = Record("samples", b"n1", PACKED_HEADERS, b"columns")
    for held in (both, turned):
        for mine in (old, house("second")):
            signer = NodeSigner.of(of_node(mine, "n1"), "n1")
            assert verdict(sample.by(signer), checker(held)) == "good"


def test_a_key_that_came_since_is_read_when_it_is_met() -> None:
    answers = [None, house("first", "second")]
    one = Checker(PREFIX, HELD, lambda: answers.pop(0))
    record = Record("commands", b"n1", JSON_HEADERS, COMMAND).by(WorkerSigner(house("second")))
    assert verdict(record, one) == "unknown_key"
    assert verdict(record, one) == "good"
    assert verdict(GOOD["command"], one) == "good"


def test_during_a_change_over_the_unsigned_are_counted() -> None:
    lenient = checker(accept_unsigned=True)
    assert verdict(unsigned(GOOD["command"]), lenient) == "good"
    assert lenient.accepted_unsigned == 1


def test_topics_that_nobody_signs_pass() -> None:
    assert verdict(Record("capacity", b"n1", JSON_HEADERS, b"{}"), checker()) == "good"


def test_every_topic_that_a_node_writes_is_signed() -> None:
    assert {topic.name for topic in TOPICS if "node" in topic.writers} == signing.NODE_SAYS
    assert {t.name for t in TOPICS if "node" in t.readers} >= signing.WORKER_SAYS


def test_a_worker_without_its_key_says_so() -> None:
    with pytest.raises(BadKeys, match="keys new"):
        WorkerSigner(of_node(HELD, "n1"))
    with pytest.raises(BadKeys, match="keys node n1"):
        NodeSigner.of(Keys({}), "n1")
