"""A pod's class as a number, and the value that its class has in the policy.

Called by the other modules of this package; names are those of `agents.classes`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from agents.table import Bools, Ints
from schemas.records import Qos

CLASSES = ("LSE", "LSR", "LS", "BE", "SYSTEM")
LSE, LSR, LS, BE, SYSTEM = range(len(CLASSES))
_CODES: dict[Qos, int] = {"LSE": LSE, "LSR": LSR, "LS": LS, "BE": BE, "SYSTEM": SYSTEM, "": LS}

Said_co = TypeVar("Said_co", covariant=True)


class Switched(Protocol):
    """What the policy says of one class."""

    @property
    def enabled(self) -> bool: ...


class ByClass(Protocol[Said_co]):
    """A section of the policy with a part for each class of pods."""

    @property
    def lsr(self) -> Said_co: ...
    @property
    def ls(self) -> Said_co: ...
    @property
    def be(self) -> Said_co: ...


@dataclass(frozen=True, slots=True)
class Setting:
    """One knob of every pod [n]: its value, and whether the policy manages it at all."""

    value: Ints
    managed: Bools


def codes(classes: Sequence[Qos]) -> Ints:
    """Class numbers [n]; a pod that says nothing is an online one."""
    return np.array([_CODES[name] for name in classes], dtype=np.int64)


def pick(qos: Ints, lsr: int, ls: int, be: int, system: int) -> Ints:
    """Each pod's value [n] by class; LSE takes that of LSR."""
    return np.array([lsr, lsr, ls, be, system], dtype=np.int64)[qos]


def among(qos: Ints, lsr: bool, ls: bool, be: bool, system: bool = False) -> Bools:
    """Whether each pod's class is switched on [n]; LSE goes with LSR."""
    return np.array([lsr, lsr, ls, be, system], dtype=np.bool_)[qos]


def switched_on(qos: Ints, rule: ByClass[Switched], *, system: bool = False) -> Bools:
    """Whether the section is switched on for each pod's class [n]."""
    return among(qos, rule.lsr.enabled, rule.ls.enabled, rule.be.enabled, system)


def chosen(qos: Ints, rule: ByClass[Said_co], value: Callable[[Said_co], int], system: int) -> Ints:
    """What the section says for each pod's class [n]; ``system`` for daemons."""
    return pick(qos, value(rule.lsr), value(rule.ls), value(rule.be), system)
