"""The Eviction API (policy/v1), asked for one pod at a time; and the live pod before it.

The executor calls `look`, makes a `Victim` of what it sees, and `evict`. The uid stands in every
call, so the API server itself refuses a pod that is another by now, and asking twice is asking
once. Disruption budgets are the API server's to keep; a no of theirs is waited out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from lightkube import ApiError
from lightkube.models.meta_v1 import DeleteOptions, ObjectMeta, Preconditions
from lightkube.resources.core_v1 import Pod

from scheduler_bridge.evictions.pod import LivePod, live_pod
from scheduler_bridge.evictions.victim import Victim
from scheduler_bridge.kube.client import Kube
from scheduler_bridge.kube.errors import KubeError, KubeMissing, translated

Kind = Literal["evicted", "gone", "wait", "unserved"]
BUDGET_CAUSE = "DisruptionBudget"
WAIT_S = {"disruption_budget": 2, "api_busy": 1, "conflict": 1, "api_away": 1, "api_refuses": 10}
"""Until it is asked again, at least, by what stood against it."""
LONGEST_WAIT_S = 30


@dataclass(frozen=True, slots=True)
class Answer:
    """``wait``: not now, for ``reason``, not before ``wait_ms`` have gone by."""

    kind: Kind
    reason: str = ""
    wait_ms: int = 0
    detail: str = ""


class EvictionApi:
    """``grace_s`` None: the pod's own time to end. ``dry_run``: the API server judges, and keeps
    nothing of it.
    """

    def __init__(self, kube: Kube, *, grace_s: int | None = None) -> None:
        self._kube = kube
        self._grace_s = grace_s

    async def look(self, namespace: str, name: str) -> LivePod | None:
        """The pod of that name now, whoever it is; None: there is none. Raises KubeError."""
        try:
            with translated(f"read pod {namespace}/{name}"):
                return live_pod(await self._kube.api.get(Pod, name, namespace=namespace))
        except KubeMissing:
            return None

    async def evict(self, pod: Victim, *, dry_run: bool) -> Answer:
        """Ask for the end of exactly this pod. Never raises for what the API server answers."""
        meta = ObjectMeta(name=pod.name, namespace=pod.namespace)
        eviction = Pod.Eviction(metadata=meta, deleteOptions=self._options(pod, dry_run))
        try:
            with translated(f"evict {pod.namespace}/{pod.name}"):
                await self._kube.api.create(eviction, pod.name, namespace=pod.namespace)
        except KubeError as error:
            return answer_to(error, pod.name)
        return Answer("evicted")

    async def delete(self, pod: Victim, *, dry_run: bool) -> Answer:
        """The last resort where no Eviction API is served; by policy only."""
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}"
        try:
            await self._kube.delete(path, self._options(pod, dry_run).to_dict())
        except KubeMissing:
            return Answer("gone", "no_such_pod")
        except KubeError as error:
            return answer_to(error, pod.name)
        return Answer("evicted", "deleted")

    def _options(self, pod: Victim, dry_run: bool) -> DeleteOptions:
        return DeleteOptions(
            preconditions=Preconditions(uid=pod.uid),
            gracePeriodSeconds=self._grace_s,
            dryRun=["All"] if dry_run else None,
        )


def answer_to(error: KubeError, name: str) -> Answer:
    """What a refusal of the API server means for the request. Pure."""
    causes, missing = _details(error)
    if error.code == 404:
        # Of the pod it says the name; of a path that it does not serve it says none.
        return Answer("gone", "no_such_pod") if missing == name else Answer("unserved")
    if error.code == 405:
        return Answer("unserved", detail=str(error))
    if BUDGET_CAUSE in causes or "PodDisruptionBudget" in str(error):
        return _wait("disruption_budget", error)
    if error.code == 409:  # the uid was looked at a moment ago, so it is somebody's write between
        return _wait("conflict", error)
    if error.code == 0:
        return _wait("api_away", error)
    if error.code == 429 or error.code >= 500:
        return _wait("api_busy", error)
    return _wait("api_refuses", error)


def _wait(reason: str, error: KubeError) -> Answer:
    seconds = min(max(WAIT_S[reason], error.retry_after_s), LONGEST_WAIT_S)
    return Answer("wait", reason, seconds * 1000, str(error))


def _details(error: KubeError) -> tuple[set[str], str]:
    """The causes that a Status names, and the object that it speaks of."""
    origin: Any = error.__cause__
    if not isinstance(origin, ApiError) or origin.status.details is None:
        return set(), ""
    details = origin.status.details
    return {each.reason or "" for each in details.causes or ()}, details.name or ""
