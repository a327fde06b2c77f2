"""Columns that are made when Spark asks for them.

PySpark's functions take Columns, and have no public way to be given what stands for one. They read
two private members: `_jc`, the Java object of a classic Column, and `_expr`, the plan of one of
Spark Connect; and they ask whether it is an instance of the class of classic Columns, which is the
base here. All of this stands in this module.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from pyspark.sql import Column
from pyspark.sql.classic.column import Column as ClassicColumn


class DeferredColumn(ClassicColumn):
    """A Column wherever PySpark asks for one, of classic Spark and of Spark Connect."""

    def __init__(self) -> None:
        """Makes nothing yet; the constructor of its base takes a Java object."""

    @abstractmethod
    def __spark_column__(self) -> Column:
        """The Column that this one stands for."""

    @property
    def _jc(self) -> Any:
        return self.__spark_column__()._jc

    @property
    def _expr(self) -> Any:
        return self.__spark_column__()._expr
