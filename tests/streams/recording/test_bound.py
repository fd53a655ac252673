"""What may go when a recording is at its bound: the oldest, and nothing that what stays needs."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.topics import BY_NAME
from streams.recording.bound import SKEW_MS, is_facts, mergeable, removable
from streams.recording.manifest import Segment
from streams.recording.store import Place

NAMES = ("samples", "images", "acks", "slis", "decisions", "inventory", "policies", "fleet")
Places = dict[Place, list[Segment]]


@st.composite
def recordings(draw: st.DrawFn) -> Places:
    """Segments of two partitions, in time order, of all kinds of topics."""
    places: Places = {}
    for name in draw(st.lists(st.sampled_from(NAMES), min_size=1, unique=True)):
        for partition in (0, 1) if BY_NAME[name].partitioned else (0,):
            at_ms, offset, made = draw(st.integers(0, 300_000)), 0, []
            for _ in range(draw(st.integers(1, 12))):
                span_ms, size = draw(st.integers(0, 400_000)), draw(st.integers(1, 100))
                made.append(
                    Segment(
                        name, partition, offset, offset + 9, 10, at_ms, at_ms + span_ms, size, 1, ""
                    )
                )
                at_ms, offset = at_ms + span_ms, offset + 10
            places[name, partition] = made
    return places


def left_of(places: Places, going: list[Segment]) -> Places:
    gone = {each.name for each in going}
    return {p: [each for each in some if each.name not in gone] for p, some in places.items()}


@settings(deadline=None)
@given(recordings(), st.integers(1, 2_000))
def test_what_stays_can_be_replayed(places: Places, excess: int) -> None:
    going = removable(places, excess)
    left = left_of(places, going)
    assert len({each.name for each in going}) == len(going)
    for place, segments in places.items():
        topic, partition = place
        kept = left[place]
        assert kept == segments[len(segments) - len(kept) :], "not the oldest of a place"
        assert kept, "the newest says where to go on"
        if topic == "policies" or is_facts(topic):
            assert kept == segments
        samples = left.get(("samples", partition))
        if samples and (topic == "images" or BY_NAME[topic].side):
            since_ms = samples[0].first_ms - SKEW_MS
            gone = segments[: len(segments) - len(kept)]
            assert all(each.last_ms < since_ms for each in gone), topic


@settings(deadline=None)
@given(recordings(), st.integers(1, 2_000))
def test_enough_goes_and_no_newer_before_an_older(places: Places, excess: int) -> None:
    going = removable(places, excess)
    freed = sum(each.size_bytes for each in going)
    left = left_of(places, going)
    if freed < excess:
        assert removable(left, excess - freed) == [], "more could have gone"
    free = [each for each in going if each.topic in ("samples", "decisions")]
    assert [each.last_ms for each in free] == sorted(each.last_ms for each in free)


@settings(deadline=None)
@given(recordings())
def test_facts_are_merged_only_when_images_hold_them(places: Places) -> None:
    for place, old in mergeable(places).items():
        assert is_facts(place[0])
        assert len(old) > 1
        assert old == places[place][: len(old)]
        assert len(old) < len(places[place])
        mine = [("samples", place[1])] if BY_NAME[place[0]].partitioned else list(places)
        for one in mine:
            if one[0] == "samples" and one in places:
                assert old[-1].last_ms < places[one][0].first_ms - SKEW_MS
