"""Family memory_qos: memory protection and throttling settings."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
