"""Kernel files that say what they never should: a sample is sent, what is wild is absent."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_agent.cgroup.handles import Descriptors, GroupFiles
from node_agent.sampler import in_range
from node_agent.signals.base import Pods
from node_agent.signals.oom import DIRECTORIES_KEPT, OomKills
from schemas import packed
from schemas.errors import BadRecord
from schemas.records import NodeSample, PodFact
from tests.node_agent.test_sampler import POD_A, Machine

NUMBERS = [0, -1, 1 << 63, (1 << 64) - 1, 10**30, -(10**30), 10**4000]
WILD = st.one_of(
    st.binary(max_size=300),
    st.sampled_from(NUMBERS).map(lambda n: f"{n}\n".encode()),
    st.builds(
        lambda words, n: b"".join(b"%s %d\n" % (word.encode(), n) for word in words),
        st.lists(st.from_regex(r"[a-z_]{1,20}", fullmatch=True), max_size=10),
        st.sampled_from(NUMBERS),
    ),
    st.just(b"some avg10=nan avg60=inf avg300=-1 total=" + b"9" * 40 + b"\nfull total=-5\n"),
)


def encoded(sample: NodeSample) -> bytes:
    """As the loop does it."""
    try:
        return packed.encode(sample)
    except BadRecord:
        return packed.encode(in_range(sample))


@pytest.mark.parametrize("kernel", ["v1-centos", "v2-ubuntu"])
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_whatever_the_files_say_a_sample_is_sent(
    kernel: str, data: st.DataObject, tmp_path: Path
) -> None:
    shutil.rmtree(tmp_path / kernel, ignore_errors=True)
    machine = Machine(tmp_path, kernel)
    try:
        packed.decode(encoded(machine.sweep()))
        census = machine.sampler.census
        assert census is not None
        places = {
            path
            for mount in machine.layout.mounts()
            for group in census.groups
            for path in Path(mount, group).glob("*")
            if path.is_file()
        } | {path for path in (machine.root / "proc").glob("*") if path.is_file()}
        for path in data.draw(
            st.lists(st.sampled_from(sorted(places)), min_size=1, max_size=8, unique=True)
        ):
            path.write_bytes(data.draw(WILD))
        for _ in range(12):  # the slow columns too
            sample = machine.sweep()
            assert packed.decode(encoded(sample)).pods == len(census.groups)
    finally:
        machine.sampler.close()


def test_a_figure_beyond_64_bits_is_absent_and_its_neighbours_stay() -> None:
    sample = NodeSample(
        "n", "0" * 32, "0" * 32, 1, 1, 1, 1000, 1, 2,
        {"cpu_busy_us": 1 << 63, "oom_kills": 5},
        {"cpu_usage_us": [1 << 64, 7], "memory_used_bytes": [None, -(1 << 63)]},
    )  # fmt: skip
    with pytest.raises(BadRecord):
        packed.encode(sample)
    again = packed.decode(packed.encode(in_range(sample)))
    assert again.node_columns == {"cpu_busy_us": None, "oom_kills": 5}
    assert again.pod_columns == {
        "cpu_usage_us": [None, 7],
        "memory_used_bytes": [None, -(1 << 63)],
    }


def test_a_pod_that_dies_in_ever_new_groups_does_not_fill_the_agents_memory(
    tmp_path: Path,
) -> None:
    """v1 counts kills in each group alone; what a group counted stays counted when it goes."""
    machine = Machine(tmp_path, "v1-centos")
    files = GroupFiles(machine.layout, POD_A, Descriptors(10))
    place = machine.layout.place("oom", POD_A)
    assert place is not None
    kills = OomKills(machine.layout)
    pods = Pods([files], [PodFact(uid="a", name="a")])
    try:
        for turn in range(60):
            fresh = [Path(place.directory, f"g{turn}-{number}") for number in range(10)]
            for group in fresh:
                group.mkdir()
                (group / place.file).write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
            kills.visit(pods, 0, turn)
            for group in fresh:
                shutil.rmtree(group)
        assert (kills.values("oom_kills", pods)[0] or 0) >= 590
        assert len(kills._pods[POD_A].last) <= DIRECTORIES_KEPT
    finally:
        machine.sampler.close()
