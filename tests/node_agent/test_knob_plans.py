"""Properties of every knob's plan, over any values found, kept and asked; no file is touched."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Step, Values, ordered, plan
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.online import GIVES
from node_agent.actuators.subtree import WRITABLE
from node_agent.cgroup.layout import Version
from node_agent.surfaces import HIERARCHIES
from tests.node_agent.isolation_trees import FILES

MACHINE = Machine(("254:0", "259:1"))
PLACES = ("kubepods/pod", "kubepods/pod/c1", "kubepods/pod/c2")
FILES_KNOBS = [
    (knob, version)
    for knob in KNOBS
    for version in FILES
    if knob.files(version) and knob.exact and knob.surface in HIERARCHIES
]
each_knob = pytest.mark.parametrize(
    ("knob", "version"), FILES_KNOBS, ids=lambda one: getattr(one, "name", f"v{one}")
)
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
FIGURES = {"extended_cpu": ("request", "limit", "moot"), "extended_memory": ("limit",)}
"""What a knob finds by itself for a unit; the first is always there."""
NUMBERS = st.one_of(
    st.integers(-2, 3), st.sampled_from([100, 1024, 4096, 50_000, 100_000, 250_000, 1 << 40])
)


def texts(file: str) -> st.SearchStrategy[str]:
    """What a kernel may say in a file."""
    quota = st.integers(1000, 400_000)
    period = st.sampled_from([10_000, 50_000, 100_000])
    if file == "cpu.max":
        return st.one_of(
            st.builds("max {}".format, period), st.builds("{} {}".format, quota, period)
        )
    if file == "cpu.cfs_quota_us":
        return st.one_of(st.just("-1"), quota.map(str))
    if file == "cpu.cfs_period_us":
        return period.map(str)
    if file in ("cpu.cfs_burst_us", "cpu.max.burst"):
        return st.integers(0, 1000).map(str)
    if file == "memory.high":
        return st.one_of(st.just("max"), st.integers(0, 1 << 40).map(lambda n: str(n * 4096)))
    if file == "memory.max":
        return st.one_of(st.just("max"), st.integers(1, 1 << 40).map(lambda n: str(n * 4096)))
    if file in ("memory.current", "memory.stat"):
        return st.just("0" if file == "memory.current" else "active_file 0")
    if file in (
        "memory.min", "memory.low", "memory.soft_limit_in_bytes", "memory.limit_in_bytes",
    ):  # fmt: skip
        return st.integers(0, 1 << 40).map(lambda n: str(n * 4096))
    if file in ("io.weight", "io.bfq.weight"):
        return st.integers(1, 1000).map("default {}".format)
    if file.startswith("blkio.throttle"):
        return st.one_of(st.just(""), st.integers(1, 10**9).map("254:0 {}".format))
    if file == "io.max":
        line = "254:0 rbps={} wbps=max riops={} wiops=max".format
        return st.one_of(st.just(""), st.builds(line, st.integers(1, 9), st.integers(1, 9)))
    bounds = {
        "cpu.bvt_warp_ns": (-1, 2),
        "memory.wmark_min_adj": (-25, 50),
        "memory.wmark_ratio": (0, 100),
        "cgroup.freeze": (0, 1),
        "freezer.self_freezing": (0, 1),
    }
    low, high = bounds.get(file, (1, 1000))
    return st.integers(low, high).map(str)


@st.composite
def units(draw: st.DrawFn, knob: Knob, version: int) -> tuple[list[Found], dict[str, Values]]:
    """A unit's places and the originals that are kept of some of their keys."""
    members: list[Found] = []
    originals: dict[str, Values] = {}
    for at, place in enumerate(PLACES if knob.deep else PLACES[:1]):
        files = [file for file in knob.files(version) if draw(st.integers(0, 9))]
        if "cpu.cfs_quota_us" in files and "cpu.cfs_period_us" not in files:
            files.append("cpu.cfs_period_us")
        both = [{file: draw(texts(file)) for file in files} for _ in range(2)]
        now, before = (knob.values(version, raw, MACHINE) for raw in both)
        members.append(Found(place, at, now))
        looked_at = ("cpu.cfs_period_us", "held")
        written = [key for key in before if key in now and key not in looked_at]
        kept = {key: before[key] for key in written if draw(st.booleans())}
        if kept:
            originals[place] = kept
    return members, originals


@st.composite
def asks(draw: st.DrawFn, knob: Knob) -> Ask:
    names = draw(st.sets(st.sampled_from(sorted(knob.turns)), min_size=1))
    knobs = {name: draw(NUMBERS) for name in sorted(names)}
    ask = Ask(PLACES[0], knobs, draw(st.booleans()))
    never = knob.takes(ask) if ask.online else frozenset()
    named = FIGURES.get(knob.name, ())
    figures = {name: draw(NUMBERS) for name in named if name == named[0] or draw(st.booleans())}
    said = {name: value for name, value in knobs.items() if name not in never}
    return Ask(ask.unit, said, ask.online, figures=figures)


