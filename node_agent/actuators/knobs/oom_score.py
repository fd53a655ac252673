"""Whom the kernel kills first when memory is gone: `oom_score_adj` of each process of a pod.

Best effort's is only ever raised, an online pod's only ever lowered. Each process that lives gets
its own back; one that was born later, and so with our value, gets what the first of the pod had.
Law: `agents.isolation.oom`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_agent.actuators.knob import Ask, Found, Machine, Raw, Values
from node_agent.actuators.processes import SCORE
from node_agent.actuators.task_knob import TaskKnob

LEAST, MOST = -1000, 1000
KEPT_ALIVE = -900
"""What has no more than this its runtime keeps alive for the pod's sake: the sandbox (-998)."""


class OomScore(TaskKnob):
    """Keys are processes, by id and start time."""

    name = "oom_score"
    turns = frozenset({"oom_score_adj"})
    surface = "processes"
    always_there = True
    fleeting = True

    def files(self, version: int) -> tuple[str, ...]:
        return (SCORE,)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        return {process: str(int(text)) for process, text in raw.items()}

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        asked = min(max(ask.knobs["oom_score_adj"], LEAST), MOST)
        return {
            found.place: {
                process: str(_score(asked, int(text), online=ask.online))
                for process, text in originals[found.place].items()
            }
            for found in members
        }

    def heirs(self, found: Values, own: Values) -> Values:
        first = min(own, key=_age, default="")
        ours = {found[process] for process in own if found[process] != own[process]}
        later = (process for process, text in found.items() if text in ours and process not in own)
        return dict.fromkeys(later, own[first])


def _score(asked: int, own: int, *, online: bool) -> int:
    if online or own <= KEPT_ALIVE:
        return min(asked, own)
    return max(asked, own)


def _age(process: str) -> tuple[int, int]:
    pid, _, start = process.partition(":")
    return int(start), int(pid)
