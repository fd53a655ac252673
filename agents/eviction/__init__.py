"""The law of eviction: how much is to be released, who may go, in what order, and when to stop.

`agents.evict_memory` and `agents.evict_cpu` decide by it for each node; conformance calls the same
functions. Reading order: `release`, `candidate`, `order`, `passes`, then `plan` and `ladder`.
"""
