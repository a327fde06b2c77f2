"""Delta tables as sources and sinks, by the package deltalake, without Spark.

`table` is what users write; `source` reads snapshots and change feeds, `sink` writes views,
`vectors` those whose old rows are marked, `files` finds rows in data files, and `log` reads what
each commit did. All of it needs the packages of `[delta]`. Where one is not installed, `DeltaTable`
is a class that says so when it is used.
"""

from __future__ import annotations

from stepping_spark.base.errors import InputError

try:
    from stepping_spark.pipeline.delta.table import DeltaTable as DeltaTable
except ImportError as e:
    if not any(name in f"{e.name} {e}" for name in ("deltalake", "obstore", "pyroaring")):
        raise
    _missing = e

    class DeltaTable:  # type: ignore[no-redef]
        """Stands for the table that needs the package."""

        def __init__(self, *_: object, **__: object) -> None:
            raise InputError(
                f"st.DeltaTable needs a package, and importing it gives: {_missing}; install what "
                "it needs with pip install 'stepping-spark[delta]'"
            ) from _missing
