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
from node_agent.cgroup.handles import Descriptors, NodeFiles
from node_agent.cgroup.layout import Hierarchy, Layout
from node_agent.signals import (
    BEST_EFFORT_SIGNALS,
    GROUP_SIGNALS,
    NODE_SIGNALS,
    best_effort,
    block_io,
    cold_memory,
    cpu_throttling,
    cpu_usage,
    cpus_online,
    memory_charge,
    memory_limits,
    memory_stat,
    network,
    node_cpu,
    node_memory,
    node_numa,
    node_readers,
    numa_memory,
    oom,
    perf,
    psi,
    runq_wait,
)
from node_agent.signals.base import Value, number_after
from node_agent.signals.network import Network
from node_agent.signals.oom import OomKills
from node_agent.signals.perf import Perf
from node_agent.signals.runq_wait import RunqWait
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


@pytest.mark.parametrize(
    ("data", "cpus"),
    [
        (b"0\n", 1),
        (b"0-7,9,11,13,15\n", 12),
        (b"0,2,4,6,8,10,12,14,16-31\n", 24),
        (b"\n", None),
    ],
)
def test_online_cpus_are_counted(data: bytes, cpus: int | None) -> None:
    assert cpus_online.parse(data) == (cpus,)


NUMA_V1 = (
    b"total=90 N0=60 N1=30\nfile=5 N0=5 N1=0\nanon=1 N0=1 N1=0\nunevictable=0 N0=0 N1=0\n"
    b"hierarchical_total=90 N0=60 N1=30\nhierarchical_file=5 N0=5 N1=0\n"
    b"hierarchical_anon=70 N0=50 N1=20\nhierarchical_unevictable=4 N0=1 N1=3\n"
)
NUMA_V2 = (
    b"anon N0=1 N1=1\nfile N0=9 N1=9\ninactive_anon N0=204800 N1=40960\n"
    b"active_anon N0=0 N1=40960\nunevictable N0=4096 N1=12288\n"
)


def test_pages_of_v1_and_bytes_of_v2_are_the_same_memory() -> None:
    page = numa_memory._PAGE_BYTES
    for zone, pages in ((0, 51), (1, 23)):
        source = numa_memory.SOURCES[zone]
        assert source.v1 is not None
        assert source.v2 is not None
        assert source.v1.parse(NUMA_V1) == (pages * page,)
        assert source.v2.parse(NUMA_V2) == (pages * 4096,)
    elsewhere = numa_memory.SOURCES[2]
    assert elsewhere.v1 is not None
    assert elsewhere.v1.parse(NUMA_V1) == (None,)
    assert elsewhere.v1.parse(b"anon=1 N2=1\n") == (None,)


def test_what_a_numa_node_has_left() -> None:
    text = (
        b"Node 1 MemTotal:  1000 kB\nNode 1 MemFree:  100 kB\nNode 1 Active(file): 20 kB\n"
        b"Node 1 Inactive(file): 30 kB\nNode 1 SReclaimable: 4 kB\nNode 1 HugePages_Free: 7\n"
    )
    assert node_numa.parse(text) == (154 * 1024,)
    with pytest.raises(ValueError, match="MemFree"):
        node_numa.parse(b"Node 1 MemTotal: 5 kB\n")


IDLE = (
    b"# version: 1.0\n# page_scans: 24\n# slab_scans: 0\n# scan_period_in_seconds: 5\n"
    b"# use_hierarchy: 1\n# buckets: 1,2,5,15,30,60,120,240\n#\n#   _-----=> clean/dirty\n"
    b"  csei  1 1 1 1 1 1 1 1\n  cfei  100 200 4096 0 0 0 0 1\n  dfei  9 9 10 0 0 0 0 0\n"
    b"  cfui  0 0 3 0 0 0 0 0\n  dfui  0 0 0 0 0 0 0 5\n  cfea  7 7 7 7 7 7 7 7\n"
    b"  slab  1 1 1 1 1 1 1 1\n"
)


