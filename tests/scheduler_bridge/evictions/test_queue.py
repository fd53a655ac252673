"""Who is to go: joined, once, in order, until when; whatever is read first and however often."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from scheduler_bridge.evictions.queue import Queue, Request
from schemas.records import Ack, Command, EvictionReport, EvictionSource
from tests.scheduler_bridge.evictions.said import ack, command, report


def fold(queue: Queue, at_ms: int, *records: Any) -> None:
    for record in records:
        if isinstance(record, Command):
            queue.fold_command(record, at_ms)
        elif isinstance(record, Ack):
            queue.fold_ack(record, at_ms)
        else:
            assert isinstance(record, EvictionReport)
            queue.fold_report(record, at_ms)


def uids(queue: Queue, now_ms: int) -> list[str]:
    return [each.request.uid for each in queue.due(now_ms)]


def own(uid: str, now_ms: int, until_ms: int, source: EvictionSource = "low_node_load") -> Request:
    """A wish of the bridge itself."""
    return Request(f"{source}/{uid}", uid, "n1", source, "hot", now_ms, until_ms, order=(0, now_ms))


def test_only_what_a_worker_ordered_and_a_node_handed_over_is_asked_for() -> None:
    queue = Queue()
    fold(queue, 0, command(1, "a", "b"), ack(1, "b", "stranger"), ack(2, "c"))
    fold(queue, 0, command(3, "d", node="n2"), ack(3, "d"), command(4, "e"))
    fold(queue, 0, command(5, "f"), ack(5, "f", decider="evict_memory"))
    assert uids(queue, 0) == ["b"]
    (only,) = queue.due(0)
    assert (only.request.why, only.request.until_ms) == ("cpu_starved", 60_000)


def test_a_dry_run_and_other_deciders_ask_for_nobody() -> None:
    queue = Queue()
    fold(queue, 0, command(1, "a", dry_run=True), ack(1, "a", dry_run=True))
    fold(queue, 0, command(2, "b"), ack(2, "b", dry_run=True))
    fold(queue, 0, command(3, "c", decider="suppress"), ack(3, "c", decider="suppress"))
    assert not queue.pending


def test_memory_goes_first_then_cpu_then_quota_then_migration() -> None:
    queue = Queue()
    assert queue.ask(own("m", 0, 10))
    assert queue.ask(own("q", 0, 20, "quota"))
    fold(queue, 0, command(1, "c"), ack(1, "c"))
    fold(queue, 5, command(2, "d", "b", decider="evict_memory"))
    fold(queue, 5, ack(2, "d", "b", decider="evict_memory"))
    assert uids(queue, 6) == ["b", "d", "c", "q", "m"]
    assert [each.request.uid for each in queue.expired(20)] == ["q", "m"]
    assert uids(queue, 20) == ["b", "d", "c"]


def test_the_newest_order_and_the_most_urgent_source_win() -> None:
    queue = Queue()
    fold(queue, 0, command(1, "a"), ack(1, "a"), command(2, "a"), ack(2, "a"))
    assert [each.request.id for each in queue.due(0)] == ["c2"]
    assert [old.id for old in queue.superseded] == ["c1"]
    fold(queue, 0, command(0, "a"), ack(0, "a"))
    assert not queue.ask(own("a", 9, 90))
    fold(queue, 0, command(3, "a", decider="evict_memory"), ack(3, "a", decider="evict_memory"))
    assert [each.request.id for each in queue.due(0)] == ["c3"]


def test_what_the_bridge_wants_again_it_asks_once() -> None:
    queue = Queue()
    for now_ms in (0, 1_000):
        queue.ask(own("a", now_ms, now_ms + 60_000))
    (only,) = queue.due(1_000)
    assert only.request.until_ms == 60_000
    queue.close(only.request.key, 2_000)
    assert not queue.ask(own("a", 3_000, 9_000))
    queue.forget(200_000)
    assert queue.ask(own("a", 200_000, 260_000))


def test_what_the_node_ended_is_asked_for_no_more() -> None:
    for outcome in ("applied", "failed"):
        queue = Queue()
        fold(queue, 0, command(1, "a", "b"), ack(1, "a", "b"))
        queue.fold_ack(ack(1, "a", outcome=outcome), 100)
        fold(queue, 200, ack(1, "a", "b"))
        assert not queue.pending


def test_waiting_is_no_last_word_and_is_not_said_again() -> None:
    queue = Queue()
    fold(queue, 0, command(1, "a"), ack(1, "a"), report(1, "a", "waiting", tries=3))
    (only,) = queue.due(0)
    assert (only.tries, only.said) == (3, "accepted")


def test_a_dry_run_is_no_last_word_for_one_in_earnest() -> None:
    for dry_run in (False, True):
        queue = Queue(dry_run=dry_run)
        fold(queue, 0, report(1, "a", dry_run=True), command(1, "a"), ack(1, "a"))
        assert bool(queue.pending) is not dry_run


ORDERS = st.lists(
    st.tuples(st.integers(0, 4), st.sampled_from("abc"), st.sampled_from("xy")), max_size=12
)


@given(ORDERS, st.randoms(use_true_random=False))
def test_any_order_and_any_repeats_give_the_same_queue(
    orders: list[tuple[int, str, str]], chance: Any
) -> None:
    pods: dict[int, set[str]] = {}
    for number, pod, _ in orders:
        pods.setdefault(number, set()).add(pod)
    records: list[Any] = []
    for number, pod, last in orders:
        named = sorted(pods[number])
        records += [command(number, *named), ack(number, *named)]
        if last == "x":
            records.append(report(number, pod, "refused"))
    straight, shuffled = Queue(), Queue()
    fold(straight, 0, *records, *records)
    mixed = records * 2
    chance.shuffle(mixed)
    fold(shuffled, 0, *mixed)
    closed = {(f"c{number}", pod) for number, pod, last in orders if last == "x"}
    wanted = {(f"c{number}", pod) for number, pod, _ in orders} - closed
    for queue in (straight, shuffled):
        found = {each.request.key for each in queue.pending.values()}
        assert found <= wanted
        assert wanted <= found | {each.key for each in queue.superseded}, "each is answered"
        for pod in {pod for _, pod in wanted} - {pod for _, pod in closed}:
            newest = max(key for key in wanted if key[1] == pod)
            assert queue.pending[pod].request.key == newest


def test_memory_is_bounded_by_a_while_of_traffic() -> None:
    queue = Queue(expire_ms=5_000)
    for number in range(1_000):
        at_ms = number * 100
        fold(queue, at_ms, command(number, "a"), ack(number, "a"), report(number, "a"))
        fold(queue, at_ms, ack(10_000 + number, "b"), ack(number, "a", outcome="applied"))
        queue.forget(at_ms)
    kept = (queue._commands, queue._handed, queue._closed, queue._ended)
    assert all(len(each) <= 101 for each in kept)
