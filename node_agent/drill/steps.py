"""What a drill plays, step by step; each says what it saw and how long it took."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Literal

from node_agent.cgroup.layout import Layout
from node_agent.drill.stage import LIMIT_BYTES, MIB, Stage, knobs, staged
from node_agent.signals.oom import parse as oom_kills
from node_agent.workbench.worker import Worker

TROUBLE = (RuntimeError, OSError, ValueError, subprocess.SubprocessError)
"""What a step may end in; a drill that cannot go on says so and takes everything away."""
HALF_MILLI = (os.cpu_count() or 1) * 500
LOW_MILLI = 100
SLACK_MILLI = 60  # of a quota's periods, and of a busy machine
WATCH_S = 1.0
SPINNERS = 2
GROWTH_BYTES_PER_S = 100 * MIB
SUDDEN_BYTES = 64 * MIB
STALLED_S = 30.0


Outcome = Literal["ok", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Step:
    """``ms`` None: nothing was timed."""

    name: str
    outcome: Outcome
    text: str
    ms: float | None = None


async def play(layout: Layout, under: str | None) -> AsyncIterator[Step]:
    """All steps in order; one that fails does not keep the others from being played."""
    began = time.monotonic()
    async with staged(layout, under) as stage:
        web = stage.start("online", "web", kind="rest")
        yield Step("stage", "ok", f"groups below {stage.groups.name}", _since(began))
        for name, act in ACTS:
            yield await _guarded(name, act, stage)
            if not web.alive:
                yield Step("online pod", "failed", "it died: an online pod must never be touched")
                return
        yield await _guarded("give back", _give_back, stage)


async def _guarded(name: str, act: Callable[[Stage], Awaitable[Step]], stage: Stage) -> Step:
    try:
        return await act(stage)
    except TROUBLE as error:
        if stage.life.done():
            raise
        return Step(name, "failed", str(error))


async def _raise(stage: Stage) -> Step:
    """What the centre grants is given as far as the node's own law allows it."""
    for _ in range(SPINNERS):
        stage.start("besteffort", "spin", kind="spin")
    lease = stage.agent.obey.lease
    await stage.until(lambda: (lease.local_milli or 0) >= HALF_MILLI, "a local law of half", 10)
    ms = await _bound(stage, HALF_MILLI)
    used = await stage.used_milli(WATCH_S)
    return Step("raise", "ok", f"quota {HALF_MILLI} milli; used {used}", ms)


async def _idle(stage: Stage) -> Step:
    found = knobs(stage.cpu)["cpu.idle"]
    if found is None:
        return Step("idle", "skipped", "this kernel has no cpu.idle (Linux 5.15)")
    good: Outcome = "ok" if found == "1" else "failed"
    return Step("idle", good, f"cpu.idle of best-effort work: {found}")


async def _suppress(stage: Stage) -> Step:
    ms = await _bound(stage, LOW_MILLI)
    used = await stage.used_milli(WATCH_S)
    good: Outcome = "ok" if used <= LOW_MILLI + SLACK_MILLI else "failed"
    return Step("suppress", good, f"quota {LOW_MILLI} milli; used {used}", ms)


async def _evict(stage: Stage) -> Step:
    """Throttled work dies by order: the quota is lifted first."""
    spinning = [worker for worker in stage.workers if worker.alive][1:]
    began = time.monotonic()
    ack = await stage.order(decider="evict_memory", pods=("spin",))
    await stage.until(
        lambda: not any(worker.alive for worker in spinning), f"their end: {ack.reason}", 10
    )
    text = f"{len(spinning)} throttled processes ended by order"
    return Step("evict", "ok", text, _since(began))


