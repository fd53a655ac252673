"""What may be lent, as pure arithmetic over arrays: amounts [n, 2] are millicores and bytes.

`agents.capacity` calls it for all nodes of a tick, `agents.fold` for the needs of pods; conformance
calls the same functions with arrays of one node. Guards come after it and live elsewhere.
"""
