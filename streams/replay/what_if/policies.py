"""Which policies are asked about: files, published versions, and grids of keys over one of them.

Called by `streams.replay.what_if.command`; whatever may not run is refused here, by the same code
as `slackwater policy check`, before anything is folded.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import yaml

from agents.side import POLICY_NAME
from schemas import codec
from schemas import policy as policies
from schemas.errors import BadPolicy, BadRecord
from schemas.policy import Policy
from schemas.records import PolicyRecord
from streams.policy_files import read_policy
from streams.policy_text import differences
from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.what_if.result import Side

VERSION = "version:"
MOST_VARIANTS = 10_000


@dataclass(frozen=True, slots=True)
class Choice:
    """One policy that is asked about, and how it is named in answers."""

    source: str
    record: PolicyRecord
    policy: Policy
    keys: dict[str, str]  # those that were swept, in their order


def published_in(source: Source) -> list[PolicyRecord]:
    """What was published under the name that workers follow, in its order."""
    found: list[PolicyRecord] = []
    for record in source.records("policies", 0):
        if record.key == POLICY_NAME.encode() and record.value is not None:
            try:
                found.append(codec.decode(PolicyRecord, record.value))
            except BadRecord:
                continue  # dead-lettered then
    return found


def chosen(source: Source, named: Sequence[str]) -> list[Choice]:
    """Those of `--policy`: a file, or ``version:N``. Raises CannotReplay, BadPolicy."""
    return [_chosen(source, each) for each in named]


def swept(source: Source, base: Choice | None, sweeps: Sequence[str]) -> list[Choice]:
    """Every combination of the keys of `--sweep`, laid over ``base``.

    Without a base: over what the recording's last policy says. Raises CannotReplay, BadPolicy.
    """
    base = base or last(source)
    grid = [_axis(each) for each in sweeps]
    names = [key for key, _ in grid]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise CannotReplay(f"--sweep names {twice[0]} twice: give all its values at once")
    count = 1
    for _, values in grid:
        count *= len(values)
    if count > MOST_VARIANTS:
        raise CannotReplay(f"--sweep asks for {count} policies; at most {MOST_VARIANTS}")
    document = policies.load(base.record.text, base.source)
    return [
        _variant(base, document, dict(zip(names, values, strict=True)))
        for values in product(*(values for _, values in grid))
    ]


def last(source: Source) -> Choice:
    """What the recording's last policy says; of a canary its trial. Raises CannotReplay."""
    versions = published_in(source)
    if not versions:
        raise CannotReplay(
            "the recording holds no policy to begin from: name one, --policy FILE"
        )  # fmt: skip
    return _choice(f"{VERSION}{versions[-1].version}", versions[-1].text, {})


def recorded_side(source: Source, digests: Iterable[str]) -> Side:
    """What was in force, as an answer names it: digests in their order, versions beside them."""
    known: dict[str, int] = {}
    for record in published_in(source):
        try:
            known.setdefault(policies.published(record).digest, record.version)
        except BadPolicy:
            continue  # refused then, the last good one stayed
    there = tuple(dict.fromkeys(digests))
    return Side("recorded", there, tuple(known.get(each, -1) for each in there))


def other_side(source: Source, choice: Choice) -> Side:
    """What is asked about, as an answer names it, with what it changes."""
    versions = published_in(source)
    changes: dict[str, str] = {}
    if versions:
        try:
            before = policies.parse(versions[-1].text, "recorded")
        except BadPolicy:
            before = Policy()
        changes = {key: f"{old} -> {new}" for key, old, new in differences(before, choice.policy)}
    return Side(choice.source, (policies.digest(choice.policy),), (), changes)


def _chosen(source: Source, named: str) -> Choice:
    if not named.startswith(VERSION):
        try:
            text, _ = read_policy(Path(named), None)
        except OSError as error:
            why = error.strerror or str(error)
            raise CannotReplay(f"--policy {named}: {why}; name a file or version:N") from None
        return _choice(named, text, {})
    wanted = named.removeprefix(VERSION)
    versions = published_in(source)
    for record in reversed(versions):
        if str(record.version) == wanted:
            return _choice(named, record.text, {})
    there = ", ".join(str(record.version) for record in versions) or "none"
    raise CannotReplay(f"--policy {named}: the recording holds versions {there}")


def _choice(source: str, text: str, keys: dict[str, str]) -> Choice:
    policy = policies.parse(text, source)
    if policy.name != POLICY_NAME:
        raise CannotReplay(
            f"{source}: name is {policy.name}; workers follow {POLICY_NAME} alone: name it so"
        )
    record = PolicyRecord(POLICY_NAME, 0, policies.digest(policy), text, "what if", source)
    return Choice(source, record, policy, keys)


def _axis(said: str) -> tuple[str, list[Any]]:
    key, equals, values = said.partition("=")
    if not equals or not key or not values:
        raise CannotReplay(f"--sweep {said!r}: write KEY=VALUE,VALUE, such as "
                           "suppress.threshold_percent=60,65,70")  # fmt: skip
    try:
        return key, [yaml.safe_load(each) for each in values.split(",")]
    except yaml.YAMLError:
        raise CannotReplay(f"--sweep {said!r}: a value is no number, word or switch") from None


def _variant(base: Choice, document: dict[str, Any], keys: dict[str, Any]) -> Choice:
    whole = copy.deepcopy(document)
    for key, value in keys.items():
        *path, name = key.split(".")
        part: Any = whole
        for step in path:
            part = part.setdefault(step, {}) if isinstance(part, dict) else None
        if not isinstance(part, dict):
            raise CannotReplay(f"--sweep {key}: {base.source} has no section there")
        part[name] = value
    said = {key: yaml.safe_dump(value).split("\n")[0] for key, value in keys.items()}
    named = " ".join(f"{key}={value}" for key, value in said.items())
    text = yaml.safe_dump(whole, sort_keys=False, allow_unicode=True)
    return _choice(f"{base.source} with {named}", text, said)
