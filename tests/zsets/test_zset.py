"""Z-sets: the algebra, in Python and in Spark; how they are drawn; and what is refused."""

from __future__ import annotations

import datetime as dt
import enum
import math
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable
from decimal import Decimal
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from stepping_spark.base.errors import CompileError, InputError
from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.expressions.index import Index
from stepping_spark.relations.codec import encode
from stepping_spark.relations.relation import DriverRelation, SparkRelation, settle
from stepping_spark.rows.atoms import NAN, LocalDateTime, Precision
from stepping_spark.rows.data import Data, Pair
from stepping_spark.rows.schema import ZSetType
from stepping_spark.rows.types import row_type
from stepping_spark.spark.session import JobCounter
from stepping_spark.zsets.spark import ZSet, ZSetPython, ZSetSpark
from tests.cases import A, B


class Row(Data):
    """Has what makes order and equality hard: NULL, NaN, text."""

    n: int | None
    f: float
    s: str


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


ROW = row_type(Row)
BOB, SUE, STEVE = A(x=24, name="Bob"), A(x=12, name="Sue"), A(x=4, name="Steve")


def on_driver(z: ZSetPython[Any], of: Any) -> ZSetSpark[Any]:
    """The same value as a relation on the driver, in which rows stand several times."""
    t = ZSetType(row_type(of))
    pairs = [p for row, n in z.iter() for p in ((row, n + 7), (row, -7))]
    return ZSetSpark.of_rows(pairs, t, "here")


def in_spark(z: ZSetPython[Any], of: Any, spark: SparkSession) -> ZSetSpark[Any]:
    """The same value as a DataFrame, in which rows stand several times."""
    driver = on_driver(z, of)
    frame = driver.to_dataframe(spark)
    negative = frame.withColumn("_count_", -F.col("_count_"))
    doubled = frame.union(frame).unionByName(negative)
    return ZSetSpark(SparkRelation(doubled, driver.type.schema), driver.type)


small = st.integers(-3, 3)
rows = st.builds(
    Row,
    n=st.none() | st.integers(-2, 2),
    f=st.sampled_from([NAN, 0.0, -0.0, -math.inf, math.inf, 1.5]),
    s=st.sampled_from(["", "a", "B", "é", "🙂", "\uffff"]),
)
zsets = st.lists(st.tuples(rows, small), max_size=8).map(ZSetPython)


# What a Z-set is made of


def test_counts_of_equal_rows_are_added_and_zeros_vanish() -> None:
    z = ZSetPython([("a", 1), ("b", 2), ("a", -1), ("b", 1), ("c", 0)])
    assert list(z.iter()) == [("b", 3)]
    assert z == ZSetPython({"b": 3})
    assert ZSetPython([("a", 1), ("a", -1)]) == ZSetPython() == ZSetPython({"a": 0})


def test_it_is_made_of_a_mapping_of_pairs_or_of_another_zset() -> None:
    z = ZSetPython({BOB: 2, SUE: -1})
    assert ZSetPython(iter([(SUE, -1), (BOB, 2)])) == z
    assert ZSetPython(z) == z
    assert ZSetPython(on_driver(z, A)) == z


def test_rows_may_be_atoms_tuples_data_pairs_none_and_zsets() -> None:
    inner = ZSetPython({"a": 1})
    for row in (1, "a", (1, ("b", None)), BOB, Pair(left=BOB, right=None), None, inner):
        assert ZSetPython([(row, 2)]).get_count(row) == 2


def test_rows_of_different_types_are_different_rows() -> None:
    z = ZSetPython([(True, 1), (1, 1), (1.0, 1), ((1,), 1), ((True,), 1)])
    assert len(z) == 5
    assert z.get_count(True) == z.get_count(1.0) == 1
    assert ZSetPython([(1, 1)]) != ZSetPython([(True, 1)])


def test_nan_is_one_row_and_so_is_zero() -> None:
    z = ZSetPython([(float("nan"), 1), (float("nan"), 1), (0.0, 1), (-0.0, 1)])
    assert sorted(n for _, n in z.iter()) == [2, 2]
    assert z.get_count(float("nan")) == 2
    pairs = ZSetPython([((float("nan"), "a"), 1), ((float("nan"), "a"), 1)])
    assert len(pairs) == 1
    assert repr(ZSetPython({-0.0: 1})) == repr(ZSetPython({0.0: 1}))


def test_it_is_hashable_and_does_not_depend_on_the_order_of_its_making() -> None:
    one = ZSetPython([("a", 1), ("b", 2), (NAN, 1)])
    other = ZSetPython([(NAN, 1), ("b", 1), ("a", 1), ("b", 1)])
    assert one == other
    assert hash(one) == hash(other)
    assert len({one, other}) == 1
    assert repr(one) == repr(other)


def test_it_can_be_pickled() -> None:
    z = ZSetPython({(NAN, "a"): 1, (1.0, None): -1})
    again = pickle.loads(pickle.dumps(z))
    assert again == z
    assert again.get_count((NAN, "a")) == 1


