"""Keys of the ledger: what each carries, whom it speaks for, and where it lies."""

from __future__ import annotations

import pytest

from schemas import ledger
from schemas.errors import BadRecord
from schemas.ledger import LedgerKey
from schemas.ledger_records import LedgerClaim, LedgerGrant, LedgerReign
from schemas.records import LedgerEntry

CLAIM = LedgerClaim("n", "yarn", "c1", 1000, 5)
GRANT = LedgerGrant("n", "yarn", "c1", True, "", 1)


@pytest.mark.parametrize(
    ("key", "parts", "kind"),
    [
        (b"n", LedgerKey("n"), LedgerEntry),
        (ledger.entry_key("n", "yarn"), LedgerKey("n", "yarn"), LedgerEntry),
        (ledger.claim_key("n", "yarn", "c1"), LedgerKey("n", "yarn", "c1"), LedgerClaim),
        (ledger.grant_key("n", "yarn", "c1"), LedgerKey("n", "yarn", "c1", True), LedgerGrant),
    ],
)
def test_keys_are_what_they_were_made_of(key: bytes, parts: LedgerKey, kind: type) -> None:
    assert ledger.parse(key) == parts
    assert ledger.kind_of(key) is kind
    assert ledger.home(key) == b"n"


def test_the_reign_is_told_by_its_key() -> None:
    assert ledger.kind_of(ledger.REIGN_KEY) is LedgerReign


@pytest.mark.parametrize(
    "key", [None, b"", b"/", b"n/", b"n//c", b"n/a/b/c", b"n/a/b/answer/x", b"\xff", b"~x", b"n/~"]
)
def test_other_keys_are_refused(key: bytes | None) -> None:
    with pytest.raises(BadRecord) as caught:
        ledger.parse(key)
    assert caught.value.reason == "key_mismatch"


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (b"m/yarn", LedgerEntry("n", "yarn", 1, 1)),
        (b"n/k8s", LedgerEntry("n", "yarn", 1, 1)),
        (b"m", LedgerEntry("n", "yarn", 1, 1)),
        (b"n/yarn/c2", CLAIM),
        (b"n/k8s/c1/answer", GRANT),
    ],
)
def test_a_record_speaks_for_its_key_alone(key: bytes, record: object) -> None:
    with pytest.raises(BadRecord):
        ledger.check(ledger.parse(key), record)


def test_its_own_key_and_the_key_of_before_are_taken() -> None:
    ledger.check(ledger.parse(b"n"), LedgerEntry("n", "yarn", 1, 1))
    ledger.check(ledger.parse(b"n/yarn"), LedgerEntry("n", "yarn", 1, 1))
    ledger.check(ledger.parse(b"n/yarn/c1"), CLAIM)
    ledger.check(ledger.parse(b"n/yarn/c1/answer"), GRANT)


def test_a_schedulers_name_must_fit_into_a_key() -> None:
    assert ledger.check_scheduler("hadoop-yarn") == "hadoop-yarn"
    for name in ("", "a/b", "~x", "x" * 128):
        with pytest.raises(ValueError, match="scheduler"):
            ledger.check_scheduler(name)
