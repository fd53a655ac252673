"""Quantities: the API server's rules, exactly."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.inventory import LARGEST
from scheduler_bridge.kube.quantities import MOST, at_most, from_milli, from_whole, milli, whole

SUFFIXES = {
    "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1),
    "k": Fraction(10**3), "M": Fraction(10**6), "G": Fraction(10**9),
    "Ki": Fraction(2**10), "Mi": Fraction(2**20), "Gi": Fraction(2**30),
}  # fmt: skip


@pytest.mark.parametrize(
    ("text", "units", "thousandths"),
    [
        ("0", 0, 0),
        ("1500m", 2, 1500),
        ("2Gi", 2 << 30, 2000 << 30),
        ("3k", 3000, 3_000_000),
        ("1e3", 1000, 1_000_000),
        ("12E-1", 2, 1200),
        ("1.5Ki", 1536, 1_536_000),
        (".5", 1, 500),
        ("1.", 1, 1000),
        ("+1", 1, 1000),
        ("-1500m", -1, -1500),
        ("100u", 1, 1),
        ("1n", 1, 1),
        ("5E", 5 * 10**18, None),
        ("7Ei", 7 << 60, None),
    ],
)
def test_reads_every_form(text: str, units: int, thousandths: int | None) -> None:
    assert whole(text) == units
    if thousandths is None:
        with pytest.raises(ValueError, match="out of range"):
            milli(text)
    else:
        assert milli(text) == thousandths


@pytest.mark.parametrize(
    "text", ["", " 1", "1 ", "1K", "1mi", "1e", "--1", "1.2.3", "0x1", "٣", "NaN", "1" * 65, "1ei3"]
)
def test_refuses_what_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="no quantity"):
        whole(text)


@pytest.mark.parametrize("text", ["1e999", "1e31", "16Ei", str(MOST + 1)])
def test_refuses_what_is_out_of_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"out of range|exponents"):
        whole(text)


@given(st.integers(-MOST, MOST))
def test_integers_come_back(number: int) -> None:
    assert whole(from_whole(number)) == number
    assert milli(from_milli(number)) == number


@given(st.integers(0, 8 * 10**6), st.integers(0, 999), st.sampled_from(sorted(SUFFIXES)))
def test_rounds_up_to_the_next_integer(before: int, after: int, suffix: str) -> None:
    text = f"{before}.{after:03}{suffix}"
    exact = Fraction(before * 1000 + after, 1000) * SUFFIXES[suffix]
    assert whole(text) - 1 < exact <= whole(text)
    assert milli(text) - 1 < exact * 1000 <= milli(text)


@pytest.mark.parametrize("text", ["8Ei", "1e999", "1e30", "9" * 30])
def test_a_pod_that_asks_for_more_than_any_machine_has_counts_with_that(text: str) -> None:
    assert at_most(whole, text) == at_most(milli, text) == LARGEST
    assert at_most(whole, f"-{text}") == 0


def test_what_is_no_quantity_is_none_of_a_pod_either() -> None:
    assert at_most(milli, "1500m") == 1500
    for text in ("much", "1e-31"):
        with pytest.raises(ValueError, match=r"quantity|exponents"):
            at_most(whole, text)
