"""One module a family, one function an op: a vector's input in, an answer of its shape out.

Adapters translate names and units and call the law; they decide nothing. A vector of an op that
is missing here is a failure, not a skip.
"""

from __future__ import annotations

from tests.conformance.adapters import (
    batch_resource,
    cpu_burst,
    cpu_evict,
    cpu_suppress,
    elastic_quota,
    histogram_predictor,
    load_aware,
    low_node_load,
    memory_evict,
    memory_qos,
    mid_resource,
    qos_priority,
    resctrl,
)
from tests.conformance.adapters.common import Adapter

_FAMILIES = (
    batch_resource,
    cpu_burst,
    cpu_evict,
    cpu_suppress,
    elastic_quota,
    histogram_predictor,
    load_aware,
    low_node_load,
    memory_evict,
    memory_qos,
    mid_resource,
    qos_priority,
    resctrl,
)
ADAPTERS: dict[tuple[str, str], Adapter] = {
    (module.__name__.rpartition(".")[2], op): adapter
    for module in _FAMILIES
    for op, adapter in module.ADAPTERS.items()
}
