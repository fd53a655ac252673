"""The thread that asks: the last good answer holds, whatever comes after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from node_agent.kubelet import watch
from node_agent.kubelet.client import KubeError
from node_agent.kubelet.watch import Watch

LONG_S = 30.0


class Asked:
    """Answers with what stands in ``said``; each question is waited for by ``next``."""

    def __init__(self) -> None:
        self.said: object = 1
        self.questions = threading.Semaphore(0)

    def __call__(self) -> object:
        self.questions.release()
        if isinstance(self.said, Exception):
            raise self.said
        return self.said

    def next(self) -> None:
        assert self.questions.acquire(timeout=LONG_S), "nobody asked"


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Watch[object]]]:
    monkeypatch.setattr(watch, "LEAST_GAP_S", 0.0)
    made: list[Watch[object]] = []

    def start(ask: Asked, every_s: float = LONG_S) -> Watch[object]:
        made.append(Watch("kubelet", ask, every_s))
        made[-1].start()
        return made[-1]

    yield start
    for each in made:
        each.stop()
        each._thread.join(LONG_S)
        assert not each._thread.is_alive()


def test_the_first_answer_is_waited_for(make: Callable[..., Watch[object]]) -> None:
    found = make(Asked())
    assert found.first(LONG_S)
    assert found.latest is not None
    assert (found.latest.said, found.answers, found.error) == (1, 1, "")
    assert found.age_s() >= 0


def test_a_kubelet_that_is_away_at_the_start_holds_nobody_up(
    make: Callable[..., Watch[object]],
) -> None:
    ask = Asked()
    ask.said = KubeError("refused")
    found = make(ask)
    assert not found.first(LONG_S)
    assert (found.latest, found.error, found.errors, found.age_s()) == (None, "refused", 1, -1.0)


@pytest.mark.parametrize("trouble", [KubeError("401"), ValueError("no list"), KeyError("bug")])
def test_a_bad_answer_keeps_the_last_good_one(
    make: Callable[..., Watch[object]], trouble: Exception
) -> None:
    ask = Asked()
    found = make(ask)
    ask.next()
    assert found.first(LONG_S)
    good = found.latest
    ask.said = trouble
    for _ in range(2):
        found.wake()
        ask.next()
    ask.said = 2
    found.wake()
    ask.next()
    found.wake()
    ask.next()
    assert found.latest is not good
    assert found.errors == 2
    assert found.error == ""


def test_it_asks_again_by_itself(make: Callable[..., Watch[object]]) -> None:
    ask = Asked()
    make(ask, every_s=0.01)
    for _ in range(3):
        ask.next()


def test_questions_grow_apart_while_none_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    found: Watch[object] = Watch("api", Asked(), 1.0, slowest_s=3.0)
    waits: list[float] = []

    def wait_for(_: object, seconds: float) -> None:
        waits.append(seconds)
        found._ended = len(waits) == 5

    monkeypatch.setattr(found._told, "wait_for", wait_for)
    monkeypatch.setattr(found, "_once", lambda: len(waits) == 4)
    monkeypatch.setattr(watch, "LEAST_GAP_S", 0.0)
    found._questions()
    assert waits == [2.0, 3.0, 3.0, 3.0, 1.0]
