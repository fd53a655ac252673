"""Groups of this kernel for one attack."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from node_agent.workbench.groups import Groups
from tests.node_agent.kernel import real_groups


@pytest.fixture
def groups() -> Iterator[Groups]:
    with real_groups() as made:
        yield made
