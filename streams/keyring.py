"""A folder of keys on this machine: read with its rights checked, made, changed, read again.

Used by the worker, its checker and `slackwater keys`. The node has a reader of its own
(`node_agent.keyring`): shells do not know each other; what a file says is `schemas.keys`.
"""

from __future__ import annotations

import logging
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from time import monotonic

from nacl.signing import SigningKey

from schemas import keys
from schemas.keys import BadKeys, Key, Keys
from schemas.signing import Checker, WorkerSigner
from streams.intake import Check, unchecked

log = logging.getLogger(__name__)

LOOK_AGAIN_S = 5.0  # between two readings for the sake of an unknown key


def load(folder: Path) -> Keys:
    """The folder's keys. Raises BadKeys for what is not there, not right or open to others."""
    if not folder.is_dir():
        raise BadKeys(f"{folder}: no such folder; make one: slackwater keys new {folder}")
    return keys.load(lambda name: _text(folder, name))


def _text(folder: Path, name: str) -> str | None:
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with os.fdopen(descriptor, "rb") as file:
        status = os.fstat(descriptor)
        keys.check_owner(name, str(path), status.st_mode, status.st_uid, os.geteuid())
        return keys.text_of(name, file.read(keys.MAX_FILE_BYTES + 1))


class Folder:
    """What a running process holds of a folder."""

    def __init__(self, path: Path) -> None:
        """Raises BadKeys."""
        self.held = load(path)
        self._path = path
        self._looked = monotonic()

    def reload(self) -> Keys | None:
        """The keys now, at most once in `LOOK_AGAIN_S`; None: not looked, or they are unusable."""
        now = monotonic()
        if now - self._looked < LOOK_AGAIN_S:
            return None
        self._looked = now
        try:
            self.held = load(self._path)
        except (BadKeys, OSError):
            return None  # what was read before holds
        return self.held

    def checker(self, prefix: str, *, accept_unsigned: bool) -> Checker:
        """For what a worker receives. Raises BadKeys when a node's code cannot be checked."""
        for name in (keys.WORKER_PUB, keys.NODES_KEY):
            if not self.held.of(name):
                raise BadKeys(f"{self._path}: no {name}; copy it from where the keys were made")
        return Checker(prefix, self.held, self.reload, accept_unsigned=accept_unsigned)


def authenticity(
    folder: Path | None, prefix: str, *, accept_unsigned: bool
) -> tuple[WorkerSigner | None, Check]:
    """What a worker signs with and how it checks. Raises BadKeys. Says loudly when it does not."""
    if folder is None:
        log.warning(
            "no --keys: ticks and commands are NOT signed, samples are NOT checked; whoever may "
            "write the topics is believed (slackwater keys new)"
        )
        return None, unchecked
    held = Folder(folder)
    check = held.checker(prefix, accept_unsigned=accept_unsigned).check
    return WorkerSigner(held.held), check


def there(folder: Path) -> Keys | None:
    """What ``make`` has made before, if it has. Raises BadKeys for what is not right."""
    held = load(folder) if folder.is_dir() else None
    return held if held is not None and held.of(keys.WORKER_KEY) else None


def make(folder: Path) -> Keys:
    """New keys of workers and nodes: the first ones, or a second of each behind the first.

    Raises BadKeys when there are two already.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = load(folder)
    seed, master = secrets.token_bytes(keys.KEY_BYTES), secrets.token_bytes(keys.KEY_BYTES)
    public = bytes(SigningKey(seed).verify_key)
    fresh = {
        keys.WORKER_KEY: Key(keys.id_of(public), seed),
        keys.WORKER_PUB: Key(keys.id_of(public), public),
        keys.NODES_KEY: Key(keys.id_of(master), master),
    }
    found = {name: (*held.of(name), key) for name, key in fresh.items()}
    for name, all_of_it in found.items():
        if len(all_of_it) > keys.MAX_KEYS:
            raise BadKeys(f"{folder / name}: {keys.MAX_KEYS} keys already; drop one first")
    return _write(folder, found)


def use(folder: Path, key_id: bytes) -> Keys:
    """The key signs from the next start on; the other is still accepted. Raises BadKeys."""
    return _change(folder, key_id, lambda mine, rest: (*mine, *rest))


def drop(folder: Path, key_id: bytes) -> Keys:
    """The key is no longer accepted. Raises BadKeys for the last one of a file."""
    return _change(folder, key_id, lambda _, rest: rest)


def for_node(folder: Path, node: str, to: Path) -> Keys:
    """A folder for one node: its own keys, and what workers' signatures are checked with."""
    held = load(folder)
    if not held.of(keys.NODES_KEY) or not held.of(keys.WORKER_PUB):
        raise BadKeys(f"{folder}: not where the workers' keys are; make them: slackwater keys new")
    own = tuple(
        Key(master.id, keys.node_key(master.secret, node.encode()), node)
        for master in held.of(keys.NODES_KEY)
    )
    to.mkdir(mode=0o700, parents=True, exist_ok=True)
    return _write(to, {keys.NODE_KEY: own, keys.WORKER_PUB: held.of(keys.WORKER_PUB)})


def _change(folder: Path, key_id: bytes, order: keys.Order) -> Keys:
    held = load(folder)
    found = {}
    for name, lines in held.files.items():
        mine = tuple(key for key in lines if key.id == key_id)
        if mine:
            found[name] = order(mine, tuple(key for key in lines if key.id != key_id))
    if not found:
        raise BadKeys(f"{folder}: no key {key_id.hex()}; see: slackwater keys show {folder}")
    if not all(found.values()):
        raise BadKeys(f"{folder}: {key_id.hex()} is the only key; make another first")
    return _write(folder, found)


def _write(folder: Path, found: Mapping[str, tuple[Key, ...]]) -> Keys:
    """Each file whole or not at all; secrets are never readable by others, not for a moment."""
    for name, lines in found.items():
        fresh = folder / f".{name}.new"
        fresh.unlink(missing_ok=True)
        mode = 0o644 if name == keys.WORKER_PUB else 0o600
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            os.fchmod(descriptor, mode)
            file.write("".join(keys.line(name, key) for key in lines))
            file.flush()
            os.fsync(descriptor)
        fresh.replace(folder / name)
    return load(folder)
