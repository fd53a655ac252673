"""Every knob of isolation that this node can turn, one a file; what is not here is refused by name.

`node_agent.keeper` turns them in this order and gives them back in the other. A new knob is a file,
a line here and a test.
"""

from __future__ import annotations

from node_agent.actuators.knob import Knob
from node_agent.actuators.knobs.cpu_bandwidth import CpuBandwidth

KNOBS: tuple[Knob, ...] = (CpuBandwidth(),)