def online(originals: Mapping[str, Values]) -> dict[str, Values]:
    """Those that an online pod can have: nothing else of it was ever written."""
    return {
        place: {key: text for key, text in values.items() if key in GIVES}
        for place, values in originals.items()
    }


def after(members: list[Found], steps: list[Step]) -> list[Found]:
    """The unit once the steps are done."""
    now = {step.place: step.after for step in steps}
    return [Found(f.place, f.identity, now.get(f.place, f.values)) for f in members]


def kept_then(originals: Mapping[str, Values], steps: list[Step]) -> dict[str, Values]:
    """Originals with those that the steps made necessary."""
    found = dict(originals)
    for step in steps:
        moved = {k: step.before[k] for k, text in step.after.items() if step.before[k] != text}
        found[step.place] = {**moved, **found.get(step.place, {})}
    return found


@each_knob
@relaxed
@given(data=st.data())
def test_a_plan_done_leaves_nothing_to_do_and_can_be_undone(
    knob: Knob, version: Version, data: st.DataObject
) -> None:
    members, originals = data.draw(units(knob, version))
    ask = data.draw(asks(knob))
    todo = plan(knob, version, PLACES[0], ask, members, originals)
    done, held = after(members, todo), kept_then(originals, todo)
    assert plan(knob, version, PLACES[0], ask, done, held) == []
    back = after(done, plan(knob, version, PLACES[0], None, done, held))
    for found, first in zip(back, members, strict=True):
        assert found.values == {**first.values, **originals.get(found.place, {})}
    assert plan(knob, version, PLACES[0], None, back, held) == []


@each_knob
@relaxed
@given(data=st.data())
def test_nothing_empty_is_written_and_nothing_off_the_lists(
    knob: Knob, version: Version, data: st.DataObject
) -> None:
    members, originals = data.draw(units(knob, version))
    ask = data.draw(asks(knob))
    originals = online(originals) if ask.online else originals
    for step in plan(knob, version, PLACES[0], ask, members, originals):
        for file, text in knob.writes(version, step.before, step.after):
            assert text.strip()
            assert file in (GIVES if ask.online else WRITABLE)


@each_knob
@relaxed
@given(data=st.data())
def test_r6_an_online_pod_is_only_ever_given_to(
    knob: Knob, version: Version, data: st.DataObject
) -> None:
    members, originals = data.draw(units(knob, version))
    ask = data.draw(asks(knob).filter(lambda one: one.online))
    originals = online(originals)
    todo = plan(knob, version, PLACES[0], ask, members, originals)
    held = kept_then(originals, todo)
    for step in todo:
        for file, text in knob.writes(version, step.before, step.after):
            assert GIVES[file](text, held[step.place][file])


@each_knob
@relaxed
@given(data=st.data())
def test_r11_children_are_narrowed_before_parents_and_widened_after_them(
    knob: Knob, version: Version, data: st.DataObject
) -> None:
    members, originals = data.draw(units(knob, version))
    todo = plan(knob, version, PLACES[0], data.draw(asks(knob)), members, originals)
    order = ordered(knob, todo)
    assert sorted(order, key=str) == sorted(todo, key=str)
    gives = [knob.wider(step.before, step.after) for step in order]
    assert gives == sorted(gives)  # takes first
    depths = [step.place.count("/") for step in order]
    takes = gives.count(False)
    assert depths[:takes] == sorted(depths[:takes], reverse=True)
    assert depths[takes:] == sorted(depths[takes:])


@relaxed
@given(data=st.data())
@pytest.mark.parametrize("version", [1, 2])
def test_r11_burst_never_stands_above_the_quota_in_between(
    version: Version, data: st.DataObject
) -> None:
    (knob,) = (knob for knob in KNOBS if knob.name == "cpu_bandwidth")
    quota, burst = knob.files(version)[0], knob.files(version)[-1]
    members, _ = data.draw(units(knob, version))
    ask = data.draw(asks(knob).filter(lambda one: one.online))
    steps = plan(knob, version, PLACES[0], ask, members, {})
    done = after(members, steps)
    steps += plan(knob, version, PLACES[0], None, done, kept_then({}, steps))
    for step in steps:
        now = dict(step.before)
        for file, text in knob.writes(version, step.before, step.after):
            now[file] = text
            limit = now.get(quota, "-1").split()[0]
            if limit not in ("max", "-1") and burst in now:
                assert int(now[burst]) <= int(limit)
