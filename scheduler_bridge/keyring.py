"""Who may order evictions: the workers' public keys, read from a folder with its rights checked.

Used by the evictor for `commands`. It holds no secret: ``worker.pub`` is all that is read. What
the file says is `schemas.keys`; the other shells have readers of their own.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from time import monotonic

from schemas import keys
from schemas.keys import BadKeys, Keys
from schemas.signing import Checker

log = logging.getLogger("slackwater.bridge")
LOOK_AGAIN_S = 5.0  # between two readings for the sake of an unknown key


class Keyring:
    """Checks what workers say. Raises BadKeys when the folder has no key of theirs."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._looked = monotonic()
        held = self._load()
        if not held.of(keys.WORKER_PUB):
            raise BadKeys(
                f"{folder}: no {keys.WORKER_PUB}; copy it from where the workers' keys are"
            )
        self.check = Checker(prefix, held, self._reload).check

    def _reload(self) -> Keys | None:
        """The keys now, at most once in `LOOK_AGAIN_S`; None: not looked, or they are unusable."""
        now = monotonic()
        if now - self._looked < LOOK_AGAIN_S:
            return None
        self._looked = now
        try:
            return self._load()
        except (BadKeys, OSError) as error:
            log.warning("keys: %s; what was read before holds", error)
            return None

    def _load(self) -> Keys:
        return keys.load(lambda name: self._text(name) if name == keys.WORKER_PUB else None)

    def _text(self, name: str) -> str | None:
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            keys.check_owner(name, str(path), status.st_mode, status.st_uid, os.geteuid())
            return keys.text_of(name, file.read(keys.MAX_FILE_BYTES + 1))
