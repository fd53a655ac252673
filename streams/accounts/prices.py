"""What things are worth to the user: a small YAML file, read strictly.

Money is in one currency; units are in the key names. All keys must be there: what costs nothing is
written as 0, so that nothing is left out by oversight. `prices.yaml` beside this module is an
example.
"""

from __future__ import annotations

from decimal import Decimal, InvalidOperation
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import msgspec

from schemas.errors import BadPolicy
from schemas.policy import load

MOST = 10**9
MAX_CHARACTERS = 16
EXAMPLE = "prices.yaml"


class Prices(msgspec.Struct, frozen=True):
    """Each in ``currency``; exact."""

    currency: str
    machine_per_core_hour: Fraction  # saved for each core-hour that borrowed work used
    machine_per_gib_hour: Fraction  # and for each GiB-hour
    energy_per_core_hour: Fraction  # saved for each of these core-hours
    beyond_objective_per_hour: Fraction  # cost of an hour of one service on one node beyond it
    failed_request: Fraction  # cost of one that failed
    batch_retry: Fraction  # cost of one retry of a job
    platform_per_day: Fraction  # cost of running this, whatever the fleet
    platform_per_node_day: Fraction  # and for each node


AMOUNTS = tuple(name for name in Prices.__struct_fields__ if name != "currency")


def read(path: Path) -> Prices:
    """The file. Raises BadPolicy naming file, key and what is allowed, OSError when it is away."""
    return parse(path.read_bytes(), str(path))


def example() -> str:
    """The shipped example as text."""
    return (files("streams.accounts") / EXAMPLE).read_text("utf-8")


def parse(text: bytes | str, source: str) -> Prices:
    """Prices out of YAML. Raises BadPolicy."""
    document = load(text, source, "currency: EUR")
    names = ", ".join(Prices.__struct_fields__)
    if not isinstance(document, dict):
        raise BadPolicy(f"{source}: {document!r:.60}; allowed: a mapping with keys {names}")
    unknown = [key for key in document if key not in Prices.__struct_fields__]
    if unknown:
        raise BadPolicy(f"{source}: {unknown[0]!s:.60} is no price; allowed: {names}")
    missing = [name for name in Prices.__struct_fields__ if name not in document]
    if missing:
        raise BadPolicy(f"{source}: {missing[0]} is missing; write 0 for what costs nothing")
    currency = document["currency"]
    if not isinstance(currency, str) or not 1 <= len(currency.strip()) <= MAX_CHARACTERS:
        raise BadPolicy(
            f"{source}: currency is {currency!r:.60}; allowed: text of 1 to {MAX_CHARACTERS} "
            "characters"
        )
    amounts = {name: _amount(document[name], name, source) for name in AMOUNTS}
    return Prices(currency=currency.strip(), **amounts)


def _amount(said: object, name: str, source: str) -> Fraction:
    """A price as it is written, digit by digit."""
    refusal = BadPolicy(f"{source}: {name} is {said!r:.60}; allowed: a number from 0 to {MOST}")
    if isinstance(said, bool) or not isinstance(said, int | float):
        raise refusal
    try:
        amount = Decimal(repr(said))
    except InvalidOperation:
        raise refusal from None
    if not amount.is_finite() or not 0 <= amount <= MOST:
        raise refusal
    return Fraction(amount)
