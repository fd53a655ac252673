"""Family mid_resource: what mid work may borrow."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
