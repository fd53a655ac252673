"""Keeping isolation in force: originals first, writes where something differs, and the way back.

`node_agent.isolation` calls `turn` each period with what every unit is to get, and `restore` when
all ends. What was asked anew is turned at once; of the rest a few units are looked at each period,
in turn, and a value that a stranger changed is written again. Such a value, if it is not the
original, is the owner's new word, and the original from then on.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from node_agent.actuators import turn
from node_agent.actuators.failure import REFUSALS, reason_of
from node_agent.actuators.knob import (
    Ask,
    Found,
    Knob,
    Machine,
    Step,
    Surface,
    Values,
    ordered,
    plan,
)
from node_agent.journal import Journal, Kept

log = logging.getLogger(__name__)
CHECKED, CHECK_US = 16, 900_000
"""Units looked at again in a second, each for one knob: under a millisecond of CPU."""
RETRY_US = 30_000_000
Asks = Mapping[str, Ask]
"""Unit -> what it is to get of one knob."""
NOTHING: Asks = {}


@dataclass(slots=True)
class _Unit:
    """What is known of a unit since this start: ``said`` by place, as read back last."""

    ask: Ask | None
    said: dict[str, Values] = field(default_factory=dict)
    lacks: frozenset[str] = frozenset()
    gone: bool = False
    failed: str = ""
    retry_us: int = 0

    @property
    def turned(self) -> bool:
        """Whether this kernel has anything of what is asked."""
        return self.ask is None or not _names(self.ask) <= self.lacks

    @property
    def state(self) -> tuple[object, ...]:
        """What `Keeper.left_out` goes by."""
        return self.ask, self.lacks, self.gone, self.failed


class Keeper:
    """One start of the agent; ``drift`` counts foreign writes put right."""

    def __init__(self, journal: Journal, knobs: Iterable[Knob], *, dry_run: bool = False) -> None:
        self.drift = 0
        self.changes = 0  # how often what `left_out` says may have become another
        self.surfaces: Mapping[str, Surface] = {}
        self.machine = Machine()
        self.root = ""  # the best-effort root of the moment
        self.knobs = tuple(knobs)
        self._journal, self._dry_run = journal, dry_run
        self._units: dict[str, dict[str, _Unit]] = {knob.name: {} for knob in self.knobs}
        self._asked: dict[str, Asks] = {}
        self._round: deque[tuple[Knob, str]] = deque()
        self._checked_us: int | None = None
        self._turned = {knob.name: _by_unit(self._kept(knob)) for knob in self.knobs}
        self._spared: set[tuple[str, str]] = set()  # (knob, unit) given back ahead of its asks

    def turn(self, asks: Mapping[str, Asks], mono_us: int) -> None:
        """Make every knob say what is asked of it; ``asks``: by the name of the knob.

        The same mapping of a knob as the time before means that nothing changed there.
        """
        news: dict[str, set[str]] = {}
        for knob in self.knobs:
            mine = asks.get(knob.name, NOTHING)
            if self._asked.get(knob.name) is not mine:
                self._asked[knob.name] = mine
                self._spared = {each for each in self._spared if each[0] != knob.name}
                news[knob.name] = self._changed(knob, mine)
                self._round.clear()
            failed = (
                unit
                for unit, known in self._units[knob.name].items()
                if known.failed and known.retry_us <= mono_us
            )
            news.setdefault(knob.name, set()).update(failed)
        for knob, unit in self._next(mono_us):
            known = self._units[knob.name].get(unit)
            if known is not None and not known.failed:
                news[knob.name].add(unit)
        order = [knob for knob in self.knobs if news[knob.name]]
        for knob in order:
            self._visit(knob, sorted(news[knob.name]), mono_us)

    def restore(self) -> list[str]:
        """Every original back, knobs in reverse; the reasons of what the kernel refused."""
        self._asked.clear()
        self._round.clear()
        refused: list[str] = []
        for knob in reversed(self.knobs):
            mine = self._units[knob.name]
            mine.clear()
            self._visit(knob, sorted(self._turned[knob.name]), 0)
            refused += sorted({known.failed for known in mine.values() if known.failed})
            mine.clear()
        return refused

    def give_back(self, name: str, unit: str) -> None:
        """One unit's originals of one knob, now, and until other things are asked of the knob."""
        for knob in self.knobs:
            if knob.name == name and unit in self._units[name]:
                self._spared.add((name, unit))
                self._visit(knob, [unit], 0)

    def left_out(self) -> dict[str, set[str]]:
        """Reason code -> what was not done: names of the settings, or a knob with its errno."""
        found: dict[str, set[str]] = {"no_actuator": set(), "no_group": set(), "failed": set()}
        for knob in self.knobs:
            asking = [known for known in self._units[knob.name].values() if known.ask is not None]
            for name in set().union(*(_names(known.ask) for known in asking)):
                mine = [known for known in asking if name in _names(known.ask)]
                there = [known for known in mine if not known.gone]
                if not there:
                    found["no_group"].add(name)
                elif all(name in known.lacks for known in there):
                    found["no_actuator"].add(name)
            found["failed"].update(known.failed for known in asking if known.failed)
        return {reason: names for reason, names in found.items() if names}

    def _kept(self, knob: Knob) -> dict[str, Kept]:
        return self._journal.kept(knob.name)

    def _changed(self, knob: Knob, asks: Asks) -> set[str]:
        """Units that are asked something else than before, or nothing any more."""
        mine = self._units[knob.name]
        left = self._turned[knob.name].keys() | mine.keys()
        news = {unit for unit, ask in asks.items() if unit not in mine or mine[unit].ask != ask}
        return news | (left - asks.keys())

    def _next(self, mono_us: int) -> list[tuple[Knob, str]]:
        """Units whose turn it is to be looked at again; none when the last were a moment ago."""
        if self._checked_us is not None and mono_us - self._checked_us < CHECK_US:
            return []
        self._checked_us = mono_us
        if not self._round:
            for knob in self.knobs:
                units = self._units[knob.name].items()
                self._round.extend((knob, unit) for unit, known in units if known.turned)
        mine = list(itertools.islice(self._round, CHECKED))
        self._round.rotate(-len(mine))
        return mine

    def _visit(self, knob: Knob, units: Collection[str], mono_us: int) -> None:
        """Look, plan, keep, write, remember: one knob, some units."""
        mine = self._units[knob.name]
        before = {unit: mine[unit].state if unit in mine else None for unit in units}
        surface = self.surfaces.get(knob.surface)
        steps: list[Step] = []
        fresh: dict[str, Kept] = {}
        seen: dict[str, list[Found]] = {}
        for unit in units:
            known = mine.setdefault(unit, _Unit(None))
            spared = (knob.name, unit) in self._spared
            known.ask = None if spared else self._asked.get(knob.name, NOTHING).get(unit)
            known.failed = ""
            members = self._look(knob, surface, unit, known, mono_us)
            if members is None or surface is None:
                continue
            originals = self._originals(knob, known, members)
            try:
                todo = plan(knob, surface.version, unit, known.ask, members, originals)
            except (*REFUSALS, LookupError) as error:
                self._fail(knob, known, error, mono_us)
                todo = []
            else:
                seen[unit] = members
            if knob.exact:
                fresh |= self._fresh(knob, known, unit, members, originals, todo)
            steps += todo
        if surface is not None and not self._dry_run and (steps or fresh):
            self._write(knob, surface, steps, fresh, mono_us)
        self._settle(knob, seen)
        after = {unit: mine[unit].state if unit in mine else None for unit in units}
        self.changes += before != after

    def _look(
        self, knob: Knob, surface: Surface | None, unit: str, known: _Unit, mono_us: int
    ) -> list[Found] | None:
        """The unit's places; None where nothing can be done, which ``known`` says then."""
        if surface is None or not knob.files(surface.version):
            known.lacks, known.gone = _names(known.ask), False
            if known.ask is None:
                known.failed, known.retry_us = f"{knob.name}:no_place", mono_us + RETRY_US
            return None
        try:
            places = self._places(knob, surface, unit, known.ask)
            members = turn.observe(knob, surface, self.machine, places)
        except REFUSALS as error:
            self._fail(knob, known, error, mono_us)
            return None
        known.gone = not members
        if known.ask is not None and members:
            known.lacks = knob.lacks(known.ask, members[0].values)
        return members

    def _fail(self, knob: Knob, known: _Unit, error: Exception, mono_us: int) -> None:
        """What cannot be read is tried again later."""
        known.failed = f"{knob.name}:{reason_of(error).removeprefix('os:')}"
        known.retry_us = mono_us + RETRY_US

    def _places(self, knob: Knob, surface: Surface, unit: str, ask: Ask | None) -> Sequence[str]:
        """Where a unit is turned; where nothing is asked any more, all that was turned."""
        if ask is not None:
            return surface.members(unit, knob.deep and not ask.alone)
        turned = self._turned[knob.name].get(unit, ())
        return sorted(turned, key=lambda place: (place.count("/"), place))

    def _originals(self, knob: Knob, known: _Unit, members: Collection[Found]) -> dict[str, Values]:
        """What was there before us; a value that its owner changed meanwhile is the new one."""
        kept = self._kept(knob)
        originals: dict[str, Values] = {}
        for found in members:
            before = kept.get(found.place)
            if before is None:
                continue
            if before.identity != found.identity:  # another group of the same name
                self._forget(knob, [found.place])
                known.said.pop(found.place, None)
                continue
            own = dict(before.values)
            if knob.fleeting:
                own = {key: text for key, text in own.items() if key in found.values}
                own |= knob.heirs(found.values, own)
            said = known.said.get(found.place, found.values)
            foreign = {
                key
                for key in own
                if key in found.values
                and said.get(key, found.values[key]) != found.values[key]
                and knob.is_word(key, found.values[key])
            }
            self.drift += bool(foreign)
            if found.place in known.said:
                known.said[found.place] = found.values
            originals[found.place] = own | {key: found.values[key] for key in foreign}
        return originals

    def _fresh(
        self,
        knob: Knob,
        known: _Unit,
        unit: str,
        members: Collection[Found],
        originals: Mapping[str, Values],
        steps: Iterable[Step],
    ) -> dict[str, Kept]:
        """Originals that the journal has to learn before these steps."""
        kept, online = self._kept(knob), known.ask is not None and known.ask.online
        new: dict[str, dict[str, str]] = {}
        for step in steps:
            own = originals.get(step.place, {})
            moved = (key for key, text in step.after.items() if text != step.before[key])
            new[step.place] = {key: step.before[key] for key in moved if key not in own}
        fresh = {}
        for found in members:
            before = kept.get(found.place)
            values = {**new.get(found.place, {}), **originals.get(found.place, {})}
            if values and (before is None or not values.items() <= before.values.items()):
                root = before.root if before else "" if online else self.root
                fresh[found.place] = Kept(unit, found.identity, root, values)
        return fresh

    def _write(
        self,
        knob: Knob,
        surface: Surface,
        steps: list[Step],
        fresh: Mapping[str, Kept],
        mono_us: int,
    ) -> None:
        """Originals into the journal, then the kernel; without the former never the latter."""
        mine = self._units[knob.name]
        failed: Mapping[str, str] = {}
        try:
            self._journal.keep(knob.name, fresh)
            for place, kept in fresh.items():
                self._turned[knob.name].setdefault(kept.unit, set()).add(place)
        except OSError as error:
            failed = {step.unit: f"journal:{reason_of(error)[3:]}" for step in steps}
        else:
            originals = {place: kept.values for place, kept in self._kept(knob).items()}
            done = turn.apply(knob, surface, self.machine, ordered(knob, steps), originals)
            failed = done.failed
            for step in steps:
                if step.place in done.now:
                    mine[step.unit].said[step.place] = done.now[step.place]
        for unit, reason in failed.items():
            mine[unit].failed, mine[unit].retry_us = reason, mono_us + RETRY_US

    def _settle(self, knob: Knob, seen: Mapping[str, list[Found]]) -> None:
        """Forget originals of what is gone or has its own again, and units that ask nothing."""
        mine, kept = self._units[knob.name], self._kept(knob)
        left = []
        for unit, members in seen.items():
            known, there = mine[unit], {found.place: found.values for found in members}
            for place in self._turned[knob.name].get(unit, ()):
                now = known.said.get(place, there[place]) if place in there else None
                if now is None or (known.ask is None and knob.agrees(now, kept[place].values)):
                    left.append(place)
                    known.said.pop(place, None)
        self._forget(knob, left)
        for unit in seen:
            if mine[unit].ask is None and not mine[unit].failed:
                del mine[unit]

    def _forget(self, knob: Knob, places: Collection[str]) -> None:
        """A disk that is full keeps an original for too long, which does no harm."""
        units = {place: self._kept(knob)[place].unit for place in places}
        try:
            self._journal.returned(knob.name, places)
        except OSError as error:
            log.warning("journal: %s", error)
            return
        by_unit = self._turned[knob.name]
        for place, unit in units.items():
            by_unit[unit].discard(place)
            if not by_unit[unit]:
                del by_unit[unit]


def _by_unit(kept: Mapping[str, Kept]) -> dict[str, set[str]]:
    """Places that were turned, by the unit with which they were."""
    found: dict[str, set[str]] = {}
    for place, each in kept.items():
        found.setdefault(each.unit, set()).add(place)
    return found


def _names(ask: Ask | None) -> frozenset[str]:
    return frozenset() if ask is None else frozenset(ask.knobs) | frozenset(ask.texts)
