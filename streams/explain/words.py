"""Decisions in sentences that a tired person understands. Pure; `line` calls `sentence`.

A decider that has no sentence of its own yet is told by its reason and its figures. Sums are given
with every term, so that they can be checked by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from agents.slo_guard import FOR
from agents.slo_ladder import CLASSES as BORROWERS
from schemas.records import Capacity, Command
from streams.explain.victims import order

GIB = 1 << 30
ALL_PERMILLE = 1000
RULES = {
    "suppress": "capacity x threshold - online - host - max(system, reserved), at least the floor; "
    "down at once, up in bounded steps",
    "evict_memory": "at the threshold, free memory down to the lower mark; pods on their way count",
    "evict_cpu": "when best-effort work is far from what it asked for, now and over the window, "
    "some of it goes elsewhere",
    "capacity": "capacity - margins - max(system, reserved) - need of online pods; down at once, "
    "up slowly, held where the number cannot be trusted",
    "slo_guard": "beside an online service beyond its objective no new work is taken and what is "
    "lent is called back in the policy's order, step by step; after calm it returns, slower",
    "isolate": "what policy and class ask for each group of the node, all of it each time",
    "health": "a policy that may not run changes nothing, the last good one stays; pods that break "
    "a rule are named, and nothing else",
}
"""The rule behind each decider, in words."""

REASONS = {
    "no_policy": "no policy is in force, so best-effort work is held at its floor",
    "disabled": "policy or the stage of the rollout switched it off here",
    "first": "nothing had been said before",
    "refresh": "nothing changed, it was said again",
    "floor": "nothing is left to give, so it is held at its floor",
    "lower": "others need more, so it was lowered at once",
    "raise": "there is room again, so it rises in bounded steps",
    "other_cpus": "best-effort work has to run on other CPUs than before",
    "changed": "policy, pods or their burst changed since",
    "released": "all of it was switched off here, so what was found is given back",
    "slo": "an online service here has left its objective, so room is made for it and no new work "
    "is taken",
    "slo_breach": "an online service has left its objective, so no new work is taken and the first "
    "of what is lent is called back",
    "slo_call_back": "it has not come back since the last step, so more is called back",
    "slo_gap": "nothing has been heard of it for long, so nothing moves: silence is neither "
    "trouble nor calm",
    "slo_return": "it has been calm for long enough, so some of it is given back and new work is "
    "taken within that",
    "slo_over": "it has been calm for long enough, so all is given back",
    "slo_off": "policy or the stage of the rollout has no objectives here any more, so all is "
    "given back",
    "slo_bounded": "an online service has left its objective, but capacity is called back for it "
    "on as many nodes as one service may have",
    "fall": "less can be lent, so it fell at once",
    "steady": "nothing changed, it was said again",
    "cold": "the history is too short to trust, so no more is offered than is lent",
    "silent": "the node is silent, so the last figure is held and nothing new placed",
    "unknown_pods": "its pods are not known, so the last figure is held and nothing new placed",
    "withdrawn": "the node has been silent for long, so no more is offered than is lent",
    "memory_full": "memory is nearly full",
    "memory_limit": "a memory limit is nearly reached",
    "memory_limit_fleet_unknown": (
        "a memory limit is nearly reached, and the fleet's state is not known"
    ),
    "memory_full_fleet_unknown": "memory is nearly full, and the fleet's state is not known",
    "memory_in_use": "memory is nearly full, and these pods offer themselves",
    "memory_overdrawn": "best-effort work has asked for more memory than is lent",
    "cpu_in_use": "the node is busy, and these pods offer themselves",
    "cpu_overdrawn": "best-effort work has asked for more CPU than is lent",
    "cpu_unsatisfied": "best-effort work gets far less CPU than it asked for",
    "policy_accepted": "the policy was put in force",
    "policy_refused": "the policy may not run: the last good one stays in force",
    "policy_of_other_name": "the policy has another name than its key: the last good one stays",
    "node_policy_refused": "what the node's annotation or a label says may not run: the value of "
    "the layers below stays",
    "pods_break_rules": "their QoS, class and request do not go together; each is treated by its "
    "QoS and its class as any other",
    "pods_keep_rules": "none breaks a rule any more",
}
"""Reason codes in words; of two codes joined, the longest beginning that is known counts."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One decision about one node, and the records that went out with it, where they still are."""

    node: str
    decider: str
    reason: str
    terms: Mapping[str, int]
    command: Command | None = None
    capacity: Capacity | None = None
    places: Mapping[int, str] = field(default_factory=dict)  # uids by place in the pod set


