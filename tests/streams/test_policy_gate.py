"""Which change of policy may be published, and what the record says of it."""

from __future__ import annotations

from typing import Any

import pytest

from schemas.policy import digest, parse, published
from schemas.records import PolicyRecord
from streams import policy_gate
from streams.policy_gate import Wish
from streams.topic_reader import CannotRun

OLD, NEW = "suppress: {threshold_percent: 60}", "suppress: {threshold_percent: 50}"
CANARY = {"pool": "a"}
FORCED = Wish("ana", "the sky falls", forced=True)


def change(versions: list[PolicyRecord], text: str, wish: Wish) -> PolicyRecord:
    return policy_gate.change(versions, text, parse(text, "test"), wish)


def refused(versions: list[PolicyRecord], text: str, wish: Wish) -> str:
    with pytest.raises(CannotRun) as error:
        change(versions, text, wish)
    return str(error.value)


def first(text: str = OLD) -> list[PolicyRecord]:
    return [change([], text, Wish("ana", "begin"))]


def test_the_first_version_needs_no_canary_and_can_have_none() -> None:
    (record,) = first()
    assert (record.version, record.canary, record.forced) == (1, {}, False)
    assert record.digest == digest(parse(OLD, "test"))
    assert "cannot have a canary" in refused([], OLD, Wish(canary=CANARY))


def test_a_whole_fleet_is_not_changed_at_once_unless_forced_with_who_and_why() -> None:
    versions = first()
    assert "name a canary" in refused(versions, NEW, Wish("ana", "because"))
    for wish in (Wish("ana", " ", forced=True), Wish("", "why", forced=True)):
        assert "needs a --note and an author" in refused(versions, NEW, wish)
    record = change(versions, NEW, FORCED)
    assert (record.forced, record.author, record.note) == (True, "ana", "the sky falls")


def test_a_canary_record_holds_both_texts_and_its_promotion_only_the_new_one() -> None:
    versions = first()
    versions.append(change(versions, NEW, Wish("ana", canary=CANARY)))
    assert (versions[1].text, versions[1].elsewhere, versions[1].forced) == (NEW, OLD, False)
    assert versions[1].digest == published(versions[1]).digest != digest(parse(NEW, "test"))
    by_hand = change(versions, NEW, Wish("bob"))
    promoted = policy_gate.promotion(versions, Wish("bob"))
    assert by_hand == promoted
    assert (promoted.version, promoted.canary, promoted.elsewhere) == (3, {}, "")


def test_a_second_canary_leaves_what_holds_elsewhere_and_another_text_is_no_promotion() -> None:
    versions = first()
    versions.append(change(versions, NEW, Wish("ana", canary=CANARY)))
    third = "suppress: {threshold_percent: 40}"
    assert "name a canary" in refused(versions, third, Wish("ana"))
    wider = change(versions, NEW, Wish("ana", canary={"pool": "b"}))
    assert (wider.version, wider.elsewhere) == (3, OLD)
    assert change(versions, third, Wish("ana", canary=CANARY)).elsewhere == OLD


def test_what_changes_nothing_is_refused() -> None:
    versions = first()
    assert "says the same already" in refused(versions, OLD, FORCED)
    assert "says the same already" in refused(versions, "name: default\n" + OLD, FORCED)


def staged(base: str, *entries: tuple[str, str]) -> str:
    nodes = ", ".join(
        f"{{name: {name}, match: {{pool: {name}}}, rollout: {{stage: {stage}}}}}"
        for name, stage in entries
    )
    return f"rollout: {{stage: {base}}}\nnodes: [{nodes}]\n"


@pytest.mark.parametrize(
    ("before", "after", "expanded"),
    [
        (staged("protect"), staged("expand"), ["the cluster"]),
        (staged("protect"), staged("protect", ("a", "pilot")), []),
        (staged("protect", ("a", "pilot")), staged("protect", ("a", "expand")), ["nodes a"]),
        (
            staged("protect", ("a", "expand")),
            staged("protect", ("a", "expand"), ("b", "pilot")),
            [],
        ),
        (staged("expand", ("a", "protect")), staged("expand", ("a", "expand")), ["nodes a"]),
        (staged("expand"), staged("expand", ("a", "expand")), []),
        (staged("expand"), staged("observe"), []),
    ],
)
def test_an_expansion_is_gated_by_the_account(before: str, after: str, expanded: list[str]) -> None:
    assert policy_gate.expanding(parse(before, "b"), parse(after, "a")) == expanded
    versions = first(before)
    canary = {"pool": "a"}
    bad: list[Any] = [None, {}, {"net_benefit": 0}, {"net_benefit": -1}, {"net_benefit": True},
                      {"net_benefit": "9"}]  # fmt: skip
    for account in bad:
        wish = Wish("ana", "x", canary, account=account)
        if expanded:
            assert "without a positive account" in refused(versions, after, wish)
        else:
            assert not change(versions, after, wish).forced
    paid = change(versions, after, Wish("ana", "x", canary, account={"net_benefit": 1}))
    assert not paid.forced
    overruled = change(versions, after, Wish("ana", "x", canary, forced=True))
    assert overruled.forced is bool(expanded)
    if expanded:
        with pytest.raises(CannotRun, match="positive account"):
            policy_gate.promotion([*versions, paid], Wish("ana"))


def test_going_back_is_never_refused_and_undoes_a_canary_first() -> None:
    versions = first(staged("expand"))
    versions.append(change(versions, NEW, FORCED))
    versions.append(change(versions, staged("observe"), Wish("ana", canary=CANARY)))
    back = policy_gate.going_back(versions, None, Wish("ana"))
    assert (back.text, back.canary, back.version) == (NEW, {}, 4)
    assert back.note == "rollback to what holds outside the canary"
    versions.append(back)
    again = policy_gate.going_back(versions, None, Wish("ana"))
    assert (again.text, again.note) == (staged("expand"), "rollback to version 1")
    assert policy_gate.going_back(versions, 3, Wish()).text == staged("observe")
    with pytest.raises(CannotRun, match="no version 9"):
        policy_gate.going_back(versions, 9, Wish())
    with pytest.raises(CannotRun, match="no earlier version"):
        policy_gate.going_back(first(), None, Wish())
    with pytest.raises(CannotRun, match="nothing to go back from"):
        policy_gate.going_back([], None, Wish())


def test_r9_a_version_that_may_not_run_does_not_stand_in_the_way() -> None:
    bad = PolicyRecord("default", 2, "", "suppress: {threshold_percent: 400}")
    versions = [*first(), bad]
    assert policy_gate.newest_good(versions) == versions[0]
    record = change(versions, NEW, Wish("ana", canary=CANARY))
    assert (record.version, record.elsewhere) == (3, OLD)
    assert "says the same already" in refused(versions, OLD, FORCED)
