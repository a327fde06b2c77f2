"""A query whose inputs are in another order: each keeps its own rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest

import stepping_spark as st
from stepping_spark.base.errors import StoreMismatch
from tests.evolve.test_pipelines import content

BY_ID = "SELECT id, count(*) AS n FROM {} GROUP BY id"
ON = "ON {a}.id = {b}.id"
TEXTS = {
    "a difference": "CREATE VIEW v AS SELECT id FROM {a} EXCEPT SELECT id FROM {b}",
    "an outer join": f"CREATE VIEW v AS SELECT {{a}}.id, {{b}}.x FROM {{a}} LEFT JOIN {{b}} {ON}",
    "a join": f"CREATE VIEW v AS SELECT {{a}}.x, {{b}}.id FROM {{a}} JOIN {{b}} {ON}",
    "two views": f"CREATE VIEW v AS {BY_ID.format('{a}')}; CREATE VIEW w AS {BY_ID.format('{b}')}",
    "no state": "CREATE VIEW v AS SELECT id FROM {a}; CREATE VIEW w AS SELECT x FROM {b}",
}


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    for name, ids in (("old", [1, 2]), ("new", [2, 30, 30])):
        feed = {"delta.enableChangeDataFeed": "true"}
        deltalake.write_deltalake(tmp_path / name, of(*ids), configuration=feed)
    return tmp_path


def of(*ids: int) -> pa.Table:
    return pa.table({"id": ids, "x": [10 * i for i in ids]})


def pipeline(
    text: str, tables: Path, place: str = "state", types: str = "", **more: Any
) -> st.Pipeline:
    """`types` are those of the second table, as DDL."""
    stated: Any = {"new": types} if types else {}
    views = [v for v in "vw" if f"VIEW {v} " in text]
    return st.Pipeline(
        st.sql(text, **stated),
        store=f"parquet:{tables / place}",
        into={v: st.DeltaTable(str(tables / f"{place}-{v}")) for v in views},
        old=st.DeltaTable(str(tables / "old")),
        new=st.DeltaTable(str(tables / "new")),
        **more,
    )


def check(text: str, tables: Path, place: str) -> None:
    """The views are those of a pipeline that begins with the text."""
    with pipeline(text, tables, place) as anew:
        anew.run()
    for v in (v for v in "vw" if f"VIEW {v} " in text):
        assert content(tables / f"state-{v}") == content(tables / f"{place}-{v}")


@pytest.mark.parametrize("kind", TEXTS)
@pytest.mark.parametrize("with_rows", [True, False], ids=["with new rows", "without"])
def test_a_text_with_its_tables_exchanged_is_refused_until_it_evolves(
    kind: str, with_rows: bool, tables: Path
) -> None:
    before, after = (
        TEXTS[kind].format(**d) for d in ({"a": "old", "b": "new"}, {"a": "new", "b": "old"})
    )
    with pipeline(before, tables) as first:
        first.run()
    if with_rows:
        deltalake.write_deltalake(tables / "old", of(30, 5), mode="append")
    with pytest.raises(StoreMismatch) as e, pipeline(after, tables) as exchanged:
        exchanged.run()
    assert "run with --evolve" in str(e.value)
    assert "the order of the inputs: new, old" in str(e.value)
    refresh = ["v", "w"] if kind == "no state" else []  # the rows before are in no register
    assert ("--refresh" in str(e.value)) == bool(refresh)
    with pipeline(after, tables, evolve=True, refresh=refresh) as evolved:
        evolved.run()
    check(after, tables, "anew")
    deltalake.write_deltalake(tables / "new", of(1, 6), mode="append")
    with pipeline(after, tables) as later:
        assert later.run() == 1
    check(after, tables, "later")


@pytest.mark.parametrize("kind", TEXTS)
def test_types_that_are_stated_now_keep_the_state_by_an_evolution(kind: str, tables: Path) -> None:
    """Tables with stated types are the first inputs."""
    text = TEXTS[kind].format(a="old", b="new")
    with pipeline(text, tables) as first:
        first.run()
    stated = pipeline(text, tables, types="id BIGINT, x BIGINT", evolve=True)
    plan = str(stated.dry_run())
    assert "the order of the inputs: new, old" in plan
    assert "filled" not in plan
    with stated:
        assert stated.run() == 1
    check(text, tables, "anew")


def test_a_stepper_refuses_exchanged_inputs_until_it_evolves() -> None:
    def before(a: st.ZSet[int], b: st.ZSet[int]) -> st.ZSet[int]:
        return st.except_(a, b)

    def after(b: st.ZSet[int], a: st.ZSet[int]) -> st.ZSet[int]:
        return st.except_(b, a)

    store = st.StoreMemory.from_graph(st.compile(before))
    st.iteration(store, st.compile(before), (st.ZSetPython({1: 1}), st.ZSetPython({2: 1})))
    with pytest.raises(StoreMismatch, match="inputs a, b, in this order, and after has b, a"):
        st.Stepper(st.compile(after), store)
    stepper = st.Stepper(st.compile(after), store, evolve=True)
    (change,) = stepper.evolve()
    assert change == st.ZSetPython({1: -1, 2: 1})
