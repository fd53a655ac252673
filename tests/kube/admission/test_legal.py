"""Every row of the peer's rules for pods (qos_priority), created through the real API server."""

from __future__ import annotations

from pathlib import Path

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.resources.core_v1 import Node, Pod
from lightkube.types import PatchType

from tests.kube.admission.serving import (
    BATCH_CPU,
    BATCH_MEMORY,
    a_pod,
    priorities,
    refusal,
    serving,
)
from tests.kube.cluster import Cluster
from tests.kube.conftest import Nodes

GIB = 1 << 30
CREATED: tuple[tuple[str, str, int | None, dict[str, str | int], str], ...] = (
    # id, QoS label, priority, what it asks for, the rule that it breaks
    ("042", "", None, {}, ""),
    ("046", "", 6666, {BATCH_CPU: 1, BATCH_MEMORY: 4 * GIB}, "batch_requires_be"),
    ("052", "BE", 5000, {}, ""),
    ("054", "BE", 9999, {}, "qos_priority_combination"),
    ("055", "LSR", 5999, {"cpu": "1"}, "qos_priority_combination"),
    ("057", "LSR", 3999, {"cpu": "1"}, "qos_priority_combination"),
    ("058", "LS", 9999, {"cpu": "1", "memory": "4Gi"}, ""),
    ("060", "LSR", 9999, {"cpu": "100m"}, "cpu_request_integer"),
    ("061", "LSE", 9100, {"cpu": "2"}, ""),
    ("063", "LSE", 5100, {"cpu": "2"}, ""),
    ("064", "LSE", 3100, {"cpu": "2"}, ""),
    ("066", "LSR", 9100, {"cpu": "2"}, ""),
    ("067", "LSR", 7100, {"cpu": "2"}, "qos_priority_combination"),
    ("069", "LSR", 3100, {"cpu": "2"}, "qos_priority_combination"),
    ("070", "LSR", None, {"cpu": "2"}, "qos_priority_combination"),
    ("072", "LS", 7100, {"cpu": "2"}, ""),
    ("073", "LS", 5100, {"cpu": "2"}, ""),
    ("075", "LS", None, {"cpu": "2"}, ""),
    ("076", "BE", 9100, {"cpu": "2"}, "qos_priority_combination"),
    ("078", "BE", 5100, {"cpu": "2"}, ""),
    ("079", "BE", 3100, {"cpu": "2"}, ""),
    ("081", "SYSTEM", 9100, {"cpu": "2"}, ""),
    ("082", "SYSTEM", 7100, {"cpu": "2"}, ""),
    ("084", "SYSTEM", 3100, {"cpu": "2"}, ""),
    ("085", "SYSTEM", None, {"cpu": "2"}, ""),
    ("087", "", 7100, {"cpu": "2"}, ""),
    ("088", "", 5100, {"cpu": "2"}, ""),
    ("090", "", None, {"cpu": "2"}, ""),
    ("091", "LS", 9100, {BATCH_CPU: 500}, "batch_requires_be"),
    ("093", "BE", 5100, {BATCH_CPU: 500, BATCH_MEMORY: 1024}, ""),
    ("094", "LSE", 9100, {"cpu": "1500m"}, "cpu_request_integer"),
    ("096", "LSR", 9100, {"cpu": "4"}, ""),
)
UPDATED: tuple[tuple[str, dict[str, str], dict[str, str | None], str], ...] = (
    # id, labels before, changes of labels, the rule that is broken
    ("043", {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch"},
     {"koordinator.sh/qosClass": "LS"}, "qos_immutable"),
    ("047", {"koordinator.sh/priority-class": "batch"},
     {"koordinator.sh/priority-class": "prod"}, "priority_class_immutable"),
    ("048", {"koordinator.sh/priority-class": "batch"},
     {"koordinator.sh/priority-class": None}, "priority_class_immutable"),
    ("051", {"koordinator.sh/priority": "9999"},
     {"koordinator.sh/priority": None}, "sub_priority_immutable"),
)  # fmt: skip
ALLOWED = {
    "batch_requires_be": "allowed: label koordinator.sh/qosClass: BE",
    "cpu_request_integer": "allowed: a multiple of 1000m",
    "qos_priority_combination": "allowed with it: ",
}


async def test_every_row_of_a_creation_is_answered_as_the_peer_answers_it(
    cluster: Cluster, client: AsyncClient, namespace: str, nodes: Nodes, tmp_path: Path
) -> None:
    node = await nodes.join()
    room = {"status": {"allocatable": {BATCH_CPU: "8000", BATCH_MEMORY: str(8 * GIB)}}}
    await client.patch(Node.Status, node, room)
    values = sorted({value for _, _, value, _, _ in CREATED if value is not None})
    async with serving(cluster, client, tmp_path) as running, priorities(client, *values) as named:
        await running.knows(node, BATCH_CPU)
        wrong = []
        for row, qos, value, asks, rule in CREATED:
            pod = a_pod(
                namespace,
                asks,
                name=f"row-{row}",
                labels={"koordinator.sh/qosClass": qos} if qos else {},
                priority=named[value] if value is not None else "",
            )
            said = await refusal(client, pod)
            fits = f"{rule}: " in said and ALLOWED[rule] in said if rule else not said
            if not fits:
                wrong.append((row, rule, said))
        assert not wrong


@pytest.mark.parametrize(("may_change", "row_050"), [(False, True), (True, False)])
async def test_every_row_of_an_update_is_answered_as_the_peer_answers_it(
    cluster: Cluster,
    client: AsyncClient,
    namespace: str,
    tmp_path: Path,
    may_change: bool,
    row_050: bool,
) -> None:
    rules = f"sub_priority_may_change: {str(may_change).lower()}"
    async with serving(cluster, client, tmp_path, rules):
        rows = UPDATED if not may_change else ()
        for row, before, changes, rule in (
            *rows,
            ("050", {"koordinator.sh/priority": "9999"}, {"koordinator.sh/priority": "8888"},
             "sub_priority_immutable" if row_050 else ""),
        ):  # fmt: skip
            pod = a_pod(namespace, {}, name=f"row-{row}", labels=before)
            await client.create(pod)
            body = {"metadata": {"labels": changes}}
            try:
                await client.patch(
                    Pod, f"row-{row}", body, namespace=namespace, patch_type=PatchType.MERGE
                )
                said = ""
            except ApiError as error:
                said = error.status.message or ""
            assert (f"{rule}: " in said and "allowed: a new pod" in said) if rule else not said, row


async def test_work_that_says_nothing_of_retries_borrows_nothing_unless_the_rules_say_so(
    cluster: Cluster, client: AsyncClient, namespace: str, tmp_path: Path
) -> None:
    labels = {"koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "batch"}

    def batch(**annotations: str) -> Pod:
        notes = {f"slackwater.io/{key.replace('_', '-')}": v for key, v in annotations.items()}
        return a_pod(namespace, {}, labels=labels, annotations=notes)

    async with serving(cluster, client, tmp_path) as running:
        said = await refusal(client, batch())
        assert "not_recoverable: batch capacity" in said
        assert "slackwater.io/checkpointed" in said
        assert "not_recoverable" in await refusal(client, batch(recoverable="false"))
        assert "not_recoverable" in await refusal(client, batch(retries_left="0"))
        assert not await refusal(client, batch(checkpointed="true"))
        assert not await refusal(client, batch(retries_left="3"))
        await running.use("recoverable: []")
        assert not await refusal(client, batch())
