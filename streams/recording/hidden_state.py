"""An image of the workers' state with other names in it, and all that was hashed out of names.

Three things in a state are hashes of names: a node's moment within a period, an online pod's
workload, and the isolation settings that stand. Called by `streams.recording.pseudonyms`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from agents import isolate, slo_watch
from schemas.policy import Published
from schemas.records import FleetFacts, IsolationSettings
from streams.recording import hidden_policy
from streams.recording.fields import hidden
from streams.recording.hiding import Hiding
from streams.recording.naming import DIGEST, NODE, SCHEDULER, UID, WORKLOAD, as_bytes

Arrays = dict[str, np.ndarray[Any, np.dtype[Any]]]
Standing = Mapping[str, list[IsolationSettings]]
"""Node -> settings that it was told, the newest last."""
PHASE, CODE, SETTINGS = "node.phase", "pod.workload", "node.isolate_said"
UNKNOWN = 1
"""Stands for settings that nobody knows any more."""


def state_of(meta: dict[str, Any], hiding: Hiding) -> dict[str, Any]:
    """The part of an image that is JSON."""
    names = hiding.names
    return {
        **meta,
        "policy_digest": names(DIGEST, meta["policy_digest"]),
        "published": _published(meta["published"], hiding),
        "facts": _facts(meta["facts"], hiding),
        "ledger": {
            names(NODE, node): {names(SCHEDULER, one): lent for one, lent in by.items()}
            for node, by in meta["ledger"].items()
        },
        "watches": {
            names(NODE, node): {names(WORKLOAD, one): watch for one, watch in by.items()}
            for node, by in meta["watches"].items()
        },
        "guards": {names(NODE, node): guard for node, guard in meta["guards"].items()},
        "seats": [_seat(seat, hiding) for seat in meta["seats"]],
    }


def _published(said: dict[str, Any] | None, hiding: Hiding) -> dict[str, Any] | None:
    if said is None:
        return None
    names = hiding.names
    return {
        **said,
        "policy": hidden_policy.document_of(said["policy"], names),
        "trial": hidden_policy.document_of(said["trial"], names),
        "canary": hidden_policy.labels(said["canary"], names),
    }


def _facts(said: dict[str, Any] | None, hiding: Hiding) -> Any:
    if said is None:
        return None
    facts = hidden(msgspec.convert(said, FleetFacts), hiding.names, hidden_policy.SPECIAL)
    return msgspec.to_builtins(facts)


def _seat(seat: dict[str, Any], hiding: Hiding) -> dict[str, Any]:
    names = hiding.names
    return {
        **seat,
        "name": names(NODE, seat["name"]),
        "boot": hiding.boot(bytes.fromhex(seat["boot"])).hex(),
        "retired": [hiding.boot(bytes.fromhex(boot)).hex() for boot in seat["retired"]],
        "uids": [names(UID, uid) for uid in seat["uids"]],
        "labels": hidden_policy.labels(seat["labels"], names),
        "annotation": hidden_policy.annotation(seat["annotation"], names),
    }


def arrays_of(
    meta: dict[str, Any], arrays: Arrays, hiding: Hiding, workloads: Iterable[str],
    standing: Standing,
) -> tuple[Arrays, int]:  # fmt: skip
    """The arrays of an image with ``meta`` (as it was), and of how many nodes the settings that
    stand are not known.
    """
    nodes = [seat["name"] for seat in meta["seats"]]
    changed = dict(arrays)
    phases = [crc32(as_bytes(hiding.names(NODE, node))) for node in nodes]
    changed[PHASE] = np.array(phases, dtype=arrays[PHASE].dtype)
    codes = {slo_watch.code(one): slo_watch.code(hiding.names(WORKLOAD, one)) for one in workloads}
    codes[0] = 0
    for code in sorted(set(arrays[CODE].tolist()) - codes.keys()):
        codes[code] = slo_watch.code(f"unknown {len(codes)}")
    changed[CODE] = np.array([codes[one] for one in arrays[CODE].tolist()], arrays[CODE].dtype)
    said, unknown = [], 0
    for node, before in zip(nodes, arrays[SETTINGS].tolist(), strict=True):
        found = [one for one in standing.get(node, ()) if isolate.digest(one) == before]
        if found:
            new = hidden(found[-1], hiding.names, hidden_policy.SPECIAL)
            said.append(isolate.digest(new))
        else:
            said.append(UNKNOWN if before else 0)
            unknown += 1 if before else 0
    changed[SETTINGS] = np.array(said, dtype=arrays[SETTINGS].dtype)
    return changed, unknown


def policy_digests(meta: dict[str, Any], hiding: Hiding) -> Iterable[tuple[str, str]]:
    """(digest then, digest now) of the policy in the image."""
    if meta["published"] is not None:
        then = msgspec.convert(meta["published"], Published)
        now = msgspec.convert(_published(meta["published"], hiding), Published)
        yield then.digest, now.digest


def periods_ms(published: Published | None) -> set[int]:
    """Periods within which nodes have moments, that a policy sets."""
    policies = [] if published is None else [published.policy, published.trial]
    return {
        period
        for policy in policies
        if policy is not None
        for period in (policy.loop.refresh_ms, policy.loop.report_ms)
    }
