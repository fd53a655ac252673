"""Sections of the policy on what is lent: batch, mid, and the margins that both keep back.

Read by `schemas.policy.document`; `agents.capacity` takes their values as arguments.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from schemas.policy.units import HalfLifeMs, Ms, Part, Percent, Permille, PositiveMs

Minute = Annotated[int, Meta(ge=0, le=10_079)]


class CapacityRule(Part, frozen=True):
    """Batch capacity by the policy of each resource, with its margins and its manners."""

    enabled: bool = True
    cpu_policy: Literal["usage", "max_usage_request"] = "usage"
    memory_policy: Literal["usage", "request", "max_usage_request"] = "usage"
    cpu_reclaim_percent: Percent = 60
    memory_reclaim_percent: Percent = 65
    cpu_cap_percent: Percent = 100  # of node capacity, the most that is ever lent
    memory_cap_percent: Percent = 100
    change_permille: Permille = 100  # publish beyond this change
    refresh_ms: PositiveMs = 300_000
    raise_permille_per_min: Annotated[int, Meta(ge=1, le=60_000)] = 100  # of node capacity


class MidRule(Part, frozen=True):
    """Mid capacity: what prod asks for and will not use, or a fixed share."""

    enabled: bool = True
    mode: Literal["prediction", "static"] = "prediction"
    cpu_cap_percent: Percent = 100  # of node capacity
    memory_cap_percent: Percent = 100
    unallocated_percent: Percent = 0  # of what no prod pod asked for
    static_cpu_percent: Percent = 0
    static_memory_percent: Percent = 0


class Prediction(Part, frozen=True):
    """What prod pods will leave of their requests, by decaying histograms of each pod's use.

    One for the fleet: models are shared out by half life, and history must outlive a change.
    """

    enabled: bool = False
    cpu_peak_percent: Percent = 95  # the percentile that stands for a peak
    memory_peak_percent: Percent = 98
    safety_margin_percent: Percent = 10
    class_models: bool = True  # system and prod pods as a whole have models too: the lesser counts
    cold_start_ms: Ms = 86_400_000  # a younger model gives nothing
    cpu_half_life_ms: HalfLifeMs = 43_200_000
    memory_half_life_ms: HalfLifeMs = 86_400_000
    epsilon_ppm: Annotated[int, Meta(ge=1, le=1_000_000)] = 100  # of a sample: less is nothing
    # of reservation.short_model: a step above the level costs so many steps of reserving the peak
    short_price: Annotated[int, Meta(ge=1, le=1000)] = 40
    short_recent_permille: Permille = 200  # of all the past, the last few minutes together
    short_peak_permille: Annotated[int, Meta(ge=500, le=1000)] = 999  # the percentile of the peak
    short_higher_permille: Permille = 30  # of the past, expected a bucket higher next time


class Peak(Part, frozen=True):
    """A window of the week (UTC, minute 0 is Monday 00:00) in which more is kept back."""

    start_minute: Minute
    end_minute: Minute  # not within; not after the start: it goes on into the next week
    permille: Permille  # of node capacity


class Margins(Part, frozen=True):
    """Shares of node capacity kept back by name, beside the reclaim percentages."""

    prediction_error_permille: Permille = 0
    machine_failure_permille: Permille = 0  # online work of a machine that dies needs a place
    scale_out_permille: Permille = 0
    rollout_permille: Permille = 0  # old and new pods of a release run side by side
    peaks: tuple[Peak, ...] = ()  # expected ones; the largest open window counts
