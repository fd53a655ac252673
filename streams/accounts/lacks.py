"""What an account does not know, in words: nothing that is missing is taken for nothing."""

from __future__ import annotations

from collections.abc import Iterator

from streams.accounts.cells import Cell
from streams.accounts.prices import Prices
from streams.accounts.reading import Read
from streams.accounts.sums import MS_PER_HOUR

LENDS = ("pilot", "expand")


def lacks_of(
    read: Read, ours: Cell, stage: str, prices: Prices | None, *, control: bool, baseline: bool
) -> Iterator[str]:
    """One sentence each: what is missing, and what is therefore not known."""
    said = read.records
    if not said["samples"]:
        yield "no samples: use, suppression, satisfaction and node time are not known"
    if not said["policies"]:
        yield "no policy: stages and policy versions are not known"
    elif not stage:
        yield "no node in any stage: no figures of nodes"
    if not ours.lending.said_ms:
        why = "" if stage in LENDS else f" (nothing is lent in stage {stage})" if stage else ""
        yield f"no capacity{why}: what could have been lent is not known"
    if stage in LENDS and not said["ledger"]:
        yield "no ledger: what was lent is not known, its hours say 0"
    yield from _online(ours, prices, control=control, baseline=baseline)
    if not said["jobs"]:
        so = _so(prices is not None and prices.batch_retry != 0)
        yield f"no jobs: queue and completion times and retries are not known{so}"
    if prices is None:
        yield "no prices (--prices FILE): the benefit is not known"
    if ours.machines.silent_ms:
        hours = ours.machines.silent_ms / MS_PER_HOUR
        yield f"{hours:.2f} node-hours without samples are left out"
    for topic, count in sorted(read.unreadable.items()):
        yield f"{count} records of {topic} could not be read"


def _online(ours: Cell, prices: Prices | None, *, control: bool, baseline: bool) -> Iterator[str]:
    fared = ours.online
    priced = prices is not None and (
        prices.beyond_objective_per_hour != 0 or (not fared.windows and prices.failed_request != 0)
    )
    if not fared.windows:
        yield f"no slis: how online services fared is not known{_so(priced)}"
    elif not fared.judged_ms:
        yield (
            "no objective (slo_guard.objectives) for what services said: violations are not "
            f"known{_so(priced)}"
        )
    elif not control and not baseline:
        yield (
            "no control group and no baseline (--baseline FILE): all that services suffered counts "
            "as regression"
        )


def _so(matters: bool) -> str:
    return "; the benefit is not a number" if matters else ""
