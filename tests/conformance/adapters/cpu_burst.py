"""Family cpu_burst: CPU burst of online pods and its limiter."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
