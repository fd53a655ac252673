"""Reservations at binding where the API server fails in ways that a real one cannot be made to.

The real one answers in tests/kube/test_extender.py.
"""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_bridge.extender.bindings import Bindings
from scheduler_bridge.extender.pods import PodRow
from scheduler_bridge.extender.wire import Binding
from scheduler_bridge.kube.errors import (
    KubeBusy,
    KubeConflict,
    KubeError,
    KubeRefused,
    KubeUnreachable,
)
from tests.scheduler_bridge.extender.world import NOW_MS, World, batch, capacity, row

UNSURE_MS = 30_000
ENDS: dict[str, tuple[KubeError | None, bool]] = {
    "bound": (None, True),
    "refused": (KubeRefused("bind: 403"), False),
    "conflict": (KubeConflict("bind: 409"), False),
    "lost, bound": (KubeUnreachable("bind: no answer"), True),
    "lost, not bound": (KubeUnreachable("bind: no answer"), False),
    "busy": (KubeBusy("bind: 503"), False),
}
"""What a call of bind ends in: the error, and whether it took effect."""


class Script:
    """An API server by script: what a call of bind ends in, and whether it took effect."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRow] = {}
        self.error: KubeError | None = None
        self.takes_effect = True
        self.reads_fail = False
        self.calls = 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def bind(self, asked: Binding) -> None:
        self.calls += 1
        await self.go_on.wait()
        pod = self.pods[asked.name]
        if pod.node:
            raise KubeConflict(f"bind: 409, it is on {pod.node}")
        if self.takes_effect:
            self.pods[asked.name] = msgspec.structs.replace(pod, node=asked.node)
        if self.error is not None:
            raise self.error

    async def pod(self, namespace: str, name: str) -> PodRow | None:
        assert namespace == "test"
        if self.reads_fail:
            raise KubeUnreachable("read: no answer")
        return self.pods.get(name)


class Stage:
    """One node that lends 3000, pods that ask for 2000, and a clock."""

    def __init__(self) -> None:
        self.now_ms = NOW_MS
        self.world = World()
        self.world.join("n", "m")
        self.world.hear(capacity("n", 3_000), capacity("m", 3_000))
        self.api = Script()
        for name in ("one", "two"):
            self.api.pods[name] = row(name, asks=batch(2_000))
        self.mirror: dict[str, PodRow] = {}
        self.bindings = Bindings(
            self.world.fleet, self.mirror, self.api, lambda: self.now_ms, 900_000, UNSURE_MS
        )

    async def bind(self, name: str, node: str = "n") -> str:
        return await self.bindings.bind(Binding(name, "test", f"uid-{name}", node))

    @property
    def taken(self) -> int:
        rows = self.world.fleet.rows_of(["n"])
        return int(self.world.fleet.take("taken", rows)[0, 0])


@pytest.fixture
async def stage() -> Stage:
    return Stage()


async def test_the_last_slice_goes_once(stage: Stage) -> None:
    answers = await asyncio.gather(*(stage.bind(name) for name in ("one", "two")))
    assert answers == ["", "n is one of the node(s) with too little left to lend"]
    assert (stage.taken, stage.api.calls) == (2_000, 1)


async def test_r4_asked_again_while_it_runs_it_runs_once(stage: Stage) -> None:
    stage.api.go_on.clear()
    asked = [asyncio.create_task(stage.bind("one")) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert await stage.bind("one", "m") == "the pod is being bound to n just now; ask again"
    asked[0].cancel()  # who asked has gone; the binding has not
    stage.api.go_on.set()
    assert await asyncio.gather(*asked[1:]) == ["", ""]
    assert (stage.taken, stage.api.calls) == (2_000, 1)


async def test_a_refusal_gives_back(stage: Stage) -> None:
    stage.api.error, stage.api.takes_effect = KubeConflict("bind: 409"), False
    assert await stage.bind("one") == "bind: 409"
    assert (stage.taken, stage.bindings.unsure) == (0, 0)


async def test_a_conflict_with_our_own_earlier_binding_is_success(stage: Stage) -> None:
    stage.api.error = KubeConflict("bind: 409")
    assert await stage.bind("one") == ""
    assert stage.taken == 2_000


@pytest.mark.parametrize("error", [KubeUnreachable("bind: no answer"), KubeBusy("bind: 500")])
async def test_an_answer_that_is_lost_is_looked_up(stage: Stage, error: KubeError) -> None:
    stage.api.error = error
    assert await stage.bind("one") == ""
    assert stage.taken == 2_000


async def test_what_may_still_take_effect_stays_taken_until_it_was_looked_at(stage: Stage) -> None:
    stage.api.error, stage.api.takes_effect = KubeUnreachable("bind: no answer"), False
    assert await stage.bind("one") == "bind: no answer"
    assert stage.taken == 2_000
    assert "too little" in await stage.bind("two"), "the slice is not known to be free"
    assert "is not decided yet" in await stage.bind("one", "m")

    stage.now_ms += UNSURE_MS - 1
    await stage.bindings.sweep()
    assert stage.taken == 2_000
    stage.now_ms += 1
    stage.api.reads_fail = True
    await stage.bindings.sweep()
    assert stage.taken == 2_000, "nobody could be asked"
    stage.api.reads_fail = False
    await stage.bindings.sweep()
    assert (stage.taken, stage.bindings.unsure) == (0, 0)

    stage.api.error, stage.api.takes_effect = None, True
    assert await stage.bind("one", "m") == ""


async def test_nothing_is_known_while_nobody_answers(stage: Stage) -> None:
    stage.mirror["test/one"] = stage.api.pods["one"]
    stage.api.error, stage.api.reads_fail = KubeUnreachable("bind: no answer"), True
    assert await stage.bind("one") == (
        "bind: no answer; whether it took effect is not known, ask again"
    )
    assert stage.taken == 2_000
    stage.api.error, stage.api.reads_fail = None, False
    assert await stage.bind("one") == "", "asked again it is done"
    assert stage.taken == 2_000


async def test_what_the_mirror_shows_ends_the_doubt(stage: Stage) -> None:
    assert await stage.bind("one") == ""
    assert stage.bindings.unsure == 1
    stage.world.fleet.put(stage.api.pods["one"], NOW_MS, seen=True)
    await stage.bindings.sweep()
    assert (stage.taken, stage.bindings.unsure) == (2_000, 0)
    assert await stage.bind("one") == "", "and long after it is still bound"


async def test_another_pod_of_the_name_is_not_bound(stage: Stage) -> None:
    stage.api.pods["one"] = row("one", asks=batch(2_000), uid="uid-later")
    assert await stage.bind("one") == "there is no such pod any more"
    assert (stage.taken, stage.api.calls) == (0, 0)


async def test_an_end_waits_for_what_is_under_way(stage: Stage) -> None:
    stage.api.go_on.clear()
    asked = asyncio.create_task(stage.bind("one"))
    await asyncio.sleep(0)
    settled = asyncio.create_task(stage.bindings.settle())
    await asyncio.sleep(0)
    assert not settled.done()
    stage.api.go_on.set()
    await settled
    assert await asked == ""


STEPS = st.lists(
    st.tuples(
        st.lists(st.sampled_from(("one", "two", "three")), min_size=1, max_size=3),
        st.sampled_from(("n", "m")),
        st.sampled_from(sorted(ENDS)),
        st.booleans(),  # whether pods can be read
        st.booleans(),  # whether the mirror has seen what was bound
        st.integers(0, 40_000),  # ms that pass
    ),
    max_size=12,
)


def check(stage: Stage, end: bool) -> None:
    """At every moment: bound <= taken <= offered; in the end what is taken is what is bound."""
    for node in ("n", "m"):
        rows = stage.world.fleet.rows_of([node])
        taken = int(stage.world.fleet.take("taken", rows)[0, 0])
        bound = sum(pod.borrows[0] for pod in stage.api.pods.values() if pod.node == node)
        assert bound <= taken <= 3_000
        assert not end or taken == bound


@settings(max_examples=60, deadline=None)
@given(STEPS)
async def test_whatever_fails_what_is_bound_is_counted_and_nothing_is_lent_twice(
    steps: list[tuple[list[str], str, str, bool, bool, int]],
) -> None:
    stage = Stage()
    stage.api.pods["three"] = row("three", asks=batch(1_000))
    for names, node, end, readable, seen, passed_ms in steps:
        stage.api.error, stage.api.takes_effect = ENDS[end]
        stage.api.reads_fail = not readable
        await asyncio.gather(*(stage.bind(name, node) for name in names))
        check(stage, end=False)
        if seen:
            see_all(stage)
        stage.now_ms += passed_ms
        await stage.bindings.sweep()
        check(stage, end=False)
    stage.api.reads_fail = False
    see_all(stage)
    stage.now_ms += UNSURE_MS
    await stage.bindings.sweep()
    check(stage, end=True)


def see_all(stage: Stage) -> None:
    """The mirror shows the pods as they are."""
    for pod in stage.api.pods.values():
        stage.mirror[pod.key] = pod
        if pod.holds:
            stage.world.fleet.put(pod, stage.now_ms, seen=True)
