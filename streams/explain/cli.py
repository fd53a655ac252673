"""`slackwater explain`: why it is so, from the audit log of a cluster or of a recording."""

from __future__ import annotations

import asyncio
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer

from schemas.names import NODE_NAME
from schemas.records import PodFact
from streams.explain import answers, read
from streams.explain.acts import Folded
from streams.explain.answers import Answer, NoAnswer
from streams.explain.capacity import Wish
from streams.explain.line import told
from streams.explain.past import Past
from streams.explain.pod import find
from streams.explain.read import Span
from streams.intake import Check
from streams.keyring import Folder
from streams.moments import moment
from streams.topic_reader import CannotRun
from streams.topics_cli import BROKERS, INSTALLED_PREFIX, hush

if TYPE_CHECKING:
    from streams.recording import Recording

app = typer.Typer(help="Say why a node, a pod or a command is as it is.")
MINUTE_MS = 60_000
LIVE_MINUTES = 60
NODE_IN_ID = 3  # a command's id: three numbers, the node, the decider


class Asked:
    """Where answers are read: a recording, or the topics of a cluster."""

    def __init__(
        self,
        recording: Path | None,
        brokers: str,
        prefix: str,
        at: str,
        minutes: int | None,
        keys: Path | None,
    ) -> None:
        self._opened = None if recording is None else _open(recording)
        self._brokers, self._prefix = brokers, prefix
        said_under = prefix if self._opened is None else self._opened.manifest.prefix
        self._check: Check | None = None
        if keys is not None:
            self._check = Folder(keys).checker(said_under, accept_unsigned=False).check
        self.end_ms = _clock_ms() if self._opened is None else self._opened.end_ms
        now_ms = moment(at or "now", "--at", self.end_ms)
        if minutes is None and self._opened is None:
            minutes = LIVE_MINUTES
        back_ms = None if minutes is None else minutes * MINUTE_MS
        self.span = Span(now_ms, None if back_ms is None else now_ms - back_ms)

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def read(self, span: Span, topics: tuple[str, ...] = read.TOPICS) -> tuple[Past, Folded]:
        """What was said in a span. Raises CannotRun."""
        if self._opened is not None:
            from streams.explain.recorded import of_recording  # noqa: PLC0415  (brings Arrow)

            found = of_recording(self._opened, span, topics, self._check, _reading)
            for problem in self._opened.problems:
                typer.echo(f"slackwater: {problem.name} {problem.why}", err=True)
            self._opened.problems.clear()
            return found
        brokers, prefix = self._brokers, self._prefix
        return asyncio.run(read.of_cluster(brokers, prefix, span, topics, self._check))

    def pods(self, named: str) -> list[tuple[str, PodFact]]:
        """Node and facts of each pod of that name or uid."""
        past, _ = self.read(replace(self.span, from_ms=None), ("inventory",))
        return find(past, named, self.span.at_ms)


def _clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _open(recording: Path) -> Recording:
    try:
        from streams.recording import open_recording  # noqa: PLC0415  (brings Arrow)
    except ModuleNotFoundError as error:
        raise CannotRun(
            f"'--recording' needs the package {error.name!r}: pip install slackwater[replay]"
        ) from error
    return open_recording(recording)


@app.command()
def explain(
    node: str = typer.Argument("", help="A node: the newest decision of each decider about it."),
    pod: str = typer.Option("", help="UID or NAMESPACE/NAME: why it was suppressed or evicted."),
    command: str = typer.Option("", help="The id of a command."),
    cause: str = typer.Option("", help="PARTITION:OFFSET of samples: all that followed from it."),
    against: str = typer.Option("", help="An earlier time: what changed NODE's capacity since."),
    not_scheduled: str = typer.Option("", help="A pod, workload or claim: why it is not placed."),
    every: bool = typer.Option(False, "--every", help="Each command, eviction and local act."),
    recording: Path = typer.Option(None, help="Ask a recording or bundle instead of a cluster."),
    at: str = typer.Option("", help="UTC, as 2026-01-31T12:00:00, or log ms; default: the end."),
    minutes: int = typer.Option(
        None, min=1, max=525_600, help="How far to look back; default 60, of a recording all."
    ),
    cpu_milli: int = typer.Option(0, min=0, help="With --not-scheduled: CPU wanted."),
    memory_bytes: int = typer.Option(0, min=0, help="With --not-scheduled: memory wanted."),
    workload: str = typer.Option("", help="With --not-scheduled: whose work it is."),
    mid: bool = typer.Option(False, "--mid", help="With --not-scheduled: mid, not batch."),
    keys: Path = typer.Option(None, help="A worker's folder of keys: check who signed."),
    brokers: str = BROKERS,
    prefix: str = INSTALLED_PREFIX,
    as_json: bool = typer.Option(False, "--json", help="One JSON document; --every: one a line."),
) -> None:
    """Say what was decided, from which figures, by which rule and policy, and what became of it.

    Ask about one of: NODE, NODE with --against, --pod, --command, --cause, --not-scheduled,
    --every. Of a node that only observes nothing may have been decided: its stage says so.
    """
    hush()
    named = [bool(each) for each in (pod, command, cause, not_scheduled, every)]
    questions = sum(named) + (1 if node and not (every and sum(named) == 1) else 0)
    if questions != 1 or (against and not node):
        raise CannotRun("ask one question: NODE, --pod, --command, --cause, --not-scheduled, ...")
    if node and not NODE_NAME.fullmatch(node):
        raise CannotRun(f"{node!r:.80} is no node name")
    place = _place(cause) if cause else (0, 0)
    asked = Asked(recording, brokers, prefix, at, minutes, keys)
    try:
        if every:
            _every(asked, node, as_json)
            return
        if pod:
            answer = _pod(asked, pod)
        elif command:
            answer = _command(asked, command)
        elif cause:
            past, _ = asked.read(replace(asked.span, partition=place[0]))
            answer = answers.of_cause(past, *place)
        elif not_scheduled:
            answer = _not_scheduled(
                asked, not_scheduled, Wish(cpu_milli, memory_bytes, workload, mid)
            )
        else:
            answer = _node(asked, node, against)
    finally:
        asked.close()
    _print(answer, as_json)


