"""A node's reflex: whether an online pod is held up now, and what best-effort work keeps then.

`node_agent.reflex` reads counters of stalled time every few tens of milliseconds and asks here.
A jump is stalled time beyond what is normal for the pod itself, so a pod that always queues (more
threads than CPUs) cuts nobody off, and what is normal is learnt from the samples, once a period.
Counters and times are microseconds of the node's monotonic clock; shares are parts per million.
"""

from __future__ import annotations

from schemas.policy import Reflex

PPM = 1_000_000
PERMILLE = 1_000
PERCENT = 100
WARM_US = 3_000_000
"""A pod of which less is known is only learnt from: its start-up is no contention."""
STEPS = 20
"""Of the threshold of a kernel trigger, in a window."""
STALE_POLLS = 8
"""Looks further apart than so many polls say nothing of this moment: counting begins anew."""


class Usual:
    """How fast a counter of time usually grows: ``ppm``, a mean of what is known of it.

    ``most_ppm`` bounds a share: stalled time passes no faster than time, CPU time may.
    """

    __slots__ = ("_most_ppm", "at_us", "known_us", "ppm", "total_us")

    def __init__(self, most_ppm: int) -> None:
        self.at_us = -1
        self.total_us = self.ppm = self.known_us = 0
        self._most_ppm = most_ppm

    def learn(self, total_us: int, mono_us: int, rule: Reflex) -> int:
        """Fold the counter of a sample in; its share since the last one, in ppm.

        A mean of all that is known, until ``rule.normal_ms`` are; then it follows so slowly. A
        counter that fell begins anew.
        """
        passed_us, grown_us = mono_us - self.at_us, total_us - self.total_us
        begins = self.at_us < 0 or passed_us <= 0 or grown_us < 0
        self.at_us, self.total_us = mono_us, total_us
        if begins:
            self.ppm = self.known_us = 0
            return 0
        share_ppm = min(grown_us * PPM // passed_us, self._most_ppm)
        self.known_us = min(self.known_us + passed_us, max(rule.normal_ms * 1000, passed_us))
        self.ppm += (share_ppm - self.ppm) * passed_us // self.known_us
        return share_ppm


class Pulse:
    """Stalled time of one online group: what is normal, and the looks in a row that were beyond.

    ``strikes`` looks in a row were beyond; over them it stalled for ``beyond_us`` more than is
    normal, in ``span_us`` of time.
    """

    __slots__ = ("beyond_us", "felt_total_us", "felt_us", "normal", "span_us", "strikes")

    def __init__(self) -> None:
        self.normal = Usual(PPM)
        self.felt_us, self.felt_total_us = -1, 0
        self.strikes = self.beyond_us = self.span_us = 0

    def learn(self, total_us: int, mono_us: int, rule: Reflex) -> int:
        """Fold the counter of a sample into what is normal; its share since the last, in ppm."""
        return self.normal.learn(total_us, mono_us, rule)

    def feel(self, total_us: int, mono_us: int, rule: Reflex) -> int:
        """One look at the counter; how many in a row were beyond normal by the rule's share."""
        if mono_us == self.felt_us:
            return self.strikes
        passed_us, grown_us = mono_us - self.felt_us, total_us - self.felt_total_us
        fresh = self.felt_us >= 0 and passed_us <= STALE_POLLS * rule.poll_ms * 1000
        self.felt_us, self.felt_total_us = mono_us, total_us
        return self._judge(grown_us, passed_us if fresh else 0, rule)

    def suspect(self, total_us: int, mono_us: int, rule: Reflex) -> int:
        """As `feel`, but since the last sample: for a pod at which nobody has looked meanwhile."""
        passed_us, grown_us = mono_us - self.normal.at_us, total_us - self.normal.total_us
        self.felt_us, self.felt_total_us, self.strikes = mono_us, total_us, 0
        return self._judge(grown_us, passed_us, rule)

    def calm(self) -> None:
        """Forget the looks so far: something was done about it, or it was explained."""
        self.strikes = self.beyond_us = self.span_us = 0

    def _judge(self, grown_us: int, passed_us: int, rule: Reflex) -> int:
        """The first look may come late and has to see one poll's worth, the next ones all of it."""
        beyond_us = grown_us - self.normal.ppm * passed_us // PPM
        known = self.normal.known_us >= WARM_US and passed_us > 0 and grown_us >= 0
        poll_us = rule.poll_ms * 1000
        span_us = max(passed_us, poll_us) if self.strikes else poll_us
        if not known or beyond_us * PERMILLE < rule.stall_permille * span_us:
            self.calm()
            return 0
        self.strikes += 1
        self.beyond_us += beyond_us
        self.span_us += passed_us
        return self.strikes


def wakes_us(normal_ppm: int, window_us: int, rule: Reflex) -> int:
    """Stalled time in a window at which a pod is worth a look: one poll's worth beyond normal.

    In steps of a twentieth of the window, so that a normal that drifts changes it seldom.
    """
    least_us = normal_ppm * window_us // PPM + rule.stall_permille * rule.poll_ms
    step_us = window_us // STEPS
    return -(-least_us // step_us) * step_us


def is_own_limit(throttled_us: int, beyond_us: int) -> bool:
    """Whether a pod was held up by its own quota: that shows as pressure and is nobody's fault."""
    return throttled_us * 2 >= beyond_us


def runs_more(ran_us: int, passed_us: int, usual_ppm: int, rule: Reflex) -> bool:
    """Whether a pod runs far more than usual: by a part of that, and by a share of a CPU."""
    usual_us = usual_ppm * passed_us // PPM
    part_us = usual_us * rule.busier_percent // PERCENT
    least_us = max(part_us, rule.busier_permille * passed_us // PERMILLE)
    return passed_us > 0 and ran_us - usual_us >= least_us


def is_held_up(pulse: Pulse, *, busier: bool, rule: Reflex) -> bool:
    """Whether it is time to act.

    Two looks just beyond the rule's share come by chance every few minutes where a small pod and
    best-effort work collide as equals. So they are believed of a pod that is busier too; one that
    only waits must have been beyond by ``rule.wait_permille`` over all the looks: chance was seen
    to reach 210.
    """
    if pulse.strikes < rule.polls:
        return False
    return busier or pulse.beyond_us * PERMILLE >= rule.wait_permille * pulse.span_us


def cut(in_force_milli: int, floor_milli: int, rule: Reflex) -> int:
    """What best-effort work keeps of the bound in force; at the floor nothing is taken."""
    return min(max(in_force_milli * rule.keep_percent // PERCENT, floor_milli), in_force_milli)
