"""Family low_node_load: which nodes are hot and which are cold."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
