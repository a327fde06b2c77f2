"""Tasks that run in this process, without a job: several parts of the keys, each of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import stepping_spark as st
from stepping_spark.execution import task_executor
from stepping_spark.execution.task_executor import TaskExecutor
from stepping_spark.relations.blobs import SCHEMA
from stores.memory import StoreMemory

PARTS = 5
LIMITS = st.Limits(local_rows=0, parallelism=PARTS)


class Frame:
    """Blobs, with what the executor asks of a DataFrame; each part is a task of this process."""

    def __init__(self, rows: pa.Table) -> None:
        self.rows = rows

    def mapInArrow(self, work: Callable[[Iterator[Any]], Iterator[Any]], _: str) -> Frame:  # noqa: N802
        made: list[pa.RecordBatch] = []
        for part in range(PARTS):
            rows = self.rows.filter(pc.equal(self.rows.column("part"), pa.scalar(part)))
            made += work(iter(rows.to_batches()))
        return Frame(pa.Table.from_batches(made, SCHEMA))

    def toArrow(self) -> pa.Table:  # noqa: N802
        return self.rows


class Parts(Frame):
    """The numbers of the parts."""

    def mapInArrow(self, work: Callable[[Iterator[Any]], Iterator[Any]], _: str) -> Frame:  # noqa: N802
        numbers = (pa.RecordBatch.from_pydict({"id": [part]}) for part in range(PARTS))
        return Frame(pa.Table.from_batches([b for n in numbers for b in work(iter([n]))], SCHEMA))


class Session:
    """A session whose DataFrames are those."""

    conf: Mapping[str, str] = {}

    def createDataFrame(self, rows: pa.Table, _: str) -> Frame:  # noqa: N802
        return Frame(rows)

    def range(self, begin: int, end: int, step: int, tasks: int) -> Frame:
        assert (begin, end, step, tasks) == (0, PARTS, 1, PARTS)
        return Parts(pa.table({}))


@contextmanager
def tasks_in_process(*, from_a_file: bool) -> Iterator[None]:
    """Tasks run in this process; the driver puts the changes into a file, or sends them."""
    made = TaskExecutor.__init__

    def with_session(
        self: Any, plan: Any, store: Any, _: Any, zone: Any, limits: Any, **options: Any
    ) -> None:
        made(self, plan, store, Session, zone, limits, **options)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TaskExecutor, "__init__", with_session)
        patch.setattr(task_executor, "with_settings", lambda *_: nullcontext())
        patch.setattr(task_executor, "in_parts", lambda frame, _: frame)
        patch.setattr(task_executor, "runs_here", lambda _: from_a_file)
        patch.setattr(StoreMemory, "serves_tasks", lambda *_, here: True)
        yield
