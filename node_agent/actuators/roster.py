"""Who is on the machine, as knobs see it: pods, their classes and the groups above them.

`node_agent.isolation` makes one of each census; paths come from the inventory alone, never from a
command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from node_agent.cgroup.paths import overlaps, strictly_inside
from node_agent.inventory import Census, Pod
from schemas.records import IsolationSettings

Said = tuple[str, dict[str, int], bool]
"""A group, what is said of it, and whether it is an online one."""
GUARANTEED, BURSTABLE, BEST_EFFORT = "Guaranteed", "Burstable", "BestEffort"


@dataclass(frozen=True, slots=True)
class Roster:
    """``tiers``: Kubernetes class -> the group above its pods; one not known is left out.

    ``ceiling_milli``: the best-effort root's CPU where no group below it may have more by itself
    (v1); None: there is no such bound. ``cpu_ratio_permille``: batch CPU is shown times this.
    ``daemons``: the daemons' group, where one is named that has nothing to do with any pod.
    """

    pods: tuple[Pod, ...] = ()
    be_root: str | None = None
    tiers: Mapping[str, str] = field(default_factory=dict)
    ceiling_milli: int | None = None
    cpu_ratio_permille: int = 1000
    daemons: str | None = None

    def of_pods(self, settings: IsolationSettings, turns: frozenset[str]) -> Iterator[Said]:
        """What is said of each pod by its class and its uid; the others are left out."""
        columns = {name: each for name, each in settings.pod_knobs.items() if name in turns}
        place = {uid: at for at, uid in enumerate(settings.pods)} if columns else {}
        of_class = {
            name: {knob: value for knob, value in knobs.items() if knob in turns}
            for name, knobs in settings.classes.items()
        }
        for pod in self.pods:
            said = dict(of_class.get(pod.fact.qos, {}))
            at = place.get(pod.fact.uid)
            if at is not None:
                own = {name: column[at] for name, column in columns.items()}
                said |= {name: value for name, value in own.items() if value is not None}
            if said:
                yield pod.group, said, not pod.best_effort

    def of_tiers(self, settings: IsolationSettings, turns: frozenset[str]) -> Iterator[Said]:
        """What is said of the groups above the pods."""
        for tier, knobs in settings.tiers.items():
            said = {knob: value for knob, value in knobs.items() if knob in turns}
            if said and tier in self.tiers:
                yield self.tiers[tier], said, tier != BEST_EFFORT


def roster(census: Census, ceiling_milli: int | None = None) -> Roster:
    """The roster of this census."""
    pods, root, ratio = census.pods(), census.be_root, census.record.cpu_ratio_permille
    return Roster(pods, root, _tiers(pods, root), ceiling_milli, ratio, _daemons(census, pods))


def _daemons(census: Census, pods: tuple[Pod, ...]) -> str | None:
    """The group that the inventory file names; none that is, holds or lies in a pod's."""
    named = census.daemons
    others = [pod.group for pod in pods if pod.fact.qos != "SYSTEM"]
    if census.be_root is not None:
        others.append(census.be_root)
    return None if named is None or any(overlaps(named, each) for each in others) else named


def _tiers(pods: tuple[Pod, ...], be_root: str | None) -> dict[str, str]:
    """Groups above the pods: the best-effort root, the one that holds it and every online pod, and
    the one right above all LS pods; so on Kubernetes, and wherever groups are laid out alike.
    """
    if be_root is None:
        return {}
    found = {BEST_EFFORT: be_root}
    above = be_root.rpartition("/")[0]
    online = [pod for pod in pods if not pod.best_effort and not pod.fact.host_app]
    if above and all(strictly_inside(pod.group, above) for pod in online):
        found[GUARANTEED] = above
        over = {pod.group.rpartition("/")[0] for pod in online if pod.fact.qos == "LS"} - {above}
        if len(over) == 1:
            found[BURSTABLE] = over.pop()
    return found
