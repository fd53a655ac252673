"""The inventory file is swapped for a pipe, a link, a device, a bomb; the last good state holds."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from node_agent.workbench.groups import Groups
from tests.node_agent.hostile.kit import (
    Besieged,
    besieged,
    from_file,
    inventory_text,
    quota_us,
    write_inventory,
)

pytestmark = pytest.mark.only_outside("what lies in files reads the same on every kernel")

Attack = Callable[[Groups, Path], object]


def _swap(make: Callable[[Path], None]) -> Attack:
    def attack(_: Groups, path: Path) -> None:
        path.unlink()
        make(path)

    return attack


def _text(said: Callable[[Groups], str]) -> Attack:
    return lambda groups, path: path.write_text(said(groups))


def _aliases(groups: Groups) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    return "\n".join([*lines, "pods: *a11", f"best_effort_root: {groups.be_root}"])


def _grown(path: Path) -> None:
    with path.open("w") as file:
        file.truncate(3 << 30)


def _loose(groups: Groups, path: Path) -> None:
    path.write_text(inventory_text(groups).replace("uid: batch", "uid: mine"))
    path.chmod(0o666)


REFUSED: dict[str, tuple[Attack, str]] = {
    "a pipe": (_swap(os.mkfifo), "no plain file"),
    "a device": (_swap(lambda path: path.symlink_to("/dev/zero")), "no plain file"),
    "a folder": (_swap(Path.mkdir), "no plain file"),
    "three gigabytes": (_swap(_grown), "larger than"),
    "a file that anybody may write": (_loose, "chmod o-w"),
    "NUL bytes": (lambda _, path: path.write_bytes(bytes(1000)), "not YAML"),
    "a hundred thousand brackets": (_text(lambda _: "[" * 100_000), "not YAML"),
    "a hundred thousand mappings": (_text(lambda _: "pods: " + "{a: " * 100_000), "not YAML"),
    "ten to the twelfth by aliases": (_text(_aliases), "unknown key"),
    "the online pods' parent as best-effort root": (
        _text(lambda g: inventory_text(g).replace(g.be_root + "\n", f"{g.name}/online\n", 1)),
        "overlaps the best-effort root",
    ),
    "a victim outside the root": (
        _text(lambda g: inventory_text(g, f"  - {{uid: x, qos: BE, cgroup: {g.name}/online/x}}")),
        "not below",
    ),
    "a path that climbs": (
        _text(lambda g: inventory_text(g, f"  - {{uid: x, qos: BE, cgroup: {g.be_root}/../web}}")),
        "'..'",
    ),
    "a request of 2^70": (
        _text(
            lambda g: inventory_text(
                g, f"  - {{uid: x, cgroup: {g.name}/x, requests: {{cpu_milli: {1 << 70}}}}}"
            )
        ),
        "outside",
    ),
    "a hundred billion CPUs": (
        _text(
            lambda g: inventory_text(
                g, f'  - {{uid: x, cgroup: {g.name}/x, cpus: "0-1{"0" * 11}"}}'
            )
        ),
        "no CPUs",
    ),
}


@pytest.mark.parametrize("word", REFUSED)
async def test_a_spoilt_inventory_file_changes_nothing(
    word: str, groups: Groups, tmp_path: Path
) -> None:
    attack, says = REFUSED[word]
    path = write_inventory(groups, tmp_path / "inventory.yaml")
    source = from_file(groups, path)
    assert source.file is not None
    async with besieged(groups, source, tmp_path / "state") as one:
        attack(groups, path)
        await one.until(lambda: source.file is not None and source.file.error != "", "a refusal")
        assert says in source.file.error
        assert await one.beats(5) < 3.0
        assert uids(one) == {"web", "batch"}
        assert quota_us(groups) == 1000


async def test_numbers_at_the_edge_are_taken_and_harmless(groups: Groups, tmp_path: Path) -> None:
    path = write_inventory(groups, tmp_path / "inventory.yaml")
    most = (1 << 62) - 1  # what the file may say
    async with besieged(groups, from_file(groups, path), tmp_path / "state") as one:
        amounts = f"{{cpu_milli: {most}, memory_bytes: {most}}}"
        more = "".join(
            f"  - {{uid: x{i}, cgroup: {groups.name}/x{i}, "
            f"requests: {amounts}, limits: {amounts}}}\n"
            for i in range(3)
        )
        path.write_text(inventory_text(groups, more))
        await one.until(lambda: len(uids(one)) == 5, "the new pods")
        await one.beats(5)
        assert one.agent.law_failures == 0
        assert 0 < quota_us(groups) <= (os.cpu_count() or 1) * 10_000


@pytest.mark.parametrize(
    "annotation",
    [
        "[" * 50_000,
        '{"suppress":' * 5_000,
        '{"suppress": {"threshold_percent": -1}}',
        "\\u0000",
        "{}",
    ],
)
async def test_a_policy_annotation_that_is_none_leaves_the_policy(
    annotation: str, groups: Groups, tmp_path: Path
) -> None:
    path = write_inventory(groups, tmp_path / "inventory.yaml")
    async with besieged(groups, from_file(groups, path), tmp_path / "state") as one:
        said = annotation.replace("'", "''")
        path.write_text(
            inventory_text(groups) + f"node:\n  annotations: {{slackwater.io/policy: '{said}'}}\n"
        )
        await one.beats(15)
        assert one.agent.law_failures == 0
        assert one.agent.obey.lease.policy is not None
        assert one.agent.obey.lease.policy.suppress.floor_percent == 50


def uids(one: Besieged) -> set[str]:
    census = one.agent.sampler.census
    return set() if census is None else {pod.uid for pod in census.record.pods}
