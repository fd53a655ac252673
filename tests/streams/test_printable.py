"""A note of a policy cannot forge a line, nor write on a terminal."""

from __future__ import annotations

from schemas.records import PolicyRecord
from streams import policy_text
from streams.explain.policies import Published

NOTE = "fine\n   9 0000 root all is well\x1b[31m\u2028\u202e"


def test_a_note_stays_on_its_line() -> None:
    record = PolicyRecord(
        name="default", version=2, text="name: default", digest="ab", author="ann", note=NOTE
    )
    for said in (policy_text.line(record), Published(record, "ab").by):
        assert said.isprintable()
        assert "all is well" in said
