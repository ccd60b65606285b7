from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.analytics.bodies.value_types import parse_type, type_ddl
from leveret.analytics.errors import OptionError

_NAMES = st.text(st.characters(codec="utf-8"), max_size=8)
_SCALARS = st.sampled_from(
    [
        pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float64(), pa.float32(), pa.bool_(), pa.binary(),
        pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(38, 10), pa.decimal128(1, 0),
    ]
)  # fmt: skip
TYPES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        inner.map(pa.list_),
        st.tuples(_SCALARS, inner).map(lambda pair: pa.map_(*pair)),
        st.lists(st.tuples(_NAMES, inner), max_size=4).map(pa.struct),
    ),
    max_leaves=8,
)


@given(TYPES)
def test_what_is_written_is_read_again(kind: pa.DataType) -> None:
    assert parse_type(type_ddl(kind)) == kind


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("id bigint", pa.struct([("id", pa.int64())])),
        ("`a b``c` INT NOT NULL COMMENT 'it''s', d: Long", None),
        (
            "id LONG NOT NULL, `a ``b` varchar(20) COMMENT 'a, b', c: array<struct<d int, e:map<string, date>>>",
            pa.struct(
                [
                    ("id", pa.int64()),
                    ("a `b", pa.string()),
                    ("c", pa.list_(pa.struct([("d", pa.int32()), ("e", pa.map_(pa.string(), pa.date32()))]))),
                ]
            ),
        ),
        ("array<decimal( 5 , 2 )>", pa.list_(pa.decimal128(5, 2))),
        ("decimal", pa.decimal128(10, 0)),
        ("struct<>", pa.struct([])),
        ("string", pa.string()),
        ("", pa.struct([])),
        ("id", None),
        ("id bigint,", None),
        ("id bigint name string", None),
        ("id bigints", None),
        ("array<bigint", None),
        ("map<string>", None),
        ("decimal(39,2)", None),
        ("decimal(5,6)", None),
        ("decimal(a)", None),
        ("id bigint; drop", None),
        (", a int", None),
    ],
)
def test_texts(text: str, kind: pa.DataType | None) -> None:
    if kind is not None:
        assert parse_type(text) == kind
        return
    with pytest.raises(OptionError, match=r"cannot read the schema|a decimal has 1 to 38 digits"):
        parse_type(text)


def test_arrow_types_that_spark_lacks() -> None:
    assert type_ddl(pa.large_list(pa.large_string())) == "array<string>"
    assert type_ddl(pa.timestamp("ns", tz="Europe/Berlin")) == "timestamp"
    for kind in (pa.uint64(), pa.time32("ms"), pa.null(), pa.duration("s")):
        with pytest.raises(OptionError, match="Spark has no type for Arrow's"):
            type_ddl(kind)
