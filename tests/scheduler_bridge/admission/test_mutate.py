"""Profiles, translation and gates on JSON alone: twice is once, and the patch says it all."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scheduler_bridge.admission import profile
from scheduler_bridge.admission.mutate import Changed, mutate
from scheduler_bridge.admission.names import DRAWN_ANNOTATION, EXTENDED_SPEC, Resources
from scheduler_bridge.admission.patch import difference
from scheduler_bridge.admission.profile import Priority
from scheduler_bridge.admission.rules import Rules, parse
from schemas.errors import BadPolicy
from tests.scheduler_bridge.admission.pods import BE, patched, pod

NAMES = Resources()
PRIORITIES = {"low": Priority(5500), "mid": Priority(7100), "free": Priority(3100, "Never")}
DATA = {"team": "data"}
PLAIN = """
profiles:
  - {name: b, namespaces: {match_labels: {team: data}}, labels: {x: late}, qos: BE,
     priority_class_name: PRIORITY}
  - {name: a, pods: {match_expressions: [{key: app, operator: Exists}]}, labels: {x: soon, y: "1"}}
"""
json_values = some.recursive(
    some.none() | some.booleans() | some.integers(-3, 3) | some.text("ab/~", max_size=3),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(
        some.text("ab/~", max_size=3), inner, max_size=3
    ),
    max_leaves=12,
)  # fmt: skip
quantities = some.sampled_from(["1", "500m", "0", "2k", "1Gi", "300M", "1e3", "0.5"])
amounts = some.dictionaries(
    some.sampled_from(["cpu", "memory", "ephemeral-storage", "kubernetes.io/batch-cpu"]), quantities
)


def changed(rules: Rules, document: dict[str, Any], lot: str = "lot") -> Changed:
    return mutate(document, "n", DATA, lot, rules, NAMES, PRIORITIES)


def after(rules: Rules, document: dict[str, Any], lot: str = "lot") -> Any:
    return patched(document, changed(rules, document, lot).patch)


def rules_with(priority: str) -> Rules:
    return parse(PLAIN.replace("PRIORITY", priority), "rules.yaml")


@settings(deadline=None)
@given(json_values, json_values)
def test_a_patch_makes_the_one_of_the_other(before: Any, wanted: Any) -> None:
    assert patched(before, difference(before, wanted)) == wanted
    assert difference(wanted, wanted) == []


@settings(deadline=None)
@given(amounts, amounts, amounts, some.sampled_from(["low", "mid", "free"]))
def test_what_a_first_call_made_a_second_leaves_as_it_is(
    requests: dict[str, str], limits: dict[str, str], init: dict[str, str], priority: str
) -> None:
    rules = rules_with(priority)
    document = pod(requests, limits=limits, labels={"app": "x"})
    document["spec"]["initContainers"] = [{"name": "i", "resources": {"limits": init}}]
    original = copy.deepcopy(document)
    once = after(rules, document)
    assert document == original, "the review's own pod is not touched"
    assert changed(rules, once, "another lot").patch == []
    for container in (*once["spec"]["containers"], *once["spec"]["initContainers"]):
        for kind in ("requests", "limits"):
            assert not {"cpu", "memory"} & (container["resources"].get(kind) or {}).keys()


def test_profiles_apply_in_the_order_of_their_names_the_later_over_the_earlier() -> None:
    made = after(rules_with("low"), pod({"cpu": "1"}, labels={"app": "x"}))
    assert made["metadata"]["labels"] == {
        "app": "x", "x": "late", "y": "1", "koordinator.sh/qosClass": "BE",
    }  # fmt: skip
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (
        5500, "PreemptLowerPriority",
    )  # fmt: skip
    assert made["spec"]["containers"][0]["resources"]["requests"] == {
        "kubernetes.io/batch-cpu": "1000"
    }


def test_what_no_profile_chooses_and_nobody_marked_is_not_changed() -> None:
    plain = parse("profiles: [{name: a, pods: {match_labels: {app: x}}, qos: BE}]", "r")
    assert changed(plain, pod({"cpu": "1"}, limits={"memory": "1Gi"})).patch == []


def test_mid_pods_ask_for_mid_resources_and_names_may_be_others() -> None:
    made = after(rules_with("mid"), pod({"cpu": "1500m", "memory": "1Gi"}))
    assert made["spec"]["containers"][0]["resources"]["requests"] == {
        "kubernetes.io/mid-cpu": "1500", "kubernetes.io/mid-memory": "1Gi",
    }  # fmt: skip
    names = Resources(batch_cpu="example.com/cpu")
    patch = mutate(pod({"cpu": "1"}), "n", DATA, "l", rules_with("low"), names, PRIORITIES).patch
    asked = patched(pod({"cpu": "1"}), patch)["spec"]["containers"][0]["resources"]["requests"]
    assert asked == {"example.com/cpu": "1000"}
    with pytest.raises(ValueError, match="want one with a domain"):
        Resources(batch_cpu="cpu")


def test_a_patch_is_small() -> None:
    rules = parse("profiles: [{name: a, pods: {match_labels: {app: x}}}]", "r")
    document = pod(
        {"cpu": "1", "kubernetes.io/x": "1"}, labels={"app": "x", **BE}, priority=5000, limits={}
    )
    paths = {one["path"]: one["op"] for one in changed(rules, document).patch}
    base = "/spec/containers/0/resources"
    assert paths == {
        "/metadata/annotations": "add",
        f"{base}/limits": "remove",
        f"{base}/requests/cpu": "remove",
        f"{base}/requests/kubernetes.io~1batch-cpu": "add",
    }


def test_a_part_of_all_pods_is_a_part_and_the_lot_is_drawn_once() -> None:
    rules = parse(
        "profiles: [{name: a, pods: {match_labels: {app: x}}, percent: 30, qos: BE}]", "r"
    )
    taken = 0
    for lot in range(2000):
        made = after(rules, pod(labels={"app": "x"}), str(lot))
        again = after(rules, made, "another")
        assert again == made
        taken += made["metadata"]["labels"].get("koordinator.sh/qosClass") == "BE"
        assert DRAWN_ANNOTATION in made["metadata"]["annotations"]
    assert 500 < taken < 700
    none = parse("profiles: [{name: a, pods: {match_labels: {app: x}}, percent: 0, qos: BE}]", "r")
    assert "koordinator.sh/qosClass" not in after(none, pod(labels={"app": "x"}))["metadata"][
        "labels"
    ]  # fmt: skip


def test_labels_are_copied_and_lengthened_once() -> None:
    rules = parse(
        """