async def _memory(stage: Stage) -> Step:
    """A pod grows towards the best-effort root's limit: the agent is there before the kernel."""
    root = stage.groups.be_root
    if not stage.limit_memory(root, LIMIT_BYTES):
        return Step("memory", "skipped", "no memory controller: nobody is evicted for memory here")
    policy = stage.agent.obey.lease.policy
    if policy is not None:  # the eviction just before began a cool-down
        await asyncio.sleep(policy.evict_memory.cooldown_ms / 1000)
    await _bound(stage, HALF_MILLI)  # a throttled pod grows slowly, and that is not the question
    rate, most = GROWTH_BYTES_PER_S, 2 * LIMIT_BYTES
    hungry = stage.start("besteffort", "hungry", kind="grow", bytes_per_s=rate, most=most)
    hungry.say("go")
    began = time.monotonic()
    grown = await _grow(stage, hungry, root)
    a_second = round(grown / (time.monotonic() - began) / MIB)
    text = (
        f"of a limit of {LIMIT_BYTES // MIB} MiB, grown by {a_second} MiB a second "
        f"to {grown // MIB}"
    )
    if _kills(stage, f"{root}/hungry"):
        return Step("memory", "failed", f"the kernel was there first: {text}")
    return Step("memory", "ok", f"evicted by the agent: {text}")


async def _grow(stage: Stage, hungry: Worker, root: str) -> int:
    """Wait for the end of a growing pod; most bytes that were seen. Raises DrillStopped.

    Machines differ in speed: it may take as long as it likes while it still grows.
    """
    current = stage.memory_file("memory_current", root)
    most = before = 0

    def over() -> bool:
        nonlocal most
        most = max(most, 0 if current is None else int(current.read_bytes()))
        return not hungry.alive or most - before >= MIB

    while hungry.alive:
        before = most
        await stage.until(over, "the end of a pod that grows no more", STALLED_S)
    return most


async def _sudden(stage: Stage) -> Step:
    """A pod beyond its own limit at once: the kernel kills it, and nobody else."""
    group = f"{stage.groups.be_root}/sudden"
    if not stage.limit_memory(group, SUDDEN_BYTES):
        return Step("oom", "skipped", "no memory controller")
    sudden = stage.start("besteffort", "sudden", kind="grow", bytes_per_s=0, most=2 * SUDDEN_BYTES)
    neighbour = stage.start("besteffort", "hungry", kind="rest")
    began = time.monotonic()
    sudden.say("go")
    await stage.until(lambda: not sudden.alive, "the kernel's kill", 30)
    ms = _since(began)
    kills = _kills(stage, group)
    good = neighbour.alive and bool(kills)
    fate = "lives" if neighbour.alive else "DIED"
    text = f"beyond {SUDDEN_BYTES // MIB} MiB at once: killed by the kernel; its neighbour {fate}"
    return Step("oom", "ok" if good else "failed", text, ms)


async def _bound(stage: Stage, milli: int) -> float:
    """Order a quota and wait until the kernel says it; milliseconds. Raises DrillStopped."""
    began = time.monotonic()
    ack = await stage.order(allow_milli=milli)
    await stage.until(lambda: stage.quota_milli() == milli, f"a quota of {milli}: {ack.reason}", 5)
    return _since(began)


async def _give_back(stage: Stage) -> Step:
    began = time.monotonic()
    code = await stage.end()
    ms = _since(began)
    differ = [name for name, said in knobs(stage.cpu).items() if said != stage.before[name]]
    good = code == 0 and not differ
    text = f"differs: {', '.join(differ)}" if differ else "every knob says what it said before"
    return Step("give back", "ok" if good else "failed", text, ms)


def _kills(stage: Stage, group: str) -> int:
    path = stage.memory_file("oom", group)
    return 0 if path is None else oom_kills(path.read_bytes()) or 0


def _since(began: float) -> float:
    return (time.monotonic() - began) * 1000


ACTS: tuple[tuple[str, Callable[[Stage], Awaitable[Step]]], ...] = (
    ("raise", _raise),
    ("idle", _idle),
    ("suppress", _suppress),
    ("evict", _evict),
    ("memory", _memory),
    ("oom", _sudden),
)
