"""What kept state says of its columns, and who reads it."""

from __future__ import annotations

import enum
import json
from decimal import Decimal

import pytest

import stepping_spark as st
from stepping_spark.base.signature import Signature
from stepping_spark.relations.store import Register, fingerprint
from stepping_spark.rows.atoms import STR, UUID, Atom, RowType
from stepping_spark.rows.schema import Schema, kind_of, type_of
from stepping_spark.rows.types import row_type
from stores.contract.values import MIXED, VALUES


class Colour(enum.Enum):
    RED = "red"


class Point(st.Data):
    x: int
    colour: Colour | None
    many: list[st.Pair[int, Decimal]]


TYPES = [t for t, _ in VALUES] + [row_type(Point), row_type(tuple[int, Colour])]


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_a_type_read_from_its_kind_has_the_same_columns_and_the_same_kind(t: RowType) -> None:
    read = type_of(json.loads(json.dumps(kind_of(t))))
    assert (read.ddl, read.arrow, kind_of(read)) == (t.ddl, t.arrow, kind_of(t))


@pytest.mark.parametrize(
    "kind",
    ["int ", "Decimal", "Decimal(1,2)", "", None, 1, {}, {"list": "x"}, {"row": [["x"]]}, ["str"]],
    ids=str,
)
def test_what_is_no_kind_is_refused(kind: object) -> None:
    with pytest.raises(ValueError, match="is no"):
        type_of(kind)


def test_a_register_read_from_its_description_has_the_same_description() -> None:
    register = Register(
        "r", MIXED, ("i", "s"), Signature("filter [x > 2]", "0123456789abcdef", "i, s")
    )
    said = json.loads(json.dumps(register.describe()))
    read = Register.described("r", said)
    assert read.describe() == register.describe()
    assert read.schema.arrow == register.schema.arrow


def test_a_key_that_is_no_column_is_refused() -> None:
    said = {**Register("r", MIXED).describe(), "key": ["nowhere"]}
    with pytest.raises(ValueError, match="'nowhere'"):
        Register.described("r", said)


def test_what_python_tells_apart_has_another_fingerprint() -> None:
    prints = {
        fingerprint([Register("r", Schema((("x", t),)))]) for t in (STR, UUID, Atom("Enum", Colour))
    }
    assert len(prints) == 3
