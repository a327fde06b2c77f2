"""The protocol of Z-sets, and small Z-sets as Python values."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from collections.abc import Set as AbstractSet
from typing import Any, Protocol, TypeAlias, TypeVar, overload

import pyarrow as pa

from stepping_spark.base.errors import InputError, short
from stepping_spark.base.packages import DataFrame, SparkSession
from stepping_spark.base.packages import functions as F
from stepping_spark.expressions.index import Index, Key, key_of
from stepping_spark.expressions.symbolic import to_column
from stepping_spark.relations.codec import conform, decode, encode, infer
from stepping_spark.relations.transfer import frame_of, matching
from stepping_spark.rows.atoms import RowType
from stepping_spark.rows.boxes import MOST_ROWS, Box, box_of
from stepping_spark.rows.data import Data
from stepping_spark.rows.schema import Columns, Schema, ZSetType
from stepping_spark.rows.types import ZSET_CLASS, canonical, quote, row_type, sort_key
from stepping_spark.spark.session import get_session

Keyed = Iterator[tuple[Any, Any, int]]

_WHERE = "iter_by_index, match_keys"


def keyed_pairs(
    pairs: Iterable[tuple[Any, int]], t: ZSetType, key: Key, match_keys: Set[object] | None
) -> Keyed:
    """Keys, rows and counts in the order of the keys, computed in Python."""
    sort_keys = None
    if match_keys is not None:
        sort_keys = {sort_key(k) for k in _encoded(match_keys, key)}
    entries = []
    for row, n in pairs:
        encoded = key.type.encode(key.expr.value(row), f"the key of {row!r}")
        if sort_keys is None or sort_key(encoded) in sort_keys:
            entries.append((encoded, row, n))
    entries.sort(key=lambda f: sort_key(t.row.encode(f[1], "iter_by_index")))
    # Sorting is stable, in both directions, so the last part of the key is sorted first.
    for i, up in reversed(list(enumerate(key.ascending))):
        entries.sort(key=lambda f: sort_key(_parts(key, f[0])[i]), reverse=not up)
    for encoded, row, n in entries:
        yield key.type.decode(encoded), row, n


def check_set(value: object, expected: str) -> None:
    """Refuse other values than sets: a bare row or key may be iterable, too."""
    if not isinstance(value, Set):
        raise InputError(f"{expected}, found {short(value)}; write {{…}} around what you look for")


def _encoded(match_keys: Set[object], key: Key) -> list[Any]:
    check_set(match_keys, f"{_WHERE}: expected a set of keys")
    return [key.type.encode(k, _WHERE) for k in match_keys]


def keyed_frame(frame: DataFrame, t: ZSetType, key: Key, match_keys: Set[object] | None) -> Keyed:
    """Keys, rows and counts in the order of the keys, computed by Spark in one job."""
    parts = tuple((f"_k{i}_", p.type) for i, p in enumerate(key.parts))
    computed = [to_column(p).alias(n) for p, (n, _) in zip(key.parts, parts, strict=True)]
    keyed = frame.select(*computed, *(F.col(quote(n)) for n, _ in t.schema.all))
    if match_keys is not None:
        encoded = _encoded(match_keys, key)
        keyed = matching_rows(keyed, _table([_parts(key, e) for e in encoded], parts), parts)
    order = [
        F.col(n).asc() if up else F.col(n).desc()
        for (n, _), up in zip(parts, key.ascending, strict=True)
    ]
    ordered = keyed.orderBy(*order, *(F.col(quote(n)) for n, _ in t.schema.columns))
    table = conform(ordered.toArrow(), Schema(parts + t.schema.columns, t.schema.diffs))
    keys = zip(*(table.column(n).to_pylist() for n, _ in parts), strict=True)
    for values, (row, n) in zip(keys, decode(table.select(t.schema.arrow.names), t), strict=True):
        yield key.type.decode(_joined(key, values)), row, n


def _parts(key: Key, encoded: Any) -> list[Any]:
    """The encoded values of a key's parts."""
    return [encoded] if key.parts == (key.expr,) else list(encoded.values())


def _joined(key: Key, parts: Sequence[Any]) -> Any:
    """The encoded key with these parts; the inverse of `_parts`."""
    if key.parts == (key.expr,):
        return parts[0]
    return {f"_{i}": value for i, value in enumerate(parts, 1)}


def _table(rows: Sequence[Sequence[Any]], columns: Columns) -> pa.Table:
    schema = Schema(columns, ()).arrow
    arrays = [pa.array([row[i] for row in rows], f.type) for i, f in enumerate(schema)]
    return pa.Table.from_arrays(arrays, schema=schema)


