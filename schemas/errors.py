"""Errors at the boundary, raised in `schemas`, turned into dead letters or refusals by the shells.

``SlackwaterError`` is the base of ``BadRecord`` (a record cannot be used: ``reason`` is a stable
code, ``detail`` is for people) and ``BadPolicy`` (a policy or settings file is refused: names
file, key and allowed range).
"""

from __future__ import annotations


class SlackwaterError(Exception):
    """Base of all; never raised itself."""


class BadRecord(SlackwaterError):
    """One record cannot be used. ``reason`` counts in metrics and stands in the dead letter."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class BadPolicy(SlackwaterError):
    """A policy is refused before anything starts; the last good one stays in force."""

    says_what_to_do = True  # the command line prints the message alone


REASONS: tuple[str, ...] = (
    "broken_json",  # not JSON, or NaN/Infinity in it
    "broken_packed",  # lengths or layout do not add up
    "checksum",  # the packed bytes were changed on the way
    "missing_field",
    "wrong_type",  # a field has another type, or a number leaves its range (64 bits everywhere)
    "too_large",  # over `packed.MAX_SAMPLE_BYTES`, or `codec.MAX_RECORD_BYTES` for the rest
    "unknown_encoding",  # header `enc` absent or not known
    "unknown_version",  # schema version newer than this reader accepts
    "implausible",  # an SLI whose numbers cannot be, such as more errors than requests
    "key_mismatch",  # the record speaks for another node than its key
    "future_clock",  # a clock that ran ahead of broker time: a node's monotonic, a service's wall
    "backward_clock",  # a monotonic clock that did not advance within one boot
    "superseded_boot",  # an agent start that a later one replaced
    "unsigned",  # no signature where one is wanted
    "unknown_key",  # signed with a key that this receiver does not hold
    "bad_signature",  # not what was signed, or signed by another
    "unknown_partition",  # a tick for another partition or an older incarnation
)
FORGED = frozenset({"unsigned", "unknown_key", "bad_signature"})
"""Reasons of records that were not believed for who said them."""
