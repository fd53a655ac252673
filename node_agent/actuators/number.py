"""Knobs that are one integer in one file each; most are no more than a table of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values

UNLIMITED = -1
"""How a setting says that there is no limit."""
MAX = "max"
_V1_UNLIMITED = 1 << 62  # v1 shows no limit as the largest whole page below 2^63
PAGE = 4096
MOST_BYTES = (1 << 63) - PAGE


@dataclass(frozen=True, slots=True)
class Number:
    """One row: a name in the settings and its file; None: that version has none.

    ``more``: an online pod may get a higher (1), a lower (-1) or any value (None), or none (0).
    ``pages``: the kernel keeps whole pages. ``unlimited``: -1 is a value; else it asks nothing.
    """

    ask: str
    v1: str | None
    v2: str | None
    least: int
    most: int
    more: Literal[-1, 0, 1] | None = 1
    pages: bool = False
    unlimited: bool = False

    def file(self, version: int) -> str | None:
        return self.v1 if version == 1 else self.v2

    def text(self, value: int) -> str | None:
        """Canonical; None: nothing is asked."""
        if value == UNLIMITED < self.least:
            return MAX if self.unlimited else None
        bound = min(max(value, self.least), self.most)
        return str(bound // PAGE * PAGE if self.pages else bound)

    def given(self, text: str, original: str) -> str:
        """For an online pod: the one of the two that gives more."""
        if self.more is None:
            return text
        return text if (_value(text) > _value(original)) == (self.more > 0) else original


class Numbers(Knob):
    """A family of integers; each place gets the same."""

    rows: ClassVar[tuple[Number, ...]]

    def takes(self, ask: Ask) -> frozenset[str]:
        """Limits other than none, of rows that no online pod is given."""
        never = (row for row in self.rows if row.more == 0)
        return frozenset(row.ask for row in never if ask.knobs.get(row.ask, -1) != UNLIMITED)

    def files(self, version: int) -> tuple[str, ...]:
        return tuple(file for row in self.rows if (file := row.file(version)) is not None)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {file: canonical(text) for file, text in raw.items()}

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        there = {row.ask for row in self.rows if {row.v1, row.v2}.intersection(found)}
        return frozenset(row.ask for row in self.rows if row.ask in ask.knobs.keys() - there)

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        return {
            found.place: self._of_one(version, ask, originals[found.place]) for found in members
        }

    def converted(self, version: int, value: int) -> int:
        """The settings' value in the unit of that version's file."""
        return value

    def _of_one(self, version: int, ask: Ask, original: Values) -> Values:
        wanted = {}
        for row in self.rows:
            file, value = row.file(version), ask.knobs.get(row.ask)
            if file is None or value is None or file not in original:
                continue
            text = row.text(self.converted(version, value))
            if text is None:
                continue
            if not ask.online:
                wanted[file] = text
            elif row.more != 0:
                wanted[file] = row.given(text, original[file])
        return wanted

    def wider(self, before: Values, after: Values) -> bool:
        return any(_value(text) > _value(before.get(key, "0")) for key, text in after.items())

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        said = [(key, text) for key, text in after.items() if before.get(key) != text]
        return [(key, "-1" if version == 1 and text == MAX else text) for key, text in said]


def canonical(text: str) -> str:
    """The number of the group itself, without lines of devices; no limit is ``max``.

    Raises ValueError for a text without a number.
    """
    word = text.partition("\n")[0].removeprefix("default").strip()
    return MAX if word == MAX or int(word) >= _V1_UNLIMITED else str(int(word))


def _value(text: str) -> float:
    return float("inf") if text == MAX else int(text)
