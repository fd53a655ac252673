"""Isolation settings of a command, carried out knob by knob; what is left out is said by name.

`node_agent.obey` hands over settings and beats, `node_agent.loop` who is on the machine. Settings
are absolute: what they do not name any more is given back, and so is everything while there are
none (a new start without a command, a partition without a policy).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple

from node_agent.actuators.acts import KERNEL, Acts
from node_agent.actuators.beneath import Write
from node_agent.actuators.extended import LIMIT
from node_agent.actuators.knob import Ask, Knob, Machine, Surface
from node_agent.actuators.knobs import KNOBS
from node_agent.actuators.knobs.extended_cpu import ExtendedCpu
from node_agent.actuators.knobs.extended_memory import ExtendedMemory
from node_agent.actuators.online import name_online
from node_agent.actuators.resctrl_surfaces import ResctrlGroups
from node_agent.actuators.roster import BEST_EFFORT, Roster, roster
from node_agent.actuators.traffic import Traffic
from node_agent.cgroup.layout import Layout
from node_agent.cgroup.paths import strictly_inside
from node_agent.disks import disks
from node_agent.inventory import Census
from node_agent.journal import Journal
from node_agent.keeper import Asks, Keeper
from node_agent.surfaces import DAEMONS, OF_GROUPS, close_surfaces, open_surfaces
from schemas.records import IsolationSettings, Outcome

log = logging.getLogger(__name__)
NO_ACTUATOR, NO_GROUP, NOT_FOR_ONLINE, FAILED = (
    "no_actuator", "no_group", "not_for_online", "failed",
)  # fmt: skip
SWITCHED_OFF = "switched_off"
NOTHING = IsolationSettings()
DISKS_US = 60_000_000
ROOM_US = 10_000_000
FOLLOWING = frozenset({"cpu_quota_us", "memory_reclaim_bytes"})
"""Knobs that the centre moves with the load: without it they are nobody's."""
EXTENDED = (ExtendedCpu.name, ExtendedMemory.name)
Left = dict[str, set[str]]
"""Reason code -> names of the settings that were left out for it."""


class BirthRules(NamedTuple):
    """``on``: knobs of extended resources that are in force; ``bounded``: no quota may be above the
    roster's ceiling.
    """

    on: frozenset[str]
    roster: Roster
    bounded: bool


