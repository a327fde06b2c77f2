"""Pickled objects leave out what they have cached."""

from __future__ import annotations

import dataclasses
import pickle
from typing import Any

import pytest

from stepping_spark.base.fields import PickledByFields
from stepping_spark.expressions.expr import Field
from stepping_spark.plan.step_ir import Selection
from stepping_spark.relations.store import Ordering, Register
from stepping_spark.rows.atoms import INT, Atom
from stepping_spark.rows.schema import Carrying, Schema
from stepping_spark.rows.types import Struct
from stores.postgres.statements import Layout
from tests.cases import cached

ROW = Struct("row", (("g", Atom("str", str)), ("a", INT)), dict)
SCHEMA = Schema(ROW.fields)
EXAMPLES = [
    INT,
    ROW,
    Carrying("in group", (("_key_", INT), *ROW.fields), dict, ROW, (("_key_", INT),)),
    SCHEMA,
    Register("r", SCHEMA, ("g",), order=Ordering("a")),
    Layout("state", "r", SCHEMA, ("g",), order=Ordering("a")),
    Selection(SCHEMA, (("c", Field(INT, ("a",))),)),
]


def subclasses(of: type) -> set[type]:
    return {of}.union(*map(subclasses, of.__subclasses__()))


def test_each_class_that_caches_has_an_example() -> None:
    assert {c for c in subclasses(PickledByFields) if cached(c)} == set(map(type, EXAMPLES))


@pytest.mark.parametrize("given", EXAMPLES, ids=lambda x: type(x).__name__)
def test_a_pickled_object_has_its_fields_and_nothing_cached(given: Any) -> None:
    for name in cached(type(given)):
        getattr(given, name)
    again = pickle.loads(pickle.dumps(given))
    fields = {f.name: getattr(given, f.name) for f in dataclasses.fields(given)}
    assert vars(again) == fields
    for name in cached(type(given)) - {"relation", "evaluators"}:  # these two are functions
        assert getattr(again, name) == getattr(given, name)
