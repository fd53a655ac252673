"""Layers of a policy: which value holds on a node, and what of a node's own is refused."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas import policy
from schemas.errors import BadPolicy
from schemas.policy import Policy, effective, named, reach
from schemas.records import PolicyRecord

SOURCE = "pilot.yaml"
POOLS = """
name: default
rollout: {stage: expand}
suppress: {threshold_percent: 60}
control_group: {group: control}
nodes:
  - name: pilot
    match: {pool: pilot}
    suppress: {threshold_percent: 50, floor_milli: 20}
  - name: big
    match: {pool: pilot, size: big}
    suppress: {threshold_percent: 40}
"""


def on(text: str, labels: dict[str, str] | None = None, annotation: str = "") -> policy.Effective:
    whole = policy.parse(text, SOURCE)
    return effective(whole, reach(whole, named("n0", labels or {}), annotation))


def threshold(*arguments: Any) -> int:
    return on(POOLS, *arguments).policy.suppress.threshold_percent


def test_cluster_entry_annotation_label_each_over_the_one_before() -> None:
    said = '{"suppress": {"threshold_percent": 30}}'
    label = {"slackwater.io/suppress.threshold_percent": "20"}
    assert threshold() == 60
    assert threshold({"pool": "pilot"}) == 50
    assert threshold({"pool": "pilot", "size": "big"}) == 40
    assert threshold({"pool": "pilot"}, said) == 30
    assert threshold({"pool": "pilot", **label}, said) == 20
    assert threshold(label) == 20


def test_a_layer_changes_only_the_keys_it_names() -> None:
    found = on(POOLS, {"pool": "pilot", "size": "big"}, "evict_memory: {dry_run: true}").policy
    assert found.suppress == msgspec.structs.replace(
        Policy().suppress, threshold_percent=40, floor_milli=20
    )
    assert found.evict_memory == msgspec.structs.replace(Policy().evict_memory, dry_run=True)
    assert found.loop == Policy().loop


def test_parts_of_a_section_are_laid_key_by_key_too() -> None:
    entry = "{name: a, match: {pool: a}, resctrl: {be: {enabled: true, mb_percent: 50}}}"
    text = f"{{rollout: {{stage: expand}}, nodes: [{entry}]}}"
    labels = {"pool": "a", "slackwater.io/resctrl.be.mb_percent": "40"}
    found = on(text, labels, "resctrl: {ls: {enabled: true}}").policy.resctrl
    assert (found.be.enabled, found.be.mb_percent, found.be.l3_end_percent) == (True, 40, 30)
    assert (found.ls.enabled, found.lsr.enabled) == (True, False)
    bad = on(text, {"slackwater.io/resctrl.be.mb_percent": "101"})
    assert "resctrl.be.mb_percent is 101; allowed: a whole number from 1 to 100" in bad.refused[0]
    with pytest.raises(BadPolicy, match=r"nodes\[0\].resctrl.be.mb_percent is 101"):
        policy.parse(text.replace("50", "101"), SOURCE)


def test_a_node_is_selected_by_its_name_too() -> None:
    text = "nodes: [{name: one, match: {slackwater.io/node: n0}, suppress: {floor_milli: 7}}]"
    assert on(text).policy.suppress.floor_milli == 7
    whole = policy.parse(text, SOURCE)
    other = effective(whole, reach(whole, named("n1", {"slackwater.io/node": "n0"}), ""))
    assert other.policy.suppress.floor_milli == Policy().suppress.floor_milli


@pytest.mark.parametrize(
    ("labels", "annotation", "says"),
    [
        ({}, "{", "annotation slackwater.io/policy: not YAML"),
        ({}, "suppress: {threshold_percent: 130}", "is 130; allowed: a whole number from 0 to 100"),
        ({}, "loop: {tick_ms: 1000}", "loop is no key of the policy; allowed: suppress"),
        ({}, "rollout: {stage: expand}", "rollout is no key"),
        ({}, "[1]", "a mapping with keys"),
        ({}, "evict_memory: {lower_percent: 90}", "allowed: 0 to threshold_percent - 1"),
        ({"slackwater.io/suppress.threshold_percent": "x"}, "", "threshold_percent is 'x'"),
        ({"slackwater.io/suppress.treshold": "3"}, "", "suppress.treshold is no key"),
        ({"slackwater.io/suppress.enabled": "1"}, "", "allowed: true or false"),
        ({"slackwater.io/rollout.stage": "expand"}, "", "rollout is no key"),
    ],
)
def test_r9_a_bad_layer_of_a_node_is_refused_and_the_values_below_it_stay(
    labels: dict[str, str], annotation: str, says: str
) -> None:
    found = on(POOLS, {"pool": "pilot", **labels}, annotation)
    assert found.policy == on(POOLS, {"pool": "pilot"}).policy
    (refused,) = found.refused
    assert says in refused
    sources = ["annotation slackwater.io/policy", *(f"label {key}" for key in labels)]
    assert refused.startswith(tuple(sources))


CROSSED = """nodes:
  - {name: a, match: {p: q}, evict_memory: {threshold_percent: 69}}
  - {name: b, match: {p: q}, evict_memory: {lower_percent: 69}}
