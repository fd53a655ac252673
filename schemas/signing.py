"""Who said it: signatures of workers, message codes of nodes, checked before anything is parsed.

Workers sign commands, leases, ticks and the audit log (Ed25519: every node can check, none can
forge); a node puts an HMAC-SHA256 under its samples, acks and inventory, by a key that only it and
the workers have. Both are deterministic: the same record gets the same header. Topic, encoding,
version and key stand under the signature with the value, so nothing can be said again elsewhere.
Replays of whole records are for order, expiry and (boot, seq) to refuse.

`streams.outputs`, `streams.intake` and `streams.side_inputs`, the node's loop and the simulated
fleet call this. Why these two: docs/decisions/0003.
"""

from __future__ import annotations

import hmac
import struct
from collections.abc import Callable, Iterable

from schemas import keys
from schemas.codec import ENC_TICK, Headers
from schemas.errors import BadRecord
from schemas.keys import ID_BYTES, BadKeys, Keys

HEADER = "slackwater-sig"
WORKER_SAYS = frozenset({"commands"})
NODE_SAYS = frozenset({"samples", "inventory", "acks"})
AUDITED = frozenset({"decisions"})
"""Signed topics; a tick on `samples` is a worker's. What is audited is a worker's too, and checked
by who looks back."""
_CONTEXT = b"slackwater-sig-1"
_LENGTHS = struct.Struct(">5I?")  # topic, encoding, version, key, value; whether a tombstone

Sent = Iterable[tuple[str, bytes | None]] | None


def key_id(headers: Sent) -> str | None:
    """Id of the key that a record is signed or sealed with, hex; None: with none. Not a check."""
    given = _said(headers)[2]
    return given[:ID_BYTES].hex() if given else None


class WorkerSigner:
    """Signs as a worker, with the first key of ``worker.key``."""

    def __init__(self, held: Keys) -> None:
        """Raises BadKeys when there is no such key."""
        from nacl.signing import SigningKey  # noqa: PLC0415  (0.8 MiB for those who sign)

        if not held.of(keys.WORKER_KEY):
            raise BadKeys(f"no {keys.WORKER_KEY}; make one: slackwater keys new")
        first = held.of(keys.WORKER_KEY)[0]
        self._id, self._key = first.id, SigningKey(first.secret)

    def sign(self, topic: str, key: bytes | None, headers: Headers, value: bytes | None) -> Headers:
        """The headers with the signature; ``topic`` is the broker's name."""
        enc, version, _ = _said(headers)
        seal = self._key.sign(_sealed(topic, key, enc, version, value)).signature
        return [*headers, (HEADER, self._id + seal)]


class NodeSigner:
    """Puts a node's code under what it says."""

    def __init__(self, key_id: bytes, secret: bytes) -> None:
        self._id, self._secret = key_id, secret

    @classmethod
    def of(cls, held: Keys, node: str) -> NodeSigner:
        """The key of ``node.key``, or one made from the master. Raises BadKeys."""
        own, masters = held.of(keys.NODE_KEY), held.of(keys.NODES_KEY)
        if own and own[0].node == node:
            return cls(own[0].id, own[0].secret)
        if own:
            raise BadKeys(f"{keys.NODE_KEY} is of node {own[0].node!r}, this is {node!r}")
        if masters:
            return cls(masters[0].id, keys.node_key(masters[0].secret, node.encode()))
        raise BadKeys(f"no {keys.NODE_KEY}; make one where the workers' keys are: keys node {node}")

    def sign(self, topic: str, key: bytes | None, headers: Headers, value: bytes | None) -> Headers:
        """The headers with the code; ``topic`` is the broker's name, ``key`` the node's."""
        enc, version, _ = _said(headers)
        seal = hmac.digest(self._secret, _sealed(topic, key, enc, version, value), "sha256")
        return [*headers, (HEADER, self._id + seal)]


class Checker:
    """Checks what is received. ``accepted_unsigned`` counts what was let in without a signature."""

    def __init__(
        self,
        prefix: str,
        held: Keys,
        reload: Callable[[], Keys | None],
        *,
        accept_unsigned: bool = False,
    ) -> None:
        """``reload`` is asked when a key is unknown: the folder anew, or None as it is unchanged.

        ``accept_unsigned``: while a fleet gets its keys; a wrong signature is refused all the same.
        """
        self.accepted_unsigned = 0
        self._prefix, self._accept_unsigned = prefix, accept_unsigned
        self._held, self._reload = held, reload

    def check(self, topic: str, key: bytes | None, headers: Sent, value: bytes | None) -> None:
        """Nothing, or BadRecord with reason unsigned, unknown_key or bad_signature.

        ``topic`` is the name in the table; topics that nobody signs pass.
        """
        if topic not in NODE_SAYS | WORKER_SAYS | AUDITED:
            return
        enc, version, given = _said(headers)
        if given is None:
            if not self._accept_unsigned:
                raise BadRecord("unsigned", f"{topic}: no header {HEADER}")
            self.accepted_unsigned += 1
            return
        sealed = _sealed(self._prefix + topic, key, enc, version, value)
        by_worker = topic not in NODE_SAYS or enc == ENC_TICK
        secret = self._key(keys.WORKER_PUB if by_worker else keys.NODES_KEY, given[:ID_BYTES])
        seal = given[ID_BYTES:]
        if not (_worker_sealed if by_worker else _node_sealed)(secret, key or b"", sealed, seal):
            raise BadRecord("bad_signature", f"{topic}, key {key!r:.80}: not what was signed")

    def _key(self, file: str, key_id: bytes) -> bytes:
        """A key by its id, also one that came into the folder since. Raises BadRecord."""
        found = self._held.by_id(file, key_id)
        if found is None:
            fresh = self._reload()
            if fresh is not None:
                self._held = fresh
                found = fresh.by_id(file, key_id)
        if found is None:
            raise BadRecord("unknown_key", f"signed with key {key_id.hex()}, see keys show")
        return found


def _worker_sealed(public: bytes, key: bytes, sealed: bytes, seal: bytes) -> bool:
    from nacl.exceptions import BadSignatureError  # noqa: PLC0415  (see `WorkerSigner`)
    from nacl.signing import VerifyKey  # noqa: PLC0415

    del key
    try:
        VerifyKey(public).verify(sealed, seal)
    except (BadSignatureError, ValueError):  # another length is no signature either
        return False
    return True


def _node_sealed(master: bytes, key: bytes, sealed: bytes, seal: bytes) -> bool:
    code = hmac.digest(keys.node_key(master, key), sealed, "sha256")
    return hmac.compare_digest(code, seal)


def _said(headers: Sent) -> tuple[bytes, bytes, bytes | None]:
    """Encoding, version and signature; the last of each name counts, as in `codec`."""
    found = dict(headers or ())
    return found.get("enc") or b"", found.get("v") or b"", found.get(HEADER)


def _sealed(
    topic: str, key: bytes | None, enc: bytes, version: bytes, value: bytes | None
) -> bytes:
    """What is signed: every part with its length, so that no part can pass for another's."""
    parts = topic.encode(), enc, version, key or b"", value or b""
    lengths = _LENGTHS.pack(*map(len, parts), value is None)
    return b"".join((_CONTEXT, lengths, *parts))