class Isolation:
    """What this start holds; ``settings`` None: nobody has said anything yet."""

    def __init__(
        self, journal: Journal, knobs: Iterable[Knob] = KNOBS, *, dry_run: bool = False
    ) -> None:
        self.settings: IsolationSettings | None = None
        self.keeper = Keeper(journal, knobs, dry_run=dry_run)
        self._journal, self._dry_run = journal, dry_run
        self._cleaned = False  # what an earlier start left and nobody remembers is gone
        self._roster = Roster(ceiling_milli=0)  # until it is known, nobody is above it
        self._v1 = False  # the cpu controller: where the best-effort root bounds each quota below
        self._narrow_us = 0  # when the ceiling last fell
        self._root = "/"
        self._disks_us = -DISKS_US
        self._live, self._off = True, False
        self._asks: dict[str, Asks] = {}
        self._left: Left = {}
        self._judged = -1  # keeper.changes when `_outcome` was found
        self._outcome: tuple[Outcome, str] = ("applied", "")

    def follow(
        self,
        census: Census,
        layout: Layout,
        write: Write = os.write,
        acts: Acts = KERNEL,
    ) -> None:
        """Who is on the machine now. Raises OSError, UnsafePath."""
        cpu = layout.hierarchy("cpu")
        self._v1 = cpu is not None and cpu.version == 1
        ceiling_milli = self._roster.ceiling_milli if self._v1 else None
        self._roster, self._root = roster(census, ceiling_milli), layout.root
        online = {pod.group for pod in self._roster.pods if not pod.best_effort}
        above = {group for tier, group in self._roster.tiers.items() if tier != BEST_EFFORT}
        roots, units = _held(self._journal)
        root = census.be_root
        if root is not None:
            roots.add(root)
            units = {unit for unit in units if unit != root and not strictly_inside(unit, root)}
        names = name_online(online | units, above, root)
        daemons = _daemons(self._journal)
        if self._roster.daemons is not None:
            daemons.add(self._roster.daemons)
        self.use(open_surfaces(layout, roots, names, write, acts, daemons))
        if not self._cleaned and not self._dry_run:
            clean_up(self.keeper.surfaces, self._journal)
            self._cleaned = True
        self.keeper.root = root or ""
        self._ask()

    def use(self, surfaces: Mapping[str, Surface]) -> None:
        """Turn knobs at these from now on."""
        close_surfaces(self.keeper.surfaces)
        self.keeper.surfaces = surfaces

    def obey(self, settings: IsolationSettings) -> None:
        """New settings; carried out by the next `beat`."""
        self.settings = settings
        self._ask()

    def births(self) -> BirthRules:
        """What a container that a runtime is about to make shall have, as policy stands."""
        by_class = self._wanted().classes.get("BE", {})
        on = frozenset(name for name in EXTENDED if by_class.get(name, 0) > 0)
        return BirthRules(frozenset() if self._dry_run else on, self._roster, self._v1)

    def make_room(self, milli: int, mono_us: int) -> None:
        """The best-effort root is about to be bound to ``milli``: whoever has more by a quota of
        ours lets go first, for the kernel (v1) binds no parent below a child.
        """
        if self._v1 and milli < _most(self._roster.ceiling_milli):
            self._narrow_us = mono_us
            if self._under(milli):
                self.keeper.turn(self._asks, mono_us)

    def bound(self, milli: int, mono_us: int) -> None:
        """The best-effort root is bound to ``milli`` now; -1: to nothing. What has risen counts
        once nothing has fallen for a while.
        """
        ceiling = None if milli < 0 else milli
        rises = _most(ceiling) > _most(self._roster.ceiling_milli)
        if self._v1 and (not rises or mono_us - self._narrow_us >= ROOM_US):
            self._under(ceiling)

    def _under(self, ceiling_milli: int | None) -> bool:
        """Another ceiling for quotas; whether that makes a difference to anybody."""
        ends = sorted((_most(ceiling_milli), _most(self._roster.ceiling_milli)))
        self._roster = replace(self._roster, ceiling_milli=ceiling_milli)
        asked = self._asks.get(ExtendedCpu.name, {}).values()
        if not any(ends[0] < each.figures.get(LIMIT, 0) <= ends[1] for each in asked):
            return False
        for knob in self.keeper.knobs:
            if knob.name == ExtendedCpu.name:
                self._asks[knob.name] = self._asks_of(knob)
        return True

    def beat(self, mono_us: int, *, live: bool = True, off: bool = False) -> None:
        """Once a period, and after `obey`: what differs is written.

        ``live`` False: nobody renews the settings any more. What protects stays as it is; what
        follows the load of the moment (`FOLLOWING`) is given back. ``off``: policy sets nothing on
        this node, so all of it is given back, whatever was ordered.
        """
        if (live, off) != (self._live, self._off):
            self._live, self._off = live, off
            self._ask()
        if mono_us - self._disks_us >= DISKS_US:
            self._disks_us = mono_us
            self.keeper.machine = Machine(disks(self._root))
        self.keeper.turn(self._asks, mono_us)

    def let_go(self, group: str) -> None:
        """A pod is about to be killed: it must be able to run to its end."""
        self.keeper.give_back("freeze", group)

    def outcome(self) -> tuple[Outcome, str]:
        """(outcome, reason) of the settings that stand, as an ack says it."""
        if self._judged != self.keeper.changes:
            self._judged, self._outcome = self.keeper.changes, self._judge()
        return self._outcome

    def _judge(self) -> tuple[Outcome, str]:
        left = {reason: set(names) for reason, names in self._left.items()}
        for reason, names in self.keeper.left_out().items():
            left.setdefault(reason, set()).update(names)
        reason = ";".join(f"{code}:{','.join(sorted(left[code]))}" for code in sorted(left))
        named = names_of(self._wanted())
        if self._off and named != names_of(self.settings or NOTHING):
            return "applied", SWITCHED_OFF
        never = left.get(NO_ACTUATOR, set()) | left.get(NOT_FOR_ONLINE, set())
        if named and named <= never:
            return "refused", reason
        return ("failed" if FAILED in left else "applied"), reason

    def release(self) -> list[str]:
        """Every original back; what the kernel refused."""
        return self.keeper.restore()

    def close(self) -> None:
        """Give the descriptors back."""
        self.use({})

    def _ask(self) -> None:
        """What every unit is to get of every knob, by settings and roster."""
        settings = self._wanted()
        self._left, self._judged = {}, -1
        turned: set[str] = set()
        for knob in self.keeper.knobs:
            turned |= knob.turns
            self._asks[knob.name] = self._asks_of(knob)
        self._leave(NO_ACTUATOR, names_of(settings) - turned)
        if self._roster.daemons is None:
            self._leave(NO_GROUP, {f"daemons_{name}" for name in settings.daemons})
        for tier, knobs in settings.tiers.items():
            if tier not in self._roster.tiers:
                self._leave(NO_GROUP, {f"{tier}.{name}" for name in knobs.keys() & turned})

    def _wanted(self) -> IsolationSettings:
        return NOTHING if self._off or self.settings is None else self.settings

    def _asks_of(self, knob: Knob) -> dict[str, Ask]:
        """What every unit is to get of one knob; what no online pod gets is left out by name."""
        asks = {}
        for ask in knob.asks(self._wanted(), self._roster):
            never = knob.takes(ask) if ask.online else frozenset()
            self._leave(NOT_FOR_ONLINE, never)
            if not self._live:
                never |= FOLLOWING
            kept = {name: value for name, value in ask.knobs.items() if name not in never}
            if kept or ask.texts:
                asks[ask.unit] = replace(ask, knobs=kept)
        return asks

    def _leave(self, reason: str, names: Iterable[str]) -> None:
        found = set(names)
        if found:
            self._left.setdefault(reason, set()).update(found)


