"""Cache ways and memory bandwidth of each class: a resctrl group of ours, and its lines.

A command says the lines as the kernel takes them; only what differs is written, resource by
resource. An empty mask is never written: the entry is passed over. Bandwidth of the groups of
online pods is never set below that of the root. Law: `agents.isolation.resctrl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents.isolation.resctrl import GROUPS
from node_agent.actuators.knob import Ask, Found, Knob, Machine, Raw, Values
from node_agent.actuators.resctrl_surfaces import BEST_EFFORT, BOUNDS, MADE, SCHEMATA, STEP, WHOLE
from node_agent.actuators.roster import Roster
from schemas.records import IsolationSettings

CBM, LEAST_BITS, LEAST_BANDWIDTH = BOUNDS
LOOKED_AT = (*BOUNDS, STEP)
OF_ROOT = "root:"
"""Among the values, before a key: what the root has of that domain."""
L3, MB = "L3:", "MB:"

_BANDWIDTHS = ("MB", "SMBA")  # decimal, where masks of ways are hexadecimal


class SchemataKnob(Knob):
    """Keys are resource and domain, ``L3:0``; of a group that is not made they are empty."""

    name = "schemata"
    turns = frozenset({"schemata"})
    surface = "resctrl"
    always_there = True

    def asks(self, settings: IsolationSettings, roster: Roster) -> Iterable[Ask]:
        for name, text in sorted(settings.schemata.items()):
            if name in GROUPS:
                yield Ask(name, online=name != BEST_EFFORT, texts={"schemata": text})

    def files(self, version: int) -> tuple[str, ...]:
        return (MADE, SCHEMATA, WHOLE, *LOOKED_AT)

    def values(self, version: int, raw: Raw, machine: Machine) -> Values:
        made = raw[MADE]
        found = {MADE: made, **{file: raw[file] for file in LOOKED_AT if file in raw}}
        for key, text in _entries(raw[SCHEMATA]):
            found[key] = text if made == "1" else ""
        found.update((OF_ROOT + key, text) for key, text in _entries(raw[WHOLE]))
        return found

    def wanted(
        self, version: int, ask: Ask, members: Sequence[Found], originals: Mapping[str, Values]
    ) -> Mapping[str, Values]:
        (found,) = members
        wanted = {MADE: "1"}
        for key, text in _entries(ask.texts[self.name]):
            number = int(text, 16) if key.startswith(L3) else int(text)
            if key.startswith(L3) and number > 0:
                wanted[key] = f"{_wide(number, found.values):x}"
            elif key.startswith(MB) and number > 0:
                least = int(found.values.get(OF_ROOT + key, "0")) if ask.online else 0
                wanted[key] = str(max(_step(number, found.values), least))
        return {found.place: wanted}

    def writes(self, version: int, before: Values, after: Values) -> list[tuple[str, str]]:
        if after[MADE] == "0":
            return [(MADE, "0")] if before[MADE] == "1" else []
        lines: dict[str, list[str]] = {}
        for key, text in after.items():
            if _of_group(key) and text and before.get(key) != text:
                resource, _, domain = key.partition(":")
                lines.setdefault(resource, []).append(f"{domain}={text}")
        made = [(MADE, "1")] if before[MADE] == "0" else []
        return made + [(SCHEMATA, f"{name}:{';'.join(each)}") for name, each in lines.items()]

    def agrees(self, now: Values, then: Values) -> bool:
        if now[MADE] != then.get(MADE, "1"):
            return False
        said = {key: text for key, text in then.items() if text and _of_group(key)}
        return now[MADE] == "0" or super().agrees(now, said)


def _of_group(key: str) -> bool:
    return key not in (MADE, *LOOKED_AT) and not key.startswith(OF_ROOT)


def _entries(text: str) -> Iterable[tuple[str, str]]:
    """(``L3:0``, canonical value) of each domain of each resource, whatever its name."""
    for line in text.splitlines():
        resource, _, entries = line.strip().partition(":")
        for entry in filter(None, entries.split(";")):
            domain, _, value = entry.strip().partition("=")
            value = value.strip()
            text = str(int(value)) if resource in _BANDWIDTHS else f"{int(value, 16):x}"
            yield f"{resource}:{int(domain)}", text


def _wide(mask: int, found: Values) -> int:
    """A mask of at least as many ways as the hardware takes, grown upwards, else downwards."""
    whole, least = int(found.get(CBM, "0"), 16), int(found.get(LEAST_BITS, "1"))
    while mask.bit_count() < least:
        grown = mask | (mask << 1 & whole) or mask
        if grown == mask:
            grown = mask | mask >> 1
        if grown == mask:
            break
        mask = grown
    return mask


def _step(value: int, found: Values) -> int:
    """Bandwidth as the kernel rounds it, so that what is read back is what was written."""
    step, least = int(found.get(STEP, "1")), int(found.get(LEAST_BANDWIDTH, "0"))
    return -(-max(value, least) // step) * step
