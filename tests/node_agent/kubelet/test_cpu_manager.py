"""The kubelet's state file of pinned CPUs: its two forms, and everything else it may hold."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from node_agent.kubelet.cpu_manager import NOTHING, CpuManagerState, Pinned, parse

NEW = (
    b'{"policyName":"static","defaultCpuSet":"0,2-12","entries":'
    b'{"uid-1":{"app":"1,13","side":""}},"checksum":1552716370}'
)
OLD = b'{"policyName":"static","defaultCpuSet":"0","entries":{"abc":"2-3"}}'


def test_by_pod_and_container_and_in_old_kubelets_by_id() -> None:
    new = parse(NEW)
    assert new.static
    assert new.cpus(("other", "uid-1"), "app", "") == (1, 13)
    assert new.cpus(("uid-1",), "side", "") == new.cpus(("uid-2",), "app", "") == ()
    assert parse(OLD).cpus(("x",), "app", "abc") == (2, 3)
    assert parse(b'{"policyName":"none","defaultCpuSet":"","checksum":1}') == NOTHING


@pytest.mark.parametrize(
    "raw",
    [b"", b"{", b"[]", b'{"entries": 3}', b'{"entries": {"u": {"c": "9-1"}}}', b"[" * 9000,
     b'{"entries": {"u": {"c": "0-99999999"}}}'],
)  # fmt: skip
def test_what_is_no_state_keeps_the_last_one(tmp_path: Path, raw: bytes) -> None:
    path = tmp_path / "cpu_manager_state"
    state = CpuManagerState(str(path))
    assert state.look() is NOTHING, "no file pins nothing"
    path.write_bytes(NEW)
    good = state.look()
    assert good.static
    (tmp_path / "new").write_bytes(raw)
    (tmp_path / "new").replace(path)
    assert state.look() is good
    assert state.error
    path.unlink()
    assert (state.look(), state.error) == (NOTHING, "")


def test_a_pipe_or_a_folder_in_its_place_holds_nobody_up(tmp_path: Path) -> None:
    path = tmp_path / "cpu_manager_state"
    os.mkfifo(path)
    state = CpuManagerState(str(path))
    assert state.look() == Pinned()
    assert "no plain file" in state.error
    path.unlink()
    path.mkdir()
    assert state.look() == Pinned()
    assert state.error
