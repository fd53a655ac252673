"""Decisions as marks on a node's timelines, each with its explanation in words and figures.

What only repeats is no mark. A lane that holds more than `MOST` marks of a node keeps the ones
that moved most, and the report says how many it left out: `slackwater explain` answers for all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any

from schemas import codec
from schemas.errors import BadRecord
from schemas.records import Capacity, Command
from streams.explain.line import SAID_AGAIN
from streams.explain.words import RULES, Seen, because, sentence
from streams.recording import Recording
from streams.report.columns import rows
from streams.report.model import Mark

MOST = 120
DECISIONS = (
    "node", "decider", "reason", "command_id", "terms", "cause_partition", "cause_offset",
    "cause_log_ms", "policy",
)  # fmt: skip
ACKS = ("node", "log_ms", "decider", "outcome", "reason", "pods", "dry_run", "command_id")
SIGNALS = (
    "node", "uid", "ill", "cause_partition", "cause_offset", "cause_log_ms", "policy",
    "pressure_score_permille", "wait_score_permille",
)  # fmt: skip
BY_ITSELF = "the node's own law, which acts without waiting for a worker"
SIGNAL_RULE = "pressure and waiting of each online pod against its own history (robust z-score)"
LANES = {**RULES, "interference": SIGNAL_RULE, "node": BY_ITSELF}
"""Lane -> the rule behind it."""


class Marks:
    """Marks of ``nodes`` by node; ``version``: of a digest at a time; ``pods``: uid -> name."""

    def __init__(
        self, recording: Recording, nodes: Collection[str], version: Callable[[str, int], int],
        pods: Mapping[str, str],
    ) -> None:  # fmt: skip
        self._version, self._pods = version, pods
        self._found: dict[str, list[tuple[int, Mark]]] = defaultdict(list)  # with its weight
        commands = _by(recording, "commands", Command, nodes, lambda c: c.id)
        capacities = _by(recording, "capacity", Capacity, nodes, lambda c: (c.node, c.cause.offset))
        for row in rows(recording, "decisions", DECISIONS, nodes):
            self._decision(row, commands, capacities)
        for row in rows(recording, "acks", ACKS, nodes):
            self._own_act(row)
        self._ill(recording, nodes)

    def of(self, node: str) -> tuple[tuple[Mark, ...], dict[str, int]]:
        """A node's marks by time, and how many of each lane were left out."""
        lanes: dict[str, list[tuple[int, Mark]]] = defaultdict(list)
        for weight, mark in self._found.get(node, ()):
            lanes[mark.lane].append((weight, mark))
        kept: list[Mark] = []
        left_out: dict[str, int] = {}
        for lane, marks in lanes.items():
            marks.sort(key=lambda each: (-each[0], each[1].log_ms))
            kept += [mark for _, mark in marks[:MOST]]
            if len(marks) > MOST:
                left_out[lane] = len(marks) - MOST
        return tuple(sorted(kept, key=lambda mark: (mark.log_ms, mark.lane))), left_out

    def _decision(
        self, row: dict[str, Any], commands: Mapping[Any, Command],
        capacities: Mapping[Any, Capacity],
    ) -> None:  # fmt: skip
        if row["reason"] in SAID_AGAIN or not row["node"]:
            return
        node, decider, terms = row["node"], row["decider"], dict(row["terms"] or ())
        command = commands.get(row["command_id"])
        capacity = capacities.get((node, row["cause_offset"])) if decider == "capacity" else None
        seen = Seen(node, decider, row["reason"], terms, command, capacity)
        try:
            told = sentence(seen)
        except KeyError:  # of a version that gave other figures
            told = because(row["reason"])
        self._note(
            node,
            _weight(decider, terms),
            Mark(
                row["cause_log_ms"], decider, row["reason"], self._call(told),
                short=_short(decider, terms), terms=terms, policy=row["policy"] or "",
                version=self._version(row["policy"] or "", row["cause_log_ms"]), cause=_cause(row),
                command=row["command_id"] or "",
            ),
        )  # fmt: skip

    def _own_act(self, row: dict[str, Any]) -> None:
        """A node that evicts by itself."""
        pods = [self._pods.get(pod, pod) for pod in row["pods"] or ()]
        if not pods or row["outcome"] not in ("local", "started") or row["command_id"]:
            return
        dry = " (a dry run: nobody goes)" if row["dry_run"] else ""
        told = f"{row['node']} itself evicted {', '.join(pods)}{dry}: {because(row['reason'])}."
        mark = Mark(row["log_ms"], "node", row["reason"], told, short=f"evicted {', '.join(pods)}")
        self._note(row["node"], 1, mark)

    def _ill(self, recording: Recording, nodes: Collection[str]) -> None:
        """Where a node's online pods begin to feel ill, and where that ends."""
        worst: dict[tuple[str, int], tuple[int, dict[str, Any]]] = {}
        for row in rows(recording, "signals", SIGNALS, nodes):
            score = max(row["pressure_score_permille"] or 0, row["wait_score_permille"] or 0)
            at = row["node"], row["cause_offset"]
            if at not in worst or score > worst[at][0]:
                worst[at] = score, row
        ill: dict[str, bool] = {}
        for (node, _), (score, row) in worst.items():
            if bool(row["ill"]) != ill.get(node, False):
                ill[node] = bool(row["ill"])
                self._signal(row, score, row["uid"])

    def _signal(self, row: dict[str, Any], score: int, uid: str) -> None:
        pod = self._pods.get(uid, uid)
        reason = "ill" if row["ill"] else "well"
        told = f"Online pods of {row['node']} no longer feel worse than usual."
        if row["ill"]:
            told = (
                f"Online pods of {row['node']} feel worse than usual; worst is {pod}, "
                f"{score / 1000:.1f} robust standard deviations above its own history."
            )
        policy, log_ms = row["policy"] or "", row["cause_log_ms"]
        mark = Mark(
            log_ms, "interference", reason, told, short=reason,
            policy=policy, version=self._version(policy, log_ms),
            cause=_cause(row),
        )  # fmt: skip
        self._note(row["node"], 1, mark)

    def _note(self, node: str, weight: int, mark: Mark) -> None:
        self._found[node].append((weight, mark))

    def _call(self, told: str) -> str:
        """A sentence that begins like one, with pods called as people call them."""
        words = [word.rstrip(",.;:") for word in told.split(" ")]
        for uid in dict.fromkeys(word for word in words if word in self._pods):
            told = told.replace(uid, self._pods[uid])
        return told[:1].upper() + told[1:]


