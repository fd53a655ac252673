"""When reclaim in the background begins for a pod, which spares it reclaim in its own time.

For kernels with memory.wmark_* (Anolis and its kin), in both versions. Law:
`agents.isolation.watermark`.
"""

from __future__ import annotations

from node_agent.actuators.number import Number, Numbers

RATIO, SCALE, MIN_ADJ = (
    "memory.wmark_ratio", "memory.wmark_scale_factor", "memory.wmark_min_adj",
)  # fmt: skip


class Watermarks(Numbers):
    """An online pod's ratio only rises and its shift of the machine's mark only falls."""

    name = "watermarks"
    turns = frozenset({"wmark_ratio_percent", "wmark_scale_permille", "wmark_min_adj"})
    surface = "memory"
    deep = True
    rows = (
        Number("wmark_ratio_percent", RATIO, RATIO, 0, 100),
        Number("wmark_scale_permille", SCALE, SCALE, 1, 1000, more=None),
        Number("wmark_min_adj", MIN_ADJ, MIN_ADJ, -25, 50, more=-1),
    )
