"""Which of these tests this kernel can run. What works on real control groups is marked `kernel`.

A test that asks for a fixture called ``groups`` is marked by that; any other says so itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from node_agent.actuators.beneath import Beneath
from node_agent.journal import Journal
from node_agent.reflex import Reflex
from node_agent.sampler import Sampler
from tests.node_agent import kernel

Holder = Sampler | Reflex | Beneath | Journal


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _asks_for_groups(item):
            item.add_marker(pytest.mark.kernel)
        reason = kernel.why_elsewhere(item)
        if reason:
            item.add_marker(pytest.mark.skip(reason=f"{kernel.OTHER_KERNEL}{reason}"))


def _asks_for_groups(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    given = item.callspec.params if hasattr(item, "callspec") else {}
    return "groups" in item.fixturenames and "groups" not in given


@pytest.fixture(autouse=True)
def _marked(request: pytest.FixtureRequest) -> None:
    """Control groups are for marked tests only: an unmarked one would never run on cgroup v2."""
    kernel.allowed(marked=request.node.get_closest_marker("kernel") is not None)


@pytest.fixture(autouse=True)
def _closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What keeps descriptors open is closed with its test, or those of a whole run add up."""
    made: list[Holder] = []

    def tracked(cls: type[Holder]) -> None:
        begin: Any = cls.__init__

        def init(self: Holder, *args: object, **options: object) -> None:
            begin(self, *args, **options)
            made.append(self)

        monkeypatch.setattr(cls, "__init__", init)

    for holder in (Sampler, Reflex, Beneath, Journal):
        tracked(holder)
    yield
    for one in reversed(made):
        one.close()
