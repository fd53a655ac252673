"""Containers set before they start: our plugin against a runtime that speaks as containerd does."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_agent.actuators.roster import roster
from node_agent.isolation import BirthRules, Isolation
from node_agent.journal import Journal
from node_agent.kubelet.requests import EXTENDED_SPEC
from node_agent.nri import messages, plugin
from node_agent.nri.births import best_effort, gift
from node_agent.nri.frames import BadFrame, Frame, Frames, piece
from node_agent.nri.messages import Birth, Gift
from node_agent.nri.plugin import Plugin
from node_agent.protocol_buffers import BadMessage, signed
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import (
    BE,
    FakeKernel,
    census,
    isolation,
    layout,
    make_tree,
)
from tests.node_agent.nri_runtime import CLASSES, CREATE_CONTAINER, Runtime, listening

MIB = 1 << 20
BOTH = frozenset({"extended_cpu", "extended_memory"})
RULES = BirthRules(BOTH, roster(census(("be", "job", "ls"))), bounded=False)
NOTE = json.dumps(
    {
        "containers": {
            "main": {
                "requests": {"kubernetes.io/batch-cpu": "500"},
                "limits": {
                    "kubernetes.io/batch-cpu": "1k", "kubernetes.io/batch-memory": "64Mi",
                },
            }
        }
    }
)  # fmt: skip
NOTES = {EXTENDED_SPEC: NOTE, "other": "x"}
PARENT = f"/{BE}/podnew"


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "nri.sock"


@asynccontextmanager
async def served(socket: Path, rules: BirthRules = RULES) -> AsyncIterator[tuple[Runtime, Plugin]]:
    async with listening(socket) as runtime:
        made = Plugin(socket, lambda: rules)
        task = asyncio.create_task(made.run())
        try:
            await asyncio.wait_for(runtime.ready.wait(), 10)
            yield runtime, made
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_a_plugin_registers_and_asks_for_births_alone(socket: Path) -> None:
    async with served(socket) as (runtime, made):
        (said,) = runtime.registered
        assert (said.plugin_name, said.plugin_idx) == ("slackwater", "90")
        assert runtime.events == CREATE_CONTAINER
        assert made.connected


async def test_a_best_effort_container_has_what_it_asked_for_before_it_starts(
    socket: Path,
) -> None:
    async with served(socket) as (runtime, made):
        given = await runtime.create("job", "app")
        assert (given.cpu.shares.value, given.cpu.quota.value) == (1536, 150_000)
        assert (given.cpu.period.value, given.memory.limit.value) == (100_000, 64 * MIB)
        given = await runtime.create("job", "prepare")
        assert given.cpu.quota.value == 100_000
        assert made.adjusted == 2


async def test_s4_who_is_online_or_unknown_is_made_as_asked_for(socket: Path) -> None:
    async with served(socket) as (runtime, made):
        for uid, name, parent in (
            ("ls", "app", PARENT),
            ("lsr", "main", f"{PARENT}/../../x"),
            ("job", "nobody", PARENT),
            ("new", "main", "/kubepods/burstable/podnew"),
            ("new", "other", PARENT),
            ("new", "main", ""),
        ):
            given = await runtime.create(uid, name, parent, annotations=NOTES)
            assert given == CLASSES["LinuxResources"]()
        assert made.adjusted == 0


@pytest.mark.parametrize("cut", [1, 7, 1 << 20])
async def test_a_pod_that_the_kubelet_has_not_named_is_known_by_its_note(
    socket: Path, cut: int
) -> None:
    async with served(socket) as (runtime, _):
        runtime.cut = cut
        given = await runtime.create("new", "main", PARENT, annotations=NOTES)
        assert (given.cpu.shares.value, given.cpu.quota.value) == (512, 100_000)
        assert given.memory.limit.value == 64 * MIB


async def test_its_own_quota_and_a_smaller_limit_stay(socket: Path) -> None:
    async with served(socket) as (runtime, _):
        given = await runtime.create("job", "app", quota=20_000, limit=MIB)
        assert (given.cpu.HasField("quota"), given.HasField("memory")) == (False, False)
        assert given.cpu.shares.value == 1536
        given = await runtime.create("job", "app", quota=-1, limit=128 * MIB)
        assert (given.cpu.quota.value, given.memory.limit.value) == (150_000, 64 * MIB)


async def test_other_questions_are_answered_too(socket: Path) -> None:
    empty = CLASSES["Empty"]()
    async with served(socket) as (runtime, _):
        await runtime.ask("Shutdown", empty, "Empty")
        await runtime.ask("StateChange", empty, "Empty")
        with pytest.raises(LookupError, match="no method UpdateContainer"):
            await runtime.ask("UpdateContainer", empty, "Empty")
        given = await runtime.create("job", "app")
        assert given.cpu.shares.value == 1536


async def test_what_cannot_be_read_harms_one_container_alone(socket: Path) -> None:
    def broken() -> BirthRules:
        raise KeyError("no such thing")

    async with listening(socket) as runtime:
        made = Plugin(socket, broken)
        task = asyncio.create_task(made.run())
        await asyncio.wait_for(runtime.ready.wait(), 10)
        assert await runtime.create("job", "app") == CLASSES["LinuxResources"]()
        assert not task.done()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_runtime_that_hangs_up_or_talks_nonsense_is_asked_again(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin, "AGAIN_S", 0.01)
    async with served(socket) as (runtime, made):
        for end in (runtime.hang_up, lambda: runtime.say(struct.pack(">II", 1, 1 << 31))):
            runtime.ready.clear()
            runtime._streams = 0
            end()
            await asyncio.wait_for(runtime.ready.wait(), 10)
            assert (await runtime.create("job", "app")).cpu.shares.value == 1536
        assert len(runtime.registered) == 3
        assert made.connected


async def test_no_runtime_and_a_refusal_are_said_once(
    socket: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(plugin, "AGAIN_S", 0.01)
    made = Plugin(socket, lambda: RULES)
    task = asyncio.create_task(made.run())
    async with listening(socket) as runtime:
        runtime.refuses = 7
        for _ in range(3):
            await asyncio.wait_for(runtime.turned_away.get(), 10)
        assert not made.connected
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    lines = [record.getMessage() for record in caplog.records if "NRI" in record.getMessage()]
    assert len([line for line in lines if "is refused, code 7: no plugins here" in line]) == 1


BIRTH = Birth("job", "", "app", {})


def test_what_policy_has_switched_off_is_not_given() -> None:
    assert gift(RULES._replace(on=frozenset()), BIRTH) is None
    only = gift(RULES._replace(on=frozenset({"extended_memory"})), BIRTH)
    assert only == Gift(limit_bytes=64 * MIB)


def test_on_v1_no_quota_above_the_best_effort_roots_is_given() -> None:
    for ceiling, quota in ((1499, None), (1500, 150_000), (None, 150_000), (0, None)):
        bounded = replace(RULES.roster, ceiling_milli=ceiling)
        found = gift(RULES._replace(roster=bounded, bounded=True), BIRTH)
        assert found is not None
        assert (found.quota_us, found.shares) == (quota, 1536)
        assert found.limit_bytes == 64 * MIB


@pytest.mark.parametrize(
    ("parent", "root", "expected"),
    [
        ("/kubepods/besteffort/podx", "kubepods/besteffort", True),
        ("/kubepods/besteffort", "kubepods/besteffort", False),
        ("/kubepods/besteffortx/podx", "kubepods/besteffort", False),
        ("/kubepods/besteffort/../podx", "kubepods/besteffort", False),
        (
            "kubepods-besteffort-podx.slice",
            "kubepods.slice/kubepods-besteffort.slice",
            True,
        ),
        ("kubepods-burstable-podx.slice", "kubepods.slice/kubepods-besteffort.slice", False),
        ("kubepods-besteffort.slice", "kubepods.slice/kubepods-besteffort.slice", False),
        ("", "kubepods/besteffort", False),
        ("/kubepods/besteffort/podx", None, False),
    ],
)
def test_a_note_counts_below_the_best_effort_root_alone(
    parent: str, root: str | None, expected: bool
) -> None:
    assert best_effort(parent, root) is expected


def test_rules_follow_the_settings_in_force(tmp_path: Path) -> None:
    make_tree(tmp_path / "cgroup", 1)
    asked = IsolationSettings(classes={"BE": {"extended_cpu": 1}, "LS": {"extended_memory": 1}})
    with isolation(tmp_path / "s", tmp_path / "cgroup", 1, [], FakeKernel()) as made:
        assert made.births().on == frozenset()
        made.obey(asked)
        assert made.births().on == {"extended_cpu"}
        assert made.births().bounded
        made.beat(0, off=True)
        assert made.births().on == frozenset()
    dry = Isolation(Journal(tmp_path / "d", "k" * 32), [], dry_run=True)
    dry.follow(census(), layout(tmp_path / "cgroup", 1), FakeKernel())
    dry.obey(asked)
    assert dry.births().on == frozenset()
    dry.close()


NUMBERS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)


@given(NUMBERS, NUMBERS)
def test_gifts_read_as_google_reads_them(quota: int | None, limit: int | None) -> None:
    raw = messages.given(Gift(shares=7, quota_us=quota, limit_bytes=limit))
    given = CLASSES["CreateContainerResponse"].FromString(raw).adjust.linux.resources
    assert given.cpu.shares.value == 7
    assert given.cpu.HasField("quota") == (quota is not None)
    assert given.cpu.quota.value == (quota or 0)
    assert given.memory.HasField("limit") == (limit is not None)
    assert given.memory.limit.value == (limit or 0)


@given(st.text(max_size=20), st.text(max_size=20), st.integers(-(1 << 63), (1 << 63) - 1))
def test_births_are_read_as_google_writes_them(uid: str, name: str, quota: int) -> None:
    request = CLASSES["CreateContainerRequest"]()
    request.pod.uid, request.container.name = uid, name
    request.pod.annotations.add(key=name, value=uid)
    request.container.linux.resources.cpu.quota.value = quota
    found = messages.birth(request.SerializeToString())
    assert (found.uid, found.name, found.quota_us) == (uid, name, quota)
    assert found.annotations == {name: uid}


@given(st.binary(max_size=80))
def test_bytes_that_are_no_request_are_refused_and_harm_nothing(data: bytes) -> None:
    for read in (messages.birth, messages.called, messages.trouble, messages.synchronized):
        try:
            read(data)
        except BadMessage:
            continue


@given(
    st.lists(st.builds(Frame, st.integers(1, 99), st.integers(1, 3), st.binary(max_size=9))),
    st.integers(1, 9),
)
def test_frames_are_put_together_however_they_are_cut(frames: list[Frame], cut: int) -> None:
    whole = b"".join(piece(1, frame)[8:] for frame in frames)
    found, stream = [], Frames()
    for at in range(0, len(whole), cut):
        found += list(stream.feed(whole[at : at + cut]))
    assert found == frames


def test_a_frame_that_no_runtime_sends_is_refused() -> None:
    with pytest.raises(BadFrame):
        list(Frames().feed(struct.pack(">IIBB", 1 << 30, 1, 1, 0)))
    assert signed((1 << 64) - 1) == -1
