"""Rows: `Data`, the base of user-defined rows, and `Pair`, a row of two."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import keyword
import sys
import typing
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar

from typing_extensions import dataclass_transform, get_original_bases

from stepping_spark.base.errors import short
from stepping_spark.rows.atoms import ATOMS, STORABLE, RowType
from stepping_spark.rows.names import columns_said
from stepping_spark.rows.types import Optional, Struct, bound, canonical, is_open, row_type, unwrap


class NoSuchRow(TypeError):
    """Raised if the values for a row do not match its fields."""


def merged(
    rows: Collection[Any],
    values: Mapping[str, Any],
    wanted_names: Collection[str] | None,
    where: str,
) -> dict[str, Any]:
    """The fields of rows by name, and the given values, which take precedence.

    A Pair stands for its two rows. `wanted_names` are the wanted fields; None means all. Raises
    NoSuchRow for a field that two rows have, because it is ambiguous.
    """
    named_rows = [(row, _names_of(row, where)) for one in rows for row in _sides(one)]
    fields: dict[str, Any] = {}
    for name in dict.fromkeys(name for _, names in named_rows for name in names):
        if name in values or (wanted_names is not None and name not in wanted_names):
            continue
        having = [row for row, names in named_rows if name in names]
        if len(having) > 1:
            raise NoSuchRow(
                f"{where}: {len(having)} rows have a field {name!r}; say which one is meant: "
                f"{name}=…"
            )
        fields[name] = getattr(having[0], name)
    return {**fields, **values}


def _names_of(row: Any, where: str) -> tuple[str, ...]:
    names: tuple[str, ...] | None = getattr(row, "__row_names__", None)
    if names is None:
        raise NoSuchRow(f"{where}: expected rows, found {short(row)}; give single values by name")
    return names


def _sides(row: Any) -> tuple[Any, ...]:
    """A row, or the two rows of a Pair."""
    names = getattr(row, "__row_names__", ())
    return (row.left, row.right) if names == ("left", "right") else (row,)


L = TypeVar("L", covariant=True)  # covariant, because rows are immutable
R = TypeVar("R", covariant=True)

_MADE_CANONICAL = (float, list, tuple)


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Data:
    """A row with named, typed fields: frozen, hashable and keyword-only.

    A subclass adds fields to the fields of its base. Each field becomes a Spark column. A type that
    no column can hold raises `TypeError` when the class is created. A field with a default may be
    omitted. A generic class such as `Pair` may be a base with its types in brackets: `class
    P(st.Pair[int, str])`.

    >>> class A(st.Data):
    ...     x: int
    ...     name: str | None = None
    >>> A(x=24, name="Bob")
    A(x=24, name='Bob')
    """

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
    __row_annotations__: ClassVar[dict[str, Any]] = {}
    __row_nulls__: ClassVar[frozenset[str]] = frozenset()
    """The fields that may be None, or whose type is not known yet."""
    __row_columns__: ClassVar[dict[str, str]] = {}
    """The columns of fields whose column has another name; see `Column`."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # The class is still being created. It may use names that are local to the calling function.
        around = sys._getframe(1)
        names = {**around.f_globals, **around.f_locals}
        try:
            hints = typing.get_type_hints(cls, localns=names, include_extras=True)
        except NameError as e:
            raise _undefined(cls, str(e.name)) from None
        cls.__row_annotations__ = hints | _bound(cls)
        _check_are_names(cls, cls.__row_annotations__)
        _check_have_types(cls)
        own_init = "__init__" in vars(cls)
        for name in cls.__row_annotations__:
            if (
                name in vars(Data)
                and name not in vars(cls)
                and name in inspect.get_annotations(cls)
            ):
                setattr(cls, name, dataclasses.field())  # a field, and not the method of this name
        try:
            dataclasses.dataclass(frozen=True, kw_only=True)(cls)
        except ValueError as e:
            raise _changeable(cls, e) from None
        if not own_init:
            setattr(cls, "__init__", _telling(cls))  # noqa: B010
        seen: dict[str, str] = {}
        nulls = set()
        for name, annotation in cls.__row_fields__().items():
            _check_name(cls, name, seen)
            try:
                if is_open(annotation) or isinstance(row_type(annotation), Optional):
                    nulls.add(name)
            except TypeError as e:
                raise TypeError(f"{cls.__name__}.{name}: {e}") from None
        cls.__row_nulls__ = frozenset(nulls)
        cls.__row_columns__ = dict(columns_said(cls.__name__, cls.__row_fields__()))

    def __post_init__(self) -> None:
        for name, value in self.__dict__.items():
            if value is None:
                if name not in self.__row_nulls__:
                    raise _none(type(self), name)
            elif isinstance(value, _MADE_CANONICAL):
                object.__setattr__(self, name, canonical(value))

    @classmethod
    def of(cls, /, *rows: Any, **values: Any) -> Self:
        """A row with the fields of other rows, by name, and with the given values.

        It makes it unnecessary to copy each field, in a function of rows and in Python, like
        `select *`. A `Pair` stands for its two rows. Fields that this class does not have are left
        out. A field that two rows have must be given, because it is ambiguous.

        >>> class Order(st.Data):
        ...     id: int
        ...     cents: int
        >>> class Priced(Order):
        ...     euros: float
        >>> def priced(orders: st.ZSet[Order]) -> st.ZSet[Priced]:
        ...     return st.map(orders, f=lambda o: Priced.of(o, euros=o.cents / 100))
        >>> Priced.of(Order(id=1, cents=250), euros=2.5)
        Priced(id=1, cents=250, euros=2.5)
        """
        return cls(**merged(rows, values, cls.__row_fields__(), f"{cls.__name__}.of"))

    @property
    def __row_names__(self) -> tuple[str, ...]:
        """The names of the fields; a symbolic row has this property, too."""
        return tuple(self.__row_fields__())

    @classmethod
    def __row_fields__(cls) -> dict[str, Any]:
        return {f.name: cls.__row_annotations__[f.name] for f in dataclasses.fields(cls)}