def sentence(seen: Seen) -> str:
    """What was decided, from which figures, and why."""
    try:
        told = _SENTENCES.get(seen.decider, _figures)(seen)
    except KeyError:  # of a version that said other figures
        told = _figures(seen)
    return f"{told}: {because(seen.reason)}."


def because(reason: str) -> str:
    """A reason code in words; an unknown one stands for itself."""
    if reason in REASONS:
        return REASONS[reason]
    known = [code for code in REASONS if reason.startswith(f"{code}_")]
    if known:
        code = max(known, key=len)
        return f"{REASONS[code]} ({reason[len(code) + 1 :].replace('_', ' ')})"
    return reason.replace("_", " ")


def cores(milli: int) -> str:
    """Millicores as cores."""
    return f"{milli / 1000:.2f}"


def size(amount: int) -> str:
    """Bytes as GiB."""
    return f"{amount / GIB:.2f} GiB"


def _suppress(seen: Seen) -> str:
    terms = seen.terms
    said = f"best-effort work on {seen.node} may use {cores(terms['target'])} cores"
    if not {"allow", "online", "host", "system", "reserved", "capacity"} <= terms.keys():
        return said
    beside = max(terms["system"], terms["reserved"])
    share = terms["allow"] + terms["online"] + terms["host"] + beside
    larger = "system use" if terms["system"] >= terms["reserved"] else "the reserve"
    said += (
        f"; the threshold leaves {cores(share)} of {cores(terms['capacity'])}, less online pods "
        f"{cores(terms['online'])}, host applications {cores(terms['host'])} and {larger} "
        f"{cores(beside)} is {cores(terms['allow'])}"
    )
    if terms.get("called_back", -1) >= 0:
        said += f"; a service that has left its objective leaves {cores(terms['called_back'])}"
    if terms["target"] in (terms["allow"], terms.get("called_back")):
        return said
    return f"{said}; small changes are ignored, steps up bounded, the floor is kept"


def _evict_memory(seen: Seen) -> str:
    terms = seen.terms
    used = f"{size(terms['used'])} of {size(terms['capacity'])} memory ({terms['percent']} %)"
    if "limit" in terms:
        used += f" and {size(terms['limited'])} under a limit of {size(terms['limit'])}"
    return (
        f"{_who(seen)} told to leave {seen.node}, because {used} are in use, "
        f"{size(terms['release'])} too much, {size(terms['credited'])} of it on its way out "
        f"already; the fleet allows {terms['budget']} now"
        f"{order(terms, _pods(seen), size, by_share=False, places=seen.places)}"
    )


def _evict_cpu(seen: Seen) -> str:
    terms = seen.terms
    return (
        f"{_who(seen)} told to leave {seen.node}, because best-effort work asks for "
        f"{cores(terms['request'])} cores and may use {cores(terms['limit'])}, of which it uses "
        f"{cores(terms['used'])}; the fleet allows {terms['budget']} now"
        f"{order(terms, _pods(seen), cores, by_share=True, places=seen.places)}"
    )


def _pods(seen: Seen) -> tuple[str, ...]:
    """Uids of the victims, in their order; none where the order itself is no longer there."""
    return seen.command.pods if seen.command is not None else ()


def _who(seen: Seen) -> str:
    """Who has to go, with the verb; a dry run asks nobody."""
    command = seen.command
    if command is None:
        return f"{seen.terms['wanted']} pods at most were"
    dry = " (a dry run: nobody goes)" if command.dry_run else ""
    pods = command.pods
    return f"pod {pods[0]}{dry} was" if len(pods) == 1 else f"pods {', '.join(pods)}{dry} were"


