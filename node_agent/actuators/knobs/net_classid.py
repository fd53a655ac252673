"""The network class of a pod's traffic: net_cls.classid of its groups, v1 only.

Online pods are put into the online or the daemons' class only. Sockets of the group's tasks are
marked, and the filter of `bandwidths` goes by it; what a pod sends through a network namespace of
its own comes out unmarked. Law: `agents.isolation.network`.
"""

from __future__ import annotations

from node_agent.actuators.knob import Ask
from node_agent.actuators.number import Number, Numbers
from node_agent.actuators.online import ONLINE_CLASSIDS

MOST = (1 << 32) - 1


class NetClassid(Numbers):
    """A pod and the groups in it."""

    name = "net_classid"
    turns = frozenset({"net_classid"})
    surface = "net_cls"
    deep = True
    rows = (Number("net_classid", "net_cls.classid", None, 0, MOST, more=None),)

    def takes(self, ask: Ask) -> frozenset[str]:
        return frozenset() if str(ask.knobs[self.name]) in ONLINE_CLASSIDS else self.turns
