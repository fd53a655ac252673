"""Family histogram_predictor: decaying histograms and the peak predictor."""

from __future__ import annotations

from tests.conformance.adapters.common import Adapter

ADAPTERS: dict[str, Adapter] = {}
