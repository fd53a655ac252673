"""Best-effort pods that run, and the budgets over them, as the tests of evictions make them."""

from __future__ import annotations

from collections.abc import Mapping

from lightkube import AsyncClient
from lightkube.core.exceptions import ApiError
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.models.policy_v1 import PodDisruptionBudgetSpec
from lightkube.resources.core_v1 import Pod
from lightkube.resources.policy_v1 import PodDisruptionBudget
from lightkube.types import PatchType

from tests.kube import objects

BEST_EFFORT = {"app": "batch", "koordinator.sh/qosClass": "BE"}
NAME = "budget"


async def best_effort(
    client: AsyncClient,
    namespace: str,
    name: str,
    labels: Mapping[str, str] = BEST_EFFORT,
    notes: Mapping[str, str] | None = None,
    node: str = "",
) -> Pod:
    """A pod that runs and is ready; on ``node``, or where the scheduler puts it."""
    pod = objects.new_pod(name, namespace, {"cpu": "100m"}, labels)
    assert pod.metadata is not None
    assert pod.spec is not None
    pod.metadata.annotations = dict(notes or {})
    if node:
        pod.spec.nodeName = node
    bound = await objects.pod_becomes(client, await client.create(pod), objects.is_bound, "bound")
    return await objects.run_pod(client, bound)


async def budget(client: AsyncClient, namespace: str, at_least: int) -> None:
    """So many of the best-effort pods must stay."""
    spec = PodDisruptionBudgetSpec(
        minAvailable=at_least, selector=LabelSelector(matchLabels={"app": "batch"})
    )
    meta = ObjectMeta(name=NAME, namespace=namespace)
    wanted = PodDisruptionBudget(metadata=meta, spec=spec)
    try:
        await client.create(wanted)
    except ApiError as error:
        if error.status.code != 409:
            raise
        await client.patch(
            PodDisruptionBudget, NAME, wanted, namespace=namespace, patch_type=PatchType.MERGE
        )


async def settled(client: AsyncClient, namespace: str, allowed: int) -> None:
    """Wait until the real controller has counted the pods of the budget."""

    async def counted() -> bool:
        found = await client.get(PodDisruptionBudget, NAME, namespace=namespace)
        assert found.metadata is not None
        seen = found.status
        return (
            seen is not None
            and seen.observedGeneration == found.metadata.generation
            and seen.disruptionsAllowed == allowed
        )

    await objects.until(counted, f"the budget allows {allowed}")
