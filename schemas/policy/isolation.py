"""Sections of the policy on isolation: what keeps best-effort work out of the online pods' way.

Everything that writes a knob is off until it is switched on, class by class. Class LSE takes the
values of LSR. A class whose defaults differ has a type of its own, so that a policy which names
one key of it keeps the others. Read by the modules of `agents.isolation`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.policy.units import Part, Percent

PercentOrAbsent = Annotated[int, Meta(ge=-1, le=100)]
BytesOrAbsent = Annotated[int, Meta(ge=-1, le=1 << 50)]
Rate = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]
ScoreAdj = Annotated[int, Meta(ge=-1000, le=1000)]
WmarkAdj = Annotated[int, Meta(ge=-25, le=50)]
Identity = Annotated[int, Meta(ge=-1, le=2)]


class ClassResctrl(Part, frozen=True):
    """Ways of the last-level cache, and memory bandwidth, of one class."""

    enabled: bool = False
    l3_start_percent: Percent = 0
    l3_end_percent: Percent = 100
    mb_percent: Annotated[int, Meta(ge=1, le=100)] = 100


class BeResctrl(ClassResctrl, frozen=True):
    """Of best effort: the lowest ways only."""

    l3_end_percent: Percent = 30


class Resctrl(Part, frozen=True):
    """Cache and memory bandwidth partitions, one control group a class."""

    lsr: ClassResctrl = ClassResctrl()
    ls: ClassResctrl = ClassResctrl()
    be: BeResctrl = BeResctrl()


class ClassMemory(Part, frozen=True):
    """Memory protection, throttling and background reclaim of one class; -1: not set."""

    enabled: bool = False
    min_percent: PercentOrAbsent = 0  # of the request, never reclaimed
    low_percent: PercentOrAbsent = 0  # of the request, reclaimed last
    throttling_percent: PercentOrAbsent = 0  # of the way from request to limit; 0: none
    page_cache_bytes: BytesOrAbsent = -1
    page_cache_percent: PercentOrAbsent = -1  # of the limit
    page_cache_sync: bool = False  # reclaim in the task that reads, not behind it
    wmark_ratio_percent: Percent = 95  # of the limit: background reclaim begins
    wmark_scale_permille: Annotated[int, Meta(ge=1, le=1000)] = 20
    wmark_min_adj: WmarkAdj = -25


class BeMemory(ClassMemory, frozen=True):
    """Of best effort: reclaimed earlier."""

    wmark_min_adj: WmarkAdj = 50


class MemoryQos(Part, frozen=True):
    """Memory protection and throttling by class."""

    lsr: ClassMemory = ClassMemory()
    ls: ClassMemory = ClassMemory()
    be: BeMemory = BeMemory()


class CpuBurst(Part, frozen=True):
    """Burst of latency-sensitive pods above their limit while the shared CPUs have room."""

    policy: Literal["none", "cpu_burst_only", "cfs_quota_burst_only", "auto"] = "none"
    cpu_burst_percent: Annotated[int, Meta(ge=1, le=10_000)] = 1_000
    quota_burst_percent: Annotated[int, Meta(ge=100, le=10_000)] = 300
    quota_burst_period_s: Annotated[int, Meta(ge=-1, le=86_400)] = -1  # -1: without end
    share_pool_threshold_percent: Percent = 50
    cooling_percent: Percent = 90  # of that threshold: no further step up
    up_percent: Annotated[int, Meta(ge=100, le=1_000)] = 120
    down_percent: Percent = 80
    saving_below_percent: Percent = 60  # of the limit: use below it saves tokens


class ClassIdentity(Part, frozen=True):
    """The group identity of one class: cpu.bvt_warp_ns."""

    enabled: bool = False
    bvt: Identity = 0


class OnlineIdentity(ClassIdentity, frozen=True):
    """Of the online classes: first."""

    bvt: Identity = 2


class BeIdentity(ClassIdentity, frozen=True):
    """Of best effort: last."""

    bvt: Identity = -1


class GroupIdentity(Part, frozen=True):
    """Who runs first on a CPU and who makes way, where the kernel has group identity."""

    lsr: OnlineIdentity = OnlineIdentity()
    ls: OnlineIdentity = OnlineIdentity()
    be: BeIdentity = BeIdentity()
    system: ClassIdentity = ClassIdentity()


class CoreSched(Part, frozen=True):
    """Core scheduling: classes do not share a core; expellers drive the others off its sibling."""

    enabled: bool = False
    lsr_expeller: bool = True
    ls_expeller: bool = True
    be_expeller: bool = False


class ClassOom(Part, frozen=True):
    """What the kernel takes first when memory is gone."""

    enabled: bool = False
    score_adj: ScoreAdj = 0
    priority: Annotated[int, Meta(ge=0, le=12)] = 0  # where the kernel has memory.priority
    kill_group: bool = False  # the whole group or nothing


class LsrOom(ClassOom, frozen=True):
    """Of LSR and LSE: what Kubernetes gives a guaranteed pod."""

    score_adj: ScoreAdj = -997


class BeOom(ClassOom, frozen=True):
    """Of best effort: first of all."""

    score_adj: ScoreAdj = 1000


class SystemOom(ClassOom, frozen=True):
    """Of daemons: after every pod."""

    score_adj: ScoreAdj = -998


class Oom(Part, frozen=True):
    """Order of the kernel's out-of-memory killer by class; best effort is first."""

    lsr: LsrOom = LsrOom()
    ls: ClassOom = ClassOom()
    be: BeOom = BeOom()
    system: SystemOom = SystemOom()


