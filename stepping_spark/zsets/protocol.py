"""What a Z-set is, to a type checker and to a reader: the protocol that its classes satisfy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from stepping_spark.expressions.index import Index

if TYPE_CHECKING:
    from stepping_spark.zsets.python import ZSetPython

U = TypeVar("U")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)

By: TypeAlias = Index[Any, K] | Callable[[Any], K]


class ZSet(Protocol[T_co]):
    """Rows of type T, each with a count, which may be negative: the annotation in queries.

    A Z-set is a function from rows to whole numbers; a row that is absent has the count 0. Z-sets
    add up row by row: an abelian group. They are immutable values, and therefore covariant: a
    `ZSet[int]` may be used as a `ZSet[int | None]`.

    `ZSetPython` and `ZSetSpark` are both `ZSet`s, may be mixed in every operator, and are equal if
    they have the same rows with the same counts.

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
        """The counts of each row, added."""
        raise NotImplementedError

    def __sub__(self, other: ZSet[U]) -> ZSet[T_co | U]:
        """a + (-b)."""
        raise NotImplementedError

    def __mul__(self, n: int) -> ZSet[T_co]:
        """Every count n times."""
        raise NotImplementedError

    def __rmul__(self, n: int) -> ZSet[T_co]:
        """n * a = a * n."""
        raise NotImplementedError

    def __bool__(self) -> bool:
        """Whether there is a row: `not empty()`. Counts that cancel out are of different rows."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many different rows there are; a TypeError where only a job could tell."""
        raise NotImplementedError

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        """Rows and their counts, in no order; only the rows of `match`, if it is given."""
        raise NotImplementedError

    def iter_by_index(
        self, index: By[K], match_keys: AbstractSet[object] | None = None
    ) -> Iterator[tuple[K, T_co, int]]:
        """Keys, rows and counts, in the order of the keys; only those of `match_keys`, if given.

        The order is Spark's: NULL first and NaN last, the reverse where the index descends. Rows
        of one key come in the order of their columns.
        """
        raise NotImplementedError

    def get_count(self, row: object) -> int:
        """The count of a row; 0 if it is not there."""
        raise NotImplementedError

    def empty(self) -> bool:
        """Whether no row is there."""
        raise NotImplementedError

    def to_python(self) -> ZSetPython[T_co]:
        """The same value as a `ZSetPython`; brings all its rows to the driver."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """The columns of the row (`_value_` of a single value) and `_count_`, as an Arrow table."""
        raise NotImplementedError

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        """The columns of the row (an atom's: `_value_`), then `_count_`; one line for each row."""
        raise NotImplementedError
