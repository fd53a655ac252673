"""The stage of the rollout in words, and the command that leads on. Pure.

Said by the worker, `topics create`, `policy show`, `explain` and the demo's board, so that nobody
has to guess why nothing is lent.
"""

from __future__ import annotations

from schemas.policy import STAGES, Policy, Published, Stage
from schemas.policy.partial import changes_of

CLUSTER = "the cluster"
CONTROL = "control"
"""What a node of the control group is in, whatever its stage."""
NO_POLICY = (
    "no policy is in force: nodes hold best-effort work at its floor, nothing is lent; next: "
    "`slackwater topics create` publishes the first"
)
_MEANS = {**STAGES, CONTROL: "left out of co-location, as in observe"}
_PUT = "`slackwater policy put FILE --canary LABEL=VALUE"
_NEXT: dict[str, str] = {
    "observe": f"{_PUT}`, the file with rollout: {{stage: protect}}",
    "protect": f"{_PUT}`, the file with rollout: {{stage: pilot}} for a pool",
    "pilot": f"{_PUT} --account ACCOUNT.json`, the file with rollout: {{stage: expand}}, when the "
    "account meets rollout.pilot.exit",
}

_TRIAL = "`slackwater policy promote`, or `slackwater policy rollback`"


def means(stage: str, *, trial: bool = False) -> str:
    """What is done in a stage, and what to do next; `CONTROL` is one of them.

    ``trial``: a canary is on its way, and comes first.
    """
    return _line(stage, [], trial=trial)


def by_name(policy: Policy) -> dict[str, Stage]:
    """The stage of `CLUSTER` and of each entry that says one."""
    found: dict[str, Stage] = {CLUSTER: policy.rollout.stage}
    for entry in policy.nodes:
        said = changes_of(entry, ("rollout",)).get("rollout", {})
        if "stage" in said:
            found[f"nodes {entry.name}"] = said["stage"]
    return found


def told(published: Published) -> str:
    """What is published, in one line: the cluster's stage, and who is in another one."""
    stage = published.policy.rollout.stage
    others = [published.policy] if published.trial is None else [published.policy, published.trial]
    named = [
        f"{'the canary' if name == CLUSTER else name} in stage {each}"
        for policy in others
        for name, each in by_name(policy).items()
        if each != stage
    ]
    return _line(stage, list(dict.fromkeys(named)), trial=published.trial is not None)


def _line(stage: str, others: list[str], *, trial: bool) -> str:
    following = _TRIAL if trial else _NEXT.get(stage)
    end = [f"next: {following}"] if following else []
    return "; ".join([f"stage {stage}: {_MEANS[stage]}", *others, *end])
