"""The log of a Delta table: what each commit did, read from its own file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable as Table
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler

from stepping_spark.errors import SteppingError
from stepping_spark.pipeline.delta.versions import Commit, Meta, commit_of, meta_of, told_schema
from stepping_spark.pipeline.remedies import ANEW
from stepping_spark.spark.errors import first_line

OTHER = "deltalake cannot do this: read it with st.CatalogTable, or leave that feature out"

_MISSING = re.compile(r"(?:location|file) (\S+?):? not found")
_THROUGH = re.compile(
    r"^(?:(?:C Data interface|External|Arrow|Parquet|Kernel|Object Store) error: )+"
)


class Log:
    """A Delta table that is there, followed from version to version.

    `failure` makes the error for what goes wrong, of what was tried and what would do.
    """

    def __init__(
        self, uri: str, options: Mapping[str, str] | None, failure: Callable[[str], SteppingError]
    ) -> None:
        self.uri = uri
        self._options = dict(options) if options else None
        self._failure = failure
        self._table: Table | None = None
        self._mark: tuple[int, int | None] = (-1, None)  # a version, and how it is recognized
        self._files: pafs.PyFileSystem | None = None

    @contextmanager
    def trying(self, what: str, remedy: str, gone: str | None = None) -> Iterator[None]:
        """Errors of deltalake as ours: what could not be done, why, and what would do.

        `gone` is what would do where a file is not there.
        """
        try:
            yield
        except TableNotFoundError as e:
            raise self._failure(
                f"there is no Delta table; create it, or check the path: {_said(e)}"
            ) from e
        except SteppingError:
            raise
        except BaseException as e:
            if not _foreign(e):
                raise
            missing = _MISSING.search(str(e))
            if gone is not None and missing is not None:
                raise self._failure(f"{what}: {missing[1]} is not there; {gone}") from e
            would_do = gone if gone is not None and "not found" in str(e) else remedy
            would_do = OTHER if "unsupported" in str(e).lower() else would_do
            raise self._failure(f"{what}: {_said(e)}; {would_do}") from e

    def exists(self) -> bool:
        """Whether there is a table."""
        with self.trying("it could not be found", "check the path and the credentials"):
            return Table.is_deltatable(self.uri, self._options)

    def at(self, version: int) -> Table:
        """The table as it was at a version."""
        with self.trying(
            f"version {version} cannot be opened",
            f"its log was cleaned up, or the table is another one: {ANEW}",
        ):
            return Table(self.uri, version=version, storage_options=self._options)

    def newest(self) -> Table:
        """The table as it is now; opened again where it is another one under the same path."""
        if self._table is not None and self._mark[1] == self._marked(self._mark[0]):
            with self.trying("its log could not be read", "try again when it can be reached"):
                self._table.update_incremental()
        else:
            with self.trying("it could not be opened", "check the path and the credentials"):
                self._table = Table(self.uri, storage_options=self._options)
        version = self._table.version()
        if version != self._mark[0]:
            self._mark = version, self._marked(version)
        return self._table

    def _marked(self, version: int) -> int | None:
        """What distinguishes a version from that with the same number of a table made again."""
        try:
            return hash(self._text(version))
        except (DeltaError, OSError):
            return None

    def schema(self) -> pa.Schema:
        """The columns of the table as it is now."""
        table = self.newest()
        with self.trying("its columns are not known", OTHER):
            return told_schema(table)

    def meta(self, version: int | None = None) -> Meta:
        """The metadata at a version, or as it is now."""
        table = self.newest() if version is None else self.at(version)
        with self.trying("its columns are not known", OTHER):
            return meta_of(table)

    def back_to(self, version: int) -> Iterator[Commit]:
        """The commits after a version, the newest first, as far as their log is kept."""
        for number in range(self.newest().version(), version, -1):
            try:
                yield self.commit(number)
            except SteppingError as e:
                if isinstance(e.__cause__, FileNotFoundError):
                    return
                raise

    def commit(self, version: int) -> Commit:
        """What one version did."""
        with self.trying(
            f"the log of version {version} cannot be read",
            f"it was cleaned up before this pipeline had read it: {ANEW}",
        ):
            return commit_of(version, self._text(version))

    def _text(self, version: int) -> str:
        if self._files is None:
            handler: Any = DeltaStorageHandler(self.uri, self._options)
            self._files = pafs.PyFileSystem(handler)
        with self._files.open_input_stream(f"_delta_log/{version:020d}.json") as file:
            text: bytes = file.read()
        return text.decode()


def _said(e: BaseException) -> str:
    """The first line of an error, without the names of the libraries that it came through."""
    return _THROUGH.sub("", first_line(e))


def _foreign(e: BaseException) -> bool:
    """Whether deltalake or Arrow raised an error; a panic of Rust is no Exception."""
    told = isinstance(
        e, DeltaError | OSError | pa.ArrowException | ValueError | NotImplementedError
    )
    return told or type(e) is Exception or type(e).__name__ == "PanicException"
