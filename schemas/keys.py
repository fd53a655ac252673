"""Key files as text: what a folder of keys holds, how a line is written, who may read a file.

Read by the key folders of the shells (`streams.keyring`, `node_agent.keyring`); made by
`slackwater keys`. Nothing is read or drawn here. A file has a line a key, ``KIND ID BASE64``, and
``NAME`` after it for a node's own; at most `MAX_KEYS`. The first line signs, all are accepted, so
that a key is changed without a moment in which one side refuses the other.

    worker.key   worker-sign    Ed25519 seed              workers only
    worker.pub   worker-check   Ed25519 public key        whoever obeys workers; no secret
    nodes.key    nodes-master   what node keys come from  workers only
    node.key     node-mac       this node's own           that node only
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

WORKER_KEY, WORKER_PUB, NODES_KEY, NODE_KEY = "worker.key", "worker.pub", "nodes.key", "node.key"
KINDS = {
    WORKER_KEY: "worker-sign",
    WORKER_PUB: "worker-check",
    NODES_KEY: "nodes-master",
    NODE_KEY: "node-mac",
}
KEY_BYTES = 32
ID_BYTES = 8
MAX_KEYS = 2
MAX_FILE_BYTES = 4096
NODES_KEPT = 16_384  # keys worked out before, about 3 MiB: more nodes than one worker has
Order = Callable[[tuple["Key", ...], tuple["Key", ...]], tuple["Key", ...]]
_OTHERS_MAY = 0o027  # write by the group; read, write or enter by anybody
_OTHERS_MAY_WRITE = 0o022


class BadKeys(Exception):
    """A key file cannot be used; the message names it and says what to do."""

    says_what_to_do = True


@dataclass(frozen=True, slots=True)
class Key:
    """One line. ``id`` names the key on the wire and tells nothing of a secret; ``node``: whose."""

    id: bytes
    secret: bytes
    node: str = ""


@dataclass(frozen=True, slots=True)
class Keys:
    """A folder: file name -> its keys in order; a file that is not there has none."""

    files: Mapping[str, tuple[Key, ...]]

    def of(self, name: str) -> tuple[Key, ...]:
        """Keys of one file, the one that signs first."""
        return self.files.get(name, ())

    def by_id(self, name: str, key_id: bytes) -> bytes | None:
        """The key of one file that has this id."""
        return next((key.secret for key in self.of(name) if key.id == key_id), None)


def id_of(secret: bytes) -> bytes:
    """The id of a public key or of a master."""
    return hashlib.blake2b(secret, digest_size=ID_BYTES, person=b"slackwater-id").digest()


@lru_cache(maxsize=NODES_KEPT)
def node_key(master: bytes, node: bytes) -> bytes:
    """A node's own key out of the installation's master: nobody but the workers can make it."""
    return hmac.digest(master, b"slackwater-node-key-1\0" + node, "sha256")


def line(name: str, key: Key) -> str:
    """A key as its file ``name`` says it."""
    words = [KINDS[name], key.id.hex(), base64.b64encode(key.secret).decode(), key.node]
    return " ".join(words).rstrip() + "\n"


def parse(name: str, text: str) -> tuple[Key, ...]:
    """The keys in a file ``name``. Raises BadKeys."""
    found = [_key(name, each) for each in text.splitlines() if each.strip() and each[0] != "#"]
    if not 1 <= len(found) <= MAX_KEYS:
        raise BadKeys(f"{name}: {len(found)} keys; want 1, or {MAX_KEYS} while one is changed")
    if len({key.id for key in found}) != len(found):
        raise BadKeys(f"{name}: one key twice; take a line out")
    if name == NODE_KEY and (not found[0].node or len({key.node for key in found}) != 1):
        raise BadKeys(f"{name}: every line must end with the name of this one node")
    return tuple(found)


def _key(name: str, text: str) -> Key:
    words = text.split()
    if len(words) not in (3, 4) or words[0] != KINDS[name]:
        raise BadKeys(f"{name}: want lines of {KINDS[name]!r}, id and base64: another file's?")
    try:
        key_id, secret = bytes.fromhex(words[1]), base64.b64decode(words[2], validate=True)
    except (ValueError, binascii.Error):
        raise BadKeys(f"{name}: not hex and base64; make it anew or copy it again") from None
    if len(key_id) != ID_BYTES or len(secret) != KEY_BYTES:
        raise BadKeys(f"{name}: want {ID_BYTES} bytes of id and {KEY_BYTES} of key; copy it again")
    return Key(key_id, secret, words[3] if len(words) > 3 else "")


def text_of(name: str, raw: bytes) -> str:
    """The bytes of a file as text. Raises BadKeys for what is too long or no text."""
    if len(raw) > MAX_FILE_BYTES or not raw.isascii():
        raise BadKeys(f"{name}: no key file; make it anew or copy it again")
    return raw.decode("ascii")


def check_owner(name: str, path: str, mode: int, uid: int, own_uid: int) -> None:
    """Whether a file's rights let it be trusted. Raises BadKeys saying the command that mends it.

    A secret is read by its owner and at most its group; nobody else may write any of them.
    """
    if not stat.S_ISREG(mode):
        raise BadKeys(f"{path}: no plain file; take it away")
    if uid not in (0, own_uid):
        raise BadKeys(f"{path}: belongs to user {uid}; chown it to root or to user {own_uid}")
    if mode & (_OTHERS_MAY_WRITE if name == WORKER_PUB else _OTHERS_MAY):
        want = "644" if name == WORKER_PUB else "600"
        raise BadKeys(f"{path}: mode {mode & 0o777:o} lets others at it; chmod {want} {path}")


def load(read: Callable[[str], str | None]) -> Keys:
    """All files of a folder; ``read`` gives a file's text, None where there is none."""
    texts = {name: read(name) for name in KINDS}
    return Keys({name: parse(name, text) for name, text in texts.items() if text is not None})
