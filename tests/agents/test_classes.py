"""Classes of pods from labels and numbers, and the rules of what a pod may claim."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.classes import (
    DEFAULT_PRIORITY,
    Classes,
    classify,
    priority_class_of,
    priority_of,
    qos_of,
)
from agents.pod_rules import Claim, violations
from schemas.records import PodFact

QOS = st.sampled_from(["LSE", "LSR", "LS", "BE", "SYSTEM", ""])
PRIORITY_CLASS = st.sampled_from(["prod", "mid", "batch", "free", ""])
NUMBERS = st.one_of(st.none(), st.integers(-10, 12_000), st.just(2_000_000_000))
KUBERNETES = st.sampled_from(["Guaranteed", "Burstable", "BestEffort"])
LABELS = st.one_of(st.none(), QOS, PRIORITY_CLASS, st.text(max_size=5))


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ((None, None, None, "Guaranteed"), Classes("", "LSR", "", "prod", 9500)),
        ((None, None, 7000, "Burstable"), Classes("", "LS", "mid", "mid", 7000)),
        ((None, "gold", 7000, "Burstable"), Classes("", "LS", "", "prod", 7000)),
        (("BE", "", 3500, "Guaranteed"), Classes("BE", "BE", "", "batch", 3500)),
        (("ls", "free", 0, "BestEffort"), Classes("", "BE", "free", "free", 3500)),
        ((None, None, -7, "odd"), Classes("", "", "", "", -7)),
    ],
)
def test_labels_come_first_then_numbers_then_kubernetes(
    said: tuple[Any, Any, Any, str], expected: Classes
) -> None:
    assert classify(*said) == expected


@given(LABELS, LABELS, NUMBERS, KUBERNETES)
def test_every_pod_has_a_class_and_a_number(
    qos: str | None, priority: str | None, number: int | None, kubernetes: str
) -> None:
    found = classify(qos, priority, number, kubernetes)
    assert found.qos
    assert found.priority_class
    assert found.qos_raw in ("", found.qos)
    assert found.priority_raw in ("", found.priority_class)
    assert found.priority == (number or DEFAULT_PRIORITY[found.priority_class])


@given(QOS, PRIORITY_CLASS, NUMBERS.map(lambda number: number or 0))
def test_facts_of_the_inventory_follow_the_same_table(
    qos: Any, priority_class: Any, number: int
) -> None:
    pod = PodFact("u", "n", qos=qos, priority_class=priority_class, priority=number)
    found = classify(qos or None, priority_class or None, number, "Burstable")
    assert (qos_of(pod), priority_class_of(pod), priority_of(pod)) == (
        found.qos,
        found.priority_class,
        found.priority,
    )


@pytest.mark.parametrize(
    ("new", "broken"),
    [
        (Claim("", ""), ()),
        (Claim("BE", "batch", batch_cpu_milli=1), ()),
        (Claim("", "", batch_memory_bytes=1), ("batch_requires_be",)),
        (Claim("BE", "prod"), ("qos_priority_combination",)),
        (Claim("LSR", "prod"), ("cpu_request_required",)),
        (Claim("LSE", "free", cpu_milli=1001), ("cpu_request_integer",)),
        (
            Claim("LSR", "mid", batch_cpu_milli=5),
            ("batch_requires_be", "cpu_request_required", "qos_priority_combination"),
        ),
    ],
)
def test_what_a_new_pod_may_claim(new: Claim, broken: tuple[str, ...]) -> None:
    assert violations(new, None) == broken


def test_an_update_keeps_class_qos_and_sub_priority() -> None:
    old, new = Claim("LS", "prod", "7"), Claim("SYSTEM", "mid", "8")
    named = ("priority_class_immutable", "qos_immutable", "sub_priority_immutable")
    assert violations(new, old) == named
    assert violations(new, old, skip_sub_priority=True) == named[:2]
    assert violations(new, None) == ()


CLAIMS = st.builds(
    Claim, QOS, PRIORITY_CLASS, st.sampled_from(["", "5", "x"]), st.integers(0, 5000),
    st.integers(0, 2), st.integers(0, 2),
)  # fmt: skip


@given(CLAIMS, CLAIMS)
def test_violations_are_sorted_and_an_unchanged_pod_breaks_what_it_broke(
    old: Claim, new: Claim
) -> None:
    found = violations(new, old)
    assert list(found) == sorted(set(found))
    assert violations(new, new) == violations(new, None)
    assert set(violations(new, None)) <= set(found)