def matching_rows(frame: DataFrame, rows: pa.Table, columns: Columns) -> DataFrame:
    """The lines of the DataFrame whose columns match one of the rows. NULL matches NULL."""
    match_frame = frame_of(
        rows.select([n for n, _ in columns]), Schema(columns, ()), frame.sparkSession
    )
    return matching(frame, match_frame, columns, small=True)


U = TypeVar("U")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)

KeyArgument: TypeAlias = Index[Any, K] | Callable[[Any], K]


class ZSet(Protocol[T_co]):
    """Rows of type T, each with a count, which may be negative. Queries use it as annotation.

    A Z-set is a function from rows to whole numbers. The count of an absent row is 0. Z-sets are
    added row by row: they form an abelian group. They are immutable values, and therefore
    covariant: a `ZSet[int]` may be used as a `ZSet[int | None]`.

    `ZSetPython` and `ZSetSpark` are both `ZSet`s. Every operator accepts a mix of them, and they
    are equal if they have the same rows with the same counts.

    >>> def query(orders: st.ZSet[str]) -> st.ZSet[str]:
    ...     return orders + orders
    >>> (out,) = st.reference(st.compile(query)).step((st.ZSetPython({"tea": 1}),))
    >>> dict(out.iter())
    {'tea': 2}
    """

    def __neg__(self) -> ZSet[T_co]:
        """Every count with the opposite sign."""
        raise NotImplementedError

    def __add__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        """The sum: the counts of each row are added."""
        raise NotImplementedError

    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        """The difference, a + (-b)."""
        raise NotImplementedError

    def __mul__(self, n: int) -> ZSet[T_co]:
        """Every count times n."""
        raise NotImplementedError

    def __rmul__(self, n: int) -> ZSet[T_co]:
        """n * a = a * n."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        """Whether it has a row: `not empty()`. Counts of different rows do not cancel."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of different rows. Raises TypeError if counting them would take a job."""
        raise NotImplementedError

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        """Rows and their counts, in no order. With `match`, only the rows in it."""
        raise NotImplementedError

    def iter_by_index(
        self, index: KeyArgument[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        """Keys, rows and counts, in the order of the keys. With `match_keys`, only those keys.

        The order is Spark's: NULL first and NaN last, and the reverse for a descending index. Rows
        with the same key are ordered by their columns.
        """
        raise NotImplementedError

    def get_count(self, row: object) -> int:
        """The count of a row; 0 if it is absent."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether it has no rows."""
        raise NotImplementedError

    def to_python(self) -> ZSetPython[T_co]:
        """The Z-set as a `ZSetPython`. Brings all its rows to the driver."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """An Arrow table of the row's columns (`_value_` for a single value) and `_count_`."""
        raise NotImplementedError

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        """The row's columns (`_value_` for a single value), then `_count_`; one line per row."""
        raise NotImplementedError


T = TypeVar("T")


class ZSetPython(ZSet[T_co]):
    """A small Z-set: immutable, hashable, without Spark.

    Create it from a mapping of rows to counts, from (row, count) pairs, or from another Z-set.
    Counts of equal rows are added, and rows with count zero disappear. Rows are equal if they are
    equal in Python, with two exceptions: values of different types are never equal (`True`, `1` and
    `1.0` are three rows), and NaN equals NaN. `of` is the type of the rows. It is needed only
    without rows from which to derive the type, as for `to_dataframe` of an empty Z-set.

    `repr` draws a box with `_count_` and the columns of the row. It shows at most 20 rows, the
    largest counts first, then in the order of the columns.

    >>> st.ZSetPython({"a": 2}) + st.ZSetPython([("b", 1), ("a", -2)])
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
        if not isinstance(other, ZSetPython):  # ZSetSpark.__radd__ does the addition
            return NotImplemented
        pairs = (*self._items.values(), *other._items.values())
        return ZSetPython(pairs, of=self._of or other._of)

    @overload
    def __sub__(self, other: ZSetPython[U]) -> ZSetPython[T_co | U]: ...
    @overload
    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]: ...
    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        return self + -other if isinstance(other, ZSetPython) else NotImplemented

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
        return _zset, (tuple(self._items.values()), self._of)

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return bool(self._items)

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        if match is None:
            yield from self._items.values()
            return
        check_set(match, "iter, match: expected a set of rows")
        for row in match:
            item = self._items.get(_identity(canonical(row)))
            if item is not None:
                yield item

    def iter_by_index(
        self, index: KeyArgument[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        if not self._items:
            return
        t = ZSetType(self._row_type())
        key = key_of(index, t.row, "iter_by_index")
        if key.expr.in_sql:
            yield from keyed_pairs(self.iter(), t, key, match_keys)
        else:  # only Spark can evaluate the key
            yield from keyed_frame(self.to_dataframe(), t, key, match_keys)

    def get_count(self, row: object) -> int:
        return next((n for _, n in self.iter(frozenset((row,)))), 0)

    def empty(self) -> bool:
        return not self._items

    def to_python(self) -> ZSetPython[T_co]:
        return self

    def to_arrow(self) -> pa.Table:
        return self._encoded("to_arrow")[0]

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        table, t = self._encoded("to_dataframe")
        return frame_of(table, t.schema, spark or get_session())

    def _encoded(self, where: str) -> tuple[pa.Table, ZSetType]:
        """The rows and counts as an Arrow table, and their type."""
        if not self._items and self._of is None:
            raise InputError(
                f"{where}: an empty ZSetPython does not say what its columns are; make it "
                "with ZSetPython(of=T)"
            )
        t = ZSetType(self._row_type())
        return encode(self.iter(), t, where), t

    def __repr__(self) -> str:
        return self.box().text()

    def _repr_html_(self) -> str:
        return self.box().html()

    def _row_type(self) -> RowType:
        return self._of or infer((row for row, _ in self.iter()), "ZSetPython")

    def box(self, title: str = "ZSetPython", nested: bool = False) -> Box:
        """The Z-set as a table to draw."""
        pairs = list(self._items.values())
        t: RowType | None = None
        keys: list[Any]
        try:
            t = self._row_type()
            keys = [sort_key(t.encode(row, "")) for row, _ in pairs]
        except InputError:  # rows of several types can still be drawn
            t = None
            keys = [(type(row).__name__, repr(row)) for row, _ in pairs]
        order = sorted(range(len(pairs)), key=lambda i: (-pairs[i][1], keys[i]))
        first_pairs = [pairs[i] for i in order[:MOST_ROWS]]
        return box_of(title, t, first_pairs, len(pairs) - len(first_pairs), nested)


ZSET_CLASS.append(ZSetPython)


def _zset(pairs: Iterable[tuple[T, int]], of: RowType | None) -> ZSetPython[T]:
    return ZSetPython(pairs, of=of)


def _identity(row: object) -> Hashable:
    """A value that is equal for equal rows only: True, 1 and 1.0 are three rows."""
    if isinstance(row, tuple):
        return (tuple, *map(_identity, row))
    return (type(row), row)


def _pairs(rows: Any) -> Iterator[tuple[Any, int]]:
    """The (row, count) pairs of a constructor's argument."""
    if ZSet in type(rows).__mro__:
        yield from rows.iter()
        return
    if not isinstance(rows, Iterable) or isinstance(rows, str | bytes | Data) or _is_pandas(rows):
        raise InputError(
            f"ZSetPython: expected rows and their counts, found {class_of(rows)}; "
            + instead_of(rows, "give {row: count, ...}, such as {row: 1}, or (row, count) pairs")
        )
    for pair in rows.items() if isinstance(rows, Mapping) else rows:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InputError(
                f"ZSetPython: expected (row, count) pairs, found {short(pair)}; give "
                "{row: count, ...}, such as {row: 1}, or (row, count) pairs"
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


def no_zset(value: object, t: ZSetType, where: str) -> InputError:
    """The error for a step's input that is not a Z-set."""
    remedy = instead_of(value, "give a st.ZSetPython, a st.ZSetSpark, or None for no change")
    return InputError(f"{where}: expected {t}, found {class_of(value)}; {remedy}")


def class_of(value: object) -> str:
    """A value's class, for a message. DataFrames get their package, since two have that class."""
    name = type(value).__name__
    return f"pandas {name}" if _is_pandas(value) else name


def instead_of(value: object, otherwise: str) -> str:
    """The advice for a value that is not a Z-set."""
    if _is_pandas(value):
        return "give st.ZSetSpark.from_arrow(pa.Table.from_pandas(df), T), with pyarrow as pa"
    if isinstance(value, DataFrame):
        return "give st.ZSetSpark.from_dataframe(df, T)"
    if isinstance(value, pa.Table):
        return "give st.ZSetSpark.from_arrow(table, T)"
    if isinstance(value, Data):
        return "give st.ZSetPython({row: 1})"
    if isinstance(value, Mapping):
        return "give st.ZSetPython({row: count, ...})"
    return otherwise


def _is_pandas(value: object) -> bool:
    return type(value).__module__.partition(".")[0] == "pandas"
