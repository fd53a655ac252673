"""Partial sections laid over a policy, key by key, and the check that no selector entry breaks it.

`schemas.policy.reading` checks the entries of a document; `schemas.policy.layers` lays them.
"""

from __future__ import annotations

from itertools import combinations

from msgspec import structs

from schemas.errors import BadPolicy
from schemas.policy.check import check
from schemas.policy.document import PER_NODE, Policy
from schemas.policy.partial import Changes, changes_of, with_changes


def laid(policy: Policy, changes: Changes, source: str) -> Policy:
    """``policy`` with ``changes``. Raises BadPolicy when the rules between keys do not hold."""
    sections = {name: with_changes(getattr(policy, name), said) for name, said in changes.items()}
    result = structs.replace(policy, **sections)
    check(result, source)
    return result


def check_entries(policy: Policy, source: str) -> None:
    """Every selector entry alone, and every two in their order, over the cluster's values.

    That is every way in which a rule between two keys can break, however many entries a node
    matches. Raises BadPolicy, also for a name that comes twice.
    """
    plain = structs.replace(policy, nodes=())
    said = [changes_of(entry, PER_NODE) for entry in policy.nodes]
    names = [f"nodes[{i}] {entry.name}" for i, entry in enumerate(policy.nodes)]
    seen: set[str] = set()
    for i, entry in enumerate(policy.nodes):
        if entry.name in seen:
            raise BadPolicy(f"{source}: nodes[{i}].name {entry.name} comes twice; allowed: once")
        seen.add(entry.name)
        laid(plain, said[i], f"{source}: {names[i]}")
    for i, j in combinations(range(len(said)), 2):
        below = laid(plain, said[i], source)
        laid(below, said[j], f"{source}: {names[j]} over {names[i]}")
