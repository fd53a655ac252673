"""Key files: what they may say, and whose they may be."""

from __future__ import annotations

import stat

import pytest

from schemas import keys
from schemas.keys import BadKeys, Key
from tests.schemas.keyhouse import drawn, house, of_node

GOOD = keys.line(keys.NODES_KEY, house("a").of(keys.NODES_KEY)[0])


def test_what_is_written_is_read() -> None:
    held = house("a", "b")
    texts = {name: "".join(keys.line(name, k) for k in found) for name, found in held.files.items()}
    assert keys.load(texts.get) == held
    own = of_node(held, "n1").of(keys.NODE_KEY)
    text = "# a remark\n\n" + "".join(keys.line(keys.NODE_KEY, key) for key in own)
    assert keys.parse(keys.NODE_KEY, text) == own


def test_an_id_tells_nothing_of_a_secret() -> None:
    key = house("a").of(keys.WORKER_KEY)[0]
    assert key.id == keys.id_of(house("a").of(keys.WORKER_PUB)[0].secret)
    assert key.id != keys.id_of(key.secret)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 keys"),
        (GOOD * 2, "twice"),
        (GOOD + "".join(keys.line(keys.NODES_KEY, Key(drawn(w)[:8], drawn(w))) for w in "xy"), "3"),
        (GOOD.replace("nodes-master", "worker-sign"), "another file's"),
        (GOOD.replace("=", "!"), "base64"),
        ("nodes-master 00 AAAA\n", "8 bytes of id"),
        ("nodes-master\n", "another file's"),
    ],
)
def test_what_is_no_key_file_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(BadKeys, match=says):
        keys.parse(keys.NODES_KEY, text)


def test_a_node_file_is_of_one_named_node() -> None:
    nameless = keys.line(keys.NODE_KEY, Key(drawn("a")[:8], drawn("a")))
    two = (
        nameless.strip() + " n1\n" + keys.line(keys.NODE_KEY, Key(drawn("b")[:8], drawn("b"), "n2"))
    )
    for text in (nameless, two):
        with pytest.raises(BadKeys, match="this one node"):
            keys.parse(keys.NODE_KEY, text)


def test_what_is_long_or_no_text_is_no_key_file() -> None:
    for raw in (b"x" * (keys.MAX_FILE_BYTES + 1), b"\xff"):
        with pytest.raises(BadKeys, match="no key file"):
            keys.text_of(keys.NODE_KEY, raw)


@pytest.mark.parametrize(
    ("name", "mode", "uid", "says"),
    [
        (keys.NODE_KEY, 0o600, 0, ""),
        (keys.NODE_KEY, 0o440, 7, ""),
        (keys.NODE_KEY, 0o644, 7, "chmod 600"),
        (keys.NODE_KEY, 0o620, 7, "chmod 600"),
        (keys.NODE_KEY, 0o600, 8, "chown"),
        (keys.WORKER_PUB, 0o644, 7, ""),
        (keys.WORKER_PUB, 0o664, 7, "chmod 644"),
        (keys.WORKER_PUB, 0o646, 7, "chmod 644"),
    ],
)
def test_secrets_are_their_owners(name: str, mode: int, uid: int, says: str) -> None:
    whole = stat.S_IFREG | mode
    if not says:
        keys.check_owner(name, "/k", whole, uid, 7)
        return
    with pytest.raises(BadKeys, match=says):
        keys.check_owner(name, "/k", whole, uid, 7)


def test_only_a_plain_file_is_a_key_file() -> None:
    with pytest.raises(BadKeys, match="no plain file"):
        keys.check_owner(keys.NODE_KEY, "/k", stat.S_IFIFO | 0o600, 0, 0)
