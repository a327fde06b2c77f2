"""PySpark and other packages, each imported at the first use of a name.

PySpark takes a second to import, and it is an extra: computations on the driver do not need it. So
no other module imports it. The other packages take some milliseconds each, and few programs use
them. The names here stand for modules and classes:

- Access to an attribute of a module or a class imports PySpark, and returns its attribute. Without
  PySpark it raises `SteppingError` with the name of the extra.
- `isinstance` imports nothing: before the import there are no objects of the class.
- The exceptions in `raised` import nothing either: before the import they are a class that nothing
  raises. So `except raised.PySparkException` works without PySpark.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepping_spark.base.errors import InputError, SteppingError

__all__ = [
    "Column",
    "DataFrame",
    "Late",
    "LateClass",
    "Raised",
    "SparkContext",
    "SparkSession",
    "StorageLevel",
    "StructType",
    "cloudpickle",
    "folder_of",
    "functions",
    "graphviz",
    "is_imported",
    "metadata",
    "module_of_extra",
    "networkx",
    "raised",
    "rich_console",
    "rich_progress",
    "saxutils",
    "sqlglot",
    "types",
]

OLDEST = 4
"""The least major version of PySpark."""
EXTRAS = {"pyspark": (f"PySpark {OLDEST}.0 or newer", "spark"), "sqlglot": ("sqlglot", "sql")}


class Late:
    """A stand-in for a module, which imports it when an attribute is used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":  # looked for in any object
            raise AttributeError(name)
        return getattr(_imported(self._name), name)


class Raised(Late):
    """A stand-in for a module of exceptions, which never imports it."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.modules.get(self._name), name, NeverRaised)


class NeverRaised(Exception):
    """A stand-in for an exception of a package that is not imported."""


class LateClass(type):
    """The metaclass of stand-ins for classes, which import the class when it is used."""

    __module_name__: str

    def __new__(cls, name: str, module: str) -> LateClass:
        return super().__new__(cls, name, (), {"__module_name__": module})

    def __init__(cls, name: str, module: str) -> None:
        super().__init__(name, (), {})

    def __instancecheck__(cls, instance: object) -> bool:
        return cls.__subclasscheck__(type(instance)) or cls.__subclasscheck__(instance.__class__)

    def __subclasscheck__(cls, subclass: type) -> bool:
        loaded = getattr(sys.modules.get(cls.__module_name__), cls.__name__, None)
        return subclass is cls or (loaded is not None and issubclass(subclass, loaded))

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(getattr(_imported(cls.__module_name__), cls.__name__), name)


def is_imported(package: str) -> bool:
    """Whether this process has imported a package, in a version that is not too old."""
    return package in sys.modules and not too_old(package.partition(".")[0])


def too_old(package: str = "pyspark") -> str:
    """A message if this process has imported a PySpark that is too old; otherwise ""."""
    version = str(getattr(sys.modules.get("pyspark"), "__version__", ""))
    major = version.partition(".")[0]
    if package != "pyspark" or not major.isdecimal() or int(major) >= OLDEST:
        return ""
    return (
        f"this needs {EXTRAS[package][0]}, found {version}; choose a runtime of your platform "
        "with Spark 4, or, in an environment of your own, pip install 'stepping-spark[spark]'"
    )


def folder_of(package: str) -> Path | None:
    """The folder of a package's source files, without importing it; None if there is none."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # something keeps it from being imported
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


AFTER_IMPORT: dict[str, Callable[[], None]] = {}
"""Functions to call after the import of a package, by the name of the package."""


def _imported(name: str) -> Any:
    package = name.partition(".")[0]
    try:
        module = importlib.import_module(name)
    except ImportError as e:
        if package not in EXTRAS:
            raise
        what, extra = EXTRAS[package]
        raise SteppingError(
            too_old(package)
            or f"this needs {what}, and its import fails: {e}; install it with "
            f"pip install 'stepping-spark[{extra}]'"
        ) from e
    if message := too_old(package):
        raise SteppingError(message)
    if (then := AFTER_IMPORT.get(package)) is not None:
        then()
    return module


def module_of_extra(name: str, what: str, extra: str, packages: Collection[str]) -> Any:
    """A module that needs the packages of an extra. Raises `InputError` if one is missing."""
    try:
        return importlib.import_module(name)
    except ImportError as e:
        if not any(package in f"{e.name} {e}" for package in packages):
            raise
        raise InputError(
            f"{what}: this needs a package, and its import fails: {e}; install what it needs "
            f"with pip install 'stepping-spark[{extra}]'"
        ) from e


if TYPE_CHECKING:
    from importlib import metadata
    from xml.sax import saxutils

    import graphviz
    import networkx
    import sqlglot
    from pyspark import SparkContext, StorageLevel, cloudpickle
    from pyspark import errors as raised
    from pyspark.sql import Column, DataFrame, SparkSession, functions, types
    from pyspark.sql.types import StructType
    from rich import console as rich_console
    from rich import progress as rich_progress
else:
    graphviz = Late("graphviz")
    metadata = Late("importlib.metadata")
    networkx = Late("networkx")
    rich_console = Late("rich.console")
    rich_progress = Late("rich.progress")
    saxutils = Late("xml.sax.saxutils")
    sqlglot = Late("sqlglot")
    cloudpickle = Late("pyspark.cloudpickle")
    raised = Raised("pyspark.errors")
    SparkContext = LateClass("SparkContext", "pyspark")
    StorageLevel = LateClass("StorageLevel", "pyspark")
    Column = LateClass("Column", "pyspark.sql")
    DataFrame = LateClass("DataFrame", "pyspark.sql")
    SparkSession = LateClass("SparkSession", "pyspark.sql")
    StructType = LateClass("StructType", "pyspark.sql.types")
    functions = Late("pyspark.sql.functions")
    types = Late("pyspark.sql.types")