@pytest.mark.parametrize(
    ("given_rows", "said"),
    [
        ({"a": True}, "the count of 'a' is True (bool); expected an int"),
        ({"a": 1.0}, "the count of 'a' is 1.0 (float); expected an int"),
        ({"a": None}, "the count of 'a' is None (NoneType); expected an int"),
        (["ab"], "expected (row, count) pairs, found 'ab' (str); give {row: count, ...}"),
        ([("a", 1, 2)], "expected (row, count) pairs, found ('a', 1, 2) (tuple)"),
        ([({"a": 1}, 1)], "{'a': 1} cannot be a row: unhashable type: 'dict'"),
        ([((1, set()), 1)], "(1, set()) cannot be a row: unhashable type: 'set'"),
    ],
)
def test_what_is_no_zset_is_one_clear_error(given_rows: Any, said: str) -> None:
    with pytest.raises(InputError) as e:
        ZSetPython(given_rows)
    assert str(e.value).startswith("ZSetPython: ")
    assert said in str(e.value)


def test_the_annotation_is_covariant_and_both_classes_satisfy_it() -> None:
    def rows_of(z: ZSet[A | B | None]) -> int:
        return sum(n for _, n in z.iter())

    python: ZSetPython[A] = ZSetPython()
    spark: ZSet[A] = on_driver(ZSetPython({BOB: 2}), A)
    wider: ZSet[A | None] = spark + python
    assert rows_of(python) == 0
    assert rows_of(wider) == rows_of(python + spark) == 2


# The algebra


@given(zsets, zsets, zsets)
def test_zsets_are_an_abelian_group(a: Any, b: Any, c: Any) -> None:
    zero: ZSetPython[Row] = ZSetPython()
    assert a + b == b + a
    assert (a + b) + c == a + (b + c)
    assert a + zero == a
    assert a + -a == zero == a - a
    assert a - b == a + -b
    assert -1 * -a == a


@given(zsets, zsets, small, small)
def test_multiples_distribute(a: Any, b: Any, m: int, n: int) -> None:
    assert (a + b) * n == a * n + b * n
    assert a * (m + n) == a * m + n * a
    assert a * 0 == ZSetPython()
    assert a * -1 == -a


@given(zsets, zsets, st.randoms())
def test_equality_is_by_content(a: Any, b: Any, random: Any) -> None:
    pairs = list(a.iter())
    random.shuffle(pairs)
    assert ZSetPython(pairs) == a
    assert hash(ZSetPython(pairs)) == hash(a)
    assert (a == b) == (dict(a.iter()) == dict(b.iter()))


@given(zsets, zsets, small)
def test_a_relation_on_the_driver_is_the_same_value(a: Any, b: Any, n: int) -> None:
    x, y = on_driver(a, Row), on_driver(b, Row)
    assert x == a
    assert a == x
    assert x.to_python() == a
    assert (x == y) == (a == b) == (x == b) == (a == y)
    for left in (a, x):
        for right in (b, y):
            assert left + right == a + b
            assert left - right == a - b
    assert -x == -a
    assert x * n == n * x == a * n
    assert x.empty() == a.empty() == (not x)
    assert len(x) == len(a)
    assert repr(x).replace("ZSetSpark", "ZSetPython") == repr(a)
    assert all(x.get_count(row) == a.get_count(row) for row, _ in (a + b).iter())
    match = frozenset(row for row, _ in b.iter())
    assert ZSetPython(x.iter(match)) == ZSetPython(a.iter(match))


@pytest.mark.parametrize("make", [lambda z: z, lambda z: on_driver(z, A)])
def test_it_can_be_asked_for_single_rows(make: Callable[[Any], ZSet[A]]) -> None:
    z = make(ZSetPython({BOB: 2, SUE: -1}))
    assert z.get_count(BOB) == 2
    assert z.get_count(STEVE) == 0
    assert dict(z.iter({SUE, STEVE})) == {SUE: -1}
    assert list(z.iter(frozenset())) == []
    assert bool(z)
    assert not z.empty()
    assert not bool(z - z)
    assert (z - z).empty()


def test_a_row_of_another_type_is_an_error_where_the_type_is_known() -> None:
    z = on_driver(ZSetPython({BOB: 2}), A)
    with pytest.raises(InputError, match=r"match: expected A, found 'Bob' \(str\)"):
        z.get_count("Bob")
    assert ZSetPython({BOB: 2}).get_count("Bob") == 0


def test_values_of_other_classes_are_not_equal_and_cannot_be_added() -> None:
    for z in (ZSetPython({"a": 1}), on_driver(ZSetPython({"a": 1}), str)):
        assert z != {"a": 1}
        assert z != ZSetPython({1: 1})
        for operand in (1, {"a": 1}, None):
            with pytest.raises(TypeError):
                z + operand  # type: ignore[operator]
            with pytest.raises(TypeError):
                z - operand  # type: ignore[operator]
        for n in (1.5, True, "2"):
            with pytest.raises(TypeError):
                z * n  # type: ignore[operator]
    with pytest.raises(TypeError, match="unhashable"):
        hash(on_driver(ZSetPython(), A))


