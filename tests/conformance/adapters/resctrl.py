"""Family resctrl: cache and memory bandwidth partitions."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