def _none(cls: type[Data], name: str) -> NoSuchRow:
    t = row_type(cls.__row_annotations__[name])
    return NoSuchRow(
        f"{cls.__name__}.{name} is {t}, found None; give a value, or declare it {name}: {t} | None"
    )


def _telling(cls: type[Data]) -> Callable[..., None]:
    """The constructor of a row class, with errors that list its fields."""
    constructor = cls.__init__

    @functools.wraps(constructor)
    def init(self: Data, /, *args: object, **values: object) -> None:
        try:
            constructor(self, *args, **values)
        except TypeError:
            wrong = ", ".join(_wrong(cls, len(args), values.keys()))
            if wrong:
                raise NoSuchRow(f"{cls.__name__}: {wrong}; {fields_of(cls)}") from None
            raise

    return init


def _wrong(cls: type[Data], positional: int, names: Collection[str]) -> Iterator[str]:
    fields = {f.name: f for f in dataclasses.fields(cls)}
    if positional:
        yield f"{positional} positional argument{'s' if positional > 1 else ''}"
        return
    unknown = [repr(n) for n in names if n not in fields]
    if unknown:
        yield f"no field {', '.join(unknown)}"
    missing = [repr(n) for n, f in fields.items() if n not in names and not _has_default(f)]
    if missing:
        yield f"no value for {', '.join(missing)}"


def _check_have_types(cls: type) -> None:
    """Refuse attributes without an annotation that were meant as fields."""
    annotated = inspect.get_annotations(cls)
    for name, value in vars(cls).items():
        if name in annotated or name.startswith("_"):
            continue
        type_name = type(value).__name__ if type(value) in ATOMS else "…"
        remedy = f"{name}: {'… | None' if value is None else type_name} = {value!r}"
        if typing.get_origin(value) is not None or (isinstance(value, type) and value in ATOMS):
            remedy = f"{name}: {value.__name__ if isinstance(value, type) else value}"
        elif callable(value) or hasattr(value, "__get__"):
            continue
        raise TypeError(
            f"{cls.__name__}.{name} = {value!r} has no type, so it is not a field; write {remedy}, "
            f"or for a constant of the class {name}: ClassVar = …"
        )


def _bound(cls: type) -> dict[str, Any]:
    """The annotations of inherited fields, with type variables bound as in the class's bases."""
    annotated = inspect.get_annotations(cls)
    inherited: dict[str, Any] = {}
    for base in reversed(get_original_bases(cls)):
        origin = typing.get_origin(base) or base
        variables = getattr(origin, "__parameters__", ())
        bindings = dict(zip(variables, typing.get_args(base), strict=False))
        for name, annotation in getattr(origin, "__row_annotations__", {}).items():
            if name not in annotated:
                inherited[name] = bound(annotation, bindings)
    return inherited


def _check_name(cls: type, name: str, seen: dict[str, str]) -> None:
    if name.startswith("_"):
        raise TypeError(
            f"{cls.__name__}.{name}: names that begin with '_' are kept for columns such as "
            "_count_; rename the field"
        )
    other = seen.setdefault(_as_compared(name), name)
    if other != name:
        raise TypeError(
            f"{cls.__name__}: fields {other!r} and {name!r} are one column to Spark, which "
            "ignores case; rename one"
        )