def _capacity(seen: Seen) -> str:
    terms, record = seen.terms, seen.capacity
    said = (
        f"batch work is offered {cores(terms['batch_cpu_milli'])} cores and "
        f"{size(terms['batch_memory_bytes'])} on {seen.node}"
    )
    if record is None:
        return said
    mid = f"mid work {cores(record.mid_cpu_milli)} cores and {size(record.mid_memory_bytes)}"
    new = "new work is welcome" if record.new_work else "no new work is taken"
    cpu = _terms(record.cpu_terms, cores)
    memory = _terms(record.memory_terms, size)
    return (
        f"{said}, {mid}; {new}; batch's sums come to {cores(record.computed_cpu_milli)} cores "
        f"({cpu}) and {size(record.computed_memory_bytes)} ({memory})"
    )


def _terms(terms: Mapping[str, int], unit: Callable[[int], str]) -> str:
    """Every term that is not nothing; a cap at capacity is none."""
    whole = terms.get("capacity")
    return ", ".join(
        f"{name.replace('_', ' ')} {unit(value)}"
        for name, value in terms.items()
        if value and not (name == "cap" and value == whole)
    )


def _isolate(seen: Seen) -> str:
    terms = seen.terms
    if seen.reason == "released":
        return f"no setting is asked for on {seen.node} any more"
    of = f"of {terms['classes']} classes and {terms['pods']} pods of their own"
    return f"{terms['knobs']} settings are asked for on {seen.node}, {of}"


def _health(seen: Seen) -> str:
    terms = {name: value for name, value in seen.terms.items() if value >= 0}
    if seen.reason == "pods_break_rules":
        rules = _terms({k: v for k, v in terms.items() if k not in ("pods", "version")}, str)
        return f"{terms['pods']} pods on {seen.node} ({rules})"
    if seen.reason == "pods_keep_rules":
        return f"pods on {seen.node}"
    return f"policy version {terms['version']}" if "version" in terms else f"policy on {seen.node}"


def _slo_guard(seen: Seen) -> str:
    terms = seen.terms
    names = [
        name.removeprefix(FOR) for name, on in terms.items() if name.startswith(FOR) and on > 0
    ]
    told = f"beside {' and '.join(names)} on {seen.node}" if names else f"on {seen.node}"
    if terms.get("requests", -1) >= 0:
        told += (
            f", of which was last said a p99 of {_milliseconds(terms['p99_us'])} and "
            f"{terms['errors_permille']} errors in 1000 of {terms['requests']} requests, "
            f"{terms['age_ms'] / 1000:.1f} s ago; the objective is {_objective(terms)}"
        )
    if terms.get("called_permille", -1) >= 0:
        kept = ", ".join(f"{name} {terms[f'{name}_permille'] / 10:g} %" for name in BORROWERS)
        told += f"; of what there was stay {kept}"
        if terms["bound_milli"] >= 0:
            told += f", and best-effort work may use {cores(terms['bound_milli'])} cores at most"
    if terms.get("most_nodes", -1) >= 0:
        told += f"; one service may have {terms['most_nodes']} nodes of this partition"
    return told


def _objective(terms: Mapping[str, int]) -> str:
    """Both halves that are judged."""
    slow, wrong = terms["p99_most_us"], terms["errors_most_permille"]
    halves = [f"at most {_milliseconds(slow)}"] if slow else []
    return " and ".join(halves + ([f"{wrong} errors in 1000"] if wrong < ALL_PERMILLE else []))


def _milliseconds(us: int) -> str:
    return f"{us / 1000:g} ms"


def _figures(seen: Seen) -> str:
    told = ", ".join(f"{name} {value}" for name, value in seen.terms.items())
    return f"{seen.decider} on {seen.node}" + (f" from {told}" if told else "")


_SENTENCES: dict[str, Callable[[Seen], str]] = {
    "suppress": _suppress,
    "evict_memory": _evict_memory,
    "evict_cpu": _evict_cpu,
    "capacity": _capacity,
    "slo_guard": _slo_guard,
    "isolate": _isolate,
    "health": _health,
}