def test_zsets_of_different_rows_cannot_be_added_where_the_type_is_known() -> None:
    z = on_driver(ZSetPython({BOB: 2}), A)
    with pytest.raises(InputError, match=r"a \+ b: a is a ZSet\[A\], b a ZSet\[B\]"):
        z + on_driver(ZSetPython(), B)
    with pytest.raises(InputError, match=r"a \+ b: expected A, found B\(y=1"):
        z + ZSetPython({B(y=1, name="b"): 1})


def test_empty_zsets_are_equal_whatever_their_rows_are() -> None:
    assert on_driver(ZSetPython(), A) == on_driver(ZSetPython(), B) == ZSetPython()


def test_a_count_beyond_64_bits_is_an_error_in_a_relation() -> None:
    z = on_driver(ZSetPython({"a": 2**62}), str)
    with pytest.raises(InputError, match=r"a \* 4: a count is beyond 64 bits"):
        z * 4
    with pytest.raises(InputError, match=r"a \* n: .* is beyond the 64 bits"):
        z * 2**64
    with pytest.raises(InputError, match=r"a \+ b, a count: .* is beyond the 64 bits"):
        z + ZSetPython({"a": 2**63})


# In the order of a key


def order(value: Any) -> Any:
    """Spark's order, said anew: NULL first, NaN last, text by its bytes."""
    if value is None:
        return (0,)
    if isinstance(value, float):
        return (1, math.isnan(value), 0.0 if math.isnan(value) else value)
    return (1, value.encode() if isinstance(value, str) else value)


def row_order(row: Row) -> Any:
    return (order(row.n), order(row.f), order(row.s))


@given(zsets, st.booleans(), st.booleans(), st.booleans())
def test_iter_by_index_is_in_the_order_of_the_key(a: Any, n: bool, f: bool, driver: bool) -> None:
    z: ZSet[Row] = on_driver(a, Row) if driver else a
    expected = sorted(a.iter(), key=lambda p: row_order(p[0]))
    expected.sort(key=lambda p: order(p[0].f), reverse=not f)
    expected.sort(key=lambda p: order(p[0].n), reverse=not n)
    index = Index.pick(Row, lambda r: (r.n, r.f), ascending=(n, f))
    found = list(z.iter_by_index(index))
    assert [(row, count) for _, row, count in found] == expected
    assert [key for key, _, _ in found] == [(row.n, row.f) for row, _ in expected]


@given(zsets, st.booleans())
def test_iter_by_index_takes_a_bare_function_and_keys_to_match(a: Any, driver: bool) -> None:
    z: ZSet[Row] = on_driver(a, Row) if driver else a
    keys = frozenset({None, 1, 2})
    expected = sorted((p for p in a.iter() if p[0].n in keys), key=lambda p: row_order(p[0]))
    found = list(z.iter_by_index(lambda r: r.n, match_keys=keys))
    assert found == [(row.n, row, count) for row, count in expected]
    assert list(z.iter_by_index(lambda r: r.n, match_keys=frozenset())) == []


@given(zsets)
def test_the_identity_is_an_index(a: Any) -> None:
    expected = sorted(a.iter(), key=lambda p: row_order(p[0]), reverse=True)
    found = list(a.iter_by_index(Index.identity(Row, ascending=False)))
    assert found == [(row, row, count) for row, count in expected]


def test_rows_that_are_atoms_tuples_or_pairs_have_keys_too() -> None:
    atoms = ZSetPython({"b": 1, "a": 2, None: 3})
    assert [k for k, _, _ in atoms.iter_by_index(Index.identity(str | None))] == [None, "a", "b"]  # type: ignore[arg-type]
    tuples = ZSetPython({(2, "a"): 1, (1, "b"): 1})
    assert [k for k, _, _ in tuples.iter_by_index(lambda t: t[0])] == [1, 2]
    both = Index.identity(tuple[int, str], ascending=(False, True))
    assert [k for k, _, _ in tuples.iter_by_index(both)] == [(2, "a"), (1, "b")]
    pairs = ZSetPython({Pair(left=BOB, right=None): 1, Pair(left=SUE, right=STEVE): 1})
    assert [k for k, _, _ in pairs.iter_by_index(lambda p: p.right.x)] == [None, 4]
    assert list(ZSetPython().iter_by_index(lambda r: r.anything)) == []


def test_a_key_that_does_not_fit_is_one_clear_error() -> None:
    z = ZSetPython({BOB: 1})
    with pytest.raises(CompileError, match=r"iter_by_index: the index is of B, .* of A"):
        list(z.iter_by_index(Index.pick(B, lambda b: b.y)))
    with pytest.raises(InputError, match=r"match_keys: expected int, found 'a' \(str\)"):
        list(z.iter_by_index(lambda a: a.x, match_keys={"a"}))
    with pytest.raises(InputError, match="the rows are of several types: A and B"):
        list(ZSetPython({BOB: 1, B(y=1, name="b"): 1}).iter_by_index(lambda a: a.name))


# How it is drawn


def drawn(text: str) -> str:
    return text.strip("\n")


def joined(x: int, name: str, y: int) -> Pair[A, B]:
    return Pair(left=A(x=x, name=name), right=B(y=y, name=name))


GROUPS = ZSetPython(
    {
        Pair(left=ZSetPython({"hullo": 1}), right=5): 1,
        Pair(left=ZSetPython({"foo": 1, "bar": 1}), right=3): 1,
    }
)


