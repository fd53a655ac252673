"""What a replay found, for people and as JSON; made by `streams.replay.compare`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from agents.log import LAW_VERSION

EXAMPLES = 5
Verdict = Literal["identical", "differs", "cannot", "other_law"]
EXIT: dict[Verdict, int] = {"identical": 0, "differs": 1, "cannot": 2, "other_law": 3}
"""Exit codes of `slackwater replay`."""


class Difference(msgspec.Struct, frozen=True):
    """One output that is not as it was. ``then``, ``now``: the records; None: not said.

    ``fields``: where the two differ, as path -> (then, now). ``cause``: what was folded, in words.
    ``words``: the difference in sentences.
    """

    kind: Literal["differs", "only_then", "only_now", "said_otherwise"]
    topic: str
    partition: int
    offset: int
    log_ms: int
    key: str
    decider: str
    cause: str
    words: str
    then: Any = None
    now: Any = None
    fields: dict[str, tuple[Any, Any]] = {}


class Partition(msgspec.Struct):
    """One partition compared. Offsets are of samples; counts are of outputs.

    ``began_at``: the last offset that the state to begin with held; -1: the log's beginning.
    ``equal`` of ``then`` (distinct, recorded) and of ``now``. ``repeated``: said again with equal
    bytes, after a worker died. ``withheld``: commands that had expired before they were said.
    ``beyond``: not recorded any more, the recording ends before. ``digest_*``: over everything
    compared, by key. ``error``: why it could not be replayed, or not to its end.
    """

    partition: int
    began_at: int
    at: int = -1
    records: int = 0
    span_ms: int = 0  # of log time
    ended: str = ""
    then: int = 0
    now: int = 0
    equal: int = 0
    differing: int = 0
    only_then: int = 0
    only_now: int = 0
    said_otherwise: int = 0
    repeated: int = 0
    withheld: int = 0
    beyond: int = 0
    digest_then: str = ""
    digest_now: str = ""
    seconds: float = 0.0
    error: str = ""
    differences: list[Difference] = []

    @property
    def same(self) -> bool:
        """Whether every output that was recorded was said again, byte for byte, and no other."""
        wrong = self.differing + self.only_then + self.only_now + self.said_otherwise
        return wrong == 0 and self.digest_then == self.digest_now


class Replayed(msgspec.Struct):
    """All partitions of a recording, and the verdict."""

    source: str
    law_version: int
    recorded_by: tuple[int, ...]  # law versions
    partitions: list[Partition]

    @property
    def verdict(self) -> Verdict:
        """Equal bytes can be expected within one law version only."""
        if self.recorded_by and self.law_version not in self.recorded_by:
            return "other_law"
        if not all(each.same for each in self.partitions):
            return "differs"
        nothing = not any(each.equal for each in self.partitions)
        return "cannot" if nothing or any(e.error for e in self.partitions) else "identical"

    def total(self, name: str) -> int:
        """A count over all partitions."""
        return sum(getattr(each, name) for each in self.partitions)

    @property
    def first(self) -> Difference | None:
        """The earliest difference by log time."""
        every = [one for each in self.partitions for one in each.differences]
        return min(every, key=lambda one: (one.log_ms, one.partition, one.offset), default=None)

    def as_json(self, seconds: float) -> dict[str, Any]:
        """One document; ``seconds``: how long it took."""
        counts = (
            "records", "then", "now", "equal", "differing", "only_then", "only_now",
            "said_otherwise", "repeated", "withheld", "beyond",
        )  # fmt: skip
        span_ms = max((each.span_ms for each in self.partitions), default=0)
        return {
            "verdict": self.verdict,
            "source": self.source,
            "law_version": self.law_version,
            "recorded_by": self.recorded_by,
            **{name: self.total(name) for name in counts},
            "digest_then": together(each.digest_then for each in self.partitions),
            "digest_now": together(each.digest_now for each in self.partitions),
            "span_s": round(span_ms / 1000, 3),
            "seconds": round(seconds, 3),
            "times_real_time": round(span_ms / 1000 / seconds, 1) if seconds else None,
            "first_difference": msgspec.to_builtins(self.first),
            "partitions": msgspec.to_builtins(self.partitions),
        }


def replayed(
    source: str, recorded_by: tuple[int, ...], partitions: Sequence[Partition]
) -> Replayed:
    """The partitions together, sorted."""
    ordered = sorted(partitions, key=lambda each: each.partition)
    return Replayed(source, LAW_VERSION, recorded_by, ordered)


def together(digests: Any) -> str:
    """One digest of several, in their order."""
    return hashlib.sha256("\n".join(digests).encode()).hexdigest()
