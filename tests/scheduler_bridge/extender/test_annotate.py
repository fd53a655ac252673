"""Which scores are worth a write on a node: on change, worst first, not too often."""

from __future__ import annotations

import pytest

from scheduler_bridge.extender.annotate import FULL, due, texts
from scheduler_bridge.extender.settings import Annotating
from tests.scheduler_bridge.extender.world import CPU, NOW_MS, World, reservation

RULES = Annotating(every_ms=30_000, change=10)


def chosen(
    wanted: dict[str, str], shown: dict[str, str], written_ms: dict[str, int] | None = None
) -> list[tuple[str, str]]:
    return [(note.node, note.text) for note in due(wanted, shown, written_ms or {}, NOW_MS, RULES)]


def test_texts_are_scores_and_full() -> None:
    world = World()
    world.join("cool", "hot")
    world.hear(reservation("cool", 0), reservation("hot", CPU))
    world.fleet.refresh()
    cool, hot, unheard = texts(world.fleet, ["cool", "hot", "unheard"], NOW_MS)
    assert (hot, unheard) == (FULL, "0")
    assert 90 <= int(cool) <= 100


@pytest.mark.parametrize(
    ("shown", "wanted", "writes"),
    [
        ("", "50", True),
        ("50", "50", False),
        ("50", "59", False),
        ("50", "60", True),
        ("50", "40", True),
        ("50", "41", False),
        ("5", FULL, True),
        (FULL, "5", True),
        (FULL, FULL, False),
        ("nonsense", "50", True),
        ("²", "50", True),
    ],
)
def test_what_changed_enough_is_written(shown: str, wanted: str, writes: bool) -> None:
    assert bool(chosen({"n": wanted}, {"n": shown})) is writes


def test_falls_go_before_rises_the_deepest_first() -> None:
    wanted = {"rise": "90", "fall": "50", "deep": "10", "full": FULL, "new": "70"}
    shown = {"rise": "10", "fall": "80", "deep": "80", "full": "80"}
    order = [node for node, _ in chosen(wanted, shown)]
    assert order == ["full", "deep", "fall", "new", "rise"]


def test_a_node_is_written_now_and_then_but_a_full_one_at_once() -> None:
    lately, long_ago = {"n": NOW_MS - 29_999}, {"n": NOW_MS - 30_000}
    assert chosen({"n": "10"}, {"n": "90"}, lately) == []
    assert chosen({"n": "10"}, {"n": "90"}, long_ago) == [("n", "10")]
    assert chosen({"n": FULL}, {"n": "90"}, lately) == [("n", FULL)]
