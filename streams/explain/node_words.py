"""What nodes and the Eviction API said, in sentences. Pure; `streams.explain.acts` calls this.

The words of decisions are in `streams.explain.words`; a code that is in neither stands for itself.
"""

from __future__ import annotations

from schemas.records import Ack, EvictionReport
from streams.explain.words import REASONS, because, cores

LOCAL_RULES = {
    "suppress": "the lower of the centre's command and the node's own law; a lapsed command may "
    "lower and never raise, and an online pod that is held up cuts at once",
    "evict_memory": "memory's last gate: a node whose memory is nearly full ends one best-effort "
    "pod a cool-down by itself, when nobody else does",
    "isolate": "what stands is held in force and said again where something of it is left out",
}
BRIDGE_RULE = (
    "a pod that a node hands over goes through the Eviction API, by disruption budget and pace, "
    "until its order expires"
)
NODE_REASONS = {
    "local": "its own law, on its own samples, allows no more",
    "command": "the centre's command holds, and it is lower than its own law",
    "last_granted": "no live command stands behind it, so nothing above the last ceiling that one "
    "granted",
    "never_granted": "no command has granted anything since it started, so the floor holds",
    "local_silent": "its own law has not been asked for too long, so the floor holds",
    "local_cold": "its own law has no answer yet, so what was in force stays",
    "no_policy": "it has no policy, so best-effort work is held at its floor",
    "suppress_off": "the policy, or the stage of the rollout, does not suppress here",
    "reflex": "an online pod was held up between two samples, so it was cut at once",
    "released": "the agent ended and gave back what it had found",
    "no_best_effort_group": "there is no group of best-effort work to bound",
    "no_actuator:cpuset": "CPUs were named that cannot be bound here, so the quota holds instead",
    "dry_run": "it is a dry run, nothing was done",
    "expired": "it came after its time",
    "expired_lowers": "it came after its time, but it lowers, and that is always obeyed",
    "cool_down": "the last eviction is too recent",
    "switched_off": "policy, or the stage of the rollout, has switched it off here since",
    "empty_pods": "it named no pod",
    "no_broker_time": "it does not know the broker's time yet, so nothing it hears is in time",
    "stale_order": "a newer command was heard before it",
    "stale_epoch": "it is of topics that have been made anew since",
    "same_order": "it was heard before",
    "wrong_node": "it is addressed to another node",
    "unsigned": "it is not signed",
    "bad_signature": "its signature does not fit",
    "unknown_key": "it is signed with a key that nobody here knows",
    "interrupted": "the agent ended before it was done",
    "no_such_pod": "there is no such pod",
    "going": "the pod is on its way out already",
    "over": "the pod had ended already",
    "superseded": "another order for it is more urgent",
}
_OUTCOMES = {
    "applied": "the node did it",
    "refused": "the node refused it",
    "failed": "the node could not do it",
    "duplicate": "the node had heard it before",
    "started": "the node has begun",
    "handed_over": "the node handed it to the Eviction API",
    "local": "the node did it by itself",
    "waiting": "it waits",
    "evicted": "the API server took it",
    "gone": "there was nothing left to do",
    "expired": "its time was over",
}


def why(reason: str) -> str:
    """A reason of a node or the bridge in words; "" for none."""
    if not reason:
        return ""
    return NODE_REASONS.get(reason) or because(reason)


def has_words(reason: str) -> bool:
    """Whether a reason is more than its own code."""
    return reason in NODE_REASONS or because(reason) != reason.replace("_", " ")


def became(outcome: str, reason: str, in_force_milli: int = -1) -> str:
    """What became of a command or of a pod, in words."""
    said = _OUTCOMES.get(outcome, outcome)
    told = f"{said}: {why(reason)}" if reason else said
    return f"{told}; {cores(in_force_milli)} cores in force" if in_force_milli >= 0 else told


def local_act(ack: Ack) -> str:
    """What a node did by itself, and why."""
    told = _TOLD.get(ack.decider, _other)(ack)
    dry = " (a dry run: nothing was done)" if ack.dry_run else ""
    failed = "" if ack.outcome == "local" else f", and failed ({ack.outcome})"
    reason = why(ack.reason) or "of its own accord"
    figures = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in ack.terms.items())
    return f"{told}{dry}{failed}{f' (from {figures})' if figures else ''}: {reason}."


def _suppress(ack: Ack) -> str:
    if ack.reason in ("suppress_off", "released"):
        return f"node {ack.node} bounds best-effort work no longer"
    bound = f"to {cores(ack.in_force_milli)} cores" if ack.in_force_milli >= 0 else "no more"
    asked = ack.asked_milli
    wanted = f", where {cores(asked)} were wanted" if asked not in (-1, ack.in_force_milli) else ""
    pods = f" after pod {', '.join(ack.pods)} was held up" if ack.pods else ""
    return f"node {ack.node} by itself bounds best-effort work {bound}{wanted}{pods}"


def _evict(ack: Ack) -> str:
    if not ack.pods:
        return f"node {ack.node} by itself wanted a best-effort pod to go, and none went"
    several = f"pod {ack.pods[0]}" if len(ack.pods) == 1 else f"pods {', '.join(ack.pods)}"
    return f"node {ack.node} by itself ended {several}"


def _isolate(ack: Ack) -> str:
    return f"node {ack.node} holds its settings" + (", with something left out" * bool(ack.reason))


def _other(ack: Ack) -> str:
    return f"node {ack.node} acted by itself ({ack.decider})"


_TOLD = {
    "suppress": _suppress, "evict_memory": _evict, "evict_cpu": _evict, "isolate": _isolate,
}  # fmt: skip


def evicted(report: EvictionReport) -> str:
    """What the bridge said of one pod."""
    name = f"{report.namespace}/{report.name}" if report.name else report.pod
    order = f"ordered by {report.source}"
    if report.why:
        order += f" because {REASONS.get(report.why) or why(report.why)}"
    dry = " (a dry run)" if report.dry_run else ""
    figures = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in report.terms.items())
    said = became(report.outcome, report.reason)
    return (
        f"pod {name} on {report.node}{dry}, {order}{f' (from {figures})' if figures else ''}, "
        f"after {report.tries} calls: {said}."
    )
