"""Z-sets whose rows are in Spark or in an Arrow table; and `st.assert_equal`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from stepping_spark.base.errors import InputError, StepError
from stepping_spark.base.limits import DEFAULT, Limits
from stepping_spark.base.packages import DataFrame, SparkSession, raised
from stepping_spark.base.packages import functions as F
from stepping_spark.expressions.index import key_of
from stepping_spark.relations.codec import conform, decode, encode
from stepping_spark.relations.relation import (
    PIECE_BYTES,
    DriverRelation,
    LazyScan,
    Relation,
    SparkRelation,
    computed_once,
    fetch_if_few,
    fetch_if_few_in,
    most_fetched,
    plus,
    settle,
)
from stepping_spark.relations.transfer import measure
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.boxes import MOST_ROWS, Box, box_of
from stepping_spark.rows.schema import COUNT, ZSetType
from stepping_spark.rows.types import quote, row_type
from stepping_spark.spark.session import get_session, is_same_again, scanned_bytes
from stepping_spark.zsets.from_arrow import relation_of_arrow
from stepping_spark.zsets.from_dataframe import (
    PASSED,
    blamed,
    blaming,
    check_frame,
    guarded,
    guarded_when_read,
    multiplied,
    relation_of,
    summed,
)
from stepping_spark.zsets.python import (
    KeyArgument,
    T_co,
    ZSet,
    ZSetPython,
    check_set,
    class_of,
    instead_of,
    keyed_frame,
    keyed_pairs,
    matching_rows,
)

__all__ = ["ZSet", "ZSetPython", "ZSetSpark"]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class ZSetSpark(ZSet[T_co]):
    """A Z-set held as one relation: an Arrow table on the driver, or a DataFrame.

    Create it with `from_dataframe` or `from_arrow`; steps return it too. Operators on a DataFrame
    build a plan and run no job. Reading rows (`iter`, `==`, `empty`, `repr`) runs a job. `len`
    works only for rows that the driver holds. A ZSetSpark is not hashable, because it may be too
    large to read.

    >>> df = spark.sql("SELECT 1 AS x UNION ALL SELECT 1")
    >>> st.ZSetSpark.from_dataframe(df, int) == st.ZSetPython({1: 2})
    True
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, relation: Relation, of: ZSetType, *, guarded: bool = False) -> None:
        self._held = relation
        self.type = of
        self._guarded = guarded  # the rows are not checked yet
        self._checked: Relation | None = None
        self._python: ZSetPython[T_co] | None = None

    @staticmethod
    def from_dataframe(df: DataFrame, of: type[U], count: str | None = None) -> ZSetSpark[U]:
        """The lines of a DataFrame as rows of type `of`; `count` names the column of weights.

        Without `count` every line counts 1. Columns are found by name, in any order and, as in
        Spark, in any case. A row that is a single value is read from the only column, or from
        `_value_`. Narrower integers, floats and decimals are widened. Other columns are left out.

        Raises `InputError` for a column that is missing or of another type, and for a column
        `_count_` or `_change_type` that nothing reads: its lines are not whole rows. Errors in
        values are found when the Z-set is used, because finding them takes a job: NULLs that the
        row type does not allow, NULL weights, and text that is not a UUID or Enum value.
        """
        where = "from_dataframe"
        if not isinstance(df, DataFrame):
            raise InputError(
                f"{where}: expected a pyspark DataFrame, found {class_of(df)}; "
                + instead_of(df, "write from_dataframe(df, T)")
            )
        check_frame(df, where)
        annotation: Any = of
        t = ZSetType(row_type(annotation))
        return ZSetSpark.unchecked(relation_of(df, t, count, where), t)

    @staticmethod
    def from_arrow(table: pa.Table, of: type[U], count: str | None = None) -> ZSetSpark[U]:
        """The lines of an Arrow table as rows of type `of`; `count` names the column of weights.

        Use it for tens of thousands of rows that the driver holds: it runs no job, and creates no
        Python object for each row. Columns are found as in `from_dataframe`, and converted if
        nothing is lost. Raises `InputError` as `from_dataframe` does, and for a value that does not
        fit the row type: NULL, or text that is not a UUID or Enum value.

        >>> orders = pa.table({"x": [1, 2, 2], "n": [1, 1, -1]})
        >>> st.ZSetSpark.from_arrow(orders, int, count="n") == st.ZSetPython({1: 1})
        True
        """
        where = "from_arrow"
        if not isinstance(table, pa.Table):
            raise InputError(
                f"{where}: expected a pyarrow Table, found {class_of(table)}; "
                + instead_of(table, "write from_arrow(table, T)")
            )
        annotation: Any = of
        t = ZSetType(row_type(annotation))
        return ZSetSpark(DriverRelation(relation_of_arrow(table, t, count, where), t.schema), t)

    def to_arrow(self) -> pa.Table:
        """A table of the row's columns and `_count_`, with one line for each row.

        >>> st.ZSetSpark.from_arrow(pa.table({"x": [1, 1]}), int).to_arrow().to_pylist()
        [{'_value_': 1, '_count_': 2}]
        """
        relation = self.checked(self.type, "ZSetSpark", DEFAULT) if self._guarded else self._held
        if isinstance(relation, SparkRelation):
            with blaming("to_arrow"):
                relation = _measured(relation).fetched()
        return relation.fetched().added_up().table

    def in_spark_if_many(self, most: int) -> SparkRelation | None:
        """The consolidated rows, if Spark has them and they exceed `most` bytes; else None."""
        relation = self.checked(self.type, "ZSetSpark", DEFAULT) if self._guarded else self._held
        if not isinstance(relation, SparkRelation):
            return None
        relation = _measured(relation)
        few = (relation.nbytes or 0) <= most
        return None if few else replace(summed(relation), nbytes=relation.nbytes)

    @staticmethod
    def of_rows(pairs: Iterable[tuple[Any, int]], of: ZSetType, where: str) -> ZSetSpark[Any]:
        """A Z-set of rows and their counts, held by the driver."""
        return ZSetSpark(DriverRelation(encode(pairs, of, where), of.schema), of)

    @staticmethod
    def unchecked(frame: DataFrame, of: ZSetType) -> ZSetSpark[Any]:
        """The Z-set of a DataFrame that has the type's columns; its rows are checked later."""
        return ZSetSpark(SparkRelation(frame, of.schema), of, guarded=True)

    @staticmethod
    def from_parts(parts: Iterable[Relation], of: ZSetType) -> ZSetSpark[Any]:
        """The sum of relations that have the type's columns; the empty Z-set if there are none."""
        return ZSetSpark(plus([p.select(of.schema) for p in parts], of.schema), of)

    @property
    def in_spark(self) -> bool:
        """Whether Spark holds the rows, not the driver."""
        return self._held.frame is not None

    def checked(
        self, t: ZSetType, where: str, limits: Limits, key: Sequence[str] | None = None
    ) -> Relation:
        """The relation for a step, after a check that all its values are of type t.

        A DataFrame is computed once and kept. If it has few rows, the driver keeps them,
        consolidated; if it only reads files, another job may count them first. With a `key`, the
        DataFrame is treated as large: it is consolidated and partitioned for a register with that
        key. The InputError begins with `where`, names the column and shows a row.
        """
        if t.row != self.type.row:
            raise InputError(f"{where}: expected {t}, found {self.type}; give rows of the type")
        if self._checked is None:
            relation = self._held
            if isinstance(relation, DriverRelation):
                self._checked = relation.added_up()
            else:
                assert relation.frame is not None
                self._checked = self._computed(relation.frame, where, limits, key)
        return self._checked

    def checked_when_read(self, t: ZSetType, where: str, limits: Limits) -> Relation:
        """The relation for a step in which a single query reads it, with all of its rows.

        A DataFrame of many bytes of files is neither kept nor counted: that query computes and
        checks it. Other relations are `checked`, and so is a DataFrame whose rows may differ the
        next time.
        """
        frame = self._held.frame
        # Floats are made canonical when the input is kept.
        floats = self.type.schema.has_floats
        is_checked = self._checked is not None or not self._guarded
        if frame is None or is_checked or floats or t.row != self.type.row:
            return self.checked(t, where, limits)
        try:
            nbytes = scanned_bytes(frame)
            large = nbytes is not None and nbytes > limits.broadcast_bytes
            if large and is_same_again(frame):
                schema = self.type.schema
                return LazyScan(guarded_when_read(frame, self.type), schema, check=PASSED)
        except raised.PySparkException as e:
            raise blamed(e, where) from e
        return self.checked(t, where, limits)

    def forget(self) -> None:
        """Recompute the DataFrame at its next use, because its cached data may be lost."""
        self._checked = None

    def _computed(
        self, frame: DataFrame, where: str, limits: Limits, key: Sequence[str] | None
    ) -> Relation:
        schema = self.type.schema
        if self._guarded:
            frame = guarded(frame, self.type)
        rows = SparkRelation(frame, schema)
        try:
            most, nbytes = most_fetched(limits), scanned_bytes(frame)
            if nbytes is not None and nbytes <= limits.broadcast_bytes:
                # One job fetches them: several could read different rows.
                piece = min(limits.fetched_bytes, PIECE_BYTES)
                few = fetch_if_few_in(nbytes, rows, limits, most_rows=most, most_bytes=piece)
                if few is not None:
                    return few
            relation = computed_once(rows) if key is None else settle(rows, key, where)
            # More rows stay in Spark: the step fetches them if it needs them, and uses them there.
            few = fetch_if_few(relation, limits, most_rows=most, most_bytes=limits.broadcast_bytes)
            if few is not None:
                return few
            if key is None and schema.has_floats:
                # Grouping turns 0.0 and -0.0 into one zero, and all NaN into one.
                once = summed(relation)
                return replace(once, frame=once.frame.localCheckpoint())
        except raised.PySparkException as e:
            raise blamed(e, where) from e
        return relation

    def _look(self) -> Relation:
        """The relation to read from, with each row once."""
        if isinstance(self._held, SparkRelation) and not self._guarded:
            return summed(self._held)
        relation = self.checked(self.type, "ZSetSpark", DEFAULT)
        return summed(relation) if isinstance(relation, SparkRelation) else relation

    def __neg__(self) -> ZSetSpark[T_co]:
        return self * -1

    def __add__(self, other: ZSet[U]) -> ZSetSpark[T_co | U]:
        if isinstance(other, ZSetPython):
            other = ZSetSpark.of_rows(other.iter(), self.type, "a + b")
        if not isinstance(other, ZSetSpark):
            return NotImplemented
        if other.type.row != self.type.row:
            raise InputError(
                f"a + b: a is a {self.type}, b a {other.type}; add Z-sets of rows of one type"
            )
        both = ZSetSpark.from_parts((self._held, other._held), self.type)
        if isinstance(both._held, DriverRelation) and _may_be_beyond(both._held.table):
            try:
                both._held.added_up()
            except StepError as e:  # raised in the same way when a step adds up weights
                raise InputError(f"a + b: {e}") from None
        both._guarded = self._guarded or other._guarded
        return both

    __radd__ = __add__

    def __rsub__(self, other: ZSet[U]) -> ZSetSpark[T_co | U]:  # type: ignore[misc]
        return -self + other if isinstance(other, ZSetPython) else NotImplemented

    def __sub__(self, other: ZSet[U]) -> ZSetSpark[T_co | U]:
        return self + -other if isinstance(other, ZSetPython | ZSetSpark) else NotImplemented

    def __mul__(self, n: int) -> ZSetSpark[T_co]:
        if type(n) is not int:
            return NotImplemented
        INT.encode(n, "a * n")
        beyond = InputError(f"a * {n}: a count is beyond 64 bits")
        relation, schema = self._held, self.type.schema
        if relation.frame is not None:
            times_n = SparkRelation(multiplied(relation.frame, n, str(beyond)), schema)
            return ZSetSpark(times_n, self.type, guarded=self._guarded)
        assert relation.table is not None
        try:
            product = pc.multiply_checked(relation.table.column(COUNT), pa.scalar(n, pa.int64()))
        except pa.ArrowInvalid:
            raise beyond from None
        i = relation.table.schema.get_field_index(COUNT)
        return ZSetSpark(
            DriverRelation(relation.table.set_column(i, COUNT, product), schema), self.type
        )

    def __rmul__(self, n: int) -> ZSetSpark[T_co]:
        return self * n

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ZSetPython):
            try:
                other = ZSetSpark.of_rows(other.iter(), self.type, "a == b")
            except InputError:  # the other has a row that this one cannot have
                return False
        if not isinstance(other, ZSetSpark):
            return NotImplemented
        large = self.in_spark or other.in_spark
        if large and self.type.row == other.type.row:
            return (self - other).empty()
        return self.to_python() == other.to_python()

    def __len__(self) -> int:
        table = self._look().table
        if table is None:
            raise TypeError(
                "len of a ZSetSpark that Spark holds takes a job; to_dataframe().count() runs it"
            )
        return table.num_rows

    def __bool__(self) -> bool:
        return not self.empty()

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        if match is not None:
            check_set(match, "iter, match: expected a set of rows")
            if not match:
                return
        relation = self._look()
        match_rows = None
        if match is not None:
            match_rows = encode(((row, 1) for row in match), self.type, "match")
        if relation.frame is None:
            rows = None if match_rows is None else {row for row, _ in decode(match_rows, self.type)}
            yield from self.to_python().iter(rows)
            return
        if match_rows is None:
            yield from decode(self.to_arrow(), self.type)
            return
        with blaming("iter"):
            table = matching_rows(relation.frame, match_rows, self.type.schema.columns).toArrow()
        yield from decode(conform(table, self.type.schema), self.type)

    def iter_by_index(
        self, index: KeyArgument[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        key = key_of(index, self.type.row, "iter_by_index")
        relation = self._look()
        if key.expr.in_sql and relation.table is not None:
            yield from keyed_pairs(decode(relation.table, self.type), self.type, key, match_keys)
        else:
            with blaming("iter_by_index"):
                yield from keyed_frame(self.to_dataframe(), self.type, key, match_keys)

    def get_count(self, row: object) -> int:
        return next((n for _, n in self.iter(frozenset((row,)))), 0)

    def empty(self) -> bool:
        relation = self._look()
        if relation.frame is None or (relation.consolidated and relation.rows is not None):
            return relation.is_empty
        with blaming("empty"):
            return relation.frame.isEmpty()

    def to_python(self) -> ZSetPython[T_co]:
        if self._python is None:
            self._python = ZSetPython(decode(self.to_arrow(), self.type), of=self.type.row)
        return self._python

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        relation = self._held if self._checked is None else self._checked
        if isinstance(relation, SparkRelation):
            if self._guarded and self._checked is None:
                relation = SparkRelation(guarded(relation.frame, self.type), relation.schema)
            return summed(relation).frame
        assert isinstance(relation, DriverRelation)
        return relation.added_up().in_spark(lambda: spark or get_session()).frame

    def __repr__(self) -> str:
        return self._box().text()

    def _repr_html_(self) -> str:
        return self._box().html()

    def _box(self) -> Box:
        relation = self._look()
        if relation.frame is None:
            return self.to_python().box("ZSetSpark")
        by = (F.col(quote(n)) for n, _ in self.type.schema.columns)
        with blaming("repr"):
            first = relation.frame.orderBy(F.desc(COUNT), *by).limit(MOST_ROWS).toArrow()
            pairs = list(decode(conform(first, self.type.schema), self.type))
            more = relation.frame.count() - len(pairs) if len(pairs) == MOST_ROWS else 0
        return box_of("ZSetSpark", self.type.row, pairs, more)


def _measured(relation: SparkRelation) -> SparkRelation:
    """The relation with its number of bytes; a job counts them if they are unknown."""
    if relation.nbytes is not None:
        return relation
    return replace(relation, nbytes=measure(relation.frame, relation.schema).nbytes)


def _may_be_beyond(table: pa.Table) -> bool:
    """Whether some counts are so large that their sum may overflow 64 bits."""
    sizes = pc.abs(table.column(COUNT).cast(pa.float64(), safe=False))
    return (pc.sum(sizes).as_py() or 0.0) > 2.0**62


ZSETS = (ZSetPython, ZSetSpark)


def assert_equal(actual: object, expected: object) -> None:
    """Raise an AssertionError that shows which rows differ, unless both are equal.

    Takes Z-sets of any kind, and the other results of a step: numbers, dicts of sums by key, and
    tuples of all these, such as the result of `stepper.step`. A row whose weight differs is shown
    with the difference.

    >>> st.assert_equal(st.ZSetPython({"ann": 1}), st.ZSetPython({"ann": 1}))
    >>> st.assert_equal(st.ZSetPython({"ann": 1}), st.ZSetPython({"bob": 2}))
    Traceback (most recent call last):
    AssertionError: the Z-sets differ
    <missing>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         2 │ bob       │
    ╰───────────┴───────────╯
    <unexpected>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         1 │ ann       │
    ╰───────────┴───────────╯
    """
    __tracebackhide__ = True  # for pytest
    difference = _difference(actual, expected, "")
    if difference:
        raise AssertionError(difference)


def _difference(actual: Any, expected: Any, where: str) -> str:
    """The text of the differences; empty if there are none."""
    if isinstance(actual, ZSETS) and isinstance(expected, ZSETS):
        return _of_zsets(actual, expected, where)
    if isinstance(actual, tuple) and isinstance(expected, tuple) and len(actual) == len(expected):
        pairs = enumerate(zip(actual, expected, strict=True))
        differences = (_difference(a, e, f"{where}[{i}]") for i, (a, e) in pairs)
        return "\n".join(filter(None, differences))
    return "" if actual == expected else f"{where or 'the values'}: {actual!r} is not {expected!r}"


def _of_zsets(actual: ZSet[Any], expected: ZSet[Any], where: str) -> str:
    counts: dict[Any, int] = dict(expected.iter())
    for row, n in actual.iter():
        counts[row] = counts.get(row, 0) - n
    sides = {
        "missing": {row: n for row, n in counts.items() if n > 0},
        "unexpected": {row: -n for row, n in counts.items() if n < 0},
    }
    boxes = [ZSetPython(rows).box(title).text() for title, rows in sides.items() if rows]
    head = f"{where} differs" if where else "the Z-sets differ"
    return "\n".join([head, *boxes]) if boxes else ""