@pytest.mark.parametrize(
    ("z", "of"),
    [
        (ZSetPython({BOB: 4, STEVE: -1}), A),
        (ZSetPython({joined(1, "Bob", 4): -2, joined(1, "Bob", 3): -1}), Pair[A, B]),
        (GROUPS, Pair[ZSetPython[str], int]),
    ],
    ids=["rows", "pairs", "groups"],
)
def test_a_large_zset_is_drawn_like_a_small_one(z: ZSetPython[Any], of: Any) -> None:
    # How that is drawn stands in test_seed.
    assert repr(on_driver(z, of)) == repr(z).replace("<ZSetPython>", "<ZSetSpark>", 1)


def test_a_box_shows_numbers_to_the_right_and_text_to_the_left() -> None:
    class Wide(Data):
        whole: int
        share: float
        price: Decimal
        ok: bool
        day: dt.date
        at: dt.datetime
        took: dt.timedelta
        id: uuid.UUID
        color: Color
        missing: int | None

    row = Wide(
        whole=-1,
        share=0.5,
        price=Decimal("10.50"),
        ok=True,
        day=dt.date(2024, 2, 29),
        at=dt.datetime(2024, 2, 29, 1, tzinfo=dt.timezone(dt.timedelta(hours=1))),
        took=dt.timedelta(seconds=90),
        id=uuid.UUID(int=1),
        color=Color.RED,
        missing=None,
    )
    top, heads, _, cells, _ = repr(ZSetPython({row: 1})).split("\n")[1:]
    assert [h for h in heads.split("│")[1:-1] if h.startswith("   ")] == [
        "   _count_ ",
        "   whole ",
        "   share ",
        "   price ",
        "   missing ",
    ]
    assert [c.strip() for c in cells.split("│")[1:-1]] == [
        *("1", "-1", "0.5", "10.5", "True", "2024-02-29", "2024-02-29 00:00:00+00:00"),
        *("0:01:30", "00000000-0000-0000-0000-000000000001", "red", "None"),
    ]
    assert len(top) == len(heads) == len(cells)


def test_what_would_break_a_box_is_escaped_and_wide_characters_count_twice() -> None:
    assert repr(ZSetPython({"a\nb\0\x1b[31m": 1, "日本": 1})) == drawn("""
<ZSetPython>
╭───────────┬──────────────────╮
│   _count_ │ _value_          │
├───────────┼──────────────────┤
│         1 │ a\\nb\\x00\\x1b[31m │
│         1 │ 日本             │
╰───────────┴──────────────────╯
""")


def test_tuples_are_drawn_with_numbered_columns() -> None:
    assert repr(ZSetPython({(1, "a"): 1, (None, "b"): 1})).split("\n")[2:6] == [
        "│   _count_ │   _1 │ _2   │",
        "├───────────┼──────┼──────┤",
        "│         1 │ None │ b    │",
        "│         1 │    1 │ a    │",
    ]


def test_an_empty_zset_says_so() -> None:
    assert repr(ZSetPython()) == "<ZSetPython: empty>"
    assert repr(on_driver(ZSetPython(), A)) == "<ZSetSpark: empty>"
    assert "empty" in ZSetPython()._repr_html_()


def test_the_greatest_counts_come_first_then_rows_in_order_of_their_columns() -> None:
    z = ZSetPython({"b": 1, "a": 1, "Z": 1, None: 1, "é": 1, "c": -1, "d": 5})
    values = [line.split("│")[2].strip() for line in repr(z).split("\n")[4:-1]]
    assert values == ["d", "None", "Z", "a", "b", "é", "c"]


def test_a_large_zset_shows_twenty_rows_and_says_how_many_more() -> None:
    z = ZSetPython(dict.fromkeys(range(5021), 1))
    lines = repr(z).split("\n")
    assert len(lines) == 1 + 3 + 20 + 1 + 1
    assert lines[4] == "│         1 │         0 │"
    assert lines[-1] == "… 5,001 more rows"
    assert repr(ZSetPython(dict.fromkeys(range(21), 1))).endswith("\n… 1 more row")
    assert "more" not in repr(ZSetPython(dict.fromkeys(range(20), 1)))
    nested = repr(ZSetPython({Pair(left=z, right=1): 1}))
    assert "… 5,001 more rows" in nested


def test_rows_of_several_types_are_drawn_all_the_same() -> None:
    lines = repr(ZSetPython([(1, 1), ("a", 1), (BOB, 2)])).split("\n")
    assert [line.split("│")[2].strip() for line in lines[4:-1]] == [
        "A(x=24, name='Bob')",
        "1",
        "a",
    ]


def test_a_box_does_not_depend_on_hash_seeds() -> None:
    code = (
        "from stepping_spark import ZSetPython, Pair\n"
        "print(ZSetPython({Pair(left=ZSetPython({c: 1 for c in 'abc'}), right=c): 1"
        " for c in 'xyzuvw'}))"
    )
    shown = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(shown) == 1


