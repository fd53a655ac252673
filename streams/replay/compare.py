"""One partition folded again and compared with what was said then, output by output.

Called by `slackwater replay` (one call a partition, several processes) and by `streams.checker`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from agents.log import Output
from schemas import codec
from schemas.records import Command
from streams.recording.source import Source
from streams.replay.difference import difference
from streams.replay.keys import SAID, OutputKey, key_of_output, key_of_record
from streams.replay.result import EXAMPLES, Difference, Partition
from streams.replay.spoken import Rows, Spoken, row, rows


class Comparison:
    """Takes outputs as they are folded; `finish` says what the comparison comes to.

    ``proved``: up to this cause every output must be recorded, whatever its topic: an image lies
    beyond, and images are cut when outputs are acknowledged.
    """

    def __init__(
        self, source: Source, spoken: Spoken, partition: Partition, proved: int, *,
        ordered: bool = True,
    ) -> None:  # fmt: skip
        """``ordered``: a topic that has a later output must have the earlier ones too."""
        self._source, self._spoken, self.result = source, spoken, partition
        self._proved, self._ordered = proved, ordered
        self._found = np.zeros(len(spoken.first), dtype=bool)
        self._now = spoken.first[["key", "high", "low"]].copy()
        self._more = bytearray()  # rows of what is said now only
        self._examples: list[tuple[OutputKey, bytes | None, bytes | None]] = []

    def take(self, outputs: Iterable[Output]) -> None:
        """Compare a batch."""
        partition = self.result.partition
        said = [(key_of_output(o, partition), codec.encode(o.record), o) for o in outputs]
        if not said:
            return
        ours = rows(b"".join(row(key, value) for key, value, _ in said))
        first = self._spoken.first
        places = np.minimum(np.searchsorted(first["key"], ours["key"]), max(len(first) - 1, 0))
        if len(first):
            there = first[places]
            known = there["key"] == ours["key"]
            equal = known & (there["high"] == ours["high"]) & (there["low"] == ours["low"])
            self._found[places[known]] = True
        else:
            known = equal = np.zeros(len(ours), dtype=bool)
        self.result.now += len(said)
        self.result.equal += int(np.count_nonzero(equal))
        for i in np.flatnonzero(~equal).tolist():
            key, value, output = said[i]
            if known[i]:
                self._differs(int(places[i]), ours[i], key, value)
            else:
                self._unsaid(key, value, output)

    def finish(self, at: int) -> Partition:
        """What was found; ``at``: the last offset that was folded."""
        result, spoken = self.result, self._spoken
        scope = spoken.first["cause"] <= at
        result.then = int(np.count_nonzero(scope))
        result.repeated = spoken.repeated
        phantom = np.flatnonzero(scope & ~self._found)
        result.only_then = len(phantom)
        for place in phantom[np.argsort(spoken.first["cause"][phantom], kind="stable")][:EXAMPLES]:
            self._example(*self._recorded(spoken.first[place]), None)
        otherwise = spoken.otherwise[spoken.otherwise["cause"] <= at]
        result.said_otherwise = len(otherwise)
        result.digest_then = _digest(spoken.first[scope])
        ours = [self._now[scope & self._found], rows(bytes(self._more))]
        result.digest_now = _digest(np.concatenate([_narrow(each) for each in ours]))
        result.differences = [
            difference(self._source, *one)
            for one in sorted(self._examples, key=lambda one: one[0].offset)[:EXAMPLES]
        ] + [self._twice(one) for one in otherwise[:EXAMPLES]]
        return result

    def _differs(self, place: int, ours: Any, key: OutputKey, value: bytes) -> None:
        self.result.differing += 1
        self._now["high"][place], self._now["low"][place] = ours["high"], ours["low"]
        if len(self._examples) < EXAMPLES:
            self._example(key, self._spoken.at(place).value, value)

    def _unsaid(self, key: OutputKey, value: bytes, output: Output) -> None:
        """Something that the topics do not have: withheld, not recorded any more, or missing."""
        newest = self._spoken.newest[key.topic] if self._ordered else -1
        if key.offset > max(newest, self._proved):
            self.result.beyond += 1
        elif isinstance(output.record, Command) and self._withheld(output.record, key.offset):
            self.result.withheld += 1
        else:
            self.result.only_now += 1
            self._more += row(key, value)
            self._example(key, None, value)

    def _withheld(self, command: Command, cause: int) -> bool:
        """Whether it can have expired before it was said: what follows it was said later still."""
        next_ms = self._spoken.next_ms("commands", cause)
        return next_ms is None or next_ms >= command.expires_log_ms

    def _example(self, key: OutputKey, then: bytes | None, now: bytes | None) -> None:
        self._examples.append((key, then, now))
        if len(self._examples) > 4 * EXAMPLES:
            self._examples = sorted(self._examples, key=lambda one: one[0].offset)[:EXAMPLES]

    def _recorded(self, one: Any) -> tuple[OutputKey, bytes]:
        record = self._spoken.record(one)
        key = key_of_record(SAID[int(one["topic"])], record)
        assert key is not None, "it was indexed by its key"
        return key, record.value or b""

    def _twice(self, one: Any) -> Difference:
        key, later = self._recorded(one)
        place = int(np.searchsorted(self._spoken.first["key"], one["key"]))
        earlier = self._spoken.at(place).value
        return difference(self._source, key, earlier, later, again=True)


def _narrow(some: Rows) -> Rows:
    """Key and digest, nothing else."""
    narrow = np.empty((len(some), 3), dtype="<u8")
    for column, name in enumerate(("key", "high", "low")):
        narrow[:, column] = some[name]
    return narrow


def _digest(some: Rows) -> str:
    """Over keys and digests in the order of keys: how the log was cut does not show in it."""
    narrow = some if some.ndim > 1 else _narrow(some)
    return hashlib.sha256(narrow[np.argsort(narrow[:, 0], kind="stable")].tobytes()).hexdigest()
