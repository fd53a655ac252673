"""The admission policy: profiles, quotas, gangs, and what is asked of borrowers. One YAML file.

Strict as the fleet's policy: an unknown key, a wrong type, a value out of range is refused with
file, key and what is allowed. `scheduler_bridge.admission.rules_file` keeps the last good one.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from scheduler_bridge.admission import spelling
from schemas.errors import BadPolicy
from schemas.policy import ElasticQuota
from schemas.policy.reading import convert, load
from schemas.policy.units import Name, Part

Text = Annotated[str, Meta(max_length=253)]
Value = Annotated[str, Meta(max_length=4096)]
Key = Annotated[str, Meta(min_length=1, max_length=317)]
Texts = Annotated[dict[str, str], Meta(max_length=64)]
Amount = Annotated[int, Meta(ge=-1, le=1 << 62)]
UNSAID = -1
RESERVED = frozenset({"root", "free"})
QosName = Literal["as_is", "LSE", "LSR", "LS", "BE", "SYSTEM"]
ClassName = Literal["as_is", "prod", "mid", "batch", "free"]
AS_IS = "as_is"


class Expression(Part, frozen=True):
    """A label requirement as Kubernetes has it."""

    key: Key
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[Text, ...], Meta(max_length=64)] = ()


class Selector(Part, frozen=True):
    """All of it must be true; one that says nothing selects nothing."""

    match_labels: Texts = msgspec.field(default_factory=dict)
    match_expressions: Annotated[tuple[Expression, ...], Meta(max_length=16)] = ()

    @property
    def empty(self) -> bool:
        return not self.match_labels and not self.match_expressions


class Profile(Part, frozen=True):
    """What pods chosen by both selectors become. Profiles apply in the order of their names."""

    name: Name
    namespaces: Selector = Selector()
    pods: Selector = Selector()
    percent: Annotated[int, Meta(ge=0, le=100)] = 100  # of the pods that match
    labels: Texts = msgspec.field(default_factory=dict)
    annotations: Texts = msgspec.field(default_factory=dict)
    label_from: Texts = msgspec.field(default_factory=dict)  # label to set: label it is copied from
    annotation_from: Texts = msgspec.field(default_factory=dict)
    label_suffixes: Texts = msgspec.field(default_factory=dict)  # only where the label is there
    scheduler_name: Text = ""
    qos: QosName = "as_is"
    priority_class: ClassName = "as_is"  # the label; without it the priority's number speaks
    priority_class_name: Text = ""  # a PriorityClass of the cluster
    sub_priority: Annotated[str, Meta(max_length=16)] = ""
    translate: bool = True  # native requests to those of the class


class Amounts(Part, frozen=True):
    """Resources of a quota; -1: not named."""

    cpu_milli: Amount = UNSAID
    memory_bytes: Amount = UNSAID
    batch_cpu_milli: Amount = UNSAID
    batch_memory_bytes: Amount = UNSAID
    mid_cpu_milli: Amount = UNSAID
    mid_memory_bytes: Amount = UNSAID


class QuotaRule(Part, frozen=True):
    """One quota of the tree. ``namespaces``: whose pods it takes; others may not name it."""

    name: Name
    parent: Name = "root"
    max: Amounts = Amounts()
    min: Amounts = Amounts()
    weight: Amounts = Amounts()  # what is not named there: the maximum
    guarantee: Amounts = Amounts()
    lends: bool = True
    scales: bool = True
    namespaces: Annotated[tuple[Name, ...], Meta(max_length=256)] = ()


class Free(Part, frozen=True):
    """What a free pod is taken to consume when it says nothing."""

    cpu_milli: Annotated[int, Meta(ge=0, le=1_000_000)] = 100
    memory_bytes: Annotated[int, Meta(ge=0, le=1 << 50)] = 200 << 20


class Gangs(Part, frozen=True):
    """How long a gang waits for its members and for room, unless its pods say."""

    enabled: bool = True
    wait_s: Annotated[int, Meta(ge=1, le=86_400)] = 600


class Recall(Part, frozen=True):
    """When the use beyond a share is called back."""

    enabled: bool = True
    after_s: Annotated[int, Meta(ge=0, le=86_400)] = 120  # over without a break
    most: Annotated[int, Meta(ge=1, le=1000)] = 50  # pods at once
    # a pod that does not go, for a disruption budget say, is asked for so long, and then left alone
    patience_s: Annotated[int, Meta(ge=1, le=86_400)] = 60
    left_alone_s: Annotated[int, Meta(ge=1, le=86_400)] = 300


class Rules(Part, frozen=True):
    """The whole document."""

    profiles: Annotated[tuple[Profile, ...], Meta(max_length=256)] = ()
    quotas: Annotated[tuple[QuotaRule, ...], Meta(max_length=1024)] = ()
    total: Amounts = Amounts()  # what the quotas share; not named: the nodes' allocatable
    elastic_quota: ElasticQuota = ElasticQuota()
    unquoted: Literal["admit", "refuse"] = "admit"  # pods of no quota, where there are quotas
    free: Free = Free()
    gangs: Gangs = Gangs()
    recall: Recall = Recall()
    recoverable: Annotated[tuple[Literal["batch", "free"], ...], Meta(max_length=2)] = (
        "batch",
        "free",
    )  # classes whose work must say that it can be retried or goes on from a checkpoint
    sub_priority_may_change: bool = False

    def digest(self) -> str:
        """Names this content, in logs and metrics."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]