class ClassBlockIo(Part, frozen=True):
    """Weight and limits of block devices for one class; a limit of 0: none."""

    enabled: bool = False
    weight: Annotated[int, Meta(ge=1, le=10_000)] = 100
    read_iops: Rate = 0
    write_iops: Rate = 0
    read_bytes_per_s: Rate = 0
    write_bytes_per_s: Rate = 0


class BlockIo(Part, frozen=True):
    """Share of block devices by class."""

    lsr: ClassBlockIo = ClassBlockIo()
    ls: ClassBlockIo = ClassBlockIo()
    be: ClassBlockIo = ClassBlockIo()


class ClassNetwork(Part, frozen=True):
    """Share of the node's bandwidth for one class; a maximum of 0: none."""

    enabled: bool = False
    egress_min_percent: Percent = 0
    egress_max_percent: Percent = 0
    ingress_min_percent: Percent = 0
    ingress_max_percent: Percent = 0


class Network(Part, frozen=True):
    """Network classes; nothing is set while the node's bandwidth is unknown (0)."""

    total_mbit_per_s: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    system: ClassNetwork = ClassNetwork()
    ls: ClassNetwork = ClassNetwork()  # and LSR, LSE
    be: ClassNetwork = ClassNetwork()


class Extended(Part, frozen=True):
    """One resource of them."""

    enabled: bool = False


class ExtendedResources(Part, frozen=True):
    """What best-effort pods asked for as kubernetes.io/batch-* or mid-*, set on their groups."""

    cpu: Extended = Extended()  # shares by request, quota by limit
    memory: Extended = Extended()  # a limit by limit


class SystemDaemons(Part, frozen=True):
    """Limits of the daemons of class SYSTEM together, in percent of the node."""

    enabled: bool = False
    cpu_limit_percent: Annotated[int, Meta(ge=1, le=100)] = 100
    cpu_floor_milli: Annotated[int, Meta(ge=100, le=4_096_000)] = 1_000
    memory_limit_percent: Annotated[int, Meta(ge=1, le=100)] = 100
    memory_throttle_percent: Annotated[int, Meta(ge=1, le=100)] = 100  # of that limit
