"""A knob of what runs in pods, not of their groups: asked anew when a pod has another container.

What is born of a process is like it; what a runtime starts beside it is not. So the containers that
stand are part of what is asked: a new one makes it another ask, which is turned at once.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import replace

from node_agent.actuators.knob import Ask, Knob
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

MAKEUP = "makeup"
"""Among the figures: a number of a pod's containers, another one with others."""


class TaskKnob(Knob):
    """Pods alone: no tier has tasks of its own."""

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        makeup = {
            pod.group: zlib.crc32(" ".join(each.group for each in pod.containers).encode())
            for pod in roster.pods
            if pod.containers
        }
        for ask in super().asks(settings, roster):
            if not ask.alone:
                found = makeup.get(ask.unit)
                yield ask if found is None else replace(ask, figures={MAKEUP: found})
