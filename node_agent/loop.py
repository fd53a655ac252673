"""The node agent's loop: measure, send, decide, obey; one process a node.

Called by `node_agent.cli`. Five things run side by side: the beat (sweep, send, fold, once a
period), the hands (one queue, one item at a time: commands at once, the local law each beat), the
reflex between two beats, the outbox, and the readers. The beat waits for nothing but its clock.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aiokafka import ConsumerRecord

from node_agent import originals
from node_agent.authentic import NOBODY_CHECKED, Authentic
from node_agent.cgroup.layout import Layout
from node_agent.discovery import Discovery
from node_agent.executors.cri import Runtime
from node_agent.inbox import HISTORY_MS, Deliver, Reader, said
from node_agent.inventory import Census, InventoryError
from node_agent.journal import Journal
from node_agent.lease import NodeLease
from node_agent.local_law import LocalLaw, PolicyShelf
from node_agent.lock import lock
from node_agent.obey import Obey
from node_agent.originals import Trees
from node_agent.outbox import Outbox, Parcel
from node_agent.reflex import Reflex
from node_agent.sampler import Clock, Sampler, in_range
from node_agent.settings import POLICIES_NAME, Settings
from schemas import codec, packed
from schemas.errors import BadRecord
from schemas.policy import STAGES, Policy
from schemas.records import LEASE_KEY, Ack, Command, Lease, PolicyRecord
from schemas.topics import full_name

LONGEST_ID = 512  # names of node and decider, and three numbers
if TYPE_CHECKING:
    from node_agent.nri.plugin import Plugin

INVENTORY_REFRESH_US = 60_000_000
QUEUE_ITEMS = 1024
FAREWELL_S = 2.0
BROKER_TIME_S = 5.0
POLICY_S = 10.0
"""The first start of a node waits so long for a policy, its hands still: then there is none."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Beat:
    """One period is over; ``commands``: what the local law said, None: it could not be asked."""

    commands: list[Command] | None


@dataclass(frozen=True, slots=True)
class Said:
    """A command; ``history``: it was on the log before this start."""

    command: Command
    history: bool


class Look:
    """An eviction that has begun is to be looked after."""


Item = Said | Lease | Beat | Look | None
"""One thing for the hands; None ends them."""


