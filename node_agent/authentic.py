"""Who may tell this node what to do, and the node's own word that a record is its own.

`node_agent.loop` and the simulated fleet hold one `Authentic` each: it signs what they send and
checks what they hear; a node without keys says once that it checks nobody. Files of keys:
`schemas.keys`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from aiokafka import ConsumerRecord

from schemas import codec, keys
from schemas.codec import Headers
from schemas.errors import BadRecord
from schemas.keys import BadKeys, Keys
from schemas.records import Command
from schemas.signing import NODE_SAYS, Checker, NodeSigner
from schemas.topics import full_name

LOOK_AGAIN_US = 5_000_000  # between two readings of the folder for the sake of an unknown key
ANSWER_EVERY_US = 1_000_000  # one refused command is answered in this time, all are counted
NAME_CHARS = 64  # of an id that nobody vouches for
NOBODY_CHECKED = (
    "no --keys: commands are NOT authenticated, samples are NOT signed; whoever may write the "
    "topics is obeyed (docs/security.md)"
)

log = logging.getLogger(__name__)


class Authentic:
    """Keys in use; ``refused`` counts records by reason."""

    def __init__(
        self,
        folder: Path | None,
        prefix: str,
        mono_us: Callable[[], int],
        *,
        accept_unsigned: bool = False,
    ) -> None:
        """``folder`` None: nothing is signed, nobody checked. Raises BadKeys."""
        self.refused: dict[str, int] = {}
        self._folder, self._prefix, self._mono_us = folder, prefix, mono_us
        self._looked_us = self._answered_us = mono_us() - LOOK_AGAIN_US
        self._checker: Checker | None = None
        self._signers: dict[str, NodeSigner] = {}
        if folder is None:
            return
        self._held = load(folder)
        if not self._held.of(keys.WORKER_PUB):
            raise BadKeys(f"{folder}: no {keys.WORKER_PUB}; make the folder with: keys node NAME")
        self._checker = Checker(prefix, self._held, self._reload, accept_unsigned=accept_unsigned)

    @property
    def accepted_unsigned(self) -> int:
        """Records let in without a signature, during a change-over."""
        return 0 if self._checker is None else self._checker.accepted_unsigned

    def headers(self, topic: str, node: str, headers: Headers, value: bytes) -> Headers:
        """The headers of what ``node`` says on ``topic`` (its name in the table).

        Raises BadKeys when the folder has no key of this node.
        """
        if self._checker is None or topic not in NODE_SAYS:
            return headers
        signer = self._signers.get(node)
        if signer is None:
            signer = self._signers[node] = NodeSigner.of(self._held, node)
        return signer.sign(full_name(self._prefix, topic), node.encode(), headers, value)

    def check(self, topic: str, record: ConsumerRecord) -> None:
        """Raises BadRecord for what was not said by a worker; counted."""
        if self._checker is None:
            return
        try:
            self._checker.check(topic, record.key, record.headers, record.value)
        except BadRecord as error:
            self.refused[error.reason] = self.refused.get(error.reason, 0) + 1
            raise

    def answerable(self, record: ConsumerRecord) -> Command | None:
        """A refused command as far as an answer needs it; None: too many, or it says nothing.

        Nobody vouches for it: it is good for naming in an ack and for nothing else.
        """
        now_us = self._mono_us()
        if now_us - self._answered_us < ANSWER_EVERY_US:
            return None
        try:
            command = codec.decode(Command, record.value or b"")
        except BadRecord:
            return None
        if len(command.id) > NAME_CHARS:
            return None
        self._answered_us = now_us
        return command

    def _reload(self) -> Keys | None:
        now_us = self._mono_us()
        if self._folder is None or now_us - self._looked_us < LOOK_AGAIN_US:
            return None
        self._looked_us = now_us
        try:
            self._held = load(self._folder)
        except (BadKeys, OSError) as error:
            log.warning("keys not read again, those from before hold: %s", error)
            return None
        self._signers.clear()
        return self._held


def load(folder: Path) -> Keys:
    """The folder's keys. Raises BadKeys for what is not right or open to others."""
    if not folder.is_dir():
        raise BadKeys(
            f"{folder}: no such folder; make one: slackwater keys node NAME --to {folder}"
        )

    def text(name: str) -> str | None:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            status = os.fstat(descriptor)
            path = str(folder / name)
            keys.check_owner(name, path, status.st_mode, status.st_uid, os.geteuid())
            return keys.text_of(name, os.read(descriptor, keys.MAX_FILE_BYTES + 1))
        finally:
            os.close(descriptor)

    return keys.load(text)
