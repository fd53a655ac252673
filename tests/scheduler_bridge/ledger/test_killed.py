"""The bridge is killed again and again while YARN and a claimant ask for the same capacity."""

from __future__ import annotations

import asyncio
import sys
from random import Random

from scheduler_bridge.ledger.amounts import total, within
from scheduler_bridge.ledger.book import Book
from scheduler_bridge.reconcile import Amount
from schemas.ledger import REIGN_KEY
from streams.dev_broker import DevBroker
from tests.scheduler_bridge.ledger.checker import Verdict, check
from tests.scheduler_bridge.ledger.stage import GIB, PARTITIONS, Topics
from tests.scheduler_bridge.test_bridge_broker import make_topics
from tests.scheduler_bridge.yarn_server import YarnServer
from tests.support import patient

KILLS = 4
LENDABLE = Amount(8_000, 8 * GIB)
NODES = ("n1", "n2")


MAIN = "from scheduler_bridge.cli import app; app()"


async def bridge_of(topics: Topics, yarn: YarnServer) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", MAIN, "run", "--sink", "yarn",
        "--yarn", yarn.url, "--brokers", topics.bootstrap, "--prefix", topics.prefix,
    )  # fmt: skip


async def ask(topics: Topics, yarn: YarnServer, dice: Random) -> None:
    """One event of both, at random; a claim that is not given back runs out by itself."""
    node = dice.choice(NODES)
    if dice.random() < 0.4:
        if len(yarn.asks) < 3:
            yarn.ask(512, dice.choice([1, 2]))
    else:
        amount = None if dice.random() < 0.3 else Amount(dice.choice([1000, 2000, 4000]), GIB)
        await topics.claim(node, dice.choice("abc"), amount, ttl_ms=4_000)
    runs = yarn.managers[node].runs
    if runs and dice.random() < 0.5:
        yarn.die(node, dice.choice(sorted(runs)))


async def test_no_death_of_the_bridge_lends_a_slice_twice(broker: DevBroker, prefix: str) -> None:
    verdict = await die(broker.bootstrap, prefix, KILLS)
    assert verdict.over == []
    assert verdict.grants > KILLS
    assert max(verdict.most_cpu_milli.values()) <= LENDABLE.cpu_milli


async def die(bootstrap: str, prefix: str, kills: int) -> Verdict:
    """Kill it so often, each time at work; what the whole topic says then."""
    dice = Random(3)
    await make_topics(bootstrap, prefix)
    async with YarnServer() as yarn, Topics(bootstrap, prefix) as topics:
        for node in NODES:
            yarn.join(node)
            await topics.capacity(node, LENDABLE)
        for life in range(1, kills + 1):
            process = await bridge_of(topics, yarn)
            try:
                async with asyncio.timeout(patient(30)):
                    while await reigns(topics) < life * PARTITIONS:
                        await ask(topics, yarn, dice)
                for _ in range(dice.randrange(5, 40)):
                    await ask(topics, yarn, dice)
                    await asyncio.sleep(0.05)
            finally:
                process.kill()
                await process.wait()
            for node in NODES:
                memory_mb, cores = yarn.managers[node].total
                shown = Amount(cores * 1000, memory_mb << 20)
                assert within(await shown_and_granted(topics, node, shown), LENDABLE)
        assert any(manager.started for manager in yarn.managers.values())
        return check(await topics.ledger())


async def reigns(topics: Topics) -> int:
    """How often some bridge has begun to reign in a partition."""
    return sum(one.key == REIGN_KEY for one in await topics.ledger())


async def shown_and_granted(topics: Topics, node: str, shown: Amount) -> Amount:
    """What YARN may use now, and what the claimant was granted, by the log as it stands."""
    book, last_ms = Book(), 0
    for said in await topics.ledger():
        book.fold(said.key, said.raw, said.partition, said.offset, said.log_ms)
        last_ms = max(last_ms, said.log_ms)
    return total([shown, book.of(node).granted("slurm", last_ms)])
