"""What a change of policy expands: by name, and against every node that there could be."""

from __future__ import annotations

from itertools import product

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.policy import Policy, effective, parse, reach
from streams.expansion import expanded


def rollout(base: str, *entries: tuple[str, str, str], more: str = "") -> str:
    """Entries are (name, match, rollout)."""
    nodes = ", ".join(
        f"{{name: {name}, match: {{{match}}}, rollout: {{{said}}}}}"
        for name, match, said in entries
    )
    return f"rollout: {{{base}}}\nnodes: [{nodes}]\n{more}"


A, B = ("a", "pool: a", "stage: pilot"), ("a", "pool: a", "stage: expand")
BIG = ("a", "pool: a, size: big", "stage: expand")
ETL, ML = "stage: expand, workloads: [etl]", "stage: expand, workloads: [etl, ml]"


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        (rollout("stage: protect"), rollout("stage: expand"), ["the cluster"]),
        (rollout("stage: protect"), rollout("stage: protect", A), []),
        (rollout("stage: protect", A), rollout("stage: protect", B), ["nodes a"]),
        (rollout("stage: expand"), rollout("stage: expand", B), []),
        (rollout("stage: expand"), rollout("stage: observe"), []),
        (rollout("stage: protect", A), rollout("stage: expand"), ["the cluster"]),
        (
            rollout("stage: protect", B),
            rollout("stage: protect", B, ("b", "pool: b", "stage: pilot")),
            [],
        ),
        # a selector that matches more
        (rollout("stage: protect", BIG), rollout("stage: protect", B), ["nodes a"]),
        (rollout("stage: protect", B), rollout("stage: protect", BIG), []),
        (
            rollout("stage: protect", B),
            rollout("stage: protect", ("a", "pool: b", "stage: expand")),
            ["nodes a"],
        ),
        (rollout("stage: protect", B), rollout("stage: protect", ("z", *B[1:])), []),
        # what held others back is gone, or comes too early now
        (
            rollout("stage: expand", A),
            rollout("stage: expand"),
            ["the cluster on nodes with pool=a"],
        ),
        (
            rollout("stage: protect", B, ("s", "size: big", "stage: protect")),
            rollout("stage: protect", ("s", "size: big", "stage: protect"), B),
            ["nodes a on nodes with size=big"],
        ),
        (
            rollout("stage: expand", more="control_group: {group: c}"),
            rollout("stage: expand", more="control_group: {group: c, size: big}"),
            ["the cluster on nodes with group=c"],
        ),
        # more workloads in the last stage
        (rollout(ETL), rollout(ML), ["the cluster (more workloads)"]),
        (rollout(ETL), rollout("stage: expand"), ["the cluster (more workloads)"]),
        (rollout(ML), rollout(ETL), []),
        (rollout("stage: expand"), rollout(ETL), []),
        (
            rollout(ETL),
            rollout(ETL, ("b", "pool: b", "workloads: [ml]")),
            ["nodes b (more workloads)"],
        ),
    ],
)
def test_what_is_expanded(before: str, after: str, what: list[str]) -> None:
    found = expanded(parse(before, "before"), parse(after, "after"))
    assert [one.what for one in found] == what


KEYS = ("a", "b", "c")
LABELS = st.dictionaries(st.sampled_from(KEYS), st.sampled_from("12"), min_size=1, max_size=2)
STAGES = st.sampled_from(["protect", "pilot", "expand"])


@st.composite
def policies(draw: st.DrawFn) -> Policy:
    matches = draw(st.lists(LABELS, max_size=4))
    nodes = [
        {"name": f"n{i}", "match": match, "rollout": {"stage": draw(STAGES)}}
        for i, match in enumerate(matches)
    ]
    group = draw(st.one_of(st.just({}), LABELS))
    said = {"rollout": {"stage": draw(STAGES)}, "nodes": nodes, "control_group": group}
    return parse(yaml.safe_dump(said), "drawn")


def lends(policy: Policy, labels: dict[str, str]) -> bool:
    found = reach(policy, labels, "")
    return not found.control and effective(policy, found).policy.rollout.stage == "expand"


@given(policies(), policies())
def test_a_change_expands_exactly_when_some_node_that_there_could_be_is_expanded(
    before: Policy, after: Policy
) -> None:
    every = [
        {key: value for key, value in zip(KEYS, values, strict=True) if value}
        for values in product(("", "1", "2"), repeat=len(KEYS))
    ]
    some = any(lends(after, labels) and not lends(before, labels) for labels in every)
    assert bool(expanded(before, after)) is some