def _node(asked: Asked, node: str, against: str) -> Answer:
    past, acts = asked.read(replace(asked.span, node=node))
    if not against:
        return answers.of_node(past, node, acts)
    before_ms = moment(against, "--against", asked.end_ms)
    if before_ms >= asked.span.at_ms:
        raise CannotRun("--against has to be earlier than --at")
    if asked.span.from_ms is not None and before_ms <= asked.span.from_ms + MINUTE_MS:
        past, _ = asked.read(replace(asked.span, node=node, from_ms=before_ms - 10 * MINUTE_MS))
    return answers.of_capacity(past, node, asked.span.at_ms, before_ms)


def _command(asked: Asked, command: str) -> Answer:
    parts = command.split(".", NODE_IN_ID)
    node = parts[-1].rpartition(".")[0] if len(parts) > NODE_IN_ID else ""
    if not NODE_NAME.fullmatch(node):
        raise CannotRun(
            f"{command!r:.80} is no id of a command: INCARNATION.PARTITION.OFFSET.NODE.DECIDER"
        )
    past, _ = asked.read(replace(asked.span, node=node))
    return answers.of_command(past, command)


def _pod(asked: Asked, named: str) -> Answer:
    pods = asked.pods(named)
    nodes = {node for node, _ in pods}
    if not pods:
        raise NoAnswer(f"no node has had a pod {named}: name it by uid or NAMESPACE/NAME")
    past, acts = asked.read(replace(asked.span, node=nodes.pop() if len(nodes) == 1 else ""))
    return answers.of_pods(past, acts, pods)


def _not_scheduled(asked: Asked, named: str, wish: Wish) -> Answer:
    pods = asked.pods(named)
    if pods and not wish.cpu_milli and not wish.memory_bytes:
        _, pod = pods[-1]
        wish = Wish(
            pod.cpu_request_milli, pod.memory_request_bytes, wish.workload or pod.workload,
            wish.mid or pod.priority_class == "mid",
        )  # fmt: skip
    past, _ = asked.read(asked.span, ("policies", "inventory", "ledger", "capacity"))
    return answers.not_scheduled(past, named, wish, pods)


def _every(asked: Asked, node: str, as_json: bool) -> None:
    past, acts = asked.read(replace(asked.span, node=node))

    def say(line: Any) -> None:
        typer.echo(orjson.dumps(line).decode() if as_json else _shown(told(line)))

    answers.of_every(past, acts, say)


def _print(answer: Answer, as_json: bool) -> None:
    if as_json:
        typer.echo(orjson.dumps(answer.document, option=orjson.OPT_INDENT_2).decode())
    else:
        typer.echo(_shown("\n".join(answer.text)))


def _reading(topic: str) -> None:
    """On a terminal: what is read now, "" at the end."""
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{f'reading {topic} ...' if topic else ''}")
        sys.stderr.flush()


def _shown(text: str) -> str:
    """Text without what a name could do to a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else ascii(c)[1:-1] for c in text)


def _place(cause: str) -> tuple[int, int]:
    partition, _, offset = cause.partition(":")
    if not (partition.isdigit() and offset.isdigit()):
        raise CannotRun(f"--cause {cause!r:.80}: write PARTITION:OFFSET, as 3:120477")
    return int(partition), int(offset)


if __name__ == "__main__":
    app()
