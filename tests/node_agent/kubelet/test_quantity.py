"""Quantities: the forms that Kubernetes writes, and those that it does not."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_agent.kubelet.quantity import LARGEST, milli, whole


@pytest.mark.parametrize(
    ("said", "thousandths"),
    [
        ("250m", 250),
        ("1", 1000),
        (2, 2000),
        ("0.1", 100),
        (".5", 500),
        ("1.", 1000),
        ("1500u", 2),
        ("1n", 1),
        ("0", 0),
        ("1e1", 10_000),
        ("5E-1", 500),
        ("+2", 2000),
        ("2k", 2_000_000),
        (0.25, 250),
    ],
)
def test_cpu(said: object, thousandths: int) -> None:
    assert milli(said) == thousandths


@pytest.mark.parametrize(
    ("said", "units"),
    [
        ("128Mi", 128 << 20),
        ("1.5Gi", 3 << 29),
        ("1G", 10**9),
        ("1E", 10**18),
        ("1E3", 1000),
        ("12e6", 12_000_000),
        ("8Ei", LARGEST),
        ("9999999999999999999E", LARGEST),
        ("123456789m", 123_457),
        ("1Ki", 1024),
        ("0.0001Ki", 1),
    ],
)
def test_bytes(said: object, units: int) -> None:
    assert whole(said) == units


@pytest.mark.parametrize(
    "said",
    ["", "-1", "1 Gi", "Gi", ".", "1K", "1ki", "1e999", "0x10", "٣", "1" * 65, True, None, [], {},
     float("nan"), float("inf"), "1Gi\n"],
)  # fmt: skip
def test_what_is_none(said: object) -> None:
    assert milli(said) is None
    assert whole(said) is None


@settings(deadline=None)
@given(
    st.decimals(min_value=0, max_value=10**9, places=6),
    st.sampled_from([("", 1), ("k", 1000), ("Mi", 1 << 20), ("m", Decimal("0.001"))]),
)
def test_it_is_exact_and_rounds_up(number: Decimal, unit: tuple[str, Decimal | int]) -> None:
    suffix, scale = unit
    exact = (number * scale).to_integral_value(ROUND_CEILING)
    assert whole(f"{number:f}{suffix}") == int(exact)
