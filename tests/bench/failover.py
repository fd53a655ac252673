"""`make bench NAME=failover`: workers die, freeze, join, lose their offsets and their images.

Two installations on one real broker. The first: a fleet of 5,000 nodes at 5,000 samples a second in
all, some more nodes with real leases and journals, two workers. Ten times one worker is killed
with -9 while another joins; then one is paused past its session and resumed; both are killed and
offsets that Kafka had acknowledged are reset to earlier ones, with broken images written after the
newest; at last the group is deleted. Then the checker refolds the whole log and compares.

The second, smaller: every worker is killed at once and the images are emptied: capacity must hold
at what is lent until the windows are warm.

Ends with one line of JSON; exit 1 when a goal is missed. ``tests.e2e.test_failover`` plays the same
in a short form.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from streams.checker import Verdict
from streams.dev_broker import DevBroker
from streams.settings import WorkerSettings
from tests.bench.common import Goal, finish, median, say
from tests.bench.failover_judge import (
    Hold,
    Kill,
    Said,
    check_all,
    first_decisions_s,
    judge_hold,
    read_topic,
    tick_decisions,
)
from tests.bench.failover_stage import Plan, Stage, open_partitions
from tests.streams.fleet_kit import WorkerProcess

MEDIAN_S, LONGEST_S = 20.0, 30.0
WARM_MS, LOOKBACK_S = 25_000, 10  # a lookback in which the predecessors still spoke
POLICY = (
    "rollout: {stage: expand}\ninterference: {history_ms: 30000}\nreservation: {warm_ms: 10000}\n"
)
LEND_POLICY = (
    "rollout: {stage: expand}\n"
    f"reservation: {{warm_ms: {WARM_MS}}}\n"
    "capacity: {raise_permille_per_min: 60000}\n"
)
LENT_S = 60.0
CHECKERS = 2


@dataclass(slots=True)
class Found:
    """What the first installation showed."""

    decisions_s: list[float]
    undecided: int  # orphans without any decision on a fresh tick
    zombie_s: list[float]
    verdict: Verdict
    acknowledged: int  # samples that Kafka acknowledged to the loaded fleet
    in_log: int  # samples of the loaded fleet in the log
    refused: int  # broken images passed over
    cold: int  # partitions that began without image although there was one
    exits: list[int]
    summaries: dict[str, dict[str, Any]]
    seconds: dict[str, float] = field(default_factory=dict)

    def faults(self) -> int:
        """Contradictions of any kind; 0 is the proof."""
        verdict = self.verdict
        return (
            verdict.differing + verdict.phantom + verdict.missing + verdict.images_differing
            + verdict.commands_twice + verdict.commands_backwards + verdict.cold + self.cold
        )  # fmt: skip

    def lost(self) -> int:
        """Acknowledged samples that are not in the log, or not behind an image."""
        return max(self.acknowledged - self.in_log, 0) + self.verdict.unimaged


def now_ms() -> float:
    """This machine's clock, which is the broker's."""
    return time.time() * 1000


def kill(stage: Stage, victims: list[WorkerProcess]) -> Kill:
    """-9 for all of them at once."""
    orphans = tuple(p for victim in victims for p in open_partitions(victim))
    begun = now_ms()
    for victim in victims:
        victim.signal(signal.SIGKILL)
    for victim in victims:
        victim.kill()
    return Kill(begun, now_ms(), orphans)


def kill_and_join(stage: Stage, rounds: int, calm_s: float) -> list[Kill]:
    """Each time the older worker goes and a new one comes."""
    kills = []
    for turn in range(1, rounds + 1):
        time.sleep(calm_s)  # images are cut and the log grows: a kill finds an ordinary moment
        one = kill(stage, stage.live()[:1])
        stage.start_worker()
        took = stage.until("two workers share again", stage.shared)
        say(f"  kill {turn} of {rounds}: {len(one.orphans)} orphans, shared after {took:.1f} s")
        kills.append(one)
    return kills


def pause_and_resume(stage: Stage, calm_s: float) -> Kill:
    """A zombie: stopped until the other has taken everything, then continued."""
    time.sleep(calm_s)
    zombie, heir = stage.live()
    paused = Kill(now_ms(), now_ms() + 500, tuple(open_partitions(zombie)))
    zombie.signal(signal.SIGSTOP)
    everything = list(range(stage.plan.partitions))
    took = stage.until("the heir has all", lambda: open_partitions(heir) == everything)
    say(f"  zombie: the heir has all after {took:.1f} s")
    zombie.signal(signal.SIGCONT)
    stage.until("the zombie shares again", stage.shared)
    return paused


def replay(stage: Stage, calm_s: float) -> tuple[int, int]:
    """Both killed; acknowledged offsets reset to earlier ones; broken images after the newest.

    Returns how many broken images were passed over, and how many partitions began cold.
    """
    time.sleep(calm_s)
    kill(stage, stage.live())
    ends = stage.ends("samples")
    stage.write_bad_images()
    stage.reset_group({p: end // 2 if p % 2 else 0 for p, end in ends.items()})
    both = [stage.start_worker() for _ in range(2)]
    took = stage.until("two workers share after the replay", stage.shared)
    refused = sum(worker.metric("images_refused_total") for worker in both)
    cold = sum(worker.metric("cold_starts_total") for worker in both)
    say(f"  replay: {refused:.0f} broken images passed over, shared after {took:.1f} s")
    return int(refused), int(cold)


def forget(stage: Stage) -> int:
    """Both end in order, the group is deleted; returns how many partitions began cold."""
    stage.end_workers()
    stage.forget_group()
    both = [stage.start_worker() for _ in range(2)]
    took = stage.until("two workers share after the group was deleted", stage.shared)
    say(f"  group deleted: shared after {took:.1f} s")
    return int(sum(worker.metric("cold_starts_total") for worker in both))


def play(stage: Stage, rounds: int, calm_s: float) -> Found:
    """The first installation, from its first worker to the verdict."""
    begun = time.monotonic()
    stage.open()
    for _ in range(2):
        stage.start_worker()
    stage.until("two workers share", stage.shared)
    say(f"two workers share after {time.monotonic() - begun:.1f} s")
    stage.until("the workers cut images", stage.imaged)
    kills = kill_and_join(stage, rounds, calm_s)
    paused = pause_and_resume(stage, calm_s)
    refused, cold = replay(stage, calm_s)
    cold += forget(stage)
    stage.end_fleet()
    stage.until("all is folded", stage.followed)
    exits = stage.end_workers()
    played = time.monotonic() - begun
    said = tick_decisions(read_topic(stage.brokers, stage.prefix, "commands"))
    decisions = first_decisions_s(kills, said)
    after_pause = first_decisions_s([paused], said)
    say(f"played for {played:.0f} s; the checker refolds the log")
    verdict = check_all(stage.brokers, stage.prefix, stage.journals, CHECKERS, "load")
    return Found(
        decisions_s=[each for each in decisions if each is not None],
        undecided=decisions.count(None),
        zombie_s=[each for each in after_pause if each is not None],
        verdict=verdict,
        acknowledged=stage.summaries["load"]["samples"],
        in_log=verdict.samples,
        refused=refused,
        cold=cold,
        exits=exits,
        summaries=stage.summaries,
        seconds={"played": played, "checked": time.monotonic() - begun - played},
    )


def lose_everything(stage: Stage) -> Hold:
    """The second installation: capacity is lent, then workers and images are gone."""
    stage.open()
    for _ in range(2):
        stage.start_worker()
    stage.until("two workers share", stage.shared)
    stage.until("capacity is lent", lambda: lent_by(stage) >= stage.plan.lease_nodes, LENT_S)
    kill(stage, stage.live())
    lost_at = stage.ends("samples")
    stage.empty("images")
    for _ in range(2):
        stage.start_worker()
    stage.until("two workers share, cold", stage.shared)
    cold = sum(worker.metric("cold_starts_total") for worker in stage.live())
    assert cold >= stage.plan.partitions, f"only {cold} partitions lost their state"
    stage.until("warm again", lambda: warm_again(stage, lost_at), WARM_MS / 1000 + 40)
    stage.end_fleet()
    stage.end_workers()
    said = tick_decisions(read_topic(stage.brokers, stage.prefix, "commands"))
    resumed: dict[int, Said] = {}
    for one in sorted(said, key=lambda one: one.offset):
        if one.offset >= lost_at[one.partition]:
            resumed.setdefault(one.partition, one)
    return judge_hold(
        read_topic(stage.brokers, stage.prefix, "capacity"),
        read_topic(stage.brokers, stage.prefix, "ledger"),
        resumed,
        lost_at,
        WARM_MS - LOOKBACK_S * 1000 - 2_000,
    )


def lent_by(stage: Stage) -> int:
    """How many nodes have something lent."""
    newest = {r.key: r.value for r in read_topic(stage.brokers, stage.prefix, "ledger")}
    return sum(orjson.loads(value)["cpu_milli"] > 0 for value in newest.values())


def warm_again(stage: Stage, lost_at: dict[int, int]) -> bool:
    """Whether every node has been offered by measurement after the loss."""
    warm = set()
    for record in read_topic(stage.brokers, stage.prefix, "capacity"):
        said = orjson.loads(record.value)
        fresh = said["cause"]["offset"] >= lost_at[said["cause"]["partition"]]
        if fresh and said["reason"] != "cold":
            warm.add(said["node"])
    return len(warm) >= stage.plan.lease_nodes


def judge_play(found: Found, plan: Plan, rounds: int) -> tuple[dict[str, Any], list[Goal]]:
    """Figures and goals of the first installation."""
    verdict = found.verdict
    middle = median(found.decisions_s)
    longest = max(found.decisions_s, default=None) if not found.undecided else None
    figures: dict[str, Any] = {
        "nodes": plan.nodes + plan.lease_nodes,
        "pods_per_node": plan.pods,
        "samples_per_s_asked": plan.rate,
        "samples_per_s": found.summaries["load"]["samples_per_s"],
        "partitions": plan.partitions,
        "kills": rounds,
        "orphaned_partitions": len(found.decisions_s) + found.undecided,
        "first_decision_after_pause_max_s": max(found.zombie_s, default=None),
        "samples_acknowledged": found.acknowledged,
        "verdict": verdict.as_json(),
        "acks_of_nodes": found.summaries["lease"]["acks"],
        **{f"{name}_s": value for name, value in found.seconds.items()},
    }
    return figures, [
        Goal("first_decision_median_s", middle, MEDIAN_S),
        Goal("first_decision_max_s", longest, LONGEST_S),
        Goal("samples_lost", found.lost(), 0),
        Goal("faults", found.faults(), 0),
        Goal("outputs_repeated", verdict.repeated, 1, "at_least"),
        Goal("commands_applied", verdict.commands_applied, 1, "at_least"),
        Goal("broken_images_passed_over", found.refused, plan.partitions, "at_least"),
        Goal("workers_ended_badly", sum(code != 0 for code in found.exits), 0),
    ]


def judge_loss(hold: Hold) -> tuple[dict[str, Any], list[Goal]]:
    """Figures and goals of the second."""
    return {"hold": asdict(hold)}, [
        Goal("nodes_held_while_offered_more", hold.nodes_above, 1, "at_least"),
        Goal("nodes_held_with_something_lent", hold.nodes_lent, 1, "at_least"),
        Goal("nodes_not_held", len(hold.silent_nodes) + len(hold.wrong) + len(hold.early), 0),
    ]


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--nodes", type=int, default=5_000)
    options.add_argument("--pods", type=int, default=50)
    options.add_argument("--rate", type=int, default=5_000)
    options.add_argument("--partitions", type=int, default=24)
    options.add_argument("--rounds", type=int, default=10)
    options.add_argument("--calm", type=float, default=6.0, help="seconds before each disaster")
    options.add_argument("--image-interval", type=float, help="seconds; default: the worker's own")
    options.add_argument("--only", choices=["loss", "kills"], help="one installation alone")
    options.add_argument("--keep", type=Path, help="folder for logs and journals")
    chosen = options.parse_args()
    interval = chosen.image_interval or WorkerSettings("").image_interval_s
    plan = Plan(
        chosen.nodes, chosen.pods, chosen.rate, chosen.partitions,
        policy=POLICY, options=("--image-interval", str(interval)),
    )  # fmt: skip
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as scratch, DevBroker(say=say) as broker:
        folder = chosen.keep or Path(scratch)
        figures: dict[str, Any] = {}
        goals: list[Goal] = []
        if chosen.only != "kills":
            hold = lose_in(broker.bootstrap, "lost.", folder / "lost", nodes=40, partitions=6)
            say(f"lost images: {hold}")
            more, goals = judge_loss(hold)
            figures |= more
        if chosen.only != "loss":
            found = play_in(
                broker.bootstrap, "bench.", plan, folder / "kills", chosen.rounds, chosen.calm
            )
            more, others = judge_play(found, plan, chosen.rounds)
            figures |= more
            goals += others
    figures["load_average"] = os.getloadavg()[0]
    figures = {k: round(v, 3) if isinstance(v, float) else v for k, v in figures.items()}
    return finish("failover", figures, goals)


def play_in(
    brokers: str, prefix: str, plan: Plan, folder: Path, rounds: int, calm_s: float
) -> Found:
    """`play`, and nothing left behind."""
    stage = Stage(brokers, prefix, plan, folder)
    try:
        return play(stage, rounds, calm_s)
    finally:
        stage.close()


def lose_in(brokers: str, prefix: str, folder: Path, nodes: int, partitions: int) -> Hold:
    """`lose_everything`, and nothing left behind."""
    options = ("--image-interval", "3", "--cold-lookback", str(LOOKBACK_S))
    plan = Plan(
        0, 0, 0, partitions,
        lease_nodes=nodes, lease_speed=1.0, policy=LEND_POLICY, options=options,
    )  # fmt: skip
    stage = Stage(brokers, prefix, plan, folder)
    try:
        return lose_everything(stage)
    finally:
        stage.close()


if __name__ == "__main__":
    sys.exit(main())