def _check_are_names(cls: type, fields: Collection[str]) -> None:
    """Refuse names that are not Python's, before `dataclass` puts them into source code."""
    for name in (cls.__name__, *fields):
        as_read = unicodedata.normalize("NFKC", name)  # Python reads names in source code like this
        if not name.isidentifier() or keyword.iskeyword(name) or as_read != name:
            what = "a row class" if name is cls.__name__ else f"a field of {cls.__name__}"
            raise TypeError(
                f"{name!r} is not a name for {what}; use letters, digits and _, not a digit "
                "first, and not a keyword of Python"
            )


def _as_compared(name: str) -> str:
    """The form of a name that Spark compares: each letter in upper, then in lower case, as in Java.

    So ς equals σ and ı equals i, but ß does not equal SS.
    """
    upper = (c.upper() if len(c.upper()) == 1 else c for c in name)
    return "".join(c.lower()[0] for c in upper)


def _changeable(cls: type, error: ValueError) -> TypeError:
    changeable = (list, dict, set)
    names = [n for n in cls.__annotations__ if isinstance(cls.__dict__.get(n), changeable)]
    if not names:
        return TypeError(f"{cls.__name__}: {error}")
    default = cls.__dict__[names[0]]
    remedy = "leave the default out"
    if isinstance(default, list):
        remedy = f"write {names[0]} = {tuple(default)!r}"
    return TypeError(
        f"{cls.__name__}.{names[0]}: the default {default!r} can be changed, and all rows would "
        f"share it; {remedy}"
    )


def _undefined(cls: type, name: str) -> TypeError:
    fields = [f for f, a in inspect.get_annotations(cls).items() if name in str(a)]
    return TypeError(
        f"{cls.__name__}.{', '.join(fields)}: the type names {name!r}, which is not defined where "
        f"the class is made; define it before (a row cannot hold rows of its own class). "
        f"These can be stored: {STORABLE}"
    )


def fields_of(cls: type[Data]) -> str:
    """The fields of a row class and a call that creates one, for messages."""
    types = cls.__row_fields__()
    fields_text = ", ".join(
        f"{f.name}: {_annotation_text(types[f.name])}"
        + (" (may be left out)" if _has_default(f) else "")
        for f in dataclasses.fields(cls)
    )
    call = ", ".join(f"{n}=…" for n in types)
    return f"{cls.__name__} has the fields {fields_text}: write {cls.__name__}({call})"


def _annotation_text(annotation: Any) -> str:
    return "any" if is_open(annotation) else str(row_type(annotation))


def _has_default(field: dataclasses.Field[Any]) -> bool:
    # Compare its class: a row class that was sent to another process has another MISSING object.
    missing = type(dataclasses.MISSING)
    return not (isinstance(field.default, missing) and isinstance(field.default_factory, missing))


class Pair(Data, Generic[L, R]):
    """Two rows side by side, `left` and `right`: the result of a join, or a group with its key.

    The missing side of an outer join is None: `Pair[L, R | None]`.

    >>> st.Pair(left=1, right="a")
    Pair(left=1, right='a')
    """

    left: L
    right: R


V = TypeVar("V")
W = TypeVar("W")


class Update(Data, Generic[V, W]):
    """A future change: `value` with a weight, from `time` on. See `st.join_function`.

    >>> st.Update(value="x", time=7)
    Update(value='x', time=7, weight=1)
    """

    value: V
    time: W
    weight: int = 1


class Timed(Data, Generic[V, W]):
    """A row, and the time from which it exists."""

    value: V
    time: W


class Session(Data, Generic[V, W]):
    """A row, and the times of the first and the last row of its session. See `st.sessions`.

    >>> st.Session(row="a", start=3, end=7)
    Session(row='a', start=3, end=7)
    """

    row: V
    start: W
    end: W


def session_of(row: RowType, at: RowType) -> Struct:
    """The type of a Session."""
    return Struct("Session", (("row", row), ("start", at), ("end", at)), Session)


def weighted(items: Iterable[Any] | None) -> Iterator[tuple[Any, int]]:
    """The values and weights in the result of an exploding function; updates keep their times."""
    for item in items or ():
        if isinstance(item, Update):
            yield Timed(value=item.value, time=item.time), item.weight
        else:
            yield item


def timed(value: RowType, time: RowType) -> Struct:
    """The type of a row and the time from which it exists."""
    return Struct("Timed", (("value", value), ("time", unwrap(time))), Timed)


def pair_of(left: RowType, right: RowType) -> Struct:
    """The type of a Pair."""
    return Struct("Pair", (("left", left), ("right", right)), Pair)