def test_html_escapes_every_value_and_nests_tables() -> None:
    evil = "<script>alert('x')</script> & \"q\""
    z = ZSetPython({Pair(left=ZSetPython({evil: 1}), right=evil): 2})
    shown = z._repr_html_()
    assert "<script>" not in shown
    assert shown.count("&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;q&quot;") == 2
    assert shown.count("<table>") == shown.count("</table>") == 2
    assert shown.count("<code>&lt;ZSetPython&gt;</code>") == 2
    assert "<th>_count_</th><th>left</th><th>right</th>" in shown


def test_html_of_a_large_zset_says_how_many_more() -> None:
    shown = ZSetPython(dict.fromkeys(range(30), 1))._repr_html_()
    assert shown.count("<tr>") == 1 + 20
    assert "<p>… 10 more rows</p>" in shown


# Spark


def test_an_empty_zset_without_a_type_has_no_columns() -> None:
    with pytest.raises(InputError, match=r"an empty ZSetPython does not say .* ZSetPython\(of=T\)"):
        ZSetPython().to_dataframe()


def test_to_dataframe_has_the_columns_of_the_row_then_the_count(spark: SparkSession) -> None:
    z = ZSetPython({BOB: 2, SUE: -1})
    for value in (z, on_driver(z, A), in_spark(z, A, spark)):
        frame = value.to_dataframe(spark)
        assert frame.columns == ["x", "name", "_count_"]
        assert sorted(map(tuple, frame.collect())) == [(12, "Sue", -1), (24, "Bob", 2)]
    assert ZSetPython({"a": 1}).to_dataframe().columns == ["_value_", "_count_"]
    assert ZSetPython({(1, "a"): 1}).to_dataframe().columns == ["_1", "_2", "_count_"]
    assert ZSetPython(of=A).to_dataframe().columns == ["x", "name", "_count_"]
    assert ZSetPython(of=A).to_dataframe().isEmpty()


def test_a_dataframe_is_the_same_value(spark: SparkSession) -> None:
    row = Row(n=None, f=NAN, s="🙂")
    a = ZSetPython({row: 2, Row(n=1, f=0.0, s=""): -1, Row(n=1, f=math.inf, s="a"): 1})
    b = ZSetPython({row: -2, Row(n=2, f=1.5, s="é"): 3})
    x, y = in_spark(a, Row, spark), in_spark(b, Row, spark)
    assert x == a
    assert a == x
    assert x == on_driver(a, Row)
    assert on_driver(a, Row) == x
    assert x != y
    assert x != b
    assert x != ZSetPython({"a": 1})
    for left, right in ((a, y), (x, b), (x, y), (on_driver(a, Row), y)):
        assert left + right == a + b
    assert x - y == a - b
    assert -x == -a
    assert x * 3 == 3 * x == a * 3
    assert (x - a).empty()
    assert not (x * 0)
    assert bool(x)
    assert x.to_python() == a
    assert ZSetPython(x) == a
    assert x.get_count(row) == 2
    assert x.get_count(Row(n=None, f=0.0, s="🙂")) == 0
    assert dict(x.iter({row, Row(n=9, f=0.0, s="")})) == {row: 2}
    assert repr(x).replace("ZSetSpark", "ZSetPython") == repr(a)
    with pytest.raises(TypeError, match=r"to_dataframe\(\)\.count\(\)"):
        len(x)


def test_a_dataframe_is_iterated_in_the_order_of_a_key(spark: SparkSession) -> None:
    values = [Row(n=n, f=f, s=s) for n in (None, 2, 1) for f in (NAN, 1.0) for s in ("é", "Z", "a")]
    a = ZSetPython((row, i + 1) for i, row in enumerate(values))
    x = in_spark(a, Row, spark)
    for ascending in ((True, True), (False, True), (True, False), (False, False)):
        index = Index.pick(Row, lambda r: (r.n, r.s), ascending=ascending)
        assert list(x.iter_by_index(index)) == list(a.iter_by_index(index))
        keys = {(None, "Z"), (2, "é"), (7, "no")}
        assert list(x.iter_by_index(index, keys)) == list(a.iter_by_index(index, keys))
    by_row = Index.identity(Row, ascending=False)
    assert list(x.iter_by_index(by_row)) == list(a.iter_by_index(by_row))
    by_n = Index.pick(Row, lambda r: r.n)
    assert list(x.iter_by_index(by_n, {None})) == list(a.iter_by_index(by_n, {None}))


def test_a_key_that_only_spark_can_read_is_read_by_spark(spark: SparkSession) -> None:
    a = ZSetPython({A(x=1, name="bbb"): 1, A(x=2, name="a"): 2, A(x=3, name="cc"): -1})
    index: Index[A, Any] = Index.pick(A, lambda a: (F.length(a.name), a.x), (False, True))
    expected = [((3, 1), 1), ((2, 3), -1), ((1, 2), 2)]
    for z in (a, on_driver(a, A), in_spark(a, A, spark)):
        assert [(key, n) for key, _, n in z.iter_by_index(index)] == expected
        assert [key for key, _, _ in z.iter_by_index(lambda a: F.length(a.name), {1, 2})] == [1, 2]


