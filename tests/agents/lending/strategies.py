"""Nodes and pods in the plenty that the laws of lending are tested with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from agents.table import Bools, Ints

CPU = st.integers(0, 512_000)
MEMORY = st.integers(0, 1 << 43)
PERCENT = st.integers(0, 100)


@dataclass
class Fleet:
    """``n`` nodes with amounts [n, 2], and their pods [p, 2] with owner [p]."""

    capacity: Ints
    system: Ints
    reserved: Ints
    owner: Ints
    usage: Ints
    request: Ints
    lse: Bools
    masks: Ints


def pairs(count: int, least: int = 0) -> st.SearchStrategy[Ints]:
    one = st.tuples(st.integers(least, 512_000), st.integers(least, 1 << 43))
    return st.lists(one, min_size=count, max_size=count).map(
        lambda rows: np.array(rows, dtype=np.int64).reshape(-1, 2)
    )


@st.composite
def fleets(draw: st.DrawFn) -> Fleet:
    nodes, pods = draw(st.integers(1, 4)), draw(st.integers(0, 12))
    owner = draw(st.lists(st.integers(0, nodes - 1), min_size=pods, max_size=pods))
    flags = draw(st.lists(st.booleans(), min_size=pods, max_size=pods))
    masks = draw(st.lists(st.integers(0, 31), min_size=pods, max_size=pods))
    return Fleet(
        draw(pairs(nodes)), draw(pairs(nodes)), draw(pairs(nodes)),
        np.array(owner, dtype=np.int64), draw(pairs(pods, -1)), draw(pairs(pods)),
        np.array(flags, dtype=np.bool_), np.array(masks, dtype=np.int64),
    )  # fmt: skip


codes = st.tuples(st.integers(0, 2), st.integers(0, 2)).map(
    lambda pair: np.array(pair, dtype=np.int64)
)
