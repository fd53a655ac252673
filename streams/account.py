"""What a stage of the rollout came to, as a file says it, beside what its policy asks for. Pure.

`streams.policy_gate` asks before anything is expanded. Counts are of the whole stage.
"""

from __future__ import annotations

import msgspec

from schemas.policy import PilotExit

STAGE = "pilot"
EXIT = "rollout.pilot.exit"


class Account(msgspec.Struct, frozen=True):
    """A JSON object; keys that are not named here are ignored, None: it does not say."""

    net_benefit: float | None = None  # in any one unit: what was gained less what it cost
    stage: str | None = None  # that it tells of
    observed_days: int | None = None
    node_days: int | None = None
    evictions: int | None = None
    suppressed_permille: int | None = None  # of the time that best-effort work ran
    online_violations: int | None = None  # objectives of online services that were missed


def unmet(account: Account | None, exit_: PilotExit) -> list[str]:
    """What stands against an expansion, in words; nothing when it may be."""
    if account is None or account.net_benefit is None or account.net_benefit <= 0:
        return ["there is no positive account of the pilot (--account FILE, net_benefit above 0)"]
    found = []
    if account.stage != STAGE:
        said = "no stage" if account.stage is None else f"stage {account.stage}"
        found.append(f"the account tells of {said}, not of the {STAGE}")
    found += _outside("observed_days", account.observed_days, exit_.observed_days, least=True)
    found += _outside("suppressed_permille", account.suppressed_permille, exit_.suppressed_permille)
    found += _outside("online_violations", account.online_violations, exit_.online_violations)
    return [*found, *_evictions(account, exit_.evictions_per_1000_node_days)]


def _outside(name: str, said: int | None, bound: int, *, least: bool = False) -> list[str]:
    words = f"{EXIT}.{name}: at {'least' if least else 'most'} {bound}, the account "
    if said is None:
        return [f"{words}does not say"]
    return [f"{words}says {said}"] if (said < bound if least else said > bound) else []


def _evictions(account: Account, per_1000: int) -> list[str]:
    name = "evictions_per_1000_node_days"
    if account.evictions is None or not account.node_days:
        words = "needs evictions and node_days in the account"
    elif account.evictions * 1000 > per_1000 * account.node_days:
        words = f"the account says {account.evictions} in {account.node_days} node-days"
    else:
        return []
    return [f"{EXIT}.{name}: at most {per_1000}, {words}"]
