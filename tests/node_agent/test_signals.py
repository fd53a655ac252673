"""Every parser on the bytes that kernels are known to write, and the house rules of signals."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from types import ModuleType
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.cgroup.files import FILES
from node_agent.cgroup.layout import Hierarchy, Layout
from node_agent.signals import (
    BEST_EFFORT_SIGNALS,
    GROUP_SIGNALS,
    NODE_SIGNALS,
    best_effort,
    cpu_throttling,
    cpu_usage,
    io_bytes,
    memory_charge,
    memory_stat,
    node_cpu,
    node_memory,
    psi,
    runq_wait,
)
from node_agent.signals.base import Value, number_after
from schemas.columns import NODE_COLUMNS, POD_COLUMNS

SOME_5_10 = b"some avg10=0.10 avg60=0.21 avg300=0.25 total=73759571709\n"
FULL_ZERO = b"full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"


def test_pressure_of_a_kernel_without_the_full_line() -> None:
    assert psi.parse_some_full(SOME_5_10) == (73759571709, None)
    assert psi.parse_some_full(SOME_5_10 + FULL_ZERO) == (73759571709, 0)
    assert psi.parse_some((SOME_5_10 + FULL_ZERO).rstrip()) == (73759571709,)
    assert psi.parse_some_full(b"") == (None, None)


@pytest.mark.parametrize("data", [b"some avg10=0.10\n", b"some total=\n", b"some total=x\n"])
def test_broken_pressure_is_an_error_not_a_zero(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        psi.parse_some(data)


def test_busy_leaves_out_idle_and_iowait_and_steal_is_apart() -> None:
    calm = b"cpu  100 10 50 9000 400 1 2 30 7 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n"
    assert node_cpu.parse(calm) == (1_630_000, 300_000)
    fallen = calm.replace(b" 400 ", b" 300 ")  # iowait may fall: nothing else moves
    assert node_cpu.parse(fallen) == node_cpu.parse(calm)


def test_an_old_kernel_says_no_steal() -> None:
    assert node_cpu.parse(b"cpu 1 0 0 5 0 0 0\n") == (10_000, None)


@pytest.mark.parametrize("data", [b"", b"cpu0 1 2 3 4 5 6 7 8\n", b"cpu  1 2 3\n"])
def test_broken_stat_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        node_cpu.parse(data)


def test_node_memory() -> None:
    text = b"MemTotal:  1000 kB\nMemFree: 5 kB\nMemAvailable:    600 kB\n"
    assert node_memory.parse(text) == (1_024_000, 614_400)
    assert node_memory.parse(b"MemTotal: 1000 kB\nMemFree: 5 kB\n") == (1_024_000, None)
    assert node_memory.parse_vmstat(b"pgfault 3\noom_kill 2\n") == (2,)
    assert node_memory.parse_vmstat(b"pgfault 3\noom_killer 2\n") == (None,)
    with pytest.raises(ValueError, match="kB"):
        node_memory.parse(b"MemTotal:  1000 MB\n")


def test_cpu_usage_of_both_versions_is_microseconds() -> None:
    assert cpu_usage.parse_v1(b"9000000999\n") == (9_000_000,)
    assert cpu_usage.parse_v2(b"usage_usec 9000000\nuser_usec 1\nsystem_usec 2\n") == (9_000_000,)


def test_throttling_is_absent_without_the_cpu_controller() -> None:
    three = b"usage_usec 5\nuser_usec 3\nsystem_usec 2\n"
    assert cpu_throttling.parse_v2(three) == (None, None)
    assert cpu_usage.parse_v2(three) == (5,)
    more = three + b"nr_periods 9\nnr_throttled 4\nthrottled_usec 77\n"
    assert cpu_throttling.parse_v2(more) == (77, 4)
    v1 = b"nr_periods 9\nnr_throttled 4\nthrottled_time 77999\n"
    assert cpu_throttling.parse_v1(v1) == (77, 4)


V1_STAT = (
    b"cache 1\ninactive_anon 1\nactive_anon 1\ntotal_cache 500\ntotal_shmem 9\n"
    b"total_inactive_anon 10\ntotal_active_anon 20\ntotal_unevictable 5\ntotal_inactive_file 1500"
)
V2_STAT = (
    b"anon 1\nfile 500\nfile_mapped 1\nshmem 9\nshmem_thp 1\ninactive_anon 10\nactive_anon 20\n"
    b"inactive_file 1500\nunevictable 5\n"
)


def test_memory_keeps_page_cache_apart_in_both_versions() -> None:
    assert memory_stat.parse_v1(V1_STAT) == (35, 500, 1500, 9, 5)
    assert memory_stat.parse_v2(V2_STAT) == (35, 500, 1500, 9, 5)


def test_used_memory_is_absent_when_a_part_of_it_is() -> None:
    v2 = memory_stat.parse_v2(V2_STAT.replace(b"active_anon 20\ninactive_f", b"inactive_f"))
    assert v2 == (None, 500, 1500, 9, 5)
    assert memory_stat.parse_v1(b"cache 1\n") == (None,) * 5


@pytest.mark.parametrize(
    ("data", "limit_bytes"),
    [
        (b"9223372036854771712\n", -1),  # 2^63-1 in 4 KiB pages
        (b"9223372036854710272\n", -1),  # in 64 KiB pages
        (b"18446744073709551615\n", -1),
        (b"max\n", -1),
        (b"536870912\n", 536870912),
        (b"0\n", 0),
    ],
)
def test_no_limit_is_minus_one(data: bytes, limit_bytes: int) -> None:
    assert memory_charge.parse_limit(data) == (limit_bytes,)


def test_io_of_both_versions() -> None:
    v1 = b"8:0 Read 10\n8:0 Write 5\n8:0 Sync 15\n8:0 Discard 99\n8:0 Total 114\nTotal 114\n"
    assert io_bytes.parse_v1(v1 + b"8:16 Read 1\n") == (16,)
    v2 = b"8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=99 dios=1\n8:16\n254:0 rbytes=1 new=x.y\n"
    assert io_bytes.parse_v2(v2) == (16,)
    assert io_bytes.parse_v1(b"Total 0\n") == io_bytes.parse_v2(b"") == (0,)


def test_quota_read_back_in_millicores() -> None:
    assert best_effort.parse_quota_v1(b"50000\n", b"200000\n") == (250,)
    assert best_effort.parse_quota_v1(b"-1\n", b"100000\n") == (-1,)
    assert best_effort.parse_quota_v2(b"50000 200000\n") == (250,)
    assert best_effort.parse_quota_v2(b"max 100000\n") == (-1,)


def test_run_queue_wait_is_the_second_field() -> None:
    assert runq_wait.parse(b"123 456 7\n") == 456


@given(st.binary(max_size=200))
def test_parsers_answer_or_raise_value_error(data: bytes) -> None:
    for parse in (
        psi.parse_some_full,
        node_cpu.parse,
        node_memory.parse,
        node_memory.parse_vmstat,
        cpu_usage.parse_v1,
        cpu_usage.parse_v2,
        cpu_throttling.parse_v1,
        cpu_throttling.parse_v2,
        memory_stat.parse_v1,
        memory_stat.parse_v2,
        memory_charge.parse_limit,
        io_bytes.parse_v1,
        io_bytes.parse_v2,
        best_effort.parse_quota_v2,
    ):
        try:
            values: tuple[Value, ...] = parse(data)
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        assert all(value is None or isinstance(value, int) for value in values)


def test_a_longer_name_does_not_match() -> None:
    assert number_after(b"\nx_total 5\ntotal 6", b"\ntotal ") == 6
    assert number_after(b"total_x 5\n", b"\ntotal ") is None


def test_every_column_is_known_and_filled_once() -> None:
    pods = [c for s in GROUP_SIGNALS for source in s.SOURCES for c in source.columns]
    node = [c for s in NODE_SIGNALS for source in s.SOURCES for c in source.columns]
    node += [c for s in BEST_EFFORT_SIGNALS for source in s.SOURCES for c in source.columns]
    assert sorted([*pods, runq_wait.COLUMN]) == sorted(POD_COLUMNS)
    assert sorted([*node, "samples_dropped"]) == sorted(NODE_COLUMNS)


def test_no_signal_knows_a_path() -> None:
    names = {row.v1 for row in FILES.values()} | {row.v2 for row in FILES.values()}
    modules = [cast("ModuleType", s) for s in (*GROUP_SIGNALS, *BEST_EFFORT_SIGNALS)]
    for module in (*modules, runq_wait):
        tree = ast.parse(inspect.getsource(module))
        literals = {n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)}
        assert not literals & (names - {None}), module.__name__


def test_busy_is_exact_where_the_root_of_cpuacct_is_seen(tmp_path: Path) -> None:
    mount = tmp_path / "sys/fs/cgroup/cpuacct"
    mount.mkdir(parents=True)
    (mount / "cpuacct.usage").write_text("7000000\n")
    layout = Layout(str(tmp_path), {"cpuacct": Hierarchy(1, str(mount))}, None)
    assert node_cpu.exact(layout) is None  # a container's part of the tree is not the machine
    (mount / "release_agent").write_text("\n")
    source = node_cpu.exact(layout)
    assert source is not None
    assert (source.columns, source.file) == (
        ("cpu_busy_us",),
        "sys/fs/cgroup/cpuacct/cpuacct.usage",
    )
    assert source.parse((mount / "cpuacct.usage").read_bytes()) == (7_000,)
    v2 = Layout(str(tmp_path), {"cpuacct": Hierarchy(2, str(mount))}, None)
    assert node_cpu.exact(v2) is None