def test_rows_of_every_shape_go_to_spark_and_come_back(spark: SparkSession) -> None:
    cases: list[tuple[Any, ZSetPython[Any]]] = [
        (int, ZSetPython({1: 2, -5: -1})),
        (int | None, ZSetPython({1: 2, None: -1})),
        (tuple[int, float], ZSetPython({(1, NAN): 2, (1, 0.0): 1})),
        (list[int], ZSetPython({(1, 2): 2, (): 1})),
        (Pair[A, B | None], ZSetPython({Pair(left=BOB, right=None): 1})),
        (
            Pair[ZSetPython[str], int],
            ZSetPython({Pair(left=ZSetPython({"b": 1, "a": 2}), right=1): 1}),
        ),
        (Color, ZSetPython({Color.RED: 1})),
    ]
    for of, z in cases:
        x = in_spark(z, of, spark)
        assert x == z
        assert x.to_python() == z
        assert repr(x).replace("ZSetSpark", "ZSetPython", 1) == repr(z)
        row, n = next(z.iter())
        assert x.get_count(row) == n


def test_parts_add_up(spark: SparkSession) -> None:
    a, b = ZSetPython({BOB: 1}), ZSetPython({BOB: 2, SUE: -1})
    t = ZSetType(row_type(A))
    table = DriverRelation(encode(a.iter(), t, "here"), t.schema)
    in_spark = SparkRelation(b.to_dataframe(spark), t.schema)
    assert ZSetSpark.from_parts((), t) == ZSetPython()
    assert ZSetSpark.from_parts((table, table), t) == a * 2
    assert ZSetSpark.from_parts((table, in_spark, table), t) == a + b + a


def test_a_large_dataframe_is_drawn_by_its_first_rows(spark: SparkSession) -> None:
    z = ZSetSpark.from_dataframe(spark.range(50_000), int)
    lines = repr(z).split("\n")
    assert lines[:5] == [
        "<ZSetSpark>",
        "╭───────────┬───────────╮",
        "│   _count_ │   _value_ │",
        "├───────────┼───────────┤",
        "│         1 │         0 │",
    ]
    assert lines[-1] == "… 49,980 more rows"


# From a DataFrame


def test_a_dataframe_is_taken_by_the_names_of_its_columns(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [("Bob", 24, 2), ("Sue", 12, 1), ("Bob", 24, 3)], "NAME string, x int, weight smallint"
    )
    z = ZSetSpark.from_dataframe(frame, A, count="weight")
    assert z == ZSetPython({BOB: 5, SUE: 1})
    without = ZSetSpark.from_dataframe(frame.drop("weight"), A)
    assert without == ZSetPython({BOB: 2, SUE: 1})
    again = ZSetSpark.from_dataframe(z.to_dataframe(), A, count="_count_")
    assert again == z


def test_a_single_column_is_an_atom_whatever_it_is_called(spark: SparkSession) -> None:
    assert ZSetSpark.from_dataframe(spark.range(2), int) == ZSetPython({0: 1, 1: 1})
    counted = spark.range(2).withColumn("n", F.lit(2))
    assert ZSetSpark.from_dataframe(counted, int, count="n") == ZSetPython({0: 2, 1: 2})
    pairs = spark.createDataFrame([(1, "a")], "_1 int, _2 string")
    z: ZSetSpark[Any] = ZSetSpark.from_dataframe(pairs, tuple[int, str])
    assert z == ZSetPython({(1, "a"): 1})


class Inner(Data):
    id: int
    score: float | None


class Outer(Data):
    key: uuid.UUID
    color: Color | None
    money: Decimal
    price: Annotated[Decimal, Precision(10, 2)]
    ratio: float
    text: str
    took: dt.timedelta
    inner: Inner
    maybe: Inner | None
    items: list[Inner]
    counts: ZSetPython[int]
    nothing: int | None


OUTER = """
SELECT '12345678-1234-5678-9ABC-DEF012345678' key, 'red' color, CAST(1.5 AS DECIMAL(4, 1)) money,
  CAST(2.25 AS DECIMAL(5, 2)) price, CAST(0.5 AS FLOAT) ratio, CAST('a' AS VARCHAR(3)) text,
  INTERVAL '1' DAY took, named_struct('SCORE', CAST(1 AS FLOAT), 'id', CAST(1 AS TINYINT)) inner,
  CAST(NULL AS STRUCT<id: INT, score: FLOAT>) maybe,
  array(named_struct('id', CAST(7 AS SMALLINT), 'score', CAST(NULL AS DOUBLE))) items,
  array(named_struct('_value_', 3, '_count_', 1), named_struct('_value_', 1, '_count_', -2)) counts,
  NULL nothing
"""


def test_narrower_types_are_widened_and_nested_fields_found_by_name(spark: SparkSession) -> None:
    expected = Outer(
        key=uuid.UUID("12345678-1234-5678-9abc-def012345678"),
        color=Color.RED,
        money=Decimal("1.5"),
        price=Decimal("2.25"),
        ratio=0.5,
        text="a",
        took=dt.timedelta(days=1),
        inner=Inner(id=1, score=1.0),
        maybe=None,
        items=[Inner(id=7, score=None)],
        counts=ZSetPython({3: 1, 1: -2}),
        nothing=None,
    )
    z = ZSetSpark.from_dataframe(spark.sql(OUTER), Outer)
    assert z.to_python() == ZSetPython({expected: 1})
    assert z == ZSetPython({expected: 1})


