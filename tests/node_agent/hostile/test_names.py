"""A tenant names its groups: with control characters, no UTF-8, another's id, at any depth."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_agent.group_rules import GroupRule, RuleGroups
from node_agent.inventory import Pod
from node_agent.join import Known, join
from node_agent.journal import recall
from node_agent.pod_groups import PodGroup
from node_agent.workbench.groups import Groups
from schemas.packed import MAX_PODS
from schemas.records import PodFact
from tests.node_agent.hostile.kit import (
    besieged,
    discovered,
    from_file,
    make,
    quota_us,
    write_inventory,
)

NO_UTF8 = os.fsdecode(b"\xff\xfe")
SPEAKABLE = {
    "letters": "ü€",
    "long": "n" * 250,
    "dots": "...",
    "a space": " ",
    "an option": "--help",
    "quotes": "\"'{}",
    "an escape that is none": "a\\012b",
    "a glob": "[x]*",
    "a format": "%s%n",
    "the leases' key": "~lease",
}
UNSPEAKABLE = {"a terminal escape": "\x1b[2J", "no UTF-8": NO_UTF8, "a pod's": "\x1b-pod12ab"}


@pytest.mark.parametrize("word", [*SPEAKABLE, *UNSPEAKABLE])
async def test_any_name_of_a_group_is_survived(word: str, groups: Groups, tmp_path: Path) -> None:
    name = (SPEAKABLE | UNSPEAKABLE)[word]
    groups.pod("online", "web")
    for side in ("online", "besteffort"):
        make(groups, f"{groups.name}/{side}/{name}")
    async with besieged(groups, discovered(groups), tmp_path / "state") as one:
        census = one.agent.sampler.census
        assert census is not None
        uids = {pod.uid for pod in census.record.pods}
        assert f"{groups.name}/online/web" in uids
        assert (f"{groups.name}/besteffort/{name}" in uids) is (word in SPEAKABLE)
        assert quota_us(groups) == 1000


@pytest.mark.parametrize("name", [NO_UTF8, "\x1b[2J", "ü"])
async def test_a_child_of_any_name_does_not_stop_suppression_and_gets_its_quota_back(
    name: str, groups: Groups, tmp_path: Path
) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    path = f"{groups.be_root}/batch/{name}"
    make(groups, path, quota=150_000)
    had = quota_us(groups, path)
    assert had == 150_000
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state"):
        assert quota_us(groups) == 1000
        if groups.layout.versions()["cpu"] == 1:  # the journal has the child's name, whatever it is
            kept = recall(tmp_path / "state").originals[groups.be_root]["cpu_quota"]
            assert f"batch/{name}" in kept
    assert quota_us(groups) == -1
    assert quota_us(groups, path) == had


async def test_groups_within_groups_do_not_stop_suppression(groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    deep = f"{groups.be_root}/batch" + "/d" * 40
    make(groups, deep, quota=150_000)
    had = quota_us(groups, deep)
    make(groups, deep + "/d" * 60)
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state"):
        assert quota_us(groups) == 1000
    assert (quota_us(groups), quota_us(groups, deep)) == (-1, had)


def test_a_tenant_cannot_take_the_name_of_anothers_container() -> None:
    """Whichever is met first: both stay pods."""
    twin = "0123456789ab"
    groups = [f"yarn/{who}/{twin}" for who in ("evil", "good")]
    names = {"yarn": ["evil", "good"], "yarn/evil": [twin], "yarn/good": [twin]}
    rules = (GroupRule.of("yarn/*/*"),)
    others = RuleGroups().look(rules, None, None, lambda group: names.get(group, []))
    found = join(Known(others=others), lambda _: True)
    assert [pod.group for pod in found.pods] == groups
    assert [pod.fact.uid for pod in found.pods] == [twin, groups[1]]
    assert not found.refused


def test_a_tree_of_pods_in_a_pod_does_not_hide_it() -> None:
    """A tenant that makes a kubepods tree in its own group stays the pod that it is."""
    pod = Pod(PodFact(uid="job", name="job", qos="BE"), "be/job")
    inner = PodGroup("be/job/kubepods/pod12ab", "12ab", "", "be/job/kubepods")
    found = join(
        Known(groups=[inner], written=[pod], be_root="be", tree="be/job/kubepods"), lambda _: True
    )
    assert [each.group for each in found.pods] == ["be/job"]
    assert found.refused == {inner.group: "lies in the group of the pod 'be/job'"}


def test_more_pods_than_a_sample_can_say_push_no_online_pod_out() -> None:
    flood = [
        Pod(PodFact(uid=f"{i:05}", name="", qos="BE"), f"be/{i}") for i in range(MAX_PODS + 10)
    ]
    web = Pod(PodFact(uid="web", name="web", qos="LS"), "online/web")
    found = join(Known(written=[*flood, web], be_root="be"), lambda _: True)
    assert len(found.pods) == MAX_PODS
    assert web in found.pods
    assert found.surplus == 11


async def test_hundreds_of_groups_cost_a_late_beat_at_most(groups: Groups, tmp_path: Path) -> None:
    inventory = write_inventory(groups, tmp_path / "inventory.yaml")
    mounts = groups.layout.mounts()
    for mount in mounts:
        for number in range(500):
            (Path(mount) / groups.be_root / "batch" / f"g{number}").mkdir()
    async with besieged(groups, from_file(groups, inventory), tmp_path / "state") as one:
        assert await one.beats(10, 60) < 2.0
        assert quota_us(groups) == 1000
