"""`Limits`: the numbers that a user may set to decide where work runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import wraps
from typing import Any, TypeVar

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError

C = TypeVar("C")


def _limit(default: int, of: str, *, zero: str = "") -> Any:
    """A field: the unit that it counts, and a note on the effect of 0, if any."""
    return field(default=default, metadata={"of": of, "zero": zero})


def _refusing_others(cls: type[C]) -> type[C]:
    """A class of such fields, whose constructor lists the fields in the error for another name.

    It keeps its signature, which notebooks show.
    """
    init, names = vars(cls)["__init__"], list(cls.__annotations__)

    @wraps(init)
    def checked(self: C, *args: object, **numbers: object) -> None:
        unknown = [name for name in numbers if name not in names]
        if unknown:
            raise InputError(
                f"{user_line()}: st.{cls.__name__}: expected {', '.join(names)}, found "
                f"{', '.join(unknown)}; leave it out: other numbers are no settings"
            )
        init(self, *args, **numbers)

    cls.__init__ = checked  # type: ignore[assignment]
    return cls


@_refusing_others
@dataclass(frozen=True, kw_only=True)
class Limits:
    """The numbers that decide what runs on the driver, and what in Spark.

    They change how fast a step is and how much memory it needs, never its result. `st.Stepper`,
    `st.iteration` and `st.actions` take them for the computation. A store takes them in its
    constructor, for its reads. The defaults fit a driver with some gigabytes of memory. Raises
    `InputError` for a value that is not a whole number of 0 or more, and for an unknown name.

    >>> st.Limits(local_rows=100_000).local_rows
    100000
    """

    # -- where a stream is computed

    local_rows: int = _limit(100_000_000, "rows", zero="sends everything to Spark")
    """Rows that a stream may read to be computed on the driver. Beyond: Spark computes it.

    Up to that number, it is computed on the driver or in Spark, whichever is estimated to be
    faster, if there is enough memory.
    """

    task_rows: int = _limit(10_000, "rows", zero="allows it for any number of rows")
    """Rows of an input's change up to which streams are computed one by one. Beyond: Spark's tasks.

    Then tasks take the whole step as one job and compute with Arrow, if they know all of its
    functions, can read the state, and are estimated to be faster than the driver. They always take
    a change of more than `local_rows` rows.
    """

    parallelism: int = _limit(0, "tasks", zero="asks the session")
    """Tasks that Spark runs at the same time, for these estimates. Beyond: further tasks wait.

    With 0 it is the session's `defaultParallelism`, usually its cores. Without a session, and on
    Spark Connect, which does not report it, it is the cores of this machine, at most 8.
    """

    working_bytes: int = _limit(0, "bytes", zero="allows a quarter of the memory, at most 5 GB")
    """Bytes of the driver's memory for one computation: up to five times the bytes that it reads.

    Beyond: Spark computes it. 0 allows a quarter of the memory that this process may use, but at
    most 5 GB.
    """

    given_rows: int = _limit(100_000_000, "rows")
    """Rows in the result of one driver computation, or one read by key.

    Beyond: Spark computes it, even if it reads few rows.
    """

    given_bytes: int = _limit(0, "bytes", zero="allows a fifth of working_bytes")
    """Bytes in the result of a join, a window or a list's rows on the driver, or of a read by key.

    The bytes of a result are estimated from the average rows read. Beyond: Spark computes it.
    """

    broadcast_bytes: int = _limit(32 << 20, "bytes")
    """Bytes of a DataFrame that is fetched, of its files, or of a state that is sent to Spark.

    Beyond: the DataFrame stays in Spark, and the keys to look up in the state are fetched. Keys of
    up to that size are broadcast to all workers.
    """

    # -- fetches to the driver

    fetched_rows: int = _limit(2_000_000, "rows")
    """Computed rows that the driver fetches from Spark. Beyond: they stay in Spark.

    With more rows on the driver, Spark computes streams that need a function only Spark knows.
    """

    fetched_bytes: int = _limit(256 << 20, "bytes")
    """Bytes of such rows, in Arrow. Beyond: they stay in Spark."""

    eager_rows: int = _limit(10_000, "rows", zero="adds up any number of rows first")
    """Rows on the driver up to which a join or a sum processes them one by one.

    Beyond: rows that agree in all columns that are read are added up first, if the driver computes
    the functions that read them, and if many agree.
    """

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if type(value) is not int or value < 0:
                zero = f.metadata["zero"]
                raise InputError(
                    f"{f.name}={value!r}: expected a number of {f.metadata['of']}, 0 or more"
                    + (f"; 0 {zero}" if zero else "")
                )


DEFAULT = Limits()


def checked_limits(limits: object) -> Limits:
    """The limits that a user passed; the defaults for None."""
    if limits is None:
        return DEFAULT
    if not isinstance(limits, Limits):
        raise InputError(
            f"{user_line()}: limits={limits!r}: expected st.Limits, found "
            f"{type(limits).__name__}; write limits=st.Limits(local_rows=…)"
        )
    return limits


def limits_of(limits: Limits | None, local_rows: int | None) -> Limits:
    """The limits that a user passed, combined with `local_rows`, the short form of one of them."""
    if limits is None and local_rows is not None:
        return Limits(local_rows=local_rows)
    limits = checked_limits(limits)
    if local_rows not in (None, limits.local_rows):
        raise InputError(
            f"{user_line()}: local_rows={local_rows!r}, and limits= says "
            f"local_rows={limits.local_rows:,}; give one of the two: "
            f"limits=st.Limits(local_rows={local_rows!r}, …)"
        )
    return limits
