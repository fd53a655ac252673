"""CPU burst in the loop: throttled pods get more while the node has room, and give it back."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents.isolation.cpu_burst import IDLE, OVERLOAD
from schemas.records import BurstWish, PolicyRecord
from tests.agents.worlds import WARM, Node, World, best_effort, of, online, said

AUTO = WARM + "cpu_burst: {policy: auto}\n"
BASE = 100_000


def pods(**more: Any) -> tuple[Any, ...]:
    return (online("a", cpu_limit_milli=1000, **more), best_effort("b", cpu_limit_milli=1000))


class Throttled:
    """A node whose first pod is throttled so many us a second."""

    def __init__(self, text: str, **more: Any) -> None:
        self.node = Node(pods=pods(**more))
        self.world = World(text, self.node)
        self.total = 0
        self.second([100, 0])

    def second(self, milli: list[int], throttled_us: int = 0) -> list[Any]:
        self.total += throttled_us
        sample = self.node.sample(milli, more={"cpu_throttled_us": [self.total, 0]})
        return self.world.say(sample) + self.world.tick(0)

    def quota(self) -> int:
        """What is in force for the pod."""
        held = int(self.world.pods(self.node, "burst_quota_us")[0])
        return held if held >= 0 else BASE

    def held(self) -> int:
        """What is kept of it; ABSENT at its limit."""
        return int(self.world.pods(self.node, "burst_quota_us")[0])


def test_a_throttled_pod_rises_by_steps_to_its_ceiling_and_no_further() -> None:
    one = Throttled(AUTO)
    seen = []
    for _ in range(9):
        one.second([900, 0], throttled_us=5000)
        seen.append(one.quota())
    assert seen[:3] == [120_000, 144_000, 172_800]
    assert seen[-1] == 3 * BASE
    assert one.world.value(one.node, "burst_state") == IDLE


def test_each_change_is_said_and_only_for_pods_that_may_burst() -> None:
    one = Throttled(AUTO)
    (command,) = of(one.second([900, 0], throttled_us=5000), "commands", "isolate")
    assert command.settings.pods == ("a",)
    assert command.settings.pod_knobs["cpu_quota_us"] == [120_000]
    assert command.settings.pod_knobs["cpu_burst_us"] == [120_000]  # the kernel's bound: the quota
    assert of(one.second([900, 0]), "commands", "isolate") == []


def test_a_full_node_takes_the_burst_back() -> None:
    one = Throttled(AUTO)
    for _ in range(3):
        one.second([900, 0], throttled_us=5000)
    for _ in range(6):
        one.second([7000, 0], throttled_us=5000)
    assert one.world.value(one.node, "burst_state") == OVERLOAD
    assert one.quota() == BASE


def test_the_limiter_ends_a_burst_that_lasts() -> None:
    one = Throttled(WARM + "cpu_burst: {policy: auto, quota_burst_period_s: 4}\n")
    quotas = []
    for _ in range(12):
        one.second([2000, 0], throttled_us=5000)
        quotas.append(one.quota())
    assert max(quotas) > BASE
    assert quotas[-1] == BASE


def test_a_pod_s_own_wish_counts_but_not_where_the_node_is_off() -> None:
    calm = Throttled(AUTO, cpu_burst=BurstWish(policy="none"))
    calm.second([900, 0], throttled_us=5000)
    assert calm.quota() == BASE
    small = Throttled(AUTO, cpu_burst=BurstWish(quota_burst_percent=110))
    small.second([900, 0], throttled_us=5000)
    assert small.quota() == BASE * 110 // 100
    off = Throttled(WARM, cpu_burst=BurstWish(policy="auto"))
    assert of(off.second([900, 0], throttled_us=5000), "commands", "isolate") == []
    assert off.held() == -1


def test_a_wish_counts_for_its_pod_wherever_the_others_lie() -> None:
    wish = BurstWish(quota_burst_percent=110)
    nodes = [
        Node(f"n{i}", (*(best_effort(f"b{k}") for k in range(i)), *pods(cpu_burst=own)))
        for i, own in enumerate((None, wish, None, wish))
    ]
    world = World(AUTO, *nodes[::-1])
    for second in range(3):
        for node in nodes:
            count = len(node.pods)
            throttled = [0] * (count - 2) + [second * 5000, 0]
            world.say(node.sample([100] * count, more={"cpu_throttled_us": throttled}), 0)
        world.tick(1000)
    held = [world.pods(node, "burst_quota_us")[-2] for node in nodes]
    assert held == [144_000, 110_000, 144_000, 110_000]


def test_switched_off_the_state_is_gone() -> None:
    one = Throttled(AUTO)
    one.second([900, 0], throttled_us=5000)
    one.world.tick(1000, ("policies", 0, b"default", PolicyRecord("default", 2, "", WARM)))
    assert one.held() == -1
    assert one.world.value(one.node, "burst_ms") == -1
    (command,) = of(one.world.out, "commands", "isolate")
    assert command.reason == "released"


def test_without_a_counter_or_with_one_that_fell_nothing_rises() -> None:
    one = Throttled(AUTO)
    one.second([900, 0], throttled_us=50_000)
    one.total = 10
    one.second([900, 0])
    assert one.quota() == 120_000
    sample = one.node.sample([900, 0], drop=["cpu_throttled_us"])
    one.world.say(sample)
    one.world.tick(0)
    assert one.quota() == 120_000


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8000), st.integers(0, 10**6)), max_size=8),
    st.sampled_from(["auto", "cpu_burst_only", "cfs_quota_burst_only"]),
    st.integers(-1, 20),
)
def test_between_base_and_ceiling_whatever_comes(
    seconds: list[tuple[int, int]], policy: str, period_s: int
) -> None:
    text = WARM + f"cpu_burst: {{policy: {policy}, quota_burst_period_s: {period_s}}}\n"
    spoken = []
    for _ in range(2):
        one, out = Throttled(text), []
        for milli, throttled in seconds:
            out += one.second([milli, 0], throttled)
            assert BASE <= one.quota() <= 3 * BASE
            tokens, size = (
                one.world.pods(one.node, f"burst_{name}")[0] for name in ("tokens", "size")
            )
            assert -size <= tokens <= size
        spoken.append(said(out))
    assert spoken[0] == spoken[1]
