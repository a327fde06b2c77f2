"""What messages about tables of Postgres tell a user to do, and that it helps."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner

import stepping_spark as st
from stepping_spark.base.errors import SinkError, SourceError
from stepping_spark.cli import main
from tests.pipeline.following import Database, Follower

INT, TEXT = pa.int64(), pa.string()


def followed(db: Database) -> Follower:
    db.run("CREATE TABLE t (id bigint PRIMARY KEY, name text); INSERT INTO t VALUES (1, 'a')")
    db.table("t").install()
    return Follower(db.table("t"), id=INT, name=TEXT)


def test_no_message_offers_to_drop_a_table_of_the_application(db: Database) -> None:
    db.run("CREATE TABLE t (id bigint); CREATE TABLE t_changes (id int)")
    with pytest.raises(SourceError, match="Give the table another name") as told:
        db.table("t").install()
    assert "DROP" not in str(told.value)


def test_a_name_that_is_too_long_is_told_with_its_limit(db: Database) -> None:
    name = "x" * 60
    db.run(f"CREATE TABLE {name} (id bigint)")
    with pytest.raises(SourceError, match="rename the table to one of up to 55 bytes"):
        db.table(name).install()
    db.run(f"ALTER TABLE {name} RENAME TO {name[:55]}")
    assert db.table(name[:55]).install()


def test_a_table_that_was_renamed_hears_of_its_log_at_once(db: Database) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t RENAME TO u")
    with pytest.raises(SourceError, match=r"Go on with that log: ALTER TABLE .*t_changes"):
        Follower(db.table("u"), id=INT).read()


def test_a_column_that_was_renamed_is_told_with_its_new_name_and_both_remedies(
    db: Database,
) -> None:
    follower = followed(db)
    follower.read()
    db.run("ALTER TABLE t RENAME name TO title")
    with pytest.raises(SourceError, match=r"renamed to title.*columns=.*install --again"):
        follower.read()
    title: Any = pa.field("name", TEXT, metadata={"column": "title"})
    follower.columns = pa.schema([pa.field("id", INT), title])
    db.table("t").install(again=True)
    db.run("INSERT INTO t VALUES (2, 'b')")
    follower.read()
    assert follower.left == Counter([(1, "a"), (2, "b")])


def test_a_new_partition_that_was_truncated_is_not_said_to_be_attached_only(db: Database) -> None:
    db.run("CREATE TABLE t (id bigint) PARTITION BY LIST (id)")
    db.table("t").install()
    follower = Follower(db.table("t"), id=INT)
    db.run("CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1); INSERT INTO t VALUES (1)")
    follower.read()
    db.run("TRUNCATE t1")
    with pytest.raises(SourceError, match="or had a TRUNCATE"):
        follower.read()
    db.table("t").install(again=True)
    follower.read()
    assert follower.left == Counter()


def test_uninstalling_says_whether_there_was_anything(db: Database) -> None:
    followed(db)
    given = ["source", "uninstall", db.url, "t", "--schema", db.schema]
    assert "any more" in CliRunner().invoke(main, given).output
    assert "had no log of changes" in CliRunner().invoke(main, given).output
    with pytest.raises(SourceError, match="it is not there; check the name"):
        db.table("tt").uninstall()


def test_a_row_class_has_the_texts_and_the_lists_that_are_read(db: Database) -> None:
    db.run(
        "CREATE TABLE t (a inet, b int4range, c int[][], d inet[], e int[], f regclass);"
        "INSERT INTO t VALUES ('10.0.0.1', '[1,5)', '{{1,2},{3,NULL}}', '{10.0.0.2}', '{7}')"
    )
    db.table("t").install()
    schema = Follower(db.table("t")).schema()
    lists = pa.list_(pa.int32())
    assert schema.types[:5] == [TEXT, TEXT, pa.list_(lists), pa.list_(TEXT), lists]
    follower = Follower(db.table("t"))
    follower.columns = pa.schema([schema.field(i) for i in range(5)])
    follower.read()
    deep = ((1, 2), (3, None))
    row = ("10.0.0.1", "[1,5)", deep, ("10.0.0.2",), (7,))
    assert (follower.left, follower.unfit) == (Counter([row]), [])
    assert set(st.row_class(db.table("t"), name="Row").__annotations__) == set("abcde")


def test_a_schema_that_does_not_exist_is_to_be_created(db: Database) -> None:
    def names(people: st.ZSet[str]) -> st.ZSet[str]:
        return st.distinct(people)

    sink = st.Postgres(db.url, table="names", schema="nowhere", key="_value_")
    people = [(1, st.ZSetPython({"ann": 1}))]
    pipeline = st.Pipeline(names, store="memory", people=people, into=sink)
    with pytest.raises(SinkError, match=r"create the schema first: CREATE SCHEMA"):
        pipeline.run()
    db.run("CREATE SCHEMA nowhere")
    try:
        assert pipeline.run() == 1
    finally:
        db.run("DROP SCHEMA nowhere CASCADE")


def test_the_schema_of_a_table_is_no_part_of_its_address() -> None:
    url = "postgresql://nobody:secret@127.0.0.1:1/db?schema=t1"
    done = CliRunner().invoke(main, ["source", "class", url, "orders"])
    said = " ".join(done.output.split())
    assert done.exit_code == 2
    assert "--schema NAME" in said
    assert "secret" not in said


@pytest.mark.parametrize("position", [7, (7, 8), (1, 2, 3, 4, 5)])
def test_a_position_of_another_kind_of_source_is_refused(
    db: Database, position: int | tuple[int, ...]
) -> None:
    source = followed(db).source
    source.open(pa.schema([("id", INT)]))
    with pytest.raises(SourceError, match="position of another kind of source"):
        source.read(position, st.Portion())
