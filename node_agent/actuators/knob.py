"""What a knob of isolation is: the part that differs, and the pure plan that all share.

One knob, or one family that must be written in an order, is one file in `knobs` and one line in its
list. `turn` carries plans out, `node_agent.keeper` keeps originals and puts drift right: a knob
does no I/O. A unit is what is asked together (a pod with the groups in it); of its places, parents
come first.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

Values = Mapping[str, str]
"""Canonical texts by key: a file, or ``file@device`` where a file has one line a device."""
Raw = Mapping[str, str]
"""Files of one place as read; one that is not there is left out."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one unit is to get. ``knobs``: by names of the settings; ``texts``: what is no number.

    ``online``: an online pod's or a group above such; only what gives may be asked for it.
    ``alone``: the group itself, whatever lies in it (a tier). ``figures``: what a setting that is
    but a switch comes to for this very unit, by names of the knob.
    """

    unit: str
    knobs: Mapping[str, int] = field(default_factory=dict)
    online: bool = False
    texts: Mapping[str, str] = field(default_factory=dict)
    alone: bool = False
    figures: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Found:
    """One place now; ``identity`` tells it from one made later under the same name."""

    place: str
    identity: int
    values: Values


@dataclass(frozen=True, slots=True)
class Step:
    """One place to change: what is there, what shall be."""

    unit: str
    place: str
    before: Values
    after: Values


@dataclass(frozen=True, slots=True)
class Machine:
    """Facts that values depend on. ``devices``: whole disks by number, ``254:0``."""

    devices: tuple[str, ...] = ()


class Surface(Protocol):
    """Places of one kind, as far as they may be touched; read and written by name."""

    @property
    def version(self) -> int:
        """1 or 2 of a hierarchy; 0 where that says nothing."""

    def members(self, unit: str, deep: bool) -> Sequence[str]:
        """The places of a unit, its own first; one that is gone may be among them."""

    def look(self, place: str, files: Sequence[str]) -> tuple[int, Raw] | None:
        """Identity and files; None when the place is gone. Raises OSError, UnsafePath."""

    def write(self, place: str, file: str, text: str, original: str | None) -> None:
        """One write; ``original``: what the file said before us. Raises OSError, UnsafePath."""

    def close(self) -> None:
        """Give descriptors back."""


class Knob(ABC):
    """Override what differs."""

    name: ClassVar[str]
    """In the journal and in reasons; for life."""
    turns: ClassVar[frozenset[str]]
    """Names in the settings."""
    surface: ClassVar[str]
    """Where its files are: a controller, ``unified``, or another name that the keeper is given."""
    deep: ClassVar[bool] = False
    """Whether the groups in a pod's get their part too."""
    exact: ClassVar[bool] = True
    """Whether what is written is what is read back, so that there is an original to give back."""

    fleeting: ClassVar[bool] = False
    """Whether keys come and go with processes: an original whose key is gone is void."""

    always_there: ClassVar[bool] = False
    """Whether a place without a value says nothing of what this kernel has."""

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        """Who is to get what: by class, pod and tier."""
        for unit, knobs, online in roster.of_pods(settings, self.turns):
            yield Ask(unit, knobs, online)
        for unit, knobs, online in roster.of_tiers(settings, self.turns):
            yield Ask(unit, knobs, online, alone=True)

    def takes(self, ask: Ask) -> frozenset[str]:
        """Names of ``ask`` that would take something away; never done to an online pod."""
        return frozenset()

    def lacks(self, ask: Ask, found: Values) -> frozenset[str]:
        """Names of ``ask`` for which this kernel has no file."""
        return frozenset() if found or self.always_there else frozenset(ask.knobs)

    @abstractmethod
    def files(self, version: int) -> tuple[str, ...]:
        """What is read; empty: this version has no such knob."""

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        """What the files say, canonical; without the keys whose file is missing."""
        return dict(raw)

    @abstractmethod
    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        """Place -> what shall be there. Places and keys left out get their originals.

        Raises ValueError, LookupError or OSError for what cannot be done now.
        """

    def wider(self, before: Values, after: Values) -> bool:
        """Whether the change gives: then parents are written first, else children."""
        return True

    def writes(self, version: int, before: Values, after: Values) -> Iterable[tuple[str, str]]:
        """(file, text) in the order in which the kernel takes them."""
        return ((key, text) for key, text in after.items() if before.get(key) != text)

    def heirs(self, found: Values, own: Values) -> Values:
        """Originals of keys that came later and were born with our text; ``own``: those known."""
        return {}

    def is_word(self, key: str, text: str) -> bool:
        """Whether a text that is not ours is its owner's word, and no state on the way to ours."""
        return True

    def agrees(self, now: Values, then: Values) -> bool:
        """Whether what is there ``now`` is what was to be, as far as it is there."""
        return all(now.get(key, text) == text for key, text in then.items())


def plan(
    knob: Knob,
    version: int,
    unit: str,
    ask: Ask | None,
    members: Sequence[Found],
    originals: Mapping[str, Values],
) -> list[Step]:
    """Changes of one unit, parents first; ``ask`` None: all is given back. Pure.

    ``originals``: of what was written before; all else has what is found.
    """
    own = {found.place: {**found.values, **originals.get(found.place, {})} for found in members}
    wanted = knob.wanted(version, ask, members, own) if ask is not None and members else {}
    steps = []
    for found in members:
        said = {**own[found.place], **wanted.get(found.place, {})}
        after = {key: said.get(key, text) for key, text in found.values.items()}
        if after != found.values:
            steps.append(Step(unit, found.place, found.values, after))
    return steps


def ordered(knob: Knob, steps: Sequence[Step]) -> list[Step]:
    """What takes first, children before parents; then what gives, parents before children."""
    gives = {step.place for step in steps if knob.wider(step.before, step.after)}
    depth = {step.place: step.place.count("/") for step in steps}
    up = sorted((s for s in steps if s.place not in gives), key=lambda s: -depth[s.place])
    down = sorted((s for s in steps if s.place in gives), key=lambda s: depth[s.place])
    return up + down
