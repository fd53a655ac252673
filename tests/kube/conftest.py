"""One real cluster a session; a namespace, a client and nodes of one's own a test."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest
from lightkube import ApiError, AsyncClient
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Namespace, Node, Pod, ServiceAccount

from tests.kube import manifests, objects, programs, tools
from tests.kube.cluster import Cluster
from tests.kube.errors import MissingError
from tests.kube.manifests import Variants
from tests.kube.programs import Programs
from tests.kube.tools import Tools
from tests.support import unavailable


@pytest.fixture(scope="session")
def kube_programs() -> Programs:
    """The programs that `make kube` built."""
    try:
        return programs.find()
    except MissingError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def charting() -> Tools:
    """Helm and Kustomize, as `make kube` built them."""
    try:
        return tools.find()
    except MissingError as error:
        unavailable(str(error))


@pytest.fixture(scope="session")
def variants(charting: Tools) -> Variants:
    """All that an operator may apply, rendered once."""
    return manifests.variants(charting)


@pytest.fixture(scope="session")
def cluster(kube_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The session's cluster; who harms one of its components starts it again."""
    with Cluster(tmp_path_factory.mktemp("kube"), kube_programs) as own:
        yield own


@pytest.fixture
async def client(cluster: Cluster) -> AsyncIterator[AsyncClient]:
    """The administrator's client."""
    own = cluster.client()
    try:
        yield own
    finally:
        await own.close()


@pytest.fixture
async def namespace(client: AsyncClient) -> AsyncIterator[str]:
    """A namespace that no other test uses; its pods are gone when the next test begins."""
    name = f"t{uuid.uuid4().hex[:8]}"
    await client.create(Namespace(metadata=ObjectMeta(name=name)))

    async def has_account() -> bool:
        found = await client.get(ServiceAccount, "default", namespace=name)
        return found.metadata is not None

    # No pod is taken in before the namespace has its default account.
    await objects.until(has_account, "the default account of a new namespace")
    yield name
    await client.deletecollection(Pod, namespace=name, grace_period=0)
    await client.delete(Namespace, name)


class Nodes:
    """Makes nodes with names of their own, and remembers them."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self.names: list[str] = []

    async def join(self, cpu_milli: int = 8_000, memory_bytes: int = 16 << 30) -> str:
        """The name of a new node that is ready."""
        name = f"n{uuid.uuid4().hex[:8]}"
        self.names.append(name)
        await objects.join_node(self._client, name, cpu_milli, memory_bytes)
        return name


@pytest.fixture
async def nodes(client: AsyncClient) -> AsyncIterator[Nodes]:
    """Makes nodes that go with the test."""
    made = Nodes(client)
    yield made
    for name in made.names:
        try:
            await client.delete(Node, name)
        except ApiError as error:
            if error.status.code != 404:  # a test may take its node away itself
                raise