@pytest.mark.parametrize(
    ("of", "ddl", "count", "said"),
    [
        (A, "x int", None, "there is no column name; the columns are x; change the row class"),
        (A, "x int, name string, _count_ int", None, "say count='_count_', or drop it"),
        (A, "x string, name string", None, "column 'x': expected int (BIGINT), found STRING; cast"),
        (A, "x double, name string", None, "column 'x': expected int (BIGINT), found DOUBLE"),
        (A, "x decimal(9,0), name string", None, "expected int (BIGINT), found DECIMAL(9,0)"),
        (A, "x int, name binary", None, "column 'name': expected str (STRING), found BINARY"),
        (A, "x int, X int, name string", None, "columns 'x' and 'X' are one name to Spark"),
        (A, "x int, name string", "n", "there is no count column 'n'; the columns are x, name"),
        (
            A,
            "x int, name string, n double",
            "n",
            "count column 'n': expected an integer type, found DOUBLE; weights are whole numbers",
        ),
        (A, "x int, name string, n decimal(5,0)", "n", "expected an integer type, found DECIMAL"),
        (
            Pair[A, int],
            "left struct<x: int>, right int",
            None,
            "column 'left': there is no column name; the columns are x",
        ),
        (
            Pair[A, int],
            "left struct<x: int, name: int>, right int",
            None,
            "column 'left'.name: expected str (STRING), found INT",
        ),
        (
            Pair[list[int], int],
            "left array<string>, right int",
            None,
            "column 'left', items: expected int (BIGINT), found STRING",
        ),
        (Pair[list[int], int], "left int, right int", None, "expected list[int] (ARRAY<BIGINT>)"),
        (Pair[int, dt.datetime], "left int, right timestamp_ntz", None, "found TIMESTAMP_NTZ"),
        (
            Pair[int, Decimal],
            "left int, right decimal(38, 2)",
            None,
            "its digits may not fit: cast it, or annotate the field Annotated[Decimal, "
            "st.Precision(38, 2)]",
        ),
        (Pair[int, Decimal], "left int, right double", None, "expected Decimal (DECIMAL(38, 18))"),
    ],
)
def test_a_dataframe_that_does_not_fit_is_one_clear_error_at_once(
    spark: SparkSession, of: Any, ddl: str, count: str | None, said: str
) -> None:
    frame = spark.createDataFrame([], ddl)
    with JobCounter(spark) as jobs, pytest.raises(InputError) as e:
        ZSetSpark.from_dataframe(frame, of, count=count)
    assert str(e.value).startswith("from_dataframe")
    assert said in str(e.value)
    assert jobs.count == 0


def test_what_is_no_dataframe_is_one_clear_error(spark: SparkSession) -> None:
    with pytest.raises(InputError, match="expected a pyspark DataFrame, found list"):
        ZSetSpark.from_dataframe([(1,)], int)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"is a stream; .*writeStream\.foreachBatch"):
        ZSetSpark.from_dataframe(spark.readStream.format("rate").load(), int)
    with pytest.raises(TypeError, match="cannot be stored"):
        ZSetSpark.from_dataframe(spark.range(1), complex)


@pytest.mark.parametrize(
    ("of", "query", "said"),
    [
        (
            A,
            "SELECT * FROM VALUES (1, 'a', 1), (NULL, 'b', 1) t(x, name, n)",
            'column \'x\': expected int, found NULL, in the row {"x":null,"name":"b","_count_":1}',
        ),
        (
            A,
            "SELECT * FROM VALUES (1, 'a', 1), (2, 'b', NULL) t(x, name, n)",
            "column '_count_': expected a whole number, found NULL, in the row {\"x\":2,",
        ),
        (
            Pair[A, A | None],
            "SELECT named_struct('x', 1, 'name', 'a') left, NULL right, 1 n UNION ALL "
            "SELECT named_struct('x', 1, 'name', 'a'), "
            "named_struct('x', 2, 'name', CAST(NULL AS STRING)), 1",
            "column 'right.name': expected str, found NULL, in the row",
        ),
        (
            Pair[list[int], int],
            "SELECT array(1, NULL) left, 1 right, 1 n",
            "column 'left[]': expected int, found NULL, in the row",
        ),
        (
            Pair[ZSetPython[int], int],
            "SELECT array(named_struct('_value_', 1, '_count_', 1), "
            "named_struct('_value_', 1, '_count_', 2)) left, 1 right, 1 n",
            "column 'left': expected ZSetPython[int], found a row that stands twice",
        ),
        (
            Pair[ZSetPython[int], int],
            "SELECT array(named_struct('_value_', 1, '_count_', 0)) left, 1 right, 1 n",
            "column 'left': expected ZSetPython[int], found a count of zero",
        ),
        (
            uuid.UUID,
            "SELECT 'no uuid' v, 1 n",
            "column '_value_': expected a UUID, found other text, in the row "
            '{"_value_":"no uuid","_count_":1}',
        ),
        (
            Color,
            "SELECT 'green' v, 1 n",
            "column '_value_': expected one of red, blue, found other text",
        ),
    ],
)
def test_what_only_the_rows_tell_is_one_clear_error_when_the_value_is_used(
    spark: SparkSession, of: Any, query: str, said: str
) -> None:
    z: ZSetSpark[Any] = ZSetSpark.from_dataframe(spark.sql(query), of, count="n")
    with pytest.raises(InputError) as e:
        z.checked(z.type, "input 'a'", DEFAULT)
    assert str(e.value).startswith("input 'a', ")
    assert said in str(e.value)
    assert "filter such rows out" in str(e.value)
    for look in (repr, lambda z: z.to_python(), lambda z: z == ZSetPython()):
        with pytest.raises(InputError, match="ZSetSpark, column"):
            look(ZSetSpark.from_dataframe(spark.sql(query), of, count="n"))


