"""Which change of policy may be published, and what the record says of it."""

from __future__ import annotations

import dataclasses

import pytest
from msgspec.structs import replace as with_

from schemas.policy import digest, parse, published
from schemas.records import PolicyRecord
from streams import policy_gate
from streams.account import Account
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
    return [change([], text, Wish("ana", "begin", forced=True))]


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


def test_what_was_taken_back_does_not_come_again_by_itself() -> None:
    versions = first()
    machine = Wish("a job", canary=CANARY, only_new=True)
    versions.append(change(versions, NEW, machine))
    assert "version 2 says the same already" in refused(versions, NEW, machine)
    versions.append(policy_gate.going_back(versions, None, Wish("ana")))
    said = refused(versions, NEW, machine)
    assert "version 2 said the same before" in said
    assert "the newest is 3: nothing published" in said
    onward = [*versions, change(versions, NEW, FORCED)]
    said = refused(onward, OLD, Wish("a job", only_new=True))
    assert "version 3 said the same before" in said
    wider = change(versions, NEW, Wish("a job", canary={"pool": "b"}, only_new=True))
    by_hand = change(versions, NEW, Wish("ana", canary=CANARY))
    assert (wider.version, by_hand.version) == (4, 4)


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


PILOT, EXPAND = staged("protect", ("a", "pilot")), staged("protect", ("a", "expand"))
MET = Account(
    net_benefit=1, stage="pilot", observed_days=14, node_days=140, evictions=140,
    suppressed_permille=200, online_violations=0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("account", "says"),
    [
        (None, "there is no positive account of the pilot"),
        (Account(), "there is no positive account of the pilot"),
        (with_(MET, net_benefit=0), "there is no positive account"),
        (with_(MET, net_benefit=-1), "there is no positive account"),
        (with_(MET, stage="protect"), "the account tells of stage protect, not of the pilot"),
        (with_(MET, stage=None), "the account tells of no stage"),
        (
            with_(MET, observed_days=13),
            "rollout.pilot.exit.observed_days: at least 14, the account says 13",
        ),
        (with_(MET, observed_days=None), "observed_days: at least 14, the account does not say"),
        (with_(MET, suppressed_permille=201), "suppressed_permille: at most 200"),
        (with_(MET, online_violations=1), "online_violations: at most 0, the account says 1"),
        (
            with_(MET, evictions=141),
            "evictions_per_1000_node_days: at most 1000, the account says 141 in 140 node-days",
        ),
        (with_(MET, node_days=0), "needs evictions and node_days in the account"),
        (with_(MET, evictions=None), "needs evictions and node_days in the account"),
    ],
)
def test_a_pilot_is_expanded_when_each_condition_is_met_and_the_unmet_one_is_named(
    account: Account | None, says: str
) -> None:
    wish = Wish("ana", "x", CANARY, account=account)
    line = refused(first(PILOT), EXPAND, wish)
    assert line.startswith("refused: nodes a would be expanded, but ")
    assert says in line
    assert line.count("; ") == 1  # it alone, and that a refusal can be forced
    overruled = change(first(PILOT), EXPAND, dataclasses.replace(wish, forced=True))
    assert overruled.forced


def test_an_account_that_meets_every_condition_expands_the_canary_and_again_the_fleet() -> None:
    versions = first(PILOT)
    paid = change(versions, EXPAND, Wish("ana", "x", CANARY, account=MET))
    assert not paid.forced
    with pytest.raises(CannotRun, match="no positive account"):
        policy_gate.promotion([*versions, paid], Wish("ana"))
    assert not policy_gate.promotion([*versions, paid], Wish("ana", account=MET)).forced


def test_the_conditions_are_those_in_force_before_the_change_on_these_nodes() -> None:
    strict = "rollout: {stage: pilot, pilot: {exit: {observed_days: 60}}}"
    own = f"rollout: {{stage: protect}}\nnodes: [{{name: a, match: {{pool: a}}, {strict}}}]\n"
    loosened = own.replace("pilot, pilot: {exit: {observed_days: 60}}", "expand")
    wish = Wish("ana", "x", CANARY, account=MET)
    assert "observed_days: at least 60, the account says 14" in refused(first(own), loosened, wish)
    versions = first(own)
    versions.append(change(versions, own.replace("60", "7"), FORCED))
    assert not change(versions, loosened, wish).forced


def test_the_first_version_may_not_expand_either() -> None:
    text = staged("expand")
    assert "the cluster would be expanded" in refused([], text, Wish("ana", "begin"))
    assert change([], text, FORCED).forced


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
