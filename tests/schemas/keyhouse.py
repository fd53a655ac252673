"""Keys for tests, drawn from a word: the same word, the same keys."""

from __future__ import annotations

import hashlib

from nacl.signing import SigningKey

from schemas import keys
from schemas.keys import Key, Keys

PREFIX = "t."


def drawn(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


def house(*words: str) -> Keys:
    """A workers' folder with one key of each kind a word, the first one signing."""
    worker, public, masters = [], [], []
    for word in words:
        seed, master = drawn(f"{word} worker"), drawn(f"{word} nodes")
        shown = bytes(SigningKey(seed).verify_key)
        worker.append(Key(keys.id_of(shown), seed))
        public.append(Key(keys.id_of(shown), shown))
        masters.append(Key(keys.id_of(master), master))
    return Keys(
        {
            keys.WORKER_KEY: tuple(worker),
            keys.WORKER_PUB: tuple(public),
            keys.NODES_KEY: tuple(masters),
        }
    )


def of_node(held: Keys, node: str) -> Keys:
    """What that node gets."""
    own = tuple(
        Key(master.id, keys.node_key(master.secret, node.encode()), node)
        for master in held.of(keys.NODES_KEY)
    )
    return Keys({keys.NODE_KEY: own, keys.WORKER_PUB: held.of(keys.WORKER_PUB)})
