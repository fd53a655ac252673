"""Folders of keys, and `slackwater keys`."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from schemas import keys
from schemas.keys import BadKeys
from streams import keyring
from streams.keys_cli import app


def cli(*words: str) -> str:
    """Standard output of a command that must succeed; BadKeys is raised as it comes."""
    done = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def shown(folder: Path) -> list[tuple[str, str, bool]]:
    said = orjson.loads(cli("show", "--keys", str(folder), "--json"))
    return [(one["file"], one["id"], one["signs"]) for one in said]


def test_new_keys_are_nobody_elses_to_read(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    said = cli("new", "--keys", str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    held = keyring.load(folder)
    for name in (keys.WORKER_KEY, keys.NODES_KEY):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
        for key in held.of(name):
            assert key.id.hex() in said
            assert key.secret.hex() not in said
            assert keys.line(name, key).split()[2] not in said
    assert {p.name for p in folder.iterdir()} == {keys.WORKER_KEY, keys.WORKER_PUB, keys.NODES_KEY}


def test_a_key_is_changed_in_four_steps(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    cli("new", "--keys", str(folder))
    first = keyring.load(folder)
    cli("new", "--keys", str(folder))
    both = keyring.load(folder)
    for name in first.files:
        assert both.of(name)[0] == first.of(name)[0]  # the old one goes on signing
        assert len(both.of(name)) == 2
    with pytest.raises(BadKeys, match="drop one first"):
        cli("new", "--keys", str(folder))
    old, fresh = both.of(keys.WORKER_KEY)
    cli("use", fresh.id.hex(), "--keys", str(folder))
    assert (keys.WORKER_KEY, fresh.id.hex(), True) in shown(folder)
    cli("drop", old.id.hex(), "--keys", str(folder))
    assert keyring.load(folder).of(keys.WORKER_PUB) == both.of(keys.WORKER_PUB)[1:]
    assert keyring.load(folder).of(keys.NODES_KEY) == both.of(keys.NODES_KEY)
    with pytest.raises(BadKeys, match="only key"):
        cli("drop", fresh.id.hex(), "--keys", str(folder))
    for word, says in (("zz", "no id"), ("00" * 8, "no key 0000")):
        with pytest.raises(BadKeys, match=says):
            cli("use", word, "--keys", str(folder))


def test_a_node_gets_no_more_than_it_needs(tmp_path: Path) -> None:
    folder, own = tmp_path / "keys", tmp_path / "n1"
    keyring.make(folder)
    cli("node", "n1", "--to", str(own), "--keys", str(folder))
    assert {p.name for p in own.iterdir()} == {keys.NODE_KEY, keys.WORKER_PUB}
    held, workers = keyring.load(own), keyring.load(folder)
    assert held.of(keys.NODE_KEY)[0].node == "n1"
    secrets = {key.secret for name in workers.files for key in workers.of(name)}
    assert held.of(keys.NODE_KEY)[0].secret not in secrets
    with pytest.raises(BadKeys, match="not where the workers' keys are"):
        cli("node", "n2", "--to", str(tmp_path / "n2"), "--keys", str(own))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadKeys, match="no keys in it"):
        cli("show", "--keys", str(tmp_path / "empty"))


def test_a_folder_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    keyring.make(folder)
    (folder / keys.WORKER_KEY).chmod(0o644)
    with pytest.raises(BadKeys, match=f"chmod 600 {folder / keys.WORKER_KEY}"):
        keyring.load(folder)
    (folder / keys.WORKER_KEY).unlink()
    os.mkfifo(folder / keys.WORKER_KEY, 0o600)
    with pytest.raises(BadKeys, match="no plain file"):
        keyring.load(folder)
    with pytest.raises(BadKeys, match="keys new"):
        keyring.load(tmp_path / "nowhere")


def test_a_running_worker_meets_new_keys_and_keeps_old_ones_when_they_are_spoilt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyring, "LOOK_AGAIN_S", 0.0)
    folder = tmp_path / "keys"
    first = keyring.make(folder)
    held = keyring.Folder(folder)
    both = keyring.make(folder)
    assert (held.reload(), held.held) == (both, both)
    (folder / keys.NODES_KEY).write_text("spoilt")
    assert (held.reload(), held.held) == (None, both)
    monkeypatch.setattr(keyring, "LOOK_AGAIN_S", 60.0)
    assert held.reload() is None
    assert first != both


def test_a_worker_without_keys_says_so_once_and_loudly(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        signer, check = keyring.authenticity(None, "t.", accept_unsigned=False)
    check("commands", b"n1", (), b"whatever")
    assert signer is None
    assert [r.levelname for r in caplog.records] == ["WARNING"]
    assert "NOT signed" in caplog.text


def test_a_worker_needs_all_three_files(tmp_path: Path) -> None:
    folder, own = tmp_path / "keys", tmp_path / "n1"
    keyring.make(folder)
    keyring.for_node(folder, "n1", own)
    with pytest.raises(BadKeys, match=keys.NODES_KEY):
        keyring.authenticity(own, "t.", accept_unsigned=False)
