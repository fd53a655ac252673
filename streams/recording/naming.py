"""Pseudonyms: another name for each name, the same everywhere in one bundle.

A pseudonym is the kind of the name and its rank among all names of that kind, because rules sort by
names and ties fall by them: the order is kept. Nothing else of a name goes into it, with one
exception. Each node has its moment within a period by a checksum of its name, so the pseudonym of a
node is one whose checksum has the same remainder (`remainder_of`): about 18 bits of a checksum, by
which somebody who guesses a node's name can say that it is probably wrong or possibly right.

With a key, each pseudonym ends in a tag that only the key's owner can make: the same in every
bundle of one key, so that two incidents can be laid side by side.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import defaultdict
from collections.abc import Mapping
from math import lcm
from typing import Protocol
from zlib import crc32

from schemas import ledger
from schemas.names import NODE_NAME
from schemas.slis import WORKLOAD_CHARACTERS

NODE, UID, POD, NAMESPACE, WORKLOAD = "Node", "Uid", "Pod", "Space", "Work"
SCHEDULER, CLAIM, BRIDGE, JOB = "Scheduler", "Claim", "Bridge", "Job"
ZONE, LABEL, VALUE, ENTRY, POLICY, AUTHOR, BOOT = (
    "Zone", "Label", "Value", "Entry", "Policy", "Author", "boot",
)  # fmt: skip
ID, DIGEST = "Id", "digest"
KINDS = (
    NODE, UID, POD, NAMESPACE, WORKLOAD, SCHEDULER, CLAIM, BRIDGE, JOB, ZONE, LABEL, VALUE, ENTRY,
    POLICY, AUTHOR, BOOT, ID, DIGEST,
)  # fmt: skip
KEPT = {POLICY: "default"}
"""The one policy that workers obey is known by this name."""
ALWAYS_MS = (60_000, 300_000)
"""Periods of the rules that no policy sets (`agents.predict`, `agents.interference`)."""
SUFFIX = 12
"""Octal digits: 36 bits, enough to meet any checksum of 32."""
TAG_BYTES = 4
_WORDS = 1 << 32
_HEX = {BOOT: 32, DIGEST: 16}


class Names(Protocol):
    """Gives each name another."""

    def __call__(self, kind: str, name: str) -> str:
        """The pseudonym; "" stays what it is."""


class Collected:
    """Notes every name, and changes none: what is asked for first."""

    def __init__(self) -> None:
        self.found: dict[str, set[str]] = defaultdict(set)

    def __call__(self, kind: str, name: str) -> str:
        if name and name != KEPT.get(kind):
            self.found[kind].add(name)
        return name


class Pseudonyms:
    """Pseudonyms of collected names; one that was not collected is a KeyError."""

    def __init__(
        self, found: Mapping[str, set[str]], periods_ms: set[int], key: bytes = b""
    ) -> None:
        """``periods_ms``: within which nodes have moments. ``key``: for tags; none without."""
        remainder = remainder_of(periods_ms)
        self._names: dict[str, dict[str, str]] = {}
        for kind, names in found.items():
            width = len(str(len(names)))
            mine = self._names[kind] = {}
            for rank, name in enumerate(sorted(names, key=as_bytes), 1):
                tag = _tag(key, kind, name)
                if kind in _HEX:
                    new = (tag + f"{rank:x}".zfill(_HEX[kind] - len(tag)))[-_HEX[kind] :]
                else:
                    new = f"{kind}{rank:0{width}d}" + ("-" + tag if tag else "")
                if kind == NODE:
                    new = _node(new, name, rank, remainder)
                elif kind == WORKLOAD and len(name) > WORKLOAD_CHARACTERS:
                    new = new.ljust(len(name), "-")
                elif kind == SCHEDULER and not ledger.NAME.fullmatch(name):
                    new += "!"
                mine[name] = new

    def __call__(self, kind: str, name: str) -> str:
        if not name or name == KEPT.get(kind):
            return name
        return self._names[kind][name]

    def tell(self, kind: str, name: str, new: str) -> None:
        """Let this be the pseudonym: of what follows from other pseudonyms (digests)."""
        self._names.setdefault(kind, {})[name] = new


def as_bytes(name: str) -> bytes:
    """A name as it is on the wire; the rules sort by that, too."""
    return name.encode("utf-8", "surrogateescape")


def remainder_of(periods_ms: set[int]) -> int:
    """What the checksums of a node's two names agree by: all of it where periods are too odd."""
    return min(lcm(*ALWAYS_MS, *periods_ms), _WORDS)


def _node(head: str, name: str, rank: int, remainder: int) -> str:
    """A node's pseudonym: no valid name where it was none, and a checksum that agrees."""
    head += "-" if NODE_NAME.fullmatch(name) else "!"
    least = crc32(as_bytes(name)) % remainder
    choices = (_WORDS - 1 - least) // remainder + 1
    drawn = int.from_bytes(hashlib.sha256(b"%d" % rank).digest()[:8], "little") % choices
    return head + _ending(head.encode(), least + remainder * drawn)


def _ending(head: bytes, wanted: int) -> str:
    """Octal digits behind ``head`` with which all has this CRC-32, which is linear in bits."""
    missing = crc32(head + b"0" * SUFFIX) ^ wanted
    bits = 0
    for pivot, change, combined in _BASIS:
        if missing >> pivot & 1:
            missing ^= change
            bits ^= combined
    return "".join(str(bits >> 3 * place & 7) for place in range(SUFFIX))


def _basis() -> list[tuple[int, int, int]]:
    """(highest bit, change of the checksum, digits' bits that make it), highest bit first."""
    rows: dict[int, tuple[int, int]] = {}
    plain = crc32(b"0" * SUFFIX)
    for bit in range(3 * SUFFIX):
        text = bytearray(b"0" * SUFFIX)
        text[bit // 3] ^= 1 << bit % 3
        change, combined = crc32(text) ^ plain, 1 << bit
        while change:
            pivot = change.bit_length() - 1
            if pivot not in rows:
                rows[pivot] = change, combined
                break
            change, combined = change ^ rows[pivot][0], combined ^ rows[pivot][1]
    assert len(rows) == 32, "the digits do not reach every checksum"
    return [(pivot, *rows[pivot]) for pivot in sorted(rows, reverse=True)]


_BASIS = _basis()


def _tag(key: bytes, kind: str, name: str) -> str:
    if not key:
        return ""
    said = as_bytes(f"{kind}\0{name}")
    return hmac.digest(key, said, "sha256")[:TAG_BYTES].hex()
