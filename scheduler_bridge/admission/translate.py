"""Native CPU and memory into the resources of a pod's class, and what a free pod asks for. Pure.

Called by `mutate` after the profiles. As koordinator translates (`mutateByExtendedResources`): CPU
as an integer of thousandths, memory in bytes, in containers, init containers and sidecars; what has
only a limit asks for it. Ephemeral storage and all else stay. Two differences: what a pod already
says in the extended resource stands (the API server may put a LimitRange's native default beside it
between two calls), and overhead stays native, for the API server takes no other than that of the
RuntimeClass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from scheduler_bridge.admission.names import CPU, EXTENDED_SPEC, NATIVE, Resources
from scheduler_bridge.admission.noted import containers_of as noted_containers
from scheduler_bridge.admission.noted import note_of
from scheduler_bridge.admission.pod import amount
from scheduler_bridge.kube import quantities

KINDS = ("requests", "limits")


def to_class(pod: dict[str, Any], priority_class: str, names: Resources) -> None:
    """Change the containers in place; nothing for classes without resources of their own."""
    to = names.of_class(priority_class)
    if not to:
        return
    for container in _containers(pod):
        resources = container.get("resources") or {}
        stands = {one for kind in KINDS for one in resources.get(kind) or {}} & set(to.values())
        for kind in KINDS:
            said = resources.get(kind) or {}
            for native, extended in to.items():
                taken = said.pop(native, None)
                if taken is not None and extended not in stands:
                    said[extended] = _spelt(taken, native)
        limits = resources.get("limits") or {}
        for extended in to.values():
            if extended in limits:
                resources.setdefault("requests", {}).setdefault(extended, limits[extended])
        _tidy(resources)


def to_wish(pod: dict[str, Any], names: Resources) -> None:
    """A free pod asks no scheduler for anything: what it said becomes its wish, in the note."""
    wishes = _noted(pod)
    for container in _containers(pod, init=False):
        _merge(wishes, container["name"], container.get("resources") or {}, NATIVE)
    for container in _containers(pod):
        resources = container.get("resources") or {}
        for kind in KINDS:
            for resource in (*NATIVE, *names.each):
                (resources.get(kind) or {}).pop(resource, None)
        _tidy(resources)
    _write(pod, wishes)


def note(pod: dict[str, Any], names: Resources) -> None:
    """Write what its containers ask for in extended resources; another's note of them is wrong."""
    notes: dict[str, dict[str, dict[str, str]]] = {}
    for container in _containers(pod, init=False):
        _merge(notes, container["name"], container.get("resources") or {}, names.each)
    _write(pod, notes)


def _containers(pod: dict[str, Any], *, init: bool = True) -> Iterator[dict[str, Any]]:
    if init:
        yield from pod["spec"].get("initContainers") or ()
    yield from pod["spec"].get("containers") or ()


def _spelt(quantity: object, native: str) -> str:
    return str(amount(quantity, CPU)) if native == CPU else str(quantity)


def _plain(quantity: object, resource: str) -> str:
    """One spelling whatever the API server makes of it: "1k" is "1000"."""
    units = amount(quantity, resource)
    return quantities.from_milli(units) if resource == CPU else quantities.from_whole(units)


def _tidy(resources: dict[str, Any]) -> None:
    """No empty mappings are left where amounts were."""
    for kind in KINDS:
        if kind in resources and not resources[kind]:
            del resources[kind]


def _noted(pod: dict[str, Any]) -> dict[str, dict[str, dict[str, str]]]:
    """The wishes noted before: a second call must not lose them."""
    annotation = (pod["metadata"].get("annotations") or {}).get(EXTENDED_SPEC)
    kept: dict[str, dict[str, dict[str, str]]] = {}
    names = {container["name"] for container in _containers(pod, init=False)}
    for name, said in noted_containers(annotation).items():
        if name in names:
            _merge(kept, name, said, NATIVE)
    return kept


def _merge(
    notes: dict[str, dict[str, dict[str, str]]],
    name: str,
    resources: dict[str, Any],
    wanted: tuple[str, ...],
) -> None:
    """Add amounts of ``wanted`` that are not noted yet."""
    for kind in KINDS:
        for resource, quantity in (resources.get(kind) or {}).items():
            if resource in wanted:
                place = notes.setdefault(name, {}).setdefault(kind, {})
                place.setdefault(resource, _plain(quantity, resource))


def _write(pod: dict[str, Any], notes: dict[str, dict[str, dict[str, str]]]) -> None:
    about = pod["metadata"]
    if notes:
        about["annotations"] = (about.get("annotations") or {}) | {EXTENDED_SPEC: note_of(notes)}
    elif EXTENDED_SPEC in (about.get("annotations") or {}):
        del about["annotations"][EXTENDED_SPEC]