def test_cold_is_page_cache_that_five_scans_found_idle() -> None:
    assert cold_memory.parse(IDLE) == (4096 + 1 + 10 + 3 + 5,)
    assert cold_memory.parse(IDLE.replace(b"page_scans: 24", b"page_scans: 0")) == (None,)
    with pytest.raises(ValueError, match="buckets"):
        cold_memory.parse(b"# version: 2.0\n")
    with pytest.raises(ValueError, match="zip"):
        cold_memory.parse(IDLE.replace(b"cfui  0 0", b"cfui 0"))


def test_an_idle_scanner_that_is_off_is_none(tmp_path: Path) -> None:
    assert not cold_memory.there(str(tmp_path))
    switch = tmp_path / cold_memory._SWITCH
    switch.parent.mkdir(parents=True)
    for text, there in (("0\n", False), ("5\n", True)):
        switch.write_text(text)
        assert cold_memory.there(str(tmp_path)) is there


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


def of_memory(version: int, data: bytes) -> list[Value]:
    """All that memory.stat gives: used, file, inactive file, shmem, unevictable, refaults."""
    found: list[Value] = []
    for source in memory_stat.SOURCES:
        chosen = source.v1 if version == 1 else source.v2
        assert chosen is not None
        found += chosen.parse(data)
    return found


def test_memory_keeps_page_cache_apart_in_both_versions() -> None:
    assert of_memory(1, V1_STAT) == [35, 500, 1500, 9, 5, None]
    assert of_memory(2, V2_STAT) == [35, 500, 1500, 9, 5, None]


def test_used_memory_is_absent_when_a_part_of_it_is() -> None:
    v2 = of_memory(2, V2_STAT.replace(b"active_anon 20\ninactive_f", b"inactive_f"))
    assert v2 == [None, 500, 1500, 9, 5, None]
    assert of_memory(1, b"cache 1\n") == [None] * 6


def test_lists_side_by_side_and_apart_say_the_same() -> None:
    lists = b"inactive_anon 10\nactive_anon 20\ninactive_file 7\nactive_file 8\nunevictable 5\n"
    apart = lists.replace(b"unevictable 5\n", b"slab 1\nunevictable 5\n")
    for data in (b"anon 1\n" + lists, b"anon 1\n" + apart, b"anon 1\n" + lists.rstrip()):
        assert of_memory(2, data)[0] == 35
    assert of_memory(2, b"anon 1\n" + apart.replace(b" 5", b""))[0] is None


def test_inactive_file_is_read_where_it_stands_last_and_absent_where_it_is_missing() -> None:
    inactive = memory_stat.line("total_inactive_file")
    assert inactive(b"total_cache 1\ntotal_inactive_file 1500") == (1500,)  # last, no newline
    assert inactive(b"total_cache 1\n") == (None,)


def test_refaults_of_new_and_old_kernels() -> None:
    new = b"anon 1\nworkingset_refault_anon 3\nworkingset_refault_file 9\n"
    assert of_memory(2, new)[5] == 9
    assert of_memory(2, b"anon 1\nworkingset_refault 4\n")[5] == 4
    assert of_memory(1, b"cache 1\ntotal_workingset_refault_file 6\n")[5] == 6
    assert node_memory.parse_refaults(b"a 1\n" + new) == (9,)
    assert node_memory.parse_refaults(b"a 1\nworkingset_refault 4\n") == (4,)
    assert node_memory.parse_refaults(b"a 1\n") == (None,)


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
    assert block_io.parse_v1(v1 + b"8:16 Read 1\n") == (16,)
    v2 = b"8:0 rbytes=10 wbytes=5 rios=1 wios=1 dbytes=99 dios=1\n8:16\n254:0 rbytes=1 new=x.y\n"
    assert block_io.parse_v2(v2) == (16,)
    assert block_io.parse_operations_v2(v2) == (2,)
    assert block_io.parse_v1(b"Total 0\n") == block_io.parse_v2(b"") == (0,)


