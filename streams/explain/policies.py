"""Which version of the policy a digest is, who published it, when and what for. Pure.

`line` asks for every decision; the record on topic `policies` is all that is needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from schemas.records import PolicyRecord
from streams.policy_gate import digest_of
from streams.printable import one_line

NEVER = -1


@dataclass(frozen=True, slots=True)
class Published:
    """A version as it was published; ``log_ms``: append time, `NEVER`: not known."""

    record: PolicyRecord
    digest: str  # "": it may not run
    log_ms: int = NEVER

    @property
    def by(self) -> str:
        """Who, when and what for, in words; "" where nothing of it was said."""
        record = self.record
        who = f" by {record.author}" if record.author else ""
        what = f" ({record.note})" if record.note else ""
        return one_line(f"{who}{what}{', forced' if record.forced else ''}")


class Policies:
    """Every version, in the order of the log."""

    def __init__(self, versions: Iterable[tuple[PolicyRecord, int]] = ()) -> None:
        self.versions: list[Published] = []
        for record, log_ms in versions:
            self.note(record, log_ms)

    def note(self, record: PolicyRecord, log_ms: int = NEVER) -> None:
        """Take a version over."""
        self.versions.append(Published(record, digest_of(record), log_ms))

    def of(self, digest: str, log_ms: int) -> Published | None:
        """The newest version of that digest that was there by then, else the first; None: none.

        A policy that was put back has the digest of before and another version.
        """
        found = [each for each in self.versions if digest and each.digest == digest]
        before = [each for each in found if each.log_ms <= log_ms]
        return before[-1] if before else found[0] if found else None

    def at(self, log_ms: int) -> Published | None:
        """The newest that may run of those that were there by then."""
        found = [each for each in self.versions if each.digest and each.log_ms <= log_ms]
        return found[-1] if found else None