def parse(text: str | bytes, source: str) -> Rules:
    """The rules in ``text``. Raises BadPolicy naming ``source``, key and allowed range."""
    rules: Rules = convert(load(text, source, "{}"), Rules, source)
    _check_profiles(rules, source)
    _check_quotas(rules, source)
    return rules


def _check_profiles(rules: Rules, source: str) -> None:
    names: set[str] = set()
    for i, profile in enumerate(rules.profiles):
        where = f"{source}: profiles[{i}]"
        if profile.name in names:
            raise BadPolicy(f"{where}.name is {profile.name} again; allowed: each name once")
        names.add(profile.name)
        spelling.check(profile, where)
        if profile.pods.empty and profile.namespaces.empty:
            raise BadPolicy(
                f"{where} selects nothing; allowed: at least one of pods and namespaces with "
                "match_labels or match_expressions"
            )
        for which in ("pods", "namespaces"):
            for j, one in enumerate(getattr(profile, which).match_expressions):
                some = one.operator in ("In", "NotIn")
                if some != bool(one.values):
                    raise BadPolicy(
                        f"{where}.{which}.match_expressions[{j}].values is {list(one.values)}; "
                        f"allowed with {one.operator}: {'at least one' if some else 'none'}"
                    )


def _check_quotas(rules: Rules, source: str) -> None:
    owners: dict[str, str] = {}
    parents = {quota.name: quota.parent for quota in rules.quotas}
    if len(parents) != len(rules.quotas) or parents.keys() & RESERVED:
        raise BadPolicy(
            f"{source}: quotas: two of one name, or one that stands for something else; allowed: "
            f"each once, and none of {', '.join(sorted(RESERVED))}"
        )
    for i, quota in enumerate(rules.quotas):
        where = f"{source}: quotas[{i}]"
        up, steps = quota.parent, 0
        while up != "root" and steps <= len(parents):
            if up not in parents:
                raise BadPolicy(f"{where}.parent leads to {up}, which is no quota")
            up, steps = parents[up], steps + 1
        if up != "root":
            raise BadPolicy(f"{where}.parent leads round in a circle; allowed: up to root")
        for name in quota.namespaces:
            if name in owners:
                raise BadPolicy(f"{where}.namespaces: {name} is {owners[name]}'s already")
            owners[name] = quota.name
        above = next((one for one in rules.quotas if one.name == quota.parent), None)
        for field in quota.min.__struct_fields__:
            least, most = getattr(quota.min, field), getattr(quota.max, field)
            if above is not None and max(least, most) > getattr(above.max, field) == UNSAID:
                raise BadPolicy(
                    f"{where} names {field}, its parent {above.name} has no maximum of it and so "
                    f"nothing to give; allowed: {field} in the parent's max too"
                )
            if most != UNSAID and least > most:
                raise BadPolicy(
                    f"{where}.min.{field} is {least}; allowed: at most its maximum, {most}"
                )
