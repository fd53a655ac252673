"""One node's twin: pods that live on, that leave, that never came, and samples that say so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from schemas import packed
from schemas.packed import PackedSample
from schemas.records import Inventory, NodeSample, PodFact
from streams.replay.what_if import samples
from streams.replay.what_if.pods import Pods
from streams.replay.what_if.samples import BEST_EFFORT, BUSY, POD_CPU, POD_MEMORY, Extra
from streams.replay.what_if.standing import Bound
from streams.replay.what_if.twin import Twin

GIB = 1 << 30
SECOND_US = 1_000_000
IN_FORCE = 4_000
ONLINE = PodFact("online", "online", qos="LS", priority_class="prod", cpu_request_milli=4_000)


def batch(uid: str, cpu_milli: int = 1_000, memory_bytes: int = GIB) -> PodFact:
    return PodFact(
        uid, uid, qos="BE", priority_class="batch", cpu_request_milli=cpu_milli,
        memory_request_bytes=memory_bytes,
    )  # fmt: skip


def inventory(rev: int, *pods: PodFact) -> Inventory:
    return Inventory("n", rev, 16_000, 64 * GIB, pods=pods)


def sample(
    seq: int, rev: int, cpu_us: list[int | None], busy_us: int, used_us: int
) -> PackedSample:
    said = NodeSample(
        "n", "0" * 32, "1" * 32, seq, seq * SECOND_US, 0, 1_000, rev, len(cpu_us),
        {
            "cpu_busy_us": busy_us, "be_cpu_usage_us": used_us, "be_cpu_quota_milli": IN_FORCE,
            "memory_available_bytes": 32 * GIB, "be_memory_used_bytes": 2 * GIB,
        },
        {POD_CPU: cpu_us, POD_MEMORY: [GIB] * len(cpu_us)},
    )  # fmt: skip
    return PackedSample(packed.encode(said))


@given(st.lists(st.one_of(st.none(), st.integers(0, 2**40)), min_size=1, max_size=70))
def test_a_sample_is_read_and_written_word_by_word(cpu_us: list[int | None]) -> None:
    one = sample(1, 7, cpu_us, 100, 50)
    assert samples.read_pods(one, POD_CPU) == cpu_us
    assert samples.read(one) == (100, 50, None, IN_FORCE, 32 * GIB, 2 * GIB)
    there = {place: value + 1 for place, value in enumerate(cpu_us) if value is not None}
    other = samples.written(one, {BUSY: 1_000}, {POD_CPU: there})
    assert samples.read(other)[BUSY] == 1_000
    assert samples.read(other)[BEST_EFFORT] == 50
    assert samples.read_pods(other, POD_CPU) == [v if v is None else v + 1 for v in cpu_us]
    assert samples.read_pods(one, POD_CPU) == cpu_us, "the first is as it was"
    fewer = samples.with_pods(one, [0], [Extra(9, GIB)])
    assert (fewer.pods, samples.read_pods(fewer, POD_CPU)) == (2, [cpu_us[0], 9])


def test_a_pod_lives_on_behind_its_order_and_behind_its_end() -> None:
    twin = Twin("n")
    twin.admit(inventory(1, ONLINE, batch("a"), batch("b")), None, 0)
    for seq in range(1, 14):  # a and b use one core each
        one = sample(seq, 1, [seq * SECOND_US] * 3, 3 * seq * SECOND_US, 2 * seq * SECOND_US)
        twin.pods.note(one)
        _, interval = twin.look(one, None)
        if interval is not None:
            twin.asis(interval)
    twin.live_on("b")
    assert twin.touched
    bound = Bound(4_000)
    shown = []
    for seq in range(14, 18):  # b has been ended: only a uses a core
        one = sample(
            seq, 1, [seq * SECOND_US, seq * SECOND_US, 13 * SECOND_US],
            (2 * seq + 13) * SECOND_US, (seq + 13) * SECOND_US,
        )  # fmt: skip
        values, interval = twin.look(one, bound)
        changed, seen = twin.would(one, values, interval, bound, seq * 1_000, same=True)
        assert seen is not None
        assert seen.used_milli == 2_000
        shown.append(samples.read_pods(changed, POD_CPU)[2])
        assert samples.read(changed)[BEST_EFFORT] == 2 * seq * SECOND_US
    assert shown == [14 * SECOND_US, 15 * SECOND_US, 16 * SECOND_US, 17 * SECOND_US]
    without = inventory(2, ONLINE, batch("a"))
    admitted = twin.admit(without, None, 18_000)
    assert [pod.uid for pod in admitted.pods] == ["online", "a", "b"]
    one = sample(18, 2, [18 * SECOND_US] * 2, 49 * SECOND_US, 31 * SECOND_US)
    values, interval = twin.look(one, bound)
    changed, _ = twin.would(one, values, interval, bound, 18_000, same=True)
    assert (changed.pods, changed.pods_rev) == (3, 2)
    assert samples.read_pods(changed, POD_CPU)[2] == 18 * SECOND_US
    assert samples.read_pods(changed, POD_MEMORY)[2] == GIB
    assert (samples.read(changed)[samples.AVAILABLE] or 0) == 31 * GIB


def test_a_pod_that_is_gone_uses_and_holds_nothing() -> None:
    twin = Twin("n")
    twin.admit(inventory(1, ONLINE, batch("a")), None, 0)
    used = []
    shown = []
    for seq in range(1, 6):
        if seq == 3:
            twin.leave("a", 3_500)
        one = sample(seq, 1, [seq * SECOND_US] * 2, 2 * seq * SECOND_US, seq * SECOND_US)
        values, interval = twin.look(one, None)
        if twin.touched:
            one, seen = twin.would(one, values, interval, None, seq * 1_000, same=True)
            assert seen is not None
            used.append(seen.used_milli)
        else:
            twin.pods.note(one)
        shown.append(one)
    assert used == [1_000, 0, 0]
    assert samples.read_pods(shown[-1], POD_CPU)[1] == 3 * SECOND_US
    assert samples.read_pods(shown[-1], POD_MEMORY) == [GIB, 0]
    again = twin.admit(inventory(1, ONLINE, batch("a")), None, 6_000)
    assert [pod.uid for pod in again.pods] == ["online"]


def test_who_does_not_fit_the_offer_is_turned_away_where_schedulers_go_by_it() -> None:
    pods = Pods()
    pods.known(inventory(1, batch("a")))
    came = inventory(2, batch("a"), batch("b"), batch("c", memory_bytes=0))
    offer, less = (3_000, 4 * GIB, 0, 0), (2_000, GIB, 0, 0)
    assert not pods.turn_away(came, less, less, 5), "they did not fit then either"
    assert not pods.turn_away(came, offer, offer, 5)
    assert pods.turn_away(came, offer, less, 5)
    assert pods.gone_ms == {"b": 5}, "c asks for no memory and fits"


MS = st.integers(0, 4_000)


@given(
    st.lists(st.tuples(MS, MS, MS), min_size=2, max_size=12),
    st.integers(-1, 12_000),
)
def test_counters_only_grow_keep_the_bound_and_add_up(
    steps: list[tuple[int, int, int]], bound_milli: int
) -> None:
    """Milliseconds of CPU in each second of two best-effort pods and an online one."""
    twin, bound = Twin("n"), None if bound_milli < 0 else Bound(bound_milli)
    twin.admit(inventory(1, ONLINE, batch("a"), batch("b")), None, 0)
    twin.touched = True
    online = a = b = 0
    before: tuple[int, ...] = ()
    for seq, (of_a, of_b, of_online) in enumerate(steps, 1):
        a, b, online = a + of_a * 1_000, b + of_b * 1_000, online + of_online * 1_000
        one = sample(seq, 1, [online, a, b], online + a + b, a + b)
        values, interval = twin.look(one, None)
        changed, seen = twin.would(one, values, interval, bound, seq * 1_000, same=False)
        busy, group, *_ = samples.read(changed)
        said_online, *pods = samples.read_pods(changed, POD_CPU)
        assert busy is not None
        assert group is not None
        assert said_online == online, "online work uses what it used"
        assert busy - group == online, "and so does all else"
        now = (busy, group, *(us or 0 for us in pods))
        if seen is not None:
            assert all(new >= old for new, old in zip(now, before, strict=True))
            used_us = group - before[1]
            if bound_milli not in (-1, IN_FORCE):  # that one was in force, so it is as it was
                assert used_us <= bound_milli * 1_000
            assert abs(sum(now[2:]) - sum(before[2:]) - used_us) <= 1_000, "pods add up"
        before = now
