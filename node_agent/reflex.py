"""Between two samples: watch online pods' own pressure, and cut best-effort work when it jumps.

`node_agent.loop` runs it beside the beat and hands it each sample. Twice ``reflex.poll_ms`` of the
policy apart, and once while something stalls, it reads on the sampler's kept descriptors the
stalled time of at most `HOT` pods (those that stalled or used most in the last period, and some in
turn) and of the groups that hold only online pods; the latter only say where to look.
`agents.reflex` judges; `node_agent.obey` acts.
Without best-effort work that runs, or at its floor, there is nothing to take: one counter is read
every `IDLE_MS`. Where the kernel grants triggers it tells when to look, and looks are as rare.
Memory limits at and above the best-effort root are looked at too: nearly reached, one is answered
by a sample at once, from which the law orders pods out. Never read: the node's pressure and
best-effort work's own (docs/nodes.md).
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable

from agents.eviction.release import mark_below
from agents.reflex import PERMILLE, wakes_us
from node_agent.cgroup.handles import Vanished
from node_agent.cgroup.paths import overlaps
from node_agent.inventory import Census
from node_agent.obey import Obey
from node_agent.pressure_triggers import Triggers
from node_agent.sampler import Sampler
from node_agent.signals.memory_limits import CLOSE_BYTES
from node_agent.watch import Watch, usage_parser
from schemas.policy import Policy
from schemas.policy import Reflex as Rule
from schemas.records import Ack, NodeSample

HOT = 8
IN_TURN = 2  # of these
SLICES = 4  # at most so many groups that hold only online pods
CALM_POLLS = 2  # between looks while nothing stalls; a look costs ten times more than it reads
IDLE_MS = 200
FAILED_MS = 1000
RUNS_US = 1_000_000  # best-effort work that used CPU in the last second is running
SCAN_US = 1_000_000  # a group makes us look at all its pods at most so often
ALARM_US = 250_000  # while a limit is nearly reached, a sample at most so often
LONG_AGO_US = -(1 << 62)
CPU_COLUMN, STALL_COLUMN = "cpu_usage_us", "psi_cpu_some_us"

log = logging.getLogger(__name__)


class Reflex:
    """The reflex of one node; ``cuts`` and the like are counted for the metrics."""

    def __init__(
        self,
        sampler: Sampler,
        obey: Obey,
        mono_us: Callable[[], int],
        tell: Callable[[list[Ack]], None],
        sample_now: Callable[[], None],
    ) -> None:
        """``tell``: what was done; ``sample_now``: a beat between two beats, for memory's sake."""
        self.polls = self.cuts = self.own_limits = self.failures = self.alarms = 0
        self._sampler, self._obey, self._mono_us, self._tell = sampler, obey, mono_us, tell
        self._sample_now = sample_now
        self._usage = usage_parser(sampler.layout)
        self._census: Census | None = None
        self._online: dict[int, Watch] = {}  # by place in the census
        self._slices: list[Watch] = []
        self._hot: list[Watch] = []
        self._turn = 0
        self._used_us, self._used_at_us = 0, LONG_AGO_US
        self._ran_us = self._scanned_us = self._alarm_us = LONG_AGO_US
        self._triggers: Triggers | None = None
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """For the life of the agent: a look after the other, or when a trigger wakes us."""
        loop = asyncio.get_running_loop()
        self._triggers = Triggers.open(self._sampler.layout)
        if self._triggers is not None:
            loop.add_reader(self._triggers.descriptor, self._wake, self._triggers)
        try:
            self._look()
            await loop.create_future()  # no task a look: a timer alone costs a third less
        finally:
            if self._timer is not None:
                self._timer.cancel()

    def _look(self) -> None:
        """A look that fails is counted, and the next one is tried."""
        try:
            pause_ms = self.poll()
        except Exception:
            self.failures += 1
            pause_ms = FAILED_MS
            log.exception("the reflex failed; samples and the law go on without it")
        self._timer = asyncio.get_running_loop().call_later(pause_ms / 1000, self._look)

    def _wake(self, triggers: Triggers) -> None:
        triggers.note_fired()
        if self._timer is not None:
            self._timer.cancel()
        self._look()

    def close(self) -> None:
        """Give back what was opened beside the sampler's descriptors; twice is once."""
        triggers, self._triggers = self._triggers, None
        if triggers is not None:
            asyncio.get_running_loop().remove_reader(triggers.descriptor)
            triggers.close()
        for watch in self._slices:
            watch.files.close()
        for watch in (*self._slices, *self._hot):
            watch.cool()

    def learn(self, sample: NodeSample) -> None:
        """What is normal for each online pod, and which pods are hot; once a sample."""
        policy, census = self._obey.lease.policy, self._sampler.census
        if policy is None or census is None or not policy.reflex.enabled:
            return
        if census is not self._census:
            self._adopt(census)
        rule, mono_us = policy.reflex, sample.mono_us
        stalls, used = sample.pod_columns.get(STALL_COLUMN), sample.pod_columns.get(CPU_COLUMN)
        ranked: list[tuple[int, int, int]] = []
        for place, watch in self._online.items():
            stall_us = stalls[place] if stalls else None
            share = 0 if stall_us is None else watch.pulse.learn(stall_us, mono_us, rule)
            used_us = used[place] if used else None
            busy = 0 if used_us is None else watch.use.learn(used_us, mono_us, rule)
            ranked.append((share, busy, place))
        chosen = [place for _, _, place in heapq.nlargest(HOT - IN_TURN, ranked)]
        self._heat([self._online[place] for place in dict.fromkeys((*chosen, *self._in_turn()))])
        for watch in self._slices:
            self._learn_now(watch, rule)
        for watch in self._hot:
            if watch.waits is not None:
                self._learn_now(watch, rule)
        if self._triggers is not None:
            lasting = [*self._slices, *(self._online[place] for place in chosen)]
            window_us = self._triggers.window_us
            self._triggers.arm(
                {w.files.group: wakes_us(w.pulse.normal.ppm, window_us, rule) for w in lasting}
            )

    def poll(self) -> int:
        """One look; milliseconds until the next."""
        policy, now_us = self._obey.lease.policy, self._mono_us()
        if policy is None or not policy.reflex.enabled:
            return IDLE_MS
        cpu_ms = self._look_at_pods(policy, now_us) if policy.suppress.enabled else IDLE_MS
        return min(cpu_ms, self._look_at_limits(policy, now_us))

    def _look_at_limits(self, policy: Policy, now_us: int) -> int:
        """Memory's last gate is the law's: a sample is taken at once when it has to be asked."""
        limits, rule = self._sampler.limits, policy.evict_memory
        if limits is None or not (rule.enabled and rule.limit_enabled):
            return IDLE_MS
        margin = rule.limit_margin_bytes
        room = limits.room(now_us, lambda limit: int(mark_below(limit, margin)))
        if room is None or room > CLOSE_BYTES:
            return IDLE_MS
        if room <= 0 and now_us - self._alarm_us >= ALARM_US:
            self._alarm_us = now_us
            self.alarms += 1
            self._sample_now()
        return policy.reflex.poll_ms

    def _look_at_pods(self, policy: Policy, now_us: int) -> int:
        """Stalled time of the hot pods, where best-effort work has something to give."""
        lease, rule = self._obey.lease, policy.reflex
        in_force = lease.in_force_milli
        if in_force is None or in_force <= lease.floor() or not self._runs(now_us, rule):
            return max(IDLE_MS, rule.poll_ms)
        self.polls += 1
        struck = False
        for watch in self._slices:
            if self._feel(watch, now_us, rule):
                struck = True
                if now_us - self._scanned_us >= SCAN_US:
                    self._scan(now_us, rule)
        for watch in self._hot:
            strikes = self._feel(watch, now_us, rule)
            if strikes == 1:
                watch.note_struck(now_us)
            elif strikes and self._is_held_up(watch, now_us, rule):
                self._cut(watch)
                break
            struck = struck or strikes > 0
        calm_ms = CALM_POLLS * rule.poll_ms if self._triggers is None else IDLE_MS
        return rule.poll_ms if struck else max(calm_ms, rule.poll_ms)

    def _cut(self, watch: Watch) -> None:
        pulse = watch.pulse
        terms = {
            "beyond_permille": pulse.beyond_us * PERMILLE // max(pulse.span_us, 1),
            "normal_permille": pulse.normal.ppm // PERMILLE,
            "span_ms": pulse.span_us // 1000,
            "looks": pulse.strikes,
        }
        acks = self._obey.reflex(watch.uid, terms)
        for other in (*self._slices, *self._hot):
            other.pulse.calm()
        if acks:
            self.cuts += 1
            self._tell(acks)

    def _runs(self, now_us: int, rule: Rule) -> bool:
        """Whether best-effort work has used CPU lately; more than the rule's least, that is."""
        files = self._sampler.best_effort
        if files is None or files.gone:
            return False
        if now_us - self._used_at_us < IDLE_MS * 1000:
            return now_us - self._ran_us < RUNS_US
        try:
            data = files.read("cpu_usage", now_us)
        except Vanished:
            return False
        used_us = None if data is None else self._usage(data)[0]
        if used_us is None:
            return False
        passed_us, grown_us = now_us - self._used_at_us, used_us - self._used_us
        self._used_us, self._used_at_us = used_us, now_us
        if passed_us < RUNS_US and grown_us * 1000 >= rule.least_milli * passed_us:
            self._ran_us = now_us
        return now_us - self._ran_us < RUNS_US

    def _feel(self, watch: Watch, now_us: int, rule: Rule) -> int:
        """One look at one group; one that is gone, or says nothing, has no strikes."""
        if watch.files.gone:
            return 0
        try:
            stall_us = watch.stalled_us(now_us)
        except Vanished:
            return 0
        return 0 if stall_us is None else watch.pulse.feel(stall_us, now_us, rule)

    def _scan(self, now_us: int, rule: Rule) -> None:
        """Some group of online pods stalls: those pods that stall most since the sample are hot."""
        self._scanned_us = now_us
        ranked: list[tuple[int, int]] = []
        for place, watch in self._online.items():
            if watch in self._hot or watch.files.gone or watch.waits is not None:
                continue
            try:
                stall_us = watch.stalled_us(now_us)
            except Vanished:
                continue
            if stall_us is not None and watch.pulse.suspect(stall_us, now_us, rule):
                ranked.append((watch.pulse.beyond_us, place))
        worst = [self._online[place] for _, place in heapq.nlargest(IN_TURN, ranked)]
        for watch in worst:
            watch.note_struck(now_us)
        self._heat([*self._hot[: HOT - len(worst)], *worst])

    def _heat(self, hot: list[Watch]) -> None:
        for watch in self._hot:
            if watch not in hot:
                watch.cool()
        self._hot = hot

    def _in_turn(self) -> list[int]:
        """The next pods whose turn it is, hot or not."""
        places = list(self._online)
        first, self._turn = self._turn, self._turn + IN_TURN
        if not places:
            return []
        return [places[(first + i) % len(places)] for i in range(min(IN_TURN, len(places)))]

    def _learn_now(self, watch: Watch, rule: Rule) -> None:
        now_us = self._mono_us()
        try:
            stall_us = None if watch.files.gone else watch.stalled_us(now_us)
        except Vanished:
            return
        if stall_us is not None:
            watch.pulse.learn(stall_us, now_us, rule)

    def _is_held_up(self, watch: Watch, now_us: int, rule: Rule) -> bool:
        """By others, that is: a pod stopped by a quota of its own is left alone."""
        if not watch.is_held_up(now_us, rule):
            return False
        if not watch.is_own_limit():
            return True
        self.own_limits += 1
        watch.pulse.calm()
        return False

    def _adopt(self, census: Census) -> None:
        """Other pods: those that stay keep what is known of them."""
        self._census = census
        known = {watch.files: watch for watch in self._online.values()}
        pods = zip(census.record.pods, self._sampler.pods, strict=True)
        self._online = {
            place: known.get(files) or Watch(fact.uid, files, self._usage)
            for place, (fact, files) in enumerate(pods)
            if fact.qos != "BE"
        }
        self._heat([watch for watch in self._hot if watch in self._online.values()])
        wanted = slices(census)
        for watch in self._slices:
            if watch.files.group not in wanted:
                watch.files.close()
        kept = {watch.files.group: watch for watch in self._slices if watch.files.group in wanted}
        self._slices = [
            kept.get(group) or Watch("", self._sampler.open_group(group), self._usage)
            for group in wanted
        ]


def slices(census: Census) -> list[str]:
    """Groups right above online pods that hold no best-effort work; at most `SLICES`, by size."""
    held: dict[str, int] = {}
    for fact, group in zip(census.record.pods, census.groups, strict=True):
        above = group.rpartition("/")[0]
        if fact.qos != "BE" and above:
            held[above] = held.get(above, 0) + 1
    root = census.be_root
    alone = [group for group in held if root is None or not overlaps(group, root)]
    return sorted(alone, key=lambda group: (-held[group], group))[:SLICES]
