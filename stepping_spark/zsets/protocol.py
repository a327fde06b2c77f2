"""The protocol that all Z-set classes satisfy, and the annotation for queries."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from stepping_spark.expressions.index import Index
from stepping_spark.packages import DataFrame, SparkSession

if TYPE_CHECKING:
    from stepping_spark.zsets.python import ZSetPython

U = TypeVar("U")
K = TypeVar("K")
T_co = TypeVar("T_co", covariant=True)

By: TypeAlias = Index[Any, K] | Callable[[Any], K]


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
        """Whether there is any row: `not empty()`. Counts of different rows do not cancel."""
        raise NotImplementedError

    def __len__(self) -> int:
        """The number of different rows. Raises TypeError if counting them would take a job."""
        raise NotImplementedError

    def iter(self, match: AbstractSet[object] | None = None) -> Iterator[tuple[T_co, int]]:
        """Rows and their counts, in no order. With `match`, only the rows in it."""
        raise NotImplementedError

    def iter_by_index(
        self, index: By[K], match_keys: AbstractSet[object] | None = None
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
        """Whether there is no row."""
        raise NotImplementedError

    def to_python(self) -> ZSetPython[T_co]:
        """The same value as a `ZSetPython`. Brings all its rows to the driver."""
        raise NotImplementedError

    def to_arrow(self) -> pa.Table:
        """An Arrow table of the row's columns (`_value_` for a single value) and `_count_`."""
        raise NotImplementedError

    def to_dataframe(self, spark: SparkSession | None = None) -> DataFrame:
        """The row's columns (`_value_` for a single value), then `_count_`; one line per row."""
        raise NotImplementedError
