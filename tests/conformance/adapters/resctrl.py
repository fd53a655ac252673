"""Family resctrl: cache and memory bandwidth partitions."""

from __future__ import annotations

import numpy as np

from agents.isolation import resctrl, schemata
from agents.table import ABSENT
from tests.conformance.adapters.common import Adapter, Vector, array


def mask_of(given: Vector) -> int:
    mask = resctrl.l3_mask(array(given["cbm"]), given["start_percent"], given["end_percent"])
    return int(mask[0])


def value_of(given: Vector) -> int:
    percent = ABSENT if given["percent"] is None else given["percent"]
    amd = np.array([given["vendor"] == "AuthenticAMD"])
    return int(resctrl.mb_value(array(percent), amd)[0])


def l3_mask(given: Vector) -> Vector:
    mask = mask_of(given)
    return {"mask_hex": None if mask == ABSENT else f"{mask:x}"}


def mba_value(given: Vector) -> Vector:
    value = value_of(given)
    return {"value": None if value == ABSENT else value}


def schemata_lines(given: Vector) -> Vector:
    ids, mask, mb = given["cache_ids"], given["mask_hex"], given["mb"]
    return {
        "l3": schemata.l3_line(ids, int(mask, 16)) if mask else None,
        "mb": schemata.mb_line(ids, mb) if mb else None,
    }


def l3_policy(given: Vector) -> Vector:
    if given["start_percent"] is None or given["end_percent"] is None:
        return {"line": None, "error": False}
    mask = mask_of(given)
    return {"line": schemata.l3_line(given["cache_ids"], mask) or None, "error": mask == ABSENT}


def mb_policy(given: Vector) -> Vector:
    line = schemata.mb_line(given["cache_ids"], value_of(given))
    return {"line": line or None, "error": False}


def schemata_parse(given: Vector) -> Vector:
    read = schemata.parse(given["content"], given["domain_count"])
    if read is None:
        return {"parsed": None, "l3_valid": False}
    parsed = {
        name: {str(one): value for one, value in values.items()}
        for name, values in (("L3", read.l3), ("MB", read.mb))
    }
    return {"parsed": parsed, "l3_valid": read.l3_valid}


def new_tasks(given: Vector) -> Vector:
    return {"add": resctrl.new_tasks(given["group_tasks"], given["container_tasks"])}


ADAPTERS: dict[str, Adapter] = {
    "l3_mask": l3_mask,
    "mba_value": mba_value,
    "schemata_lines": schemata_lines,
    "l3_policy": l3_policy,
    "mb_policy": mb_policy,
    "schemata_parse": schemata_parse,
    "new_tasks": new_tasks,
}
