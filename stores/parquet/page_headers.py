"""How many values the pages of a Parquet column have, by the header of each page.

The footer says it too, and Arrow believes the pages: a list takes as much memory as they say. The
headers are structs of Thrift's compact protocol.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

_VALUES = {0: 5, 3: 8}  # by the type of a page of data: the field that says of its values
_TYPE, _SIZE, _NUMBER = 1, 3, 1  # fields of a header, and of that
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _STRUCT = 1, 2, 3, 7, 8, 12
_INTEGERS = (4, 5, 6)
_LEVELS = 4  # of structs in a header


def place_of(column: pq.ColumnChunkMetaData) -> tuple[int, int]:
    """Where the pages of a column begin in the file, and their size, as the footer says it."""
    start = column.data_page_offset
    if column.has_dictionary_page:
        start = min(start, column.dictionary_page_offset or start)
    return start, column.total_compressed_size


def values_of(source: pa.NativeFile, column: pq.ColumnChunkMetaData) -> int:
    """The number of values of all pages of a column; a ValueError where a header is none.

    The place of the column has to be one of the file.
    """
    start, whole = place_of(column)
    source.seek(start)
    data = source.read(whole)
    headers = _Headers(data)
    found = 0
    while headers.at < len(data):
        page = headers.struct(_LEVELS)
        size = page.get(_SIZE)
        if not isinstance(size, int) or size < 0:
            raise ValueError("a page does not say its size")
        headers.at += size
        said = page.get(_VALUES.get(_of(page, _TYPE), 0))
        if isinstance(said, dict):
            found += max(_of(said, _NUMBER), 0)
    return found


Fields = dict[int, object]


def _of(fields: Fields, name: int) -> int:
    found = fields.get(name)
    return found if isinstance(found, int) else -1


class _Headers:
    """Reads structs from bytes, from one place to the next."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def struct(self, levels: int) -> Fields:
        """The fields of a struct, by their numbers."""
        if not levels:
            raise ValueError("the header of a page is nested too deep")
        fields: Fields = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15, levels)
        return fields

    def _value(self, kind: int, levels: int) -> object:
        if kind in (_TRUE, _FALSE):
            return kind == _TRUE
        if kind in _INTEGERS:
            return self._integer()
        if kind == _STRUCT:
            return self.struct(levels - 1)
        if kind not in (_BYTE, _DOUBLE, _BINARY):
            raise ValueError(f"the header of a page has a field of the type {kind}")
        size = {_BYTE: 1, _DOUBLE: 8}.get(kind) or self._plain()
        self.at += size
        return None

    def _integer(self) -> int:
        plain = self._plain()
        return plain >> 1 ^ -(plain & 1)

    def _plain(self) -> int:
        found = shift = 0
        while (byte := self._byte()) & 128:
            found |= (byte & 127) << shift
            shift += 7
            if shift > 63:
                raise ValueError("the header of a page has a number of too many bytes")
        return found | byte << shift

    def _byte(self) -> int:
        if self.at >= len(self._data):
            raise ValueError("the header of a page is cut off")
        self.at += 1
        return self._data[self.at - 1]
