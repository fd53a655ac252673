"""Hypothesis strategies for records, made from their types, so that no field is forgotten."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from msgspec import inspect

from schemas.columns import NODE_COLUMNS, POD_COLUMNS
from schemas.records import NodeSample

INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def records(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of a type."""
    return of_type(inspect.type_info(kind))


def of_type(shape: inspect.Type) -> st.SearchStrategy[Any]:
    match shape:
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            assert (shape.ge, shape.le) == (-(2**63), 2**63 - 1), "every integer has 64 bits"
            return INT64
        case inspect.StrType():
            return TEXT
        case inspect.NoneType():
            return st.none()
        case inspect.LiteralType():
            return st.sampled_from(shape.values)
        case inspect.UnionType():
            return st.one_of(*map(of_type, shape.types))
        case inspect.ListType():
            return st.lists(of_type(shape.item_type), max_size=4)
        case inspect.VarTupleType():
            return st.lists(of_type(shape.item_type), max_size=4).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(of_type, shape.item_types))
        case inspect.DictType():
            keys, values = of_type(shape.key_type), of_type(shape.value_type)
            return st.dictionaries(keys, values, max_size=4)
        case inspect.DataclassType():
            fields = {field.name: of_type(field.type) for field in shape.fields}
            return st.builds(shape.cls, **fields)
        case _:
            raise AssertionError(f"no strategy for {shape}")


@st.composite
def samples(draw: st.DrawFn) -> NodeSample:
    """Samples that both encodings can say: known columns, one value a pod."""
    pods = draw(st.sampled_from([0, 1, 3, 63, 64, 65, 130]))
    value: st.SearchStrategy[int | None] = st.none() | INT64
    present: st.SearchStrategy[int | None] = INT64
    column = st.one_of([st.lists(one, min_size=pods, max_size=pods) for one in (value, present)])
    node_names = draw(st.lists(st.sampled_from(sorted(NODE_COLUMNS)), unique=True, max_size=4))
    pod_names = draw(st.lists(st.sampled_from(sorted(POD_COLUMNS)), unique=True, max_size=3))
    boots = st.text("0123456789abcdef", min_size=32, max_size=32)
    return NodeSample(
        node=draw(st.from_regex(r"[0-9A-Za-z_][0-9A-Za-z_.:-]{0,40}", fullmatch=True)),
        boot=draw(boots),
        kernel_boot=draw(boots),
        seq=draw(st.integers(0, 2**63 - 1)),
        mono_us=draw(st.integers(0, 2**53)),
        wall_ms=draw(INT64),
        period_ms=draw(st.integers(0, 2**32 - 1)),
        pods_rev=draw(st.integers(0, 2**32 - 1)),
        pods=pods,
        node_columns={name: draw(value) for name in node_names},
        pod_columns={name: draw(column) for name in pod_names},
    )
