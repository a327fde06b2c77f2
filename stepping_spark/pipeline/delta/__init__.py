"""Delta tables as sources and sinks, by the package deltalake, without Spark.

`table` is what users write; `source` reads snapshots and change feeds, `sink` writes views, `log`
reads what each commit did. All of it needs deltalake. Where that is not installed, `DeltaTable` is
a class that says so when it is used.
"""

from __future__ import annotations

from stepping_spark.base.errors import InputError

try:
    from stepping_spark.pipeline.delta.table import DeltaTable as DeltaTable
except ImportError as e:
    if "deltalake" not in f"{e.name} {e}":
        raise
    _missing = e

    class DeltaTable:  # type: ignore[no-redef]
        """Stands for the table that needs deltalake."""

        def __init__(self, *_: object, **__: object) -> None:
            raise InputError(
                f"st.DeltaTable needs deltalake, and importing it gives: {_missing}; install it "
                "with pip install 'stepping-spark[delta]'"
            ) from _missing
