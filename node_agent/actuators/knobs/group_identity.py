"""Group identity: who runs first on a CPU and who makes way, -1 to 2.

For kernels with cpu.bvt_warp_ns (Anolis and its kin). Law: `agents.isolation.group_identity`.
"""

from __future__ import annotations

from node_agent.actuators.number import Number, Numbers


class GroupIdentity(Numbers):
    """Pods and the groups above them."""

    name = "group_identity"
    turns = frozenset({"bvt"})
    surface = "cpu"
    rows = (Number("bvt", "cpu.bvt_warp_ns", "cpu.bvt_warp_ns", -1, 2),)
