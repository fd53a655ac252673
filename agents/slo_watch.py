"""What each online service last said of itself on each node, against its objective.

`agents.side` calls `note` for the records of topic `slis` that a tick admits; `agents.slo_guard`
asks `broken`, `fresh` and `calm_for`. Kept is what has an objective, on nodes that are known.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING

from agents import law
from agents.classes import ONLINE, roles_of
from agents.log import SideRecord
from agents.slo_state import Watch
from agents.table import ABSENT, Field
from schemas.errors import BadRecord
from schemas.policy import Objective, SloGuard
from schemas.records import PodFact, Sli
from schemas.slis import check

if TYPE_CHECKING:
    from agents.state import PartitionState

NODE_FIELDS: tuple[Field, ...] = ()
POD_FIELDS = (Field("workload"),)  # `code` of an online pod's workload; 0: none, or no online pod
NAMES_KEPT = 4096
CODE_BYTES = 8
PERMILLE, PERCENT = 1000, 100
ROUNDS_KEPT = 1000
"""Reports beyond in a row are counted so far."""


def note(state: PartitionState, side: SideRecord) -> None:
    """Take over one report. What is nonsense, old, said twice or of no objective moves nothing."""
    said = side.record
    if not isinstance(said, Sli):
        return
    seat = state.seats.get(side.key)
    if said.node.encode() != side.key:
        state.counts["key_mismatch"] += 1
    elif not _sound(said):
        state.counts["bad_sli"] += 1
    elif seat is None:
        state.counts["sli_of_unknown_node"] += 1
    else:
        rule = law.of(state, seat.row).slo_guard
        objective = objective_of(rule, said.workload)
        if objective is not None:
            _judge(state, side, rule, objective)


def prune(state: PartitionState) -> None:
    """Forget what has no objective any more; asked when another policy comes into force."""
    for key, watches in list(state.watches.items()):
        rule = law.of(state, state.seats[key].row).slo_guard
        for name in [name for name in watches if objective_of(rule, name) is None]:
            del watches[name]
        if not watches:
            del state.watches[key]


def objective_of(rule: SloGuard, workload: str) -> Objective | None:
    """What a workload promises under this rule, if anything."""
    if not rule.enabled:
        return None
    return next((one for one in rule.objectives if one.workload == workload), None)


def code_of(pod: PodFact) -> int:
    """An online pod's workload as the arena holds it."""
    return code(pod.workload) if pod.workload and roles_of(pod) & ONLINE else 0


@lru_cache(NAMES_KEPT)
def code(workload: str) -> int:
    """A workload's name in 64 bits, never 0."""
    whole = blake2b(workload.encode(), digest_size=CODE_BYTES).digest()
    return int.from_bytes(whole, "little", signed=True) or 1


def fresh(watch: Watch, objective: Objective, log_ms: int) -> bool:
    """Whether its newest report still says something of now."""
    return watch.seen_ms >= 0 and log_ms - watch.seen_ms <= objective.window_ms


def broken(watch: Watch, objective: Objective) -> bool:
    """Whether it, while `fresh`, has left its objective. While capacity is called back one report
    is enough.
    """
    return watch.rounds >= (1 if watch.taken else objective.rounds)


def calm_for(watch: Watch, since_ms: int) -> int:
    """Milliseconds of calm after ``since_ms``, up to the newest report and no further."""
    return watch.seen_ms - max(watch.calm_ms, since_ms) if watch.calm_ms >= 0 else ABSENT


def _sound(said: Sli) -> bool:
    """Readers refuse what is not, with a dead letter; this is for those that do not read."""
    try:
        check(said, ABSENT)
    except BadRecord:
        return False
    return True


def _judge(state: PartitionState, side: SideRecord, rule: SloGuard, objective: Objective) -> None:
    said: Sli = side.record
    at_ms = state.log_ms if side.log_ms < 0 else min(side.log_ms, state.log_ms)
    at_ms = at_ms if said.end_ms < 0 else min(at_ms, said.end_ms)
    watch = state.watches.get(side.key, {}).get(said.workload)
    if state.log_ms - at_ms > objective.window_ms:
        state.counts["stale_sli"] += 1
    elif said.window_ms > objective.window_ms:
        state.counts["sli_of_too_long_a_window"] += 1
    elif watch is not None and at_ms <= watch.seen_ms:
        state.counts["sli_said_again"] += 1
    else:
        if watch is None:
            watch = Watch()
            state.watches.setdefault(side.key, {})[said.workload] = watch
        _take(watch, said, at_ms, objective, rule.calm_percent)
        if watch.rounds:
            state.beyond.add(side.key)


def _take(watch: Watch, said: Sli, at_ms: int, objective: Objective, calm_percent: int) -> None:
    """Beyond, within or calm. Few requests condemn nobody; a gap ends rounds and calm alike."""
    if at_ms - watch.seen_ms > objective.window_ms:
        watch.rounds, watch.calm_ms = 0, ABSENT
    watch.seen_ms, watch.p99_us, watch.requests = at_ms, said.p99_us, said.requests
    watch.errors_permille = said.errors * PERMILLE // max(said.requests, 1)
    if not within(said, objective, PERCENT):
        watch.calm_ms = ABSENT
        if said.requests >= objective.least_requests:
            watch.beyond_ms = watch.beyond_ms if watch.rounds else at_ms
            watch.rounds = min(watch.rounds + 1, ROUNDS_KEPT)
        return
    watch.rounds, watch.bounded = 0, False
    if not within(said, objective, calm_percent):
        watch.calm_ms = ABSENT
    elif watch.calm_ms < 0:
        watch.calm_ms = at_ms


def within(said: Sli, objective: Objective, percent: int) -> bool:
    """Whether it lies at or below so much of its objective."""
    slow = objective.p99_us > 0 and said.p99_us * PERCENT > objective.p99_us * percent
    most = objective.errors_permille * said.requests * percent
    wrong = objective.errors_permille < PERMILLE and said.errors * PERMILLE * PERCENT > most
    return not slow and not wrong
