"""One leader among bridges, by a Lease of the API server: only who leads may write.

Made by the loop, which asks `leads` right before every write. No clock of another machine and no
wall clock is ever trusted: a candidate waits a whole lease from when it *saw* the last renewal; a
leader stops `lease * 2/3` after it *began* its last renewal, so it stops first, whatever happens
between. The clock counts a suspended machine's time too.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from lightkube.models.coordination_v1 import LeaseSpec
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.coordination_v1 import Lease

from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeConflict, KubeMissing, translated

log = logging.getLogger("slackwater.bridge")
LEASE_S = 3
"""Another takes over 3 to 4 s after a crash: capacity is right again within 5."""
TURNS_A_LEASE = 10
LEAST_SLEEP_S = 0.02


def boot_ms() -> int:
    """Milliseconds since the machine started, time in suspension included; never set by anyone."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1_000_000


def identity() -> str:
    """A name that no other process has, not even this one after a restart."""
    return f"{socket.gethostname()}_{os.getpid()}_{uuid.uuid4().hex[:8]}"


class Election:
    """A candidate for the Lease ``namespace/name``. `run` it as a task; cancelled, it gives up.

    ``lease_s`` is what others must wait; ``clock`` gives milliseconds that only grow.
    """

    def __init__(
        self,
        kube: Kube,
        namespace: str,
        name: str,
        own: str,
        *,
        lease_s: int = LEASE_S,
        clock: Callable[[], int] = boot_ms,
    ) -> None:
        if not 1 <= lease_s <= 300:
            raise ValueError(f"lease of {lease_s} s; allowed: 1 to 300")
        self._kube = kube
        self._namespace = namespace
        self._name = name
        self._own = own
        self._lease_s = lease_s
        self._clock = clock
        self._leads_until_ms = 0
        self._seen = ("", "")
        self._seen_ms = 0
        self._lapses_ms = 0
        self._said = ""
        self._fault = ""
        self.holder = ""
        self.terms = 0

    @property
    def leads(self) -> bool:
        """Whether we may write now."""
        return self.left_ms > 0

    @property
    def left_ms(self) -> int:
        """For how long we may still write; 0 when we may not."""
        return max(0, self._leads_until_ms - self._clock())

    @property
    def write_within_s(self) -> float:
        """How long a write that begins now may take; nobody else leads before that has passed."""
        return (self.left_ms + self._lease_s * 1000 // 3) / 1000

    async def run(self) -> None:
        """Stand, win, renew, stand again; ends only by cancellation, and then releases."""
        turn_s = self._lease_s / TURNS_A_LEASE
        try:
            while True:
                try:
                    async with asyncio.timeout(self._lease_s):
                        await self._turn()
                    self._fault = ""
                except KubeConflict:
                    self._fault = ""  # another was quicker: the next look says who
                except TimeoutError:
                    self._fault = f"no answer within {self._lease_s} s"
                except OSError as error:
                    self._fault = str(error)
                self._tell()
                # A candidate looks again the moment that the lease it saw has lapsed.
                lapses_s = (self._lapses_ms - self._clock()) / 1000
                wait_s = min(turn_s, lapses_s) if lapses_s > 0 else turn_s
                await asyncio.sleep(max(LEAST_SLEEP_S, wait_s))
        finally:
            await self._release()

    async def _turn(self) -> None:
        """Look, and take or renew the lease if that is allowed. Raises KubeError."""
        began_ms = self._clock()
        found = await self._get()
        if found is None:
            await self._create()
        else:
            if not self._may_take(found):
                self._leads_until_ms = 0
                return
            await self._take(found)
        self._leads_until_ms = began_ms + self._lease_s * 1000 * 2 // 3
        self.holder = self._own

    def _may_take(self, found: Lease) -> bool:
        """Ours, nobody's, or one that was not renewed for its whole length under our eyes."""
        assert found.metadata is not None
        spec = found.spec or LeaseSpec()
        self.holder = spec.holderIdentity or ""
        version = (found.metadata.uid or "", found.metadata.resourceVersion or "")
        if version != self._seen:
            self._seen, self._seen_ms = version, self._clock()
        if self.holder in {"", self._own}:
            return True
        lease_ms = max(1, spec.leaseDurationSeconds or self._lease_s) * 1000
        self._lapses_ms = self._seen_ms + lease_ms
        return self._clock() >= self._lapses_ms

    async def _get(self) -> Lease | None:
        try:
            with translated(f"read lease {self._namespace}/{self._name}"):
                return await self._kube.api.get(Lease, self._name, namespace=self._namespace)
        except KubeMissing:
            return None

    async def _create(self) -> None:
        now = datetime.now(UTC)
        meta = ObjectMeta(name=self._name, namespace=self._namespace)
        spec = LeaseSpec(
            holderIdentity=self._own,
            leaseDurationSeconds=self._lease_s,
            acquireTime=now,
            renewTime=now,
            leaseTransitions=0,
        )
        with translated(f"make lease {self._namespace}/{self._name}"):
            await self._kube.api.create(Lease(metadata=meta, spec=spec))

    async def _take(self, found: Lease) -> None:
        """Write over exactly the version that was looked at. Raises KubeConflict for another."""
        spec = found.spec or LeaseSpec()
        now = datetime.now(UTC)
        if spec.renewTime is not None:
            # A renewal that changes nothing would not be seen: a wall clock may stand or step back.
            now = max(now, spec.renewTime + timedelta(microseconds=1))
        if spec.holderIdentity != self._own:
            spec.acquireTime = now
            spec.leaseTransitions = (spec.leaseTransitions or 0) + 1
        spec.holderIdentity = self._own
        spec.leaseDurationSeconds = self._lease_s
        spec.renewTime = now
        found.spec = spec
        with translated(f"renew lease {self._namespace}/{self._name}"):
            await self._kube.api.replace(found)

    async def _release(self) -> None:
        """Stop leading at once, and let the next one in without waiting."""
        led = self._leads_until_ms > 0
        self._leads_until_ms = 0
        if not led:
            return
        try:
            async with asyncio.timeout(self._lease_s / 2):
                found = await self._get()
                if found is None or found.spec is None or found.spec.holderIdentity != self._own:
                    return
                found.spec.holderIdentity = ""
                with translated(f"release lease {self._namespace}/{self._name}"):
                    await self._kube.api.replace(found)
        except KubeConflict:
            return
        except OSError as error:
            log.warning("the lease was not released, another waits for its end: %s", error)

    def _tell(self) -> None:
        """Say where we stand whenever that changes; a fault while we still lead may pass."""
        if self.leads:
            what = "leading"
        elif self._fault:
            what = f"it cannot be had, nothing is written: {self._fault}"
        elif self.holder in {"", self._own}:
            return  # free, or ours that lapsed: the next turn takes it
        else:
            what = f"standing by for {self.holder}"
        if what == self._said:
            return
        self.terms += what == "leading"
        self._said = what
        level = logging.WARNING if self._fault and not self.leads else logging.INFO
        log.log(level, "lease %s/%s: %s", self._namespace, self._name, what)
