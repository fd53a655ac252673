"""A note of a policy cannot forge a line, nor write on a terminal; an error is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.errors import BadPolicy
from schemas.records import PolicyRecord
from streams import policy_text
from streams.accounts import prices
from streams.explain.policies import Published
from streams.printable import of_error

NOTE = "fine\n   9 0000 root all is well\x1b[31m\u2028\u202e"


def test_a_note_stays_on_its_line() -> None:
    record = PolicyRecord(
        name="default", version=2, text="name: default", digest="ab", author="ann", note=NOTE
    )
    for said in (policy_text.line(record), Published(record, "ab").by):
        assert said.isprintable()
        assert "all is well" in said


def test_an_error_of_the_system_names_the_file_and_no_number(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "nope\n.yaml").read_bytes()
    assert of_error(caught.value) == f"{tmp_path}/nope\\n.yaml: No such file or directory"
    assert of_error(OSError("no broker\nanswers")) == "no broker answers"


def test_empty_prices_are_told_a_key_of_prices() -> None:
    with pytest.raises(BadPolicy, match=r"p\.yaml: empty; write at least `currency: EUR`"):
        prices.parse(b"", "p.yaml")
