"""Every knob of isolation that this node can turn, one a file; what is not here is refused by name.

`node_agent.keeper` turns them in this order and gives them back in the other. A new knob is a file,
a line here and a row in the table of tests/node_agent/test_knobs.py.
"""

from __future__ import annotations

from node_agent.actuators.knob import Knob
from node_agent.actuators.knobs.bandwidths import Bandwidths
from node_agent.actuators.knobs.block_io_limits import BlockIoLimits
from node_agent.actuators.knobs.block_io_weight import BlockIoWeight
from node_agent.actuators.knobs.core_cookie import CoreCookie
from node_agent.actuators.knobs.cpu_bandwidth import CpuBandwidth
from node_agent.actuators.knobs.cpu_shares import CpuShares
from node_agent.actuators.knobs.daemons_cpu import DaemonsCpu
from node_agent.actuators.knobs.daemons_memory import DaemonsMemory
from node_agent.actuators.knobs.extended_cpu import ExtendedCpu
from node_agent.actuators.knobs.extended_memory import ExtendedMemory
from node_agent.actuators.knobs.freeze import Freeze
from node_agent.actuators.knobs.group_identity import GroupIdentity
from node_agent.actuators.knobs.memory_protection import MemoryProtection
from node_agent.actuators.knobs.memory_reclaim import MemoryReclaim
from node_agent.actuators.knobs.memory_throttle import MemoryThrottle
from node_agent.actuators.knobs.net_classid import NetClassid
from node_agent.actuators.knobs.oom_group import OomGroup
from node_agent.actuators.knobs.oom_score import OomScore
from node_agent.actuators.knobs.page_cache import PageCache
from node_agent.actuators.knobs.resctrl_group import ResctrlGroup
from node_agent.actuators.knobs.schemata import SchemataKnob
from node_agent.actuators.knobs.watermarks import Watermarks

KNOBS: tuple[Knob, ...] = (
    ExtendedMemory(),  # what a pod lacks from its birth comes first
    ExtendedCpu(),
    GroupIdentity(),
    CpuShares(),
    CpuBandwidth(),
    MemoryProtection(),
    MemoryThrottle(),
    MemoryReclaim(),
    Watermarks(),
    PageCache(),
    BlockIoWeight(),
    BlockIoLimits(),
    DaemonsCpu(),
    DaemonsMemory(),
    Bandwidths(),
    NetClassid(),
    OomScore(),
    OomGroup(),
    SchemataKnob(),
    ResctrlGroup(),
    CoreCookie(),
    Freeze(),
)
