"""Percentiles of a fleet lie where the windows put them; spreads; prices that are refused."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import BadPolicy
from schemas.records import Sli
from streams.accounts import online, prices
from streams.accounts.online import QUANTILES, Online, Series
from streams.accounts.sums import Spread
from tests.streams.accounts.case import PRICES

WINDOWS = st.lists(
    st.lists(st.integers(1, 5_000_000), min_size=1, max_size=40), min_size=1, max_size=8
)


def percentile(values: list[int], permille: int) -> int:
    """The smallest value that so many lie at or below."""
    values = sorted(values)
    return values[-(-permille * len(values) // 1000) - 1]


@given(WINDOWS, st.booleans(), st.booleans())
def test_the_fleet_s_own_percentile_lies_between_least_and_most(
    windows: list[list[int]], p90: bool, p999: bool
) -> None:
    sums = Online()
    for requests in windows:
        said = Sli(
            "w", "n", 1000, percentile(requests, 500), percentile(requests, 990), len(requests),
            end_ms=1, p90_us=percentile(requests, 900) if p90 else -1,
            p999_us=percentile(requests, 999) if p999 else -1,
        )  # fmt: skip
        online.note(Series(), said, 1, None, sums, counts=True)
    every = [latency for requests in windows for latency in requests]
    found = online.figures(sums)
    assert found.requests == len(every)
    for name, permille in QUANTILES:
        true_us, range_us = percentile(every, permille), found.latency[name]
        assert range_us.least_us is not None
        assert range_us.least_us <= true_us
        assert range_us.most_us is None or true_us <= range_us.most_us


def test_equal_windows_say_exactly_what_each_of_them_says() -> None:
    sums = Online()
    for _ in range(7):
        said = Sli("w", "n", 1000, 20, 90, 100, p90_us=60)
        online.note(Series(), said, 1, None, sums, counts=True)
    latency = online.figures(sums).latency
    for name, value_us in (("p50", 20), ("p90", 60), ("p99", 90)):
        assert (latency[name].least_us, latency[name].typical_us, latency[name].most_us) == (
            value_us, value_us, value_us,
        )  # fmt: skip
    assert (latency["p999"].least_us, latency["p999"].typical_us, latency["p999"].most_us) == (
        90, None, None,
    )  # fmt: skip


@given(st.lists(st.integers(0, 1 << 50), min_size=1), st.integers(1, 1000))
def test_a_spread_is_exact_to_a_thousandth(values: list[int], permille: int) -> None:
    whole, half, other = Spread(), Spread(), Spread()
    for i, value in enumerate(values):
        whole.note(value)
        (half if i % 2 else other).note(value)
    half.add(other)
    assert half == whole
    true = percentile(values, permille)
    low, high = whole.at(permille), whole.at(permille, upper=True)
    assert low is not None
    assert high is not None
    assert low <= true <= high
    assert high - low <= true / 1024


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("batch_retries", 1, "batch_retries is no price; allowed: currency, machine_per_core_h"),
        ("batch_retry", None, "batch_retry is None; allowed: a number from 0 to 1000000000"),
        ("batch_retry", -1, "batch_retry is -1; allowed"),
        ("batch_retry", True, "batch_retry is True; allowed"),
        ("batch_retry", "1 EUR", "batch_retry is '1 EUR'; allowed"),
        ("batch_retry", float("nan"), "batch_retry is nan; allowed"),
        ("currency", 7, "currency is 7; allowed: text of 1 to 16 characters"),
    ],
)
def test_prices_are_read_strictly(key: str, value: object, says: str) -> None:
    said = yaml.safe_load(PRICES) | {key: value}
    with pytest.raises(BadPolicy) as refused:
        prices.parse(yaml.safe_dump(said), "prices.yaml")
    assert str(refused.value).startswith("prices.yaml: ")
    assert says in str(refused.value)


def test_a_price_that_is_missing_is_not_taken_for_nothing() -> None:
    with pytest.raises(BadPolicy, match="currency is missing; write 0 for what costs nothing"):
        prices.parse("batch_retry: 1", "prices.yaml")
    with pytest.raises(BadPolicy, match="allowed: a mapping"):
        prices.parse("- 1", "prices.yaml")


def test_the_example_can_be_read() -> None:
    found = prices.parse(prices.example(), prices.EXAMPLE)
    assert found.currency == "EUR"
    assert found.machine_per_core_hour * 100 == 3
