"""Which change of policy may be published, and the record it becomes. Pure.

`streams.policy_cli` asks. A fleet is taken in stages: a change goes to a canary first, and only a
pilot whose account meets its exit conditions is expanded. What is refused can be forced; then the
record says who did, and why. Going back needs no permission.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from schemas.errors import BadPolicy
from schemas.policy import Policy, digest, parse, published
from schemas.records import PolicyRecord
from streams.account import Account, unmet
from streams.expansion import expanded
from streams.topic_reader import CannotRun


class Unchanged(CannotRun):
    """What shall be published says what holds already; ``record`` does."""

    def __init__(self, record: PolicyRecord, newest: int) -> None:
        says = "says the same already" if record.version == newest else "said the same before"
        super().__init__(
            f"policy {record.name} version {record.version} {says} "
            f"(digest {record.digest}), the newest is {newest}: nothing published"
        )
        self.record = record


@dataclass(frozen=True, slots=True)
class Wish:
    """Who wants what changed, and on which nodes first."""

    author: str = ""
    note: str = ""
    canary: dict[str, str] = field(default_factory=dict)
    forced: bool = False
    account: Account | None = None  # of the stage before
    only_new: bool = False  # never again what was published before, to the same nodes


def change(versions: list[PolicyRecord], text: str, policy: Policy, wish: Wish) -> PolicyRecord:
    """The record that puts ``text`` in force.

    Raises Unchanged when it holds already, CannotRun when it may not be published.
    """
    newest = newest_good(versions)
    if newest is None and wish.canary:
        raise CannotRun("the first version cannot have a canary: nothing holds elsewhere yet")
    if newest is None:
        forced = _overruled(_expansions(Policy(), policy, wish.account), wish)
        return _record(versions, policy.name, text, wish, forced=forced)
    _refuse_same(newest, policy, wish)
    if wish.only_new:
        _refuse_known(versions, policy, wish)
    objections = []
    if not wish.canary and not _promotes(newest, policy):
        objections.append(
            "this changes the whole fleet at once: name a canary (--canary LABEL=VALUE) and "
            "`slackwater policy promote` it later"
        )
    objections += _expansions(published(newest).policy, policy, wish.account)
    forced = _overruled(objections, wish)
    elsewhere = (newest.elsewhere if newest.canary else newest.text) if wish.canary else ""
    return _record(versions, policy.name, text, wish, elsewhere=elsewhere, forced=forced)


def promotion(versions: list[PolicyRecord], wish: Wish) -> PolicyRecord:
    """The canary's text for the whole fleet. Raises CannotRun without a canary."""
    newest = newest_good(versions)
    if newest is None or not newest.canary:
        raise CannotRun("no canary is on its way: nothing to promote")
    return change(versions, newest.text, _parsed(newest), wish)


def going_back(versions: list[PolicyRecord], version: int | None, wish: Wish) -> PolicyRecord:
    """An earlier text, on the whole fleet, now: what holds outside the canary, or held before.

    Raises CannotRun when there is no such version, BadPolicy when its text may not run any more.
    """
    newest = newest_good(versions)
    if newest is None:
        raise CannotRun("no policy is in force: nothing to go back from")
    text, of = _earlier(versions, newest, version)
    policy = parse(text, f"policy {newest.name}, {of}")
    plain = Wish(wish.author, f"rollback to {of}" + (f": {wish.note}" if wish.note else ""))
    _refuse_same(newest, policy, plain)
    return _record(versions, policy.name, text, plain)


def newest_good(versions: list[PolicyRecord]) -> PolicyRecord | None:
    """The version in force: workers passed over every later one that may not run."""
    return next((record for record in reversed(versions) if digest_of(record)), None)


def digest_of(record: PolicyRecord) -> str:
    """The digest that causes carry under this record; "" for one that may not run."""
    try:
        return published(record).digest
    except BadPolicy:
        return ""


def _expansions(before: Policy, after: Policy, account: Account | None) -> list[str]:
    """What is expanded although the conditions in force before the change are not met."""
    against: dict[str, list[str]] = {}
    for one in expanded(before, after):
        words = "; ".join(unmet(account, one.before.pilot.exit))
        if words:
            against.setdefault(words, []).append(one.what)
    return [f"{', '.join(names)} would be expanded, but {why}" for why, names in against.items()]


def _earlier(
    versions: list[PolicyRecord], newest: PolicyRecord, version: int | None
) -> tuple[str, str]:
    """The text to go back to, and which it is."""
    if version is None and newest.canary:
        return newest.elsewhere, "what holds outside the canary"
    if version is None:
        before = [record for record in versions if record.version < newest.version]
        differ = [each for each in before if digest_of(each) not in ("", digest_of(newest))]
        found = [each for each in differ if not each.canary][-1:]
    else:
        found = [each for each in versions if each.version == version]
    if not found:
        which = "earlier version" if version is None else f"version {version}"
        raise CannotRun(f"policy {newest.name} has no {which} to go back to")
    return found[0].text, f"version {found[0].version}"


def _promotes(newest: PolicyRecord, policy: Policy) -> bool:
    return bool(newest.canary) and digest(_parsed(newest)) == digest(policy)


def _overruled(objections: list[str], wish: Wish) -> bool:
    if not objections:
        return False
    if not wish.forced:
        raise CannotRun(f"refused: {'; '.join(objections)}; or --force it with a --note")
    if not wish.note.strip() or not wish.author.strip():
        raise CannotRun("--force needs a --note and an author: the record says who and why")
    return True


def _refuse_same(newest: PolicyRecord, policy: Policy, wish: Wish) -> None:
    if newest.canary == wish.canary and digest(_parsed(newest)) == digest(policy):
        raise Unchanged(newest, newest.version)


def _refuse_known(versions: list[PolicyRecord], policy: Policy, wish: Wish) -> None:
    """What was taken back since must not come again by itself."""
    for record in reversed(versions):
        same = record.canary == wish.canary and bool(digest_of(record))
        if same and digest(_parsed(record)) == digest(policy):
            raise Unchanged(record, versions[-1].version)


def _record(
    versions: list[PolicyRecord], name: str, text: str, wish: Wish, *, elsewhere: str = "",
    forced: bool = False,
) -> PolicyRecord:  # fmt: skip
    version = versions[-1].version + 1 if versions else 1
    canary = dict(wish.canary)
    record = PolicyRecord(
        name, version, "", text, wish.author, wish.note, canary, elsewhere, forced
    )  # fmt: skip
    return replace(record, digest=published(record).digest)


def _parsed(record: PolicyRecord) -> Policy:
    return parse(record.text, f"policy {record.name} version {record.version}")