def test_a_dataframe_is_checked_and_added_up_by_two_jobs(spark: SparkSession) -> None:
    frame = spark.range(1000, numPartitions=2).selectExpr("id % 10 AS x", "'a' AS name")
    z = ZSetSpark.from_dataframe(frame, A)
    with JobCounter(spark) as jobs:
        held = z.checked(z.type, "input 'a'", DEFAULT)
    assert held.table is not None
    assert held.rows == 10
    assert jobs.count is not None
    assert jobs.count <= 2
    with JobCounter(spark) as jobs:
        assert z.checked(z.type, "input 'a'", DEFAULT) is held
        assert z.get_count(A(x=1, name="a")) == 100
    assert jobs.count == 0


def test_what_spark_has_computed_is_not_counted_again(spark: SparkSession) -> None:
    frame = spark.range(100).selectExpr("id % 50 AS _value_", "1L AS _count_")
    t = ZSetType(row_type(int))
    kept = settle(SparkRelation(frame, t.schema), ("_value_",), "a")
    z: ZSetSpark[int] = ZSetSpark(kept, t)
    with JobCounter(spark) as jobs:
        assert not z.empty()
        many = z.in_spark_if_many(0)
    assert jobs.count == 0
    assert many is not None
    assert (many.rows, many.nbytes) == (50, kept.nbytes)
    with JobCounter(spark) as jobs:
        assert z.to_arrow().num_rows == 50
    assert jobs.count == 1


def test_a_large_dataframe_stays_in_spark_and_is_read_once(spark: SparkSession) -> None:
    frame = spark.range(20_001).selectExpr("id AS left", "uuid() AS right")
    z: ZSetSpark[Any] = ZSetSpark.from_dataframe(frame, Pair[int, uuid.UUID])
    held = z.checked(z.type, "input 'a'", Limits(fetched_rows=20_000))
    assert held.frame is not None
    assert held.frame.columns == ["left", "right", "_count_"]
    # uuid() would give others if it were read again.
    found = {str(row.right) for row, _ in z.iter()}
    assert set(held.frame.toArrow().column("right").to_pylist()) == found


def test_a_value_of_another_type_is_refused_by_a_step() -> None:
    z = on_driver(ZSetPython({BOB: 1}), A)
    with pytest.raises(InputError, match=r"input 'a': expected ZSet\[B\], found ZSet\[A\]"):
        z.checked(ZSetType(row_type(B)), "input 'a'", DEFAULT)
    table = z.checked(ZSetType(row_type(A)), "input 'a'", DEFAULT)
    assert table.table is not None
    assert table.table.to_pylist() == [{"x": 24, "name": "Bob", "_count_": 1}]


def test_a_dataframe_that_was_looked_at_is_not_checked_again(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    z = ZSetSpark.from_dataframe(spark.createDataFrame([(1, "a")], "x long, name string"), A)
    z.to_dataframe().explain()
    assert "raise_error" in capsys.readouterr().out
    z.checked(z.type, "input 'a'", Limits(fetched_rows=0))  # so that Spark keeps it
    assert not z.empty()
    frame = z.to_dataframe()
    frame.explain()
    assert "raise_error" not in capsys.readouterr().out
    assert [tuple(row) for row in frame.collect()] == [(1, "a", 1)]


def test_a_dataframe_that_spark_cannot_compute_is_one_clear_error(spark: SparkSession) -> None:
    frame = spark.range(3).selectExpr("CAST(1 / (id - 1) AS BIGINT) AS x", "'a' AS name")
    z = ZSetSpark.from_dataframe(frame, A)
    with pytest.raises(InputError, match=r"input 'a': the DataFrame cannot be computed: .*DIVIDE"):
        z.checked(z.type, "input 'a'", DEFAULT)


@pytest.mark.parametrize(
    ("ddl", "of"),
    [("date", dt.date), ("timestamp", dt.datetime), ("timestamp_ntz", LocalDateTime)],
)
def test_a_year_that_python_does_not_have_is_an_error(
    spark: SparkSession, ddl: str, of: Any
) -> None:
    """Finding 14."""
    late = spark.sql(f"SELECT CAST('+12024-02-29' AS {ddl}) AS x")
    with pytest.raises(InputError, match="expected a year from 1 to 9999, found another one"):
        ZSetSpark.from_dataframe(late, of).to_python()
    right = spark.sql(f"SELECT CAST('9999-12-31' AS {ddl}) AS x")
    assert len(list(ZSetSpark.from_dataframe(right, of).iter())) == 1
