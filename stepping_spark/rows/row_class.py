"""Row classes from schemas: a class with a field for each column, and its source code."""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import keyword
import re
import typing
import unicodedata
from collections.abc import Collection, Iterator
from typing import Annotated, Any, TypeVar

import pyarrow as pa

from stepping_spark.rows.atoms import Column, LocalDateTime, Precision
from stepping_spark.rows.data import Data, merged

_SIMPLE: tuple[tuple[Any, Any], ...] = (
    (pa.types.is_boolean, bool),
    (pa.types.is_integer, int),
    (pa.types.is_floating, float),
    (pa.types.is_string, str),
    (pa.types.is_large_string, str),
    (pa.types.is_string_view, str),
    (pa.types.is_binary, bytes),
    (pa.types.is_large_binary, bytes),
    (pa.types.is_binary_view, bytes),
    (pa.types.is_fixed_size_binary, bytes),
    (pa.types.is_date, dt.date),
    (pa.types.is_duration, dt.timedelta),
)


def class_of(schema: pa.Schema, name: str, required: Collection[str] = ()) -> type[Data]:
    """A row class with a field for each column of a schema.

    `required` are columns that are never NULL, even if the schema allows NULL. Columns of types
    that rows cannot hold are left out; the docstring of the class names them.
    """
    unknown = [column for column in required if column not in schema.names]
    if unknown:
        raise TypeError(
            f"required= names {', '.join(map(repr, unknown))}, and the columns are "
            f"{', '.join(schema.names)}"
        )
    annotations: dict[str, Any] = {}
    left_out = []
    for field in schema:
        annotation = _annotation(field.type, f"{name}{_capital(field.name)}")
        if annotation is None or not field.name:
            left_out.append(f"{field.name or 'a column without a name'} ({_type_text(field.type)})")
            continue
        if field.nullable and field.name not in required:
            annotation = annotation | None
        attribute = field_name(field.name, annotations)
        if attribute != field.name:
            annotation = Annotated[annotation, Column(field.name)]
        annotations[attribute] = annotation
    if not annotations:
        raise TypeError(
            f"a row can hold none of the columns {', '.join(left_out)}"
            if left_out
            else "a row class needs a column, and the schema has none"
        )
    doc = f"Left out: {', '.join(left_out)}." if left_out else None
    row_class: type[Data] = type(name, (Data,), {"__annotations__": annotations, "__doc__": doc})
    return row_class


def row(*rows: Any, **values: Any) -> Any:
    """A row without a class of its own: the fields of other rows, and the given values.

    For functions of rows in a query whose result needs no name: `SELECT o.*, cents / 100 AS euros`.
    A `Pair` stands for its two rows. A field that two rows have must be given. The fields have the
    types of the values; messages and pictures call the class `Row`. An aggregate or a window
    without `into=` returns such rows, too.

    >>> class Order(st.Data):
    ...     id: int
    ...     cents: int
    >>> def priced(orders: st.ZSet[Order]) -> st.ZSet[Any]:
    ...     return st.map(orders, f=lambda o: st.row(o, euros=o.cents / 100))
    >>> (out,) = st.reference(st.compile(priced)).step((st.ZSetPython({Order(id=1, cents=50): 1}),))
    >>> dict(out.iter())
    {Row(id=1, cents=50, euros=0.5): 1}
    """
    fields = merged(rows, values, None, "st.row")
    return open_class(tuple(fields))(**fields)


OPEN = "Row"
"""The name of the class of rows without a class of their own."""


@functools.cache
def open_class(names: tuple[str, ...]) -> type[Data]:
    """The class of rows with these fields, of any types."""
    annotations = {name: TypeVar(name) for name in names}
    row_class: type[Data] = type(OPEN, (Data,), {"__annotations__": annotations})
    return row_class


