"""Z-sets: rows and how often each is there, as values in Python and in Spark."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stepping_spark.errors import InputError, StepError
from stepping_spark.expressions.index import key_of
from stepping_spark.limits import DEFAULT, Limits
from stepping_spark.relations.arrow import concat, consolidate, has_floats
from stepping_spark.relations.codec import conform, decode, encode, frame_of
from stepping_spark.rows.atoms import INT
from stepping_spark.rows.schema import COUNT, ZSetType
from stepping_spark.rows.types import quote, row_type
from stepping_spark.spark.checkpoint import fetched, measure, settle
from stepping_spark.spark.fetch import brought
from stepping_spark.spark.session import get_session
from stepping_spark.store import Held
from stepping_spark.zsets.boxes import MOST_ROWS, Box, box_of
from stepping_spark.zsets.by_key import check_set, keyed_frame, keyed_pairs, matching
from stepping_spark.zsets.from_arrow import relation_of_arrow
from stepping_spark.zsets.from_dataframe import (
    blamed,
    blaming,
    check_frame,
    guarded,
    multiplied,
    relation_of,
    summed,
)
from stepping_spark.zsets.protocol import By, T_co, ZSet
from stepping_spark.zsets.python import ZSetPython, class_of, instead_of

__all__ = ["ZSet", "ZSetPython", "ZSetSpark"]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")


class ZSetSpark(ZSet[T_co]):
    """A Z-set held as one relation: an Arrow table on the driver, or a DataFrame.

    Made by `from_dataframe`, and what a step gives. Operators on a DataFrame build a plan and run
    no job; what looks at rows (`iter`, `==`, `empty`, `repr`) runs one. `len` is there for what the
    driver holds. Not hashable: it may be too large to look at.

    >>> df = spark.sql("SELECT 1 AS x UNION ALL SELECT 1")
    >>> st.ZSetSpark.from_dataframe(df, int) == st.ZSetPython({1: 2})
    True
    """

    __hash__: ClassVar[None]  # type: ignore[assignment]

    def __init__(self, held: Held, of: ZSetType, *, guarded: bool = False) -> None:
        self._held = held
        self.type = of
        self._guarded = guarded  # rows are yet to be checked
        self._checked: Held | None = None
        self._python: ZSetPython[T_co] | None = None

    @staticmethod
    def from_dataframe(df: DataFrame, of: type[U], count: str | None = None) -> ZSetSpark[U]:
        """The lines of a DataFrame as rows of type `of`; `count` names the column of weights.

        Without `count` every line counts 1. Columns are found by name, in any order and, as in
        Spark, in any case; a row that is an atom is the one column there is, or `_value_`.
        Narrower integers, floats and decimals are widened. Raises InputError for a column that is
        missing, too many, or of another type. NULLs where the row type has none, NULL weights and
        text that is no UUID or Enum value can only be found by a job: when the value is used.
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
        return ZSetSpark(relation_of(df, t, count, where), t, guarded=True)

    @staticmethod
    def from_arrow(table: pa.Table, of: type[U], count: str | None = None) -> ZSetSpark[U]:
        """The lines of an Arrow table as rows of type `of`; `count` names the column of weights.

        The way for some ten thousand rows that the driver has: no job, and no object for each row.
        Columns are found as by `from_dataframe`, and converted where nothing is lost. Raises
        InputError for a column that is missing, too many or of another type, and for a value that
        is not what the row type says: NULL, or text that is no UUID or Enum value.

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
        return ZSetSpark(relation_of_arrow(table, t, count, where), t)

    def to_arrow(self) -> pa.Table:
        """A table of the columns of the rows, and `_count_`; each row once.

        >>> st.ZSetSpark.from_arrow(pa.table({"x": [1, 1]}), int).to_arrow().to_pylist()
        [{'_value_': 1, '_count_': 2}]
        """
        held = self.checked(self.type, "ZSetSpark", DEFAULT) if self._guarded else self._held
        if isinstance(held, DataFrame):
            with blaming("to_arrow"):
                held = fetched(held, self.type.schema, measure(held, self.type.schema), DEFAULT)
        return consolidate(conform(held, self.type.schema), self.type.schema)

    @staticmethod
    def from_parts(parts: Iterable[Held], of: ZSetType) -> ZSetSpark[Any]:
        """The sum of relations of the type's schema; of none: the empty Z-set."""
        held = list(parts)
        frames = [p for p in held if isinstance(p, DataFrame)]
        table = concat((p for p in held if not isinstance(p, DataFrame)), of.schema)
        if not frames:
            return ZSetSpark(table, of)
        frame = functools.reduce(DataFrame.unionByName, frames)
        if table.num_rows:
            frame = frame.unionByName(frame_of(table, of.schema, frame.sparkSession))
        return ZSetSpark(frame, of)

    @property
    def in_spark(self) -> bool:
        """Whether it is Spark that has the rows, and not the driver."""
        return isinstance(self._held, DataFrame)

    def checked(
        self, t: ZSetType, where: str, limits: Limits, key: Sequence[str] | None = None
    ) -> Held:
        """The relation as a step takes it: nothing in it is not of type t.

        A DataFrame is computed once, and kept: on the driver if it has few rows, each then once.
        With a key it is taken for a large one, and consolidated and partitioned as a register
        with that key will have it. The InputError, which begins with `where`, names the column
        and shows a row.
        """
        if t.row != self.type.row:
            raise InputError(f"{where}: expected {t}, found {self.type}; give rows of the type")
        if self._checked is None:
            held = self._held
            if isinstance(held, DataFrame):
                self._checked = self._computed(held, where, limits, key)
            else:
                self._checked = consolidate(held, self.type.schema)
        return self._checked

    def forget(self) -> None:
        """Compute the DataFrame anew when it is next used: what was kept of it may be lost."""
        self._checked = None

    def _computed(
        self, frame: DataFrame, where: str, limits: Limits, key: Sequence[str] | None
    ) -> Held:
        schema, measured = self.type.schema, None
        rows = guarded(frame, self.type) if self._guarded else frame
        try:
            if key is not None:
                settled = settle(rows, schema, key, where)
                kept, measured = settled.frame, settled.measured
            else:
                kept = rows.localCheckpoint()
            # What is more is left for a step to bring, which has a use for it in Spark, too.
            few = brought(
                kept,
                schema,
                measured,
                limits=limits,
                most_bytes=limits.broadcast_bytes,
                once=key is not None,
            )
            if few is not None:
                return few
            if key is None and any(has_floats(c) for c in schema.arrow.types):
                # Grouping makes one zero of two, and one NaN.
                return summed(kept, self.type).localCheckpoint()
        except PySparkException as e:
            raise blamed(e, where) from e
        return kept

    def _look(self) -> Held:
        """The relation to read from, each row once."""
        if isinstance(self._held, DataFrame) and not self._guarded:
            return summed(self._held, self.type)
        held = self.checked(self.type, "ZSetSpark", DEFAULT)
        return summed(held, self.type) if isinstance(held, DataFrame) else held

    def __neg__(self) -> ZSetSpark[T_co]:
        return self * -1

    def __add__(self, other: ZSet[U]) -> ZSetSpark[T_co | U]:
        if isinstance(other, ZSetPython):
            other = ZSetSpark(encode(other.iter(), self.type, "a + b"), self.type)
        if not isinstance(other, ZSetSpark):
            return NotImplemented
        if other.type.row != self.type.row:
            raise InputError(
                f"a + b: a is a {self.type}, b a {other.type}; add Z-sets of rows of one type"
            )
        both = ZSetSpark.from_parts((self._held, other._held), self.type)
        if isinstance(both._held, pa.Table) and _may_be_beyond(both._held):
            try:
                consolidate(both._held, self.type.schema)
            except StepError as e:  # as it is where a step adds up
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
        if isinstance(self._held, DataFrame):
            held = multiplied(self._held, n, str(beyond))
            return ZSetSpark(held, self.type, guarded=self._guarded)
        counts = self._held.column(COUNT)
        try:
            product = pc.multiply_checked(counts, pa.scalar(n, pa.int64()))
        except pa.ArrowInvalid:
            raise beyond from None
        i = self._held.schema.get_field_index(COUNT)
        return ZSetSpark(self._held.set_column(i, COUNT, product), self.type)

    def __rmul__(self, n: int) -> ZSetSpark[T_co]:
        return self * n

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ZSetPython):
            try:
                other = ZSetSpark(encode(other.iter(), self.type, "a == b"), self.type)
            except InputError:  # it has a row that this one cannot have
                return False
        if not isinstance(other, ZSetSpark):
            return NotImplemented
        large = isinstance(self._held, DataFrame) or isinstance(other._held, DataFrame)
        if large and self.type.row == other.type.row:
            return (self - other).empty()
        return self.to_python() == other.to_python()

    def __len__(self) -> int:
        held = self._look()
        if isinstance(held, DataFrame):
            raise TypeError(
                "len of a ZSetSpark that Spark holds takes a job; to_dataframe().count() runs it"
            )
        return held.num_rows

    def __bool__(self) -> bool:
        return not self.empty()

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        if match is not None:
            check_set(match, "iter, match: expected a set of rows")
            if not match:
                return
        held = self._look()
        wanted = None
        if match is not None:
            wanted = encode(((row, 1) for row in match), self.type, "match")
        if not isinstance(held, DataFrame):
            rows = None if wanted is None else {row for row, _ in decode(wanted, self.type)}
            yield from self.to_python().iter(rows)
            return
        if wanted is None:
            yield from decode(self.to_arrow(), self.type)
            return
        with blaming("iter"):
            found = matching(held, wanted, self.type.schema.columns).toArrow()
        yield from decode(conform(found, self.type.schema), self.type)

    def iter_by_index(
        self, index: By[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        key = key_of(index, self.type.row, "iter_by_index")
        held = self._look()
        if key.expr.in_sql and not isinstance(held, DataFrame):
            yield from keyed_pairs(decode(held, self.type), self.type, key, match_keys)
        else:
            with blaming("iter_by_index"):
                yield from keyed_frame(self.to_dataframe(), self.type, key, match_keys)

    def get_count(self, row: object) -> int:
        return next((n for _, n in self.iter(frozenset((row,)))), 0)

    def empty(self) -> bool:
        held = self._look()
        if not isinstance(held, DataFrame):
            return not held.num_rows
        with blaming("empty"):
            return held.isEmpty()

    def to_python(self) -> ZSetPython[T_co]:
        if self._python is None:
            self._python = ZSetPython(decode(self.to_arrow(), self.type), of=self.type.row)
        return self._python

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        held = self._held if self._checked is None else self._checked
        if isinstance(held, DataFrame):
            unchecked = self._guarded and self._checked is None
            return summed(guarded(held, self.type) if unchecked else held, self.type)
        return frame_of(
            consolidate(held, self.type.schema), self.type.schema, spark or get_session()
        )

    def __repr__(self) -> str:
        return self._box().text()

    def _repr_html_(self) -> str:
        return self._box().html()

    def _box(self) -> Box:
        held = self._look()
        if not isinstance(held, DataFrame):
            return self.to_python().box("ZSetSpark")
        by = (F.col(quote(n)) for n, _ in self.type.schema.columns)
        with blaming("repr"):
            first = held.orderBy(F.desc(COUNT), *by).limit(MOST_ROWS).toArrow()
            shown = list(decode(conform(first, self.type.schema), self.type))
            more = held.count() - len(shown) if len(shown) == MOST_ROWS else 0
        return box_of("ZSetSpark", self.type.row, shown, more)


def _may_be_beyond(table: pa.Table) -> bool:
    """Whether counts are so large that some may add up to more than 64 bits."""
    sizes = pc.abs(table.column(COUNT).cast(pa.float64(), safe=False))
    return (pc.sum(sizes).as_py() or 0.0) > 2.0**62
