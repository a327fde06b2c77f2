"""Z-sets: rows and how often each is there, as values in Python and in Spark."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, ClassVar, TypeVar, overload

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from stepping_spark.algebra import By, T_co, ZSet
from stepping_spark.atoms import INT, RowType
from stepping_spark.boxes import MOST_ROWS, Box, box_of
from stepping_spark.codec import conform, decode, encode, frame_of, infer
from stepping_spark.errors import InputError
from stepping_spark.frames import blamed, check_frame, relation_of, summed
from stepping_spark.index import key_of
from stepping_spark.keyed import keyed_frame, keyed_pairs, matching
from stepping_spark.relations import concat, consolidate
from stepping_spark.schema import COUNT, ZSetType
from stepping_spark.session import get_session
from stepping_spark.store import Held
from stepping_spark.types import ZSET_CLASS, canonical, quote, row_type, sort_key

__all__ = ["ZSet", "ZSetPython", "ZSetSpark"]

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")

DRIVER_ROWS = 20_000  # a DataFrame of so few rows is brought to the driver when it is checked


class ZSetPython(ZSet[T_co]):
    """A small Z-set: immutable, hashable, in no need of Spark.

    Made of a mapping from rows to counts, of (row, count) pairs, or of another Z-set. Counts of
    equal rows are added, and zeros vanish. Rows are equal when Python says so, save that values
    of different types are never equal (`True`, `1` and `1.0` are three rows), and that NaN equals
    NaN. `of` is the type of the rows, for the few uses that need it and where the rows do not
    tell: `to_dataframe` of an empty Z-set.

    `repr` draws a box: `_count_`, then the columns of the row; greatest counts first, then in the
    order of the columns; at most 20 rows.

    >>> ZSetPython({"a": 2}) + ZSetPython([("b", 1), ("a", -2)])
    <ZSetPython>
    ╭───────────┬───────────╮
    │   _count_ │ _value_   │
    ├───────────┼───────────┤
    │         1 │ b         │
    ╰───────────┴───────────╯
    """

    def __init__(
        self,
        rows: Mapping[T_co, int] | Iterable[tuple[T_co, int]] | ZSet[T_co] = (),
        *,
        of: type[T_co] | RowType | None = None,
    ) -> None:
        self._items: dict[Hashable, tuple[T_co, int]] = {}
        annotation: Any = of
        self._of = None if of is None else row_type(annotation)
        self._hash: int | None = None
        for row, n in _pairs(rows):
            key = _identity(row)
            row, before = self._items.get(key, (row, 0))
            if before + n:
                self._items[key] = (row, before + n)
            elif before:
                del self._items[key]

    def __neg__(self) -> ZSetPython[T_co]:
        return self * -1

    @overload
    def __add__(self, other: ZSetPython[U]) -> ZSetPython[T_co | U]: ...
    @overload
    def __add__(self, other: ZSet[U]) -> ZSet[T_co | U]: ...
    def __add__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        if isinstance(other, ZSetSpark):
            return other + self
        if not isinstance(other, ZSetPython):
            return NotImplemented
        pairs = (*self._items.values(), *other._items.values())
        return ZSetPython(pairs, of=self._of or other._of)

    @overload
    def __sub__(self, other: ZSetPython[U]) -> ZSetPython[T_co | U]: ...
    @overload
    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]: ...
    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        return self + -other if isinstance(other, ZSetPython | ZSetSpark) else NotImplemented

    def __mul__(self, n: int) -> ZSetPython[T_co]:
        if type(n) is not int:
            return NotImplemented
        return ZSetPython(((row, count * n) for row, count in self.iter()), of=self._of)

    def __rmul__(self, n: int) -> ZSetPython[T_co]:
        return self * n

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ZSetPython):
            return NotImplemented
        return self._items == other._items

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset((key, n) for key, (_, n) in self._items.items()))
        return self._hash

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (tuple(self._items.values()), self._of)

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        if match is None:
            yield from self._items.values()
            return
        for row in match:
            item = self._items.get(_identity(canonical(row)))
            if item is not None:
                yield item

    def iter_by_index(
        self, index: By[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        if not self._items:
            return
        t = ZSetType(self._row_type())
        key = key_of(index, t.row, "iter_by_index")
        if key.expr.in_sql:
            yield from keyed_pairs(self.iter(), t, key, match_keys)
        else:  # only Spark can read it
            yield from keyed_frame(self.to_dataframe(), t, key, match_keys)

    def get_count(self, row: object) -> int:
        return next((n for _, n in self.iter(frozenset((row,)))), 0)

    def empty(self) -> bool:
        return not self._items

    def to_python(self) -> ZSetPython[T_co]:
        return self

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        if not self._items and self._of is None:
            raise InputError(
                "to_dataframe: an empty ZSetPython does not say what its columns are; make it "
                "with ZSetPython(of=T)"
            )
        t = ZSetType(self._row_type())
        return frame_of(encode(self.iter(), t, "to_dataframe"), t.schema, spark or get_session())

    def __repr__(self) -> str:
        return self.box().text()

    def _repr_html_(self) -> str:
        return self.box().html()

    def _row_type(self) -> RowType:
        return self._of or infer((row for row, _ in self.iter()), "ZSetPython")

    def box(self, title: str = "ZSetPython", nested: bool = False) -> Box:
        """The Z-set as a table to be drawn."""
        pairs = list(self._items.values())
        t: RowType | None = None
        keys: list[Any]
        try:
            t = self._row_type()
            keys = [sort_key(t.encode(row, "")) for row, _ in pairs]
        except InputError:  # rows of several types are drawn all the same
            t = None
            keys = [(type(row).__name__, repr(row)) for row, _ in pairs]
        order = sorted(range(len(pairs)), key=lambda i: (-pairs[i][1], keys[i]))
        shown = [pairs[i] for i in order[:MOST_ROWS]]
        return box_of(title, t, shown, len(pairs) - len(shown), nested)


ZSET_CLASS.append(ZSetPython)


class ZSetSpark(ZSet[T_co]):
    """A Z-set held as one relation: an Arrow table on the driver, or a DataFrame.

    Operators on a DataFrame build a plan and run no job; what looks at rows runs one. `len` is
    there for what the driver holds. Not hashable: it may be too large to look at.
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
        check_frame(df, where)
        annotation: Any = of
        t = ZSetType(row_type(annotation))
        return ZSetSpark(relation_of(df, t, count, where), t, guarded=True)

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

    def checked(self, t: ZSetType, where: str) -> Held:
        """The relation as a step takes it: each row once, and nothing in it that is not of type t.

        A DataFrame is computed once, by two jobs, and kept: on the driver if it has few rows. The
        InputError, which begins with `where`, names the column and shows a row.
        """
        if t.row != self.type.row:
            raise InputError(f"{where}: expected {t}, found {self.type}; give rows of the type")
        if self._checked is None:
            held = self._held
            if isinstance(held, DataFrame):
                self._checked = self._computed(held, where)
            else:
                self._checked = consolidate(held, self.type.schema)
        return self._checked

    def _computed(self, frame: DataFrame, where: str) -> Held:
        try:
            kept = summed(frame, self.type, self._guarded).localCheckpoint()
            few = kept.limit(DRIVER_ROWS + 1).toArrow()
        except PySparkException as e:
            raise blamed(e, where) from e
        return kept if few.num_rows > DRIVER_ROWS else conform(few, self.type.schema)

    def _look(self) -> Held:
        """The relation to read from, each row once."""
        if isinstance(self._held, DataFrame) and not self._guarded:
            return summed(self._held, self.type)
        return self.checked(self.type, "ZSetSpark")

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
        both._guarded = self._guarded or other._guarded
        return both

    __radd__ = __add__

    def __sub__(self, other: ZSet[U]) -> ZSetSpark[T_co | U]:
        return self + -other if isinstance(other, ZSetPython | ZSetSpark) else NotImplemented

    def __mul__(self, n: int) -> ZSetSpark[T_co]:
        if type(n) is not int:
            return NotImplemented
        INT.encode(n, "a * n")
        if isinstance(self._held, DataFrame):
            frame = self._held.withColumn(COUNT, F.col(COUNT) * F.lit(n).cast("bigint"))
            return ZSetSpark(frame, self.type, guarded=self._guarded)
        counts = self._held.column(COUNT)
        try:
            product = pc.multiply_checked(counts, pa.scalar(n, pa.int64()))
        except pa.ArrowInvalid:
            raise InputError(f"a * {n}: a count is beyond 64 bits") from None
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
        if match is not None and not match:
            return
        held = self._look()
        wanted = None
        if match is not None:
            wanted = encode(((row, 1) for row in match), self.type, "match")
        if not isinstance(held, DataFrame):
            rows = None if wanted is None else {row for row, _ in decode(wanted, self.type)}
            yield from self.to_python().iter(rows)
            return
        if wanted is not None:
            held = matching(held, wanted, self.type.schema.columns)
        yield from decode(conform(held.toArrow(), self.type.schema), self.type)

    def iter_by_index(
        self, index: By[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        key = key_of(index, self.type.row, "iter_by_index")
        held = self._look()
        if key.expr.in_sql and not isinstance(held, DataFrame):
            yield from keyed_pairs(decode(held, self.type), self.type, key, match_keys)
        else:
            yield from keyed_frame(self.to_dataframe(), self.type, key, match_keys)

    def get_count(self, row: object) -> int:
        return next((n for _, n in self.iter(frozenset((row,)))), 0)

    def empty(self) -> bool:
        held = self._look()
        return held.isEmpty() if isinstance(held, DataFrame) else not held.num_rows

    def to_python(self) -> ZSetPython[T_co]:
        if self._python is None:
            held = self._look()
            if isinstance(held, DataFrame):
                held = conform(held.toArrow(), self.type.schema)
            self._python = ZSetPython(decode(held, self.type), of=self.type.row)
        return self._python

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        held = self._held if self._checked is None else self._checked
        if isinstance(held, DataFrame):
            return summed(held, self.type, self._guarded)
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
        first = held.orderBy(F.desc(COUNT), *by).limit(MOST_ROWS)
        shown = list(decode(conform(first.toArrow(), self.type.schema), self.type))
        more = held.count() - len(shown) if len(shown) == MOST_ROWS else 0
        return box_of("ZSetSpark", self.type.row, shown, more)


def _made(pairs: Iterable[tuple[T, int]], of: RowType | None) -> ZSetPython[T]:
    return ZSetPython(pairs, of=of)


def _identity(row: object) -> Hashable:
    """What equal rows have in common, and others have not: True, 1 and 1.0 are three rows."""
    if isinstance(row, tuple):
        return (tuple, *map(_identity, row))
    return (type(row), row)


def _pairs(rows: Any) -> Iterator[tuple[Any, int]]:
    """The rows and counts that a Z-set is made from."""
    if isinstance(rows, ZSetPython | ZSetSpark):
        yield from rows.iter()
        return
    for pair in rows.items() if isinstance(rows, Mapping) else rows:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(
                f"ZSetPython: expected (row, count) pairs, found {pair!r} ({type(pair).__name__});"
                " give {row: count, ...}, or pairs"
            )
        row, n = pair
        if type(n) is not int:
            raise InputError(
                f"ZSetPython: the count of {row!r} is {n!r} ({type(n).__name__}); expected an int"
            )
        row = canonical(row)
        try:
            hash(row)
        except TypeError as e:
            raise InputError(
                f"ZSetPython: {row!r} cannot be a row: {e}; a row is a value, a tuple, a st.Data "
                "or a st.Pair"
            ) from None
        yield row, n