"""


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("nodes: [{name: a, match: {p: q}, suppress: {threshold_percent: 300}}]",
         "nodes[0].suppress.threshold_percent is 300; allowed: a whole number from 0 to 100"),
        ("nodes: [{name: a, match: {p: q}, suppress: {treshold: 3}}]",
         "nodes[0].suppress.treshold is no key of the policy; allowed: enabled"),
        ("nodes: [{name: a, match: {}}]", "nodes[0].match is {}; allowed: a mapping of 1 to 16"),
        ("nodes: [{name: a, match: {p: 3}}]", "nodes[0].match is {'p': 3}; allowed: a mapping"),
        ("nodes: [{match: {p: q}}]", "nodes[0].name is missing"),
        ("nodes: [{name: a, match: {p: q}, blast: {}}]", "nodes[0].blast is no key"),
        ("nodes: 3", "nodes is 3; allowed: a list of at most 64 items"),
        ("nodes: [{name: a, match: {p: q}}, {name: a, match: {r: s}}]", "a comes twice"),
        ("nodes: [{name: a, match: {p: q}, evict_memory: {lower_percent: 70}}]",
         "nodes[0] a: evict_memory.lower_percent is 70"),
        (CROSSED,
         "nodes[1] b over nodes[0] a: evict_memory.lower_percent is 69"),
        ("control_group: {p: 1}", "control_group is {'p': 1}; allowed: a mapping of 0 to 16"),
        ("rollout: {stage: all}", "rollout.stage is 'all'; allowed: expand or observe or pilot"),
        ("rollout: {workloads: [1]}", "rollout.workloads[0] is 1; allowed: text of 1 to 253"),
    ],
)  # fmt: skip
def test_r9_a_bad_entry_is_refused_with_its_place_key_and_range(text: str, says: str) -> None:
    with pytest.raises(BadPolicy) as refused:
        policy.parse(text, SOURCE)
    assert str(refused.value).startswith(f"{SOURCE}: ")
    assert says in str(refused.value)


def test_what_is_written_out_is_read_back() -> None:
    whole = policy.parse(POOLS, SOURCE)
    again = policy.parse(yaml.safe_dump(msgspec.to_builtins(whole)), SOURCE)
    assert again == whole
    assert policy.digest(again) == policy.digest(whole)
    other = policy.parse(POOLS.replace("40", "41"), SOURCE)
    assert policy.digest(other) != policy.digest(whole)


STAGED = "rollout: {{stage: {}}}\ncpu_burst: {{policy: auto}}\nresctrl: {{be: {{enabled: true}}}}"


@pytest.mark.parametrize(
    ("stage", "suppress", "evict", "lends", "settings"),
    [
        ("observe", False, False, False, False),
        ("protect", True, True, False, True),
        ("pilot", True, True, True, True),
        ("expand", True, True, True, True),
    ],
)
def test_stages_switch_off_what_they_forbid(
    stage: str, suppress: bool, evict: bool, lends: bool, settings: bool
) -> None:
    found = on(STAGED.format(stage)).policy
    assert (found.suppress.enabled, found.evict_memory.enabled) == (suppress, evict)
    assert found.capacity.enabled is lends
    assert found.interference.enabled
    assert (found.cpu_burst.policy != "none", found.resctrl.be.enabled) == (settings, settings)
    assert found.capacity.memory_cap_percent == (0 if stage == "pilot" else 100)


def test_no_layer_switches_on_what_the_stage_forbids() -> None:
    text = STAGED.format("observe") + "\nsuppress: {enabled: false}"
    label = {"slackwater.io/suppress.enabled": "true", "slackwater.io/capacity.enabled": "true"}
    found = on(text, label, "suppress: {enabled: true}")
    assert found.refused == ()
    assert not found.policy.suppress.enabled
    assert not found.policy.capacity.enabled


def test_the_control_group_is_left_out_whatever_its_entries_say() -> None:
    found = on(POOLS, {"pool": "pilot", "group": "control"}).policy
    assert not found.suppress.enabled
    assert not found.capacity.enabled
    assert found.suppress.threshold_percent == 50
    assert on(POOLS, {"group": "other"}).policy.suppress.enabled


def record(text: str, **more: Any) -> PolicyRecord:
    return PolicyRecord("default", 2, "", text, **more)


def test_a_canary_has_the_new_text_and_all_others_the_old_one() -> None:
    old, new = "suppress: {threshold_percent: 50}", "suppress: {threshold_percent: 40}"
    both = policy.published(record(new, canary={"pool": "a"}, elsewhere=old))
    assert both.on({"pool": "a", "x": "y"}).suppress.threshold_percent == 40
    assert both.on({"pool": "b"}).suppress.threshold_percent == 50
    assert both.policy.suppress.threshold_percent == 50
    plain = policy.published(record(new))
    assert plain.on({"pool": "b"}) == plain.on({"pool": "a"}) == plain.policy
    digests = {plain.digest, policy.published(record(old)).digest, both.digest}
    assert len(digests) == 3
    assert plain.digest == policy.digest(plain.policy)


def test_r9_a_record_of_which_one_text_is_bad_puts_nothing_in_force() -> None:
    good, bad = "name: default", "suppress: {threshold_percent: 400}"
    for text, elsewhere in ((good, bad), (bad, good), (good, ""), (good, "name: other")):
        with pytest.raises(BadPolicy):
            policy.published(record(text, canary={"a": "b"}, elsewhere=elsewhere))


KEYS, VALUES = ("pool", "size", "group", "x"), ("pilot", "big", "control", "")


@given(st.dictionaries(st.sampled_from(KEYS), st.sampled_from(VALUES)), st.text(max_size=40))
def test_any_annotation_is_laid_or_refused_and_equal_reach_is_equal_policy(
    labels: dict[str, str], annotation: str
) -> None:
    first = on(POOLS, labels, annotation)
    assert first == on(POOLS, dict(reversed(labels.items())), annotation)
    assert first.policy == on(POOLS, labels).policy or not first.refused
