"""Share of the block devices against other groups; 100 is what a group has that got none.

Written wherever this kernel takes one: io.weight and io.bfq.weight, or bfq's v1 name. It counts
where the device's scheduler is bfq or io.cost is on. Law: `agents.isolation.block_io`.
"""

from __future__ import annotations

from node_agent.actuators.number import Number, Numbers

MOST_BFQ, MOST_WEIGHT = 1000, 10_000


class BlockIoWeight(Numbers):
    """An online pod's is only ever raised."""

    name = "block_io_weight"
    turns = frozenset({"io_weight"})
    surface = "io"
    rows = (
        Number("io_weight", "blkio.bfq.weight", "io.bfq.weight", 1, MOST_BFQ),
        Number("io_weight", None, "io.weight", 1, MOST_WEIGHT),
    )
