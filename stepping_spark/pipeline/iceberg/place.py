"""An Iceberg table in its catalog, and the translation of errors of pyiceberg."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import urlsplit

from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.utils.config import Config

from stepping_spark.base.errors import SteppingError
from stepping_spark.spark.session import first_line

OPEN = ("type", "warehouse")
"""Options of a catalog that a message may show."""

NO_EQUALITY = (
    "pyiceberg reads no equality deletes: rewrite the data files (rewrite_data_files in Spark), or "
    "read the table with st.CatalogTable"
)


class IcebergPlace:
    """A table in a catalog; `failure` makes the error for a reason."""

    def __init__(
        self,
        name: str,
        catalog: str | Catalog,
        options: Mapping[str, str],
        failure: Callable[[str], SteppingError],
    ) -> None:
        self.name = name
        self._given = catalog
        self._options = options
        self._failure = failure

    def catalog(self) -> Catalog:
        """The catalog, which is loaded once."""
        if isinstance(self._given, str):
            with self.trying("its catalog cannot be loaded", "check its name and its options"):
                self._given = load_catalog(self._given, **self._options)
        return self._given

    def table(self) -> Table:
        """The table as it is now."""
        catalog = self.catalog()
        with self.trying("it cannot be loaded", "check the catalog and the name"):
            return catalog.load_table(self.name)

    def table_if_there(self) -> Table | None:
        """The table as it is now; None if it does not exist."""
        catalog = self.catalog()
        with self.trying("it cannot be loaded", "check the catalog and the name"):
            try:
                return catalog.load_table(self.name)
            except NoSuchTableError:
                return None

    @contextmanager
    def trying(self, what: str, remedy: str) -> Iterator[None]:
        """Translate errors of pyiceberg: the failed action, the cause, and the remedy.

        Errors of pyiceberg, Arrow and the libraries of catalogs have no class in common.
        """
        try:
            yield
        except SteppingError:
            raise
        except Exception as e:
            would_do = NO_EQUALITY if "equality delete" in str(e) else remedy
            raise self._failure(f"{what}: {self._safe_line(e)}; {would_do}") from e

    def _safe_line(self, e: BaseException) -> str:
        """The first line of an error, without values of options, as they may be passwords."""
        line = first_line(e)
        for secret in sorted(self._secrets(), key=len, reverse=True):
            line = line.replace(secret, "***")
        return line

    def _secrets(self) -> Iterator[str]:
        if isinstance(self._given, str):
            properties = {**(Config().get_catalog_config(self._given) or {}), **self._options}
        else:
            properties = self._given.properties
        for name, value in properties.items():
            if name in OPEN or not isinstance(value, str) or len(value) < 3:
                continue
            yield value
            if "://" in value and (password := urlsplit(value).password):
                yield password


def rewrites(snapshot: Snapshot | None) -> bool:
    """Whether a snapshot only rewrote files."""
    summary = None if snapshot is None else snapshot.summary
    return summary is not None and summary.operation == Operation.REPLACE