def _cause(row: Mapping[str, Any]) -> str:
    return f"samples/{row['cause_partition']} offset {row['cause_offset']}"


def _weight(decider: str, terms: Mapping[str, int]) -> int:
    """How much it moved; what is not measured so always stays."""
    if decider == "suppress":
        return abs(terms.get("target", 0) - terms.get("in_force", 0))
    return 1 << 40


def _short(decider: str, terms: Mapping[str, int]) -> str:
    """A word or two for the hover."""
    if decider == "suppress" and "target" in terms:
        return f"may use {terms['target'] / 1000:.2f} cores"
    if decider == "capacity" and "batch_cpu_milli" in terms:
        return f"offers {terms['batch_cpu_milli'] / 1000:.2f} cores"
    if decider.startswith("evict"):
        return f"{terms.get('wanted', 0)} pods have to go"
    return ""


def _by(
    recording: Recording, topic: str, kind: type[Any], nodes: Collection[str],
    name: Callable[[Any], Any],
) -> dict[Any, Any]:  # fmt: skip
    """Records of a topic about ``nodes`` by name."""
    keys = {node.encode() for node in nodes}
    found = {}
    for partition in recording.partitions(topic):
        for record in recording.records(topic, partition):
            if record.key not in keys or record.value is None:
                continue
            try:
                said = codec.decode(kind, record.value)
            except BadRecord:
                continue
            found[name(said)] = said
    return found