def field_name(column: str, used_names: Collection[str] = ()) -> str:
    """The name of a field for a column: the same, or a similar one if Python forbids it."""
    name = re.sub(r"\W", "_", unicodedata.normalize("NFKC", column)).lstrip("_")
    if not name or not name[0].isalpha():
        name = f"c_{name}" if name else "c"
    if keyword.iskeyword(name):
        name = f"{name}_"
    names = {other.lower() for other in used_names}
    candidate, n = name, 2
    while candidate.lower() in names:
        candidate, n = f"{name}_{n}", n + 1
    return candidate


def _capital(column: str) -> str:
    return "".join(part.capitalize() for part in field_name(column).split("_"))


def _annotation(t: Any, name: str) -> Any:
    """The annotation of a field of an Arrow type; None if a row cannot hold the type."""
    if isinstance(t, pa.DictionaryType):
        return _annotation(t.value_type, name)
    if isinstance(t, pa.Decimal128Type | pa.Decimal256Type):
        if t.precision > 38 or not 0 <= t.scale <= t.precision:
            return None
        return Annotated[decimal.Decimal, Precision(t.precision, t.scale)]
    if isinstance(t, pa.TimestampType):
        return dt.datetime if t.tz is not None else LocalDateTime
    if isinstance(t, pa.ListType | pa.LargeListType | pa.FixedSizeListType):
        inner = _annotation(t.value_type, name)
        if inner is None:
            return None
        return list[inner | None] if t.value_field.nullable else list[inner]  # type: ignore[valid-type]
    if isinstance(t, pa.StructType):
        storable = t.num_fields and all(f.name and _annotation(f.type, name) is not None for f in t)
        return class_of(pa.schema(list(t)), name) if storable else None
    return next((annotation for is_one, annotation in _SIMPLE if is_one(t)), None)


def _type_text(t: Any) -> str:
    return str(t.type_name) if isinstance(t, pa.OpaqueType) else str(t)


def code_of(cls: type[Data]) -> str:
    """The source code of a row class, preceded by the classes of its fields."""
    lines: list[str] = []
    imports: set[str] = set()
    for row_class in _needed(cls):
        lines += ["", "", f"class {row_class.__name__}(st.Data):"]
        if row_class.__doc__ and row_class.__doc__.startswith("Left out"):
            lines += [f'    """{row_class.__doc__}"""', ""]
        lines += [
            f"    {name}: {_written(annotation, imports)}"
            for name, annotation in row_class.__row_fields__().items()
        ]
    import_lines = (
        "import datetime as dt",
        "from decimal import Decimal",
        "from typing import Annotated",
    )
    head = [line for line in import_lines if line in imports]
    return "\n".join([*head, *([""] if head else []), "import stepping_spark as st", *lines])


def _needed(cls: type[Data]) -> Iterator[type[Data]]:
    """A row class and the classes of its fields, each before the classes that use it."""
    for annotation in cls.__row_fields__().values():
        for field_class in _classes(annotation):
            yield from _needed(field_class)
    yield cls


def _classes(annotation: Any) -> Iterator[type[Data]]:
    if isinstance(annotation, type) and issubclass(annotation, Data):
        yield annotation
    for arg in typing.get_args(annotation):
        yield from _classes(arg)


def _written(annotation: Any, imports: set[str]) -> str:
    """The source code of an annotation; adds the lines that it needs to `imports`."""
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        imports.add("from typing import Annotated")
        return f"Annotated[{', '.join([_written(args[0], imports), *map(_beside, args[1:])])}]"
    if origin is list:
        return f"list[{_written(args[0], imports)}]"
    if type(None) in args:
        inner = " | ".join(_written(a, imports) for a in args if a is not type(None))
        return f"{inner} | None"
    if annotation is decimal.Decimal:
        imports.add("from decimal import Decimal")
        return "Decimal"
    if annotation in (dt.date, dt.datetime, dt.timedelta):
        imports.add("import datetime as dt")
        return f"dt.{annotation.__name__}"
    return "st.LocalDateTime" if annotation is LocalDateTime else str(annotation.__name__)


def _beside(annotation: Any) -> str:
    """The source code of the metadata of a type in `Annotated`."""
    if isinstance(annotation, Column):
        return f"st.Column({annotation.name!r})"
    return f"st.Precision({annotation.precision}, {annotation.scale})"