def test_latency_is_that_of_the_slowest_device_where_a_device_tells_it() -> None:
    line = b"8:0 rbytes=1 wbytes=1 use_delay=0 delay_nsec=0 depth=max avg_lat=%d win=100\n"
    assert block_io.parse_latency_v2(line % 120 + b"8:16 rbytes=3\n" + line % 4000) == (4000,)
    assert block_io.parse_latency_v2(b"8:0 rbytes=1 wbytes=0\n") == (None,)
    assert block_io.parse_latency_v2(b"") == (None,)


def test_quota_read_back_in_millicores() -> None:
    assert best_effort.parse_quota_v1(b"50000\n", b"200000\n") == (250,)
    assert best_effort.parse_quota_v1(b"-1\n", b"100000\n") == (-1,)
    assert best_effort.parse_quota_v2(b"50000 200000\n") == (250,)
    assert best_effort.parse_quota_v2(b"max 100000\n") == (-1,)


def test_run_queue_wait_is_the_second_field() -> None:
    assert runq_wait.parse(b"123 456 7\n") == 456


@given(st.binary(max_size=200))
def test_parsers_answer_or_raise_value_error(data: bytes) -> None:
    sources = [*(s for signal in GROUP_SIGNALS for s in signal.SOURCES)]
    sources += [s for signal in BEST_EFFORT_SIGNALS for s in signal.SOURCES]
    chosen = [one for s in sources for one in (s.v1, s.v2) if one is not None]
    parsers = [one.parse for one in chosen if len(one.files) == 1]
    parsers += [s.parse for signal in NODE_SIGNALS for s in signal.SOURCES]
    for parse in (*parsers, psi.parse_some_full):
        try:
            values: tuple[Value, ...] = parse(data)
        except (ValueError, IndexError, ZeroDivisionError):
            continue
        assert all(value is None or isinstance(value, int) for value in values)


def test_a_longer_name_does_not_match() -> None:
    assert number_after(b"\nx_total 5\ntotal 6", b"\ntotal ") == 6
    assert number_after(b"total_x 5\n", b"\ntotal ") is None


def test_every_column_is_known_and_filled_once(tmp_path: Path) -> None:
    pods = [c for s in GROUP_SIGNALS for source in s.SOURCES for c in source.columns]
    pods += [c for s in (RunqWait, Network, OomKills, Perf) for c in s.columns]
    node = [c for s in NODE_SIGNALS for source in s.SOURCES for c in source.columns]
    node += [c for s in BEST_EFFORT_SIGNALS for source in s.SOURCES for c in source.columns]
    files = NodeFiles(str(tmp_path), Descriptors(0))
    node += [c for reader in node_readers(files) for c in reader.columns]
    node += memory_limits.COLUMNS
    layout = Layout(str(tmp_path), {"memory": Hierarchy(2, str(tmp_path))}, None)
    idle = cold_memory.of_machine(layout)
    assert idle is not None
    assert sorted(pods) == sorted(POD_COLUMNS)
    node += [*idle.columns, "samples_dropped", "evictions"]
    assert sorted(node) == sorted(NODE_COLUMNS)


def test_columns_of_one_source_are_due_together_on_the_machine() -> None:
    for signal in NODE_SIGNALS:
        for source in signal.SOURCES:
            assert len({NODE_COLUMNS[name].every_ms for name in source.columns}) == 1, source


def test_no_signal_knows_a_path() -> None:
    names = {row.v1 for row in FILES.values()} | {row.v2 for row in FILES.values()}
    modules = [cast("ModuleType", s) for s in (*GROUP_SIGNALS, *BEST_EFFORT_SIGNALS)]
    for module in (*modules, runq_wait, network, oom, perf):
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