class NodeAgent:
    """All parts of one agent, wired. ``run`` is its life."""

    def __init__(self, settings: Settings, layout: Layout, source: Discovery, clock: Clock) -> None:
        """Take the lock. Raises AlreadyRunning, OSError for a bad state directory."""
        self.mono_us = clock.mono_us
        self.beats_late = 0
        self.law_failures = 0
        self._settings, self._layout = settings, layout
        self._lock = lock(settings.state_dir)
        self.source = source
        self.sampler = Sampler(layout, source, settings.node, clock, period_ms=settings.period_ms)
        self._journal = Journal(settings.state_dir, self.sampler.kernel_boot)
        self._journal.boot(self.sampler.boot, self.mono_us())
        self.obey = Obey(
            boot=self.sampler.boot,
            journal=self._journal,
            lease=NodeLease(settings.node, settings.floor_milli),
            mono_us=self.mono_us,
            use_idle=settings.use_idle,
            dry_run=settings.dry_run,
            runtime=Runtime(settings.cri_socket),
            wake=self._look_in,
        )
        self.reflex = Reflex(self.sampler, self.obey, self.mono_us, self._tell, self._extra_beat)
        self.nri: Plugin | None = None
        if settings.nri is not None:
            from node_agent.nri.plugin import Plugin  # noqa: PLC0415  (where it is asked for)

            self.nri = Plugin(settings.nri, self.obey.isolation.births)
        self._law = LocalLaw(settings.node)
        self._shelf = PolicyShelf(settings.state_dir / POLICIES_NAME)
        for key, record in self._shelf.load():
            self._law.hear_policy(key, record)
        self.outbox = Outbox(
            settings.brokers,
            f"slackwater-node-{settings.node}",
            self.mono_us,
            self._acknowledged,
        )
        if settings.keys is None:
            log.warning(NOBODY_CHECKED)
        self.authentic = Authentic(
            settings.keys, settings.prefix, self.mono_us, accept_unsigned=settings.accept_unsigned
        )
        self.authentic.headers("samples", settings.node, [], b"")  # a missing key is said at once
        self._timed = asyncio.Event()
        self._ruled = asyncio.Event()  # the policy is known, or nobody says one
        self._stage = ""
        self.readers = {
            "commands": self._reader("commands", self._on_command, settings.node, HISTORY_MS),
            "policies": self._reader("policies", self._on_policy, None, None),
        }
        self._queue: asyncio.Queue[Item] = asyncio.Queue(QUEUE_ITEMS)
        self._census: Census | None = None
        self._trees: Trees | None = None
        self._told_us = 0

    async def run(self) -> int:
        """Until SIGTERM, SIGINT or SIGHUP; originals are given back then. The exit code.

        An error that nobody expected ends the agent with the values in force left as they are:
        the next start finds the originals in the journal.
        """
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        hands = asyncio.create_task(self._hands(), name="hands")
        beat = asyncio.create_task(self._beat(), name="beat")
        outbox = asyncio.create_task(self.outbox.run(), name="outbox")
        readers = [asyncio.create_task(r.run(), name=n) for n, r in self.readers.items()]
        if self.nri is not None:
            readers.append(asyncio.create_task(self.nri.run(), name="nri"))
        stopped = asyncio.create_task(stop.wait(), name="stop")
        reflex = asyncio.create_task(self.reflex.run(), name="reflex")
        tasks: list[asyncio.Task[Any]] = [hands, beat, reflex, outbox, stopped, *readers]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        failed = [t for t in tasks if t.done() and not t.cancelled() and t.exception()]
        try:
            for task in (beat, reflex, *readers):
                task.cancel()
            if not failed:
                await self._farewell(hands)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.close()
        for task in failed:
            log.error("%s failed", task.get_name(), exc_info=task.exception())
        return 1 if failed else 0

    def close(self) -> None:
        """Give lock and descriptors back."""
        self.reflex.close()
        self.sampler.close()
        self._journal.close()
        if self._trees is not None:
            self._trees.close()
        self.obey.evictions.close()
        self.obey.isolation.close()
        os.close(self._lock)

    async def _farewell(self, hands: asyncio.Task[None]) -> None:
        """Finish what the hands hold, restore, and let the last acks go."""
        if self._ruled.is_set():
            await self._queue.put(None)
            await asyncio.wait([hands], timeout=FAREWELL_S)
        refused = self.obey.release()
        for reason in refused:
            log.error("original not restored: %s; run `slackwater node release-all`", reason)
        self.obey.lease.in_force_milli = -1
        self._tell([self.obey.answers.own("suppress", "local", "released")])
        if self.outbox.connected:
            await self.outbox.drained(FAREWELL_S)

    async def _beat(self) -> None:
        period_s = self._settings.period_ms / 1000
        clock = asyncio.get_running_loop()
        due = clock.time()
        while True:
            commands = self._measure()
            if self._ruled.is_set():
                self._offer(Beat(commands))
            due += period_s
            now = clock.time()
            if now > due:  # a late beat is one long step, not a burst of short ones
                self.beats_late += 1
                due = now
            await asyncio.sleep(due - now)

    def _extra_beat(self) -> None:
        """A beat between two beats: the law is asked at once."""
        self._offer(Beat(self._measure(extra=True)))

    def _measure(self, *, extra: bool = False) -> list[Command] | None:
        """One period: sweep, send, fold; None when there was nothing to fold."""
        self.sampler.samples_dropped = self.outbox.spool.samples_dropped
        self.sampler.evictions = self.obey.evictions.evicted_pods
        try:
            sample = self.sampler.sweep(extra=extra)
        except InventoryError as error:
            log.warning("no sample: %s", error)
            return None
        try:
            raw = packed.encode(sample)
        except BadRecord as error:
            log.warning("a figure of the kernel is left out: %s", error)
            sample = in_range(sample)
            raw = packed.encode(sample)
        self.outbox.put(self._parcel("samples", raw, codec.PACKED_HEADERS, is_sample=True))
        self._follow(self.sampler.census)
        self.reflex.learn(sample)
        try:
            commands = self._law.fold(raw, sample.mono_us)
        except Exception:
            self.law_failures += 1
            log.exception("the local law failed; best-effort work falls to its floor")
            return None
        self._obey_policy(self._law.policy)
        return commands

    def _obey_policy(self, policy: Policy | None) -> None:
        """What the hands go by from now on; a new stage is said."""
        self.obey.lease.policy = policy
        if policy is None:
            return
        self._ruled.set()
        stage = policy.rollout.stage
        if stage != self._stage:
            self._stage = stage
            log.info("stage %s: %s", stage, STAGES[stage])

    def _follow(self, census: Census | None) -> None:
        """A new census: tell everybody; the same one: say it again once a minute."""
        if census is None:
            return
        now = self.mono_us()
        told = None if self._census is None else self._census.record
        if census is not self._census:
            self._adopt(census)
        if census.record is told and now - self._told_us < INVENTORY_REFRESH_US:
            return
        self._told_us = now
        raw = codec.encode(census.record)
        self.outbox.put(self._parcel("inventory", raw, codec.JSON_HEADERS))

    def _adopt(self, census: Census) -> None:
        known = None if self._census is None else self._census.record
        self._census = census
        root = self._settings.be_root or census.be_root
        if self._trees is None or self._trees.root != root:
            if self._trees is not None:
                self.obey.release()
                self._trees.close()
            self._restore_others(root)
            self._trees = None if root is None else originals.open_trees(self._layout, root)
        self.obey.follow(census, self._trees)
        self.obey.isolation.follow(census, self._layout)
        if census.record is not known:
            self._law.hear_inventory(census.record)

    def _restore_others(self, root: str | None) -> None:
        """An earlier start held another best-effort root: that one is given back first."""
        for other in [o for o in self._journal.state.originals if o != root]:
            trees = originals.open_trees(self._layout, other)
            for reason in originals.release(trees, self._journal):
                log.error("original of %s not restored: %s", other, reason)
            trees.close()

    def _look_in(self, ms: int) -> None:
        """Soon, among the other items; hands that have enough look at the next beat."""
        asyncio.get_running_loop().call_later(ms / 1000, self._look)

    def _look(self) -> None:
        if not self._queue.full():
            self._queue.put_nowait(Look())

    def _offer(self, beat: Beat) -> None:
        """To the hands, without waiting; hands that far behind have beats enough."""
        if self._queue.full():
            log.warning("the hands are %d items behind; this beat is skipped", QUEUE_ITEMS)
        else:
            self._queue.put_nowait(beat)

    async def _hands(self) -> None:
        await self._policy()
        while (item := await self._queue.get()) is not None:
            if isinstance(item, Said):
                self._tell(await self.obey.command(item.command, history=item.history))
            elif isinstance(item, Lease):
                self._tell(self.obey.renewed(item))
            elif isinstance(item, Look):
                self._tell(await self.obey.step())
            else:
                self._tell(await self.obey.beat(item.commands))

    async def _policy(self) -> None:
        """Before the first act: whether anything may be done here is the policy's to say."""
        try:
            await asyncio.wait_for(self._ruled.wait(), POLICY_S)
        except TimeoutError:
            log.warning(
                "no policy for %.0f s: best-effort work is held at its floor until one is read; "
                "`slackwater topics create` writes the first",
                POLICY_S,
            )
            self._ruled.set()

    def _tell(self, acks: list[Ack]) -> None:
        for ack in acks:
            self._law.hear_ack(ack)
            self.outbox.put(self._parcel("acks", codec.encode(ack), codec.JSON_HEADERS))

    async def _on_command(self, record: ConsumerRecord) -> None:
        """Filter by key before decoding: most of a partition is for other nodes."""
        if record.value is None:
            return
        if record.key not in (LEASE_KEY, self._settings.node.encode()):
            return
        try:
            self.authentic.check("commands", record)
        except BadRecord as error:
            self._answer_refused(record, error.reason)
            raise
        item = said("commands", record)
        if isinstance(item, Command) and len(item.id) > LONGEST_ID:
            raise BadRecord("too_large", f"a command's id of {len(item.id)} characters")
        await self._broker_time()
        if isinstance(item, Command):
            end = self.readers["commands"].history_end[record.partition]
            item = Said(item, history=record.offset < end)
        await self._queue.put(item)

    def _answer_refused(self, record: ConsumerRecord, reason: str) -> None:
        """A command that nobody vouches for: nothing of it is kept, and only now and then acked."""
        command = None if record.key == LEASE_KEY else self.authentic.answerable(record)
        if command is not None:
            self._tell([self.obey.answers.unheard(command, reason)])

    async def _broker_time(self) -> None:
        """Before the first command: what time it is there says whether the command is live."""
        if not self._timed.is_set():
            try:
                await asyncio.wait_for(self._timed.wait(), BROKER_TIME_S)
            except TimeoutError:
                self._timed.set()  # nothing is acknowledged here; lowering works all the same

    def _acknowledged(self, append_ms: int, sent_mono_us: int) -> None:
        self.obey.lease.clock.acknowledged(append_ms, sent_mono_us)
        self._timed.set()

    async def _on_policy(self, record: ConsumerRecord) -> None:
        key = record.key or b""
        policy: PolicyRecord | None = said("policies", record)
        self._law.hear_policy(key, policy)
        self._shelf.keep(key, policy)

    def _reader(
        self,
        topic: str,
        deliver: Deliver,
        node: str | None,
        history_ms: int | None,
    ) -> Reader:
        settings = self._settings
        return Reader(
            settings.brokers,
            f"slackwater-node-{settings.node}",
            full_name(settings.prefix, topic),
            deliver,
            node=node,
            history_ms=history_ms,
        )

    def _parcel(
        self, topic: str, raw: bytes, headers: codec.Headers, *, is_sample: bool = False
    ) -> Parcel:
        name = full_name(self._settings.prefix, topic)
        headers = self.authentic.headers(topic, self._settings.node, headers, raw)
        return Parcel(name, self._settings.node.encode(), raw, headers, is_sample)