profiles:
  - name: a
    pods: {match_labels: {app: x}}
    label_from: {copy: app, none: missing}
    annotation_from: {note: other}
    label_suffixes: {tier: -batch, absent: -batch}
""",
        "r",
    )
    made = after(rules, pod(labels={"app": "x", "tier": "gold"}, annotations={"other": "o"}))
    assert made["metadata"]["labels"] == {
        "app": "x", "tier": "gold-batch", "copy": "x", "none": "",
    }  # fmt: skip
    assert made["metadata"]["annotations"] == {"other": "o", "note": "o"}
    assert changed(rules, made).patch == []


def test_a_selector_that_looks_at_what_a_profile_sets_is_refused() -> None:
    rules = parse(
        """
profiles:
  - {name: a, pods: {match_labels: {x: y}}}
  - {name: b, pods: {match_labels: {app: y}}, labels: {x: z}}
""",
        "r.yaml",
    )
    with pytest.raises(BadPolicy, match=r"r.yaml: profiles\[0\].pods looks at label x, which pro"):
        profile.check(rules.profiles, "r.yaml")
    copies = parse(
        "profiles: [{name: a, pods: {match_labels: {p: q}}, qos: BE, "
        "label_from: {l: koordinator.sh/qosClass}}]",
        "r.yaml",
    )
    with pytest.raises(BadPolicy, match=r"label_from looks at label koordinator\.sh/qosClass"):
        profile.check(copies.profiles, "r.yaml")


def test_a_free_pods_wish_is_noted_and_survives_defaults_put_in_later() -> None:
    document = pod({"cpu": "2"}, limits={"memory": "1Gi"}, labels=BE, priority=3000)
    made = after(Rules(), document)
    note = json.loads(made["metadata"]["annotations"][EXTENDED_SPEC])
    assert note == {
        "containers": {
            "main": {"limits": {"memory": str(1 << 30)}, "requests": {"cpu": "2"}}
        }
    }  # fmt: skip
    made["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "700m"}}
    again = after(Rules(), made)
    assert json.loads(again["metadata"]["annotations"][EXTENDED_SPEC])["containers"]["main"][
        "requests"
    ] == {"cpu": "2"}  # fmt: skip
    assert not again["spec"]["containers"][0]["resources"]


def test_a_note_of_somebody_else_about_a_pod_that_asks_for_nothing_is_taken_away() -> None:
    lie = {EXTENDED_SPEC: '{"containers":{"main":{"requests":{"kubernetes.io/batch-cpu":"9"}}}}'}
    made = after(Rules(), pod({"cpu": "1"}, annotations=lie))
    assert EXTENDED_SPEC not in made["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("notes", "spec", "gates"),
    [
        ({"gang.scheduling.koordinator.sh/min-available": "2"}, {}, ["slackwater.io/gang"]),
        ({"gang.scheduling.koordinator.sh/min-available": "1"}, {}, []),
        ({"gang.scheduling.koordinator.sh/min-available": "2"}, {"nodeName": "n1"}, []),
        ({}, {}, []),
        ({"gang.scheduling.koordinator.sh/min-available": "2"},
         {"schedulingGates": [{"name": "slackwater.io/gang"}]}, ["slackwater.io/gang"]),
    ],
)  # fmt: skip
def test_members_of_a_gang_of_more_than_one_are_gated(
    notes: dict[str, str], spec: dict[str, Any], gates: list[str]
) -> None:
    notes = {"gang.scheduling.koordinator.sh/name": "g", **notes}
    made = after(Rules(), pod(annotations=notes, **spec))
    assert [gate["name"] for gate in made["spec"].get("schedulingGates", [])] == gates