def _most(milli: int | None) -> float:
    return float("inf") if milli is None else milli


def names_of(settings: IsolationSettings) -> frozenset[str]:
    """Every knob that the settings name."""
    groups = (*settings.classes.values(), *settings.tiers.values())
    named = {knob for group in groups for knob in group} | set(settings.pod_knobs)
    named |= {f"daemons_{knob}" for knob in settings.daemons}
    if settings.schemata:
        named.add("schemata")
    if settings.bandwidths:
        named.add("bandwidths")
    return frozenset(named)


def release_kept(
    layout: Layout,
    journal: Journal,
    knobs: Iterable[Knob] = KNOBS,
    write: Write = os.write,
    acts: Acts = KERNEL,
) -> list[str]:
    """Give back what a start that is gone left turned, by the journal alone; what was refused."""
    roots, units = _held(journal)
    keeper = Keeper(journal, knobs)
    keeper.machine = Machine(disks(layout.root))
    names = name_online(units, (), None)
    keeper.surfaces = open_surfaces(layout, roots, names, write, acts, _daemons(journal))
    refused = keeper.restore()
    clean_up(keeper.surfaces, journal)
    close_surfaces(keeper.surfaces)
    return refused


def clean_up(surfaces: Mapping[str, Surface], journal: Journal) -> None:
    """Take away what is ours by its name and nobody remembers: the journal was lost."""
    for knob in KNOBS:
        surface = surfaces.get(knob.surface)
        if isinstance(surface, (ResctrlGroups, Traffic)):
            try:
                surface.clean(journal.kept(knob.name))
            except OSError as error:
                log.warning("%s of an earlier start stays: %s", knob.name, error)


def _held(journal: Journal) -> tuple[set[str], set[str]]:
    """Best-effort roots and online groups that the journal has originals of."""
    surfaces = {knob.name: knob.surface for knob in KNOBS}
    kept = [
        each
        for knob, places in journal.state.kept.items()
        if surfaces.get(knob) in OF_GROUPS
        for each in places.values()
    ]
    return {each.root for each in kept if each.root}, {each.unit for each in kept if not each.root}


def _daemons(journal: Journal) -> set[str]:
    """Groups of daemons that the journal has originals of."""
    names = [knob.name for knob in KNOBS if knob.surface in DAEMONS]
    return {each.unit for name in names for each in journal.kept(name).values()}
