"""What a replay found, in lines for people. Pure; `streams.replay.cli` prints them."""

from __future__ import annotations

import orjson

from streams.replay.result import Difference, Partition, Replayed

RECORD_CHARS = 1_200


def told(found: Replayed, seconds: float) -> list[str]:
    """The verdict first, then what it rests on."""
    document = found.as_json(seconds)
    lines = [_verdict(found), _sums(found)]
    if document["span_s"]:
        lines.append(
            f"{found.total('records'):,} records, {document['span_s']:,.0f} s of log time in "
            f"{seconds:,.1f} s ({document['times_real_time']:,.0f} times real time)"
        )
    lines += [f"digest then {document['digest_then']}", f"digest now  {document['digest_now']}"]
    lines += [line for each in found.partitions for line in _partition(each)]
    if found.first is not None:
        lines += _difference(found.first)
    return lines


def _verdict(found: Replayed) -> str:
    match found.verdict:
        case "identical":
            return f"IDENTICAL: {found.total('equal'):,} outputs, byte for byte"
        case "differs":
            return f"DIFFERS: {found.total('equal'):,} outputs are equal, others are not"
        case "cannot":
            return "CANNOT SAY: not all of it could be replayed, or nothing was decided in it"
        case "other_law":
            recorded = ", ".join(map(str, found.recorded_by))
            return (
                f"OTHER LAW: recorded under law version {recorded}, replayed under "
                f"{found.law_version}: what differs shows what the new law would have done"
            )


def _sums(found: Replayed) -> str:
    said = [f"{found.total('then'):,} recorded, {found.total('now'):,} decided again"]
    for name, words in (
        ("differing", "with other bytes"),
        ("only_then", "only then"),
        ("only_now", "only now"),
        ("said_otherwise", "said twice then, with other bytes"),
        ("repeated", "said again then with equal bytes (after a worker died)"),
        ("withheld", "commands withheld then (expired before they were said)"),
        ("beyond", "after the end of what was recorded"),
    ):
        if found.total(name):
            said.append(f"{found.total(name):,} {words}")
    return "; ".join(said)


def _partition(one: Partition) -> list[str]:
    lines = []
    if one.error:
        lines.append(f"partition {one.partition}: {one.error}")
    if one.ended:
        lines.append(f"partition {one.partition} ends early, {one.ended}")
    return lines


def _difference(one: Difference) -> list[str]:
    where = f"{one.topic}, key {one.key!r}, caused by {one.cause}"
    lines = ["", f"First difference: {where}", f"  {one.words}"]
    for name, said in (("then", one.then), ("now", one.now)):
        text = "not said" if said is None else orjson.dumps(said).decode()
        lines.append(f"  {name:4} {text[:RECORD_CHARS]}" + (" ..." * (len(text) > RECORD_CHARS)))
    return lines
