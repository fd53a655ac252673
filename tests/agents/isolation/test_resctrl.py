"""Cache ways, memory bandwidth and the text of schemata."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation import resctrl, schemata
from agents.isolation.by_class import BE, LS, LSE, LSR, SYSTEM, codes
from agents.table import ABSENT, Ints
from schemas.policy import BeResctrl, ClassResctrl, Resctrl


def ints(*values: int) -> Ints:
    return np.array(values, dtype=np.int64)


@pytest.mark.parametrize(
    ("cbm", "start", "end", "mask"),
    [
        (0x7FF, 0, 30, 0xF),
        (0x7FF, 10, 50, 0x3C),
        (0x7FF, 0, 100, 0x7FF),
        (0xFFFFF, 0, 5, 0x1),
        (0xF, 50, 51, 0x4),
        (0xF, 26, 49, 0),
        (0x6, 0, 100, ABSENT),
        (0, 0, 100, ABSENT),
        (0xF, 40, 40, ABSENT),
        (0xF, 0, 101, ABSENT),
    ],
)
def test_masks(cbm: int, start: int, end: int, mask: int) -> None:
    assert resctrl.l3_mask(ints(cbm), start, end).tolist() == [mask]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 99), st.integers(1, 100)
)
def test_a_mask_is_one_run_of_the_nodes_own_ways(ways: list[int], start: int, more: int) -> None:
    end = min(start + more, 100)
    cbm = ints(*((1 << one) - 1 for one in ways))
    mask = resctrl.l3_mask(cbm, start, end)
    assert ((mask & cbm) == mask).all()
    lowest = mask & -mask
    assert ((mask + lowest) & mask == 0).all(), "one run of ones"
    assert (resctrl.l3_mask(cbm, start, 100) >= mask).all()
    assert (resctrl.l3_mask(cbm[::-1], start, end)[::-1] == mask).all()
    cut = start + (end - start) // 2
    if cut > start:
        left, right = resctrl.l3_mask(cbm, start, cut), resctrl.l3_mask(cbm, cut, end)
        assert (left & right == 0).all()
        assert (left | right == mask).all(), "neighbours leave no way out"


@given(st.lists(st.tuples(st.integers(-5, 110), st.booleans()), min_size=1))
def test_bandwidth_is_of_the_vendors_kind(rows: list[tuple[int, bool]]) -> None:
    percent, amd = ints(*(p for p, _ in rows)), np.array([a for _, a in rows])
    value = resctrl.mb_value(percent, amd)
    for p, is_amd, one in zip(percent.tolist(), amd.tolist(), value.tolist(), strict=True):
        if not 1 <= p <= 100:
            assert one == ABSENT
        elif is_amd:
            assert one == (2048 if p == 100 else p * 8 // 5)
        else:
            assert one % 10 == 0
            assert p <= one < p + 10


def test_classes_that_are_off_have_the_whole_cache_and_no_tasks() -> None:
    qos, cbm, amd = codes(["LSE", "LSR", "LS", "BE", "SYSTEM", ""]), ints(0xFF, 0xFFF), ints(0, 1)
    assert qos.tolist() == [LSE, LSR, LS, BE, SYSTEM, LS]
    off = resctrl.partitions(Resctrl(), cbm, amd.astype(bool))
    assert all((one.l3_mask == cbm).all() for one in off.values())
    assert off["BE"].mb.tolist() == [100, 2048]
    assert not resctrl.group_of(qos, Resctrl()).managed.any()
    be = BeResctrl(enabled=True, l3_end_percent=25, mb_percent=50)
    on = resctrl.partitions(Resctrl(be=be), cbm, amd.astype(bool))
    assert on["BE"].l3_mask.tolist() == [0x3, 0x7]
    assert on["BE"].mb.tolist() == [50, 80]
    joined = resctrl.group_of(qos, Resctrl(lsr=ClassResctrl(enabled=True), be=be))
    assert joined.value.tolist() == [0, 0, 1, 2, ABSENT, 1]
    assert joined.managed.tolist() == [True, True, False, True, False, False]


def test_tasks_join_once_in_their_order() -> None:
    assert resctrl.new_tasks([7, 3], [9, 3, 1, 7, 4]) == [9, 1, 4]


@given(st.dictionaries(st.integers(0, 300), st.just(0), max_size=6), st.integers(1, 2**40))
def test_what_is_written_reads_back(ids: dict[int, int], value: int) -> None:
    text = f"{schemata.l3_line(ids, value)}\n  {schemata.mb_line(ids, value % 2048 + 1)}\n"
    read = schemata.parse(text + "SMBA:0=1\n", len(ids))
    assert read is not None
    assert read.l3 == dict.fromkeys(ids, value)
    assert read.mb == dict.fromkeys(ids, value % 2048 + 1)
    assert read.l3_valid == bool(ids)


def test_nothing_is_written_for_an_empty_mask_or_no_cache() -> None:
    assert schemata.l3_line([0, 1], 0) == schemata.l3_line([0], ABSENT) == ""
    assert schemata.l3_line([], 15) == schemata.mb_line([0], ABSENT) == ""
    assert schemata.l3_line([8, 0], 255) == "L3:0=ff;8=ff;"


@pytest.mark.parametrize(
    "text", ["L3:0=", "L3:0=f;0=f", "L3:=f", "MB:0=ff", "L3:0=f;1", "L3:0=f\nMB:0=1;1=1", "L3:-1=f"]
)
def test_what_cannot_be_read_is_none(text: str) -> None:
    assert schemata.parse(text, -1) is None


@given(st.text(alphabet="L3MB:0123456789abf=; \n", max_size=40), st.integers(-1, 4))
def test_any_text_is_read_or_refused(text: str, domains: int) -> None:
    read = schemata.parse(text, domains)
    assert read is None or all(value >= 0 for value in (*read.l3.values(), *read.mb.values()))
