"""The four lines of each pod and node: limit, usage, short-term and long-term reservation.

`agents.fold` asks `need_of` what a pod will need; `agents.step` reports each node now and then.
"""

from __future__ import annotations

import numpy as np

from agents.table import Array, Bools, Field, Ints

NODE_FIELDS = (Field("report_ms", fill=-1),)  # log time of the last report
POD_FIELDS: tuple[Field, ...] = ()


def need_of(short_peak: Array, request: Ints, lse: Bools, warm: Bools, margin_percent: int) -> Ints:
    """What high-priority pods will need [n, 2] (milli, bytes).

    ``short_peak`` [n, 2] milli and KiB, ABSENT without a value: then the request stands. While a
    pod's own history is young, the larger of request and line. LSE keeps its CPU request.
    """
    line = short_peak.astype(np.int64) * (100 + margin_percent) // 100
    line[:, 1] <<= 10
    need = np.where(warm[:, None], line, np.maximum(line, request))
    need = np.where(short_peak >= 0, need, request)
    need[:, 0] = np.where(lse, request[:, 0], need[:, 0])
    return need
