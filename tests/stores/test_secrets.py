"""No part of a password is in anything that a store, a command or a step shows or keeps.

Passwords are made of letters that are nowhere else in an address, and of all the characters that
make an address hard to read. No four characters of one, in a row, may be seen.
"""

from __future__ import annotations

import io
import logging
import re
import runpy
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote
from uuid import uuid4

import psycopg
import pyarrow.fs as pafs
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as some
from psycopg import sql
from pyspark.sql import SparkSession

import stepping_spark as st
from stepping_spark.base.errors import SteppingError, StoreUnavailable
from stepping_spark.cli import main
from stores.contract.values import BY_WORD, add, as_it_is
from stores.location import place_of
from stores.parquet.inspection import ParquetState
from stores.parquet.store import StoreParquet
from stores.postgres.connection import Address
from stores.postgres.inspection import PostgresState
from stores.postgres.store import StorePostgres
from tests.cases import ROOT
from tests.postgres_server import PostgresServer
from tests.stores.test_parquet_on_s3 import s3

__all__ = ["s3"]  # a fixture

LETTERS = "QZJЖ"
MARKS = "@/:?#%&=+'\\ \"[],;$~\n"
CLOSED = "127.0.0.1:1"  # nobody listens there

FORMS = (
    "postgresql://app:{}@127.0.0.1:1/db",
    "postgres://app:{}@127.0.0.1:1/db?connect_timeout=2",
    "postgresql://app:{}@127.0.0.1:1,127.0.0.1:1/db?sslmode=disable",
    "postgresql://app:{}@127.0.0.1:1",
    "postgresql://app:{}@[::1]:1/db",
    "postgresql://app:{}@/db?host=/nowhere",
    "postgresql://app:{}@h..x/db",
    "postgresql://app:{}",
    "postgresql://:{}@127.0.0.1:1/db",
    "postgresql:///app:{}@127.0.0.1:1/db",
    "postgresql:/app:{}@127.0.0.1:1/db",
    "postgresql//app:{}@127.0.0.1:1/db",
    "postgresq://app:{}@127.0.0.1:1/db",
    "POSTGRESQL://app:{}@127.0.0.1:1/db",
    "postgres:postgresql://app:{}@127.0.0.1:1/db",
    "postgres:app:{}@127.0.0.1:1/db",
    "postgresql://127.0.0.1:1/db?user=app&password={}",
    "postgresql://app@127.0.0.1:1/db?password={}&schema=sales",
    "postgresql://app@127.0.0.1:1/db?sslpassword={}&sslmode=disable",
    "postgresql://app@127.0.0.1:1/db?pasword={}",
    "jdbc:postgresql://127.0.0.1:1/db?user=app&password={}",
    "jdbc:postgresql://app:{}@127.0.0.1:1/db",
    "postgresql+psycopg://app:{}@127.0.0.1:1/db",
    "host=127.0.0.1 port=1 user=app dbname=db password={}",
    "host=127.0.0.1 port=1 user=app dbname=db password='{}'",
    "host=127.0.0.1 port=1 password = '{}",
    "host=127.0.0.1 port=1 sslpassword='{}' dbname=db",
    "host=127.0.0.1 port=1 dbname='postgresql://app:{}@h/db'",
    "host=127.0.0.1 port=1 pasword={}",
    "postgresql://app%3A{}@127.0.0.1:1/db",
    "postgresql://app%253A{}@127.0.0.1:1/db",
    "postgresql://app@h%3A{}/db",
    "postgresql://app@127.0.0.1:1/db%20password%3D{}",
    "postgresql://app@127.0.0.1:1/app%3A{}",
    "postgresql://127.0.0.1:1/db?user=app:{}",
    "postgresql://127.0.0.1:1/db?service=app:{}",
    "postgresql:///db?host=app:{}",
    "postgresql:///db?hostaddr=app%3A{}",
    "host=127.0.0.1 port=1 user=app:{} dbname=db",
    "service=app:{}",
    "host=app:{} port=1",
    "password={} host=127.0.0.1 port=1",
    "s3://KEY:{}@bucket/path?region=eu-west-1",
    "s3a://KEY:{}@bucket/path?region=eu-west-1&endpoint_override=127.0.0.1:1&scheme=http",
    "s3://KEY:{}@/path?region=eu-west-1",
    "s3://bucket/path?secret_key={}&region=eu-west-1",
    "s3//KEY:{}@bucket/path",
    "s3:KEY:{}@bucket/path",
    "s4://KEY:{}@bucket/path",
    "parquet:s4://KEY:{}@bucket/path",
    "parquet://KEY:{}@bucket/path",
    "abfss://:{}@account.dfs.core.windows.net/container/path",
    "abfss://container:{}@account.dfs.core.windows.net/path",
    "https://app:{}@host/path",
    "file://app:{}@host/path",
    "//app:{}@host/path",
    "app:{}@host/db",
)
COMMANDS = runpy.run_path(str(ROOT / "examples" / "flights.py"))["main"]


@some.composite
def passwords(draw: some.DrawFn) -> str:
    """Passwords whose every four characters have a letter that nothing else has."""
    letters, marks = some.text(LETTERS, min_size=2, max_size=4), some.text(MARKS, max_size=2)
    piece = some.builds(str.__add__, letters, marks)
    return "".join(draw(some.lists(piece, min_size=2, max_size=5)))


def quoted(password: str, how: str) -> str:
    """The password as somebody may write it into an address."""
    match how:
        case "all":
            return quote(password, safe="")
        case "slashes stay":
            return quote(password)
        case "connection string":
            return re.sub(r"(['\\])", r"\\\1", password)
        case "twice":
            return quote(quote(password, safe=""), safe="")
    return password


QUOTED = some.sampled_from(("all", "not", "slashes stay", "connection string", "twice"))


def seen(password: str, texts: list[str]) -> list[str]:
    """The texts that hold four characters of the password."""
    parts = {password[i : i + 4].casefold() for i in range(len(password) - 3)}
    parts = {part for part in parts if sum(c in LETTERS.casefold() for c in part) > 1}
    return [
        text
        for text in texts
        for read in (
            text,
            unquote(text),
            unquote(unquote(text)),
            text.encode().decode("unicode_escape", "replace"),
        )
        if any(part in read.casefold() for part in parts)
    ]


def chain(error: BaseException) -> Iterator[str]:
    """What an error says, and all that it came from; also what hangs at it."""
    pending: list[BaseException | None] = [error]
    while pending:
        e = pending.pop()
        if e is not None:
            yield from (str(e), repr(e), repr(e.args), repr(getattr(e, "pgconn", None)))
            pending += (e.__cause__, e.__context__)


class Records(logging.Handler):
    """All that is logged, of any logger."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts += (record.getMessage(), repr(record.args), str(record.exc_info))

    def __enter__(self) -> Records:
        root = logging.getLogger()
        self._level = root.level
        root.setLevel(logging.DEBUG)
        root.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        root = logging.getLogger()
        root.setLevel(self._level)
        root.removeHandler(self)


def shown_by(use: Callable[[], Any]) -> list[str]:
    """What a use of an address shows: a value, or an error that the library raises on purpose."""
    try:
        value = use()
    except (SteppingError, ValueError) as e:
        return list(chain(e))
    inner = vars(value).values() if isinstance(value, StorePostgres | StoreParquet) else ()
    return [str(value), repr(value), *map(repr, inner)]


def is_far(address: str) -> bool:
    """Whether files there would be looked for in a network."""
    return bool(re.match(r"(parquet:)?(s3a?|abfss|gs)://", address))


def uses(address: str) -> list[Callable[[], Any]]:
    """The ways into a store and to what it keeps."""
    found: list[Callable[[], Any]] = [
        lambda: place_of(address),
        lambda: str(place_of(address)),
        lambda: StorePostgres(address),
        lambda: StorePostgres(address, [BY_WORD], create=True),
        lambda: PostgresState(address, "sales").summary(),
        lambda: StoreParquet(address),
        lambda: ParquetState(address),
        lambda: StoreParquet(address, filesystem=pafs.LocalFileSystem()),
        lambda: StoreParquet(
            address, filesystem=pafs.SubTreeFileSystem("/", pafs.LocalFileSystem())
        ),
    ]
    if not is_far(address):
        found += [
            lambda: StoreParquet.from_graph(GRAPH, address),
            lambda: ParquetState(address).summary(),
        ]
    return found


def said_by(address: str) -> Iterator[str]:
    """What the commands print."""
    lines = [["state", "show", "more", *address.split()], ["state", address], [address]]
    if not is_far(address):
        lines += [["state", command, address] for command in ("show", "verify", "compact")]
    for line in lines:
        done = CliRunner().invoke(main, line)
        assert done.exit_code == 2, (line, done.output)
        yield from (done.output, done.stderr, *chain(done.exception or ValueError()))
    wrong = False
    with suppress(SteppingError):
        try:
            place_of(address)
        except ValueError:
            wrong = True
    lines = [["--store", *address.split(), "more"]] + ([["--store", address]] if wrong else [])
    for line in lines:
        done = CliRunner().invoke(COMMANDS, line)
        assert done.exit_code == 2, (line, done.output)
        yield from (done.output, done.stderr)


def distinct(a: st.ZSet[int]) -> st.ZSet[int]:
    return st.distinct(a)


GRAPH = st.compile(distinct)


def check(form: str, password: str, how: str) -> None:
    # Without a host, what stands after an @ is one: nobody can tell.
    assume(form != "postgresql://app:{}" or "@" not in quoted(password, how))
    address = form.format(quoted(password, how))
    with Records() as records:
        texts = [text for use in uses(address) for text in shown_by(use)]
        texts += said_by(address)
    assert not seen(password, texts + records.texts), address


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])
@given(password=passwords(), how=QUOTED)
def test_no_address_shows_a_part_of_its_password(form: str, password: str, how: str) -> None:
    check(form, password, how)


@pytest.mark.long
@settings(max_examples=5_000, suppress_health_check=[HealthCheck.too_slow])
@given(form=some.sampled_from(FORMS), password=passwords(), how=QUOTED)
def test_no_address_shows_a_part_of_its_password_at_length(
    form: str, password: str, how: str
) -> None:
    check(form, password, how)


@pytest.mark.parametrize(
    "address",
    [
        "s3://KEY:ab/QZJЖ@bucket/x",
        "s3://KEY:12/QZJЖ@bucket/x",
        "s3://KEY:ab/QZJЖ",
        "s3://KEY:/QZJЖ",
        "s3://KEY:ab?QZJЖ@bucket/x",
        "s3://KEY:a@QZJЖ@bucket/x",
        "s3://KEY%3AQZJЖ%40bucket/x",
        "postgresql://app:ab/QZJЖ@db",
        "postgresql://app:12/QZJЖ@db",
        "postgresql://app:ab@QZJЖ@host/db",
        "postgresql://app:ab#QZJЖ@host/db",
        "postgresql://app%3AQZJЖ%40host/db",
        "postgresql:///app%3AQZJЖ%40host/db",
        "postgresql://app:\0QZJЖ@host/db",
        "postgresql://app:\ud800QZJЖ@host/db",
        "host=h\0 password=QZJЖ",
        "postgresql://app%3AQZJЖ@host/db",
        "postgresql://app%253AQZJЖ@host/db",
        "postgresql://app@host%3AQZJЖ/db",
        "postgresql://app@host/db%3AQZJЖ",
        "postgresql://app@host/db%20password%3DQZJЖ",
        "postgresql://host/db?user=app:QZJЖ",
        "postgresql://host/db?service=app:QZJЖ",
        "postgresql:///db?host=app:QZJЖ",
        "postgresql:///db?host=::1,app:QZJЖ",
        "postgresql:///db?dbname=app:QZJЖ",
        "host=h user=app:QZJЖ",
        "host=app:QZJЖ",
        "service=app:QZJЖ",
    ],
)
def test_an_address_that_can_be_read_in_two_ways_is_refused_and_not_shown(address: str) -> None:
    for use in uses(address)[:-2]:
        assert not seen("QZJЖ", shown_by(use))
    assert not seen("QZJЖ", list(said_by(address)))
    of_postgres = address.startswith(("postgres", "host", "service"))
    store = StorePostgres if of_postgres else StoreParquet
    with pytest.raises(StoreUnavailable):
        store(address, [BY_WORD])


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("postgresql://app@[::1]:1/db", "postgresql://app@::1:1/db"),
        ("postgresql:///db?host=::1,127.0.0.1&port=1", "postgresql://::1,127.0.0.1:1/db"),
        ("host=fe80::1%lo hostaddr=::1 port=1", "postgresql://fe80::1%lo:1/"),
    ],
)
def test_an_address_in_ipv6_is_taken_and_shown(address: str, shown: str) -> None:
    assert repr(Address(address, "s")) == f"{shown}, schema 's'"


@pytest.mark.parametrize("word", ["postgresql", "postgres", "store", "127", "app", "db", "the"])
def test_a_password_that_is_a_common_word_changes_no_message(word: str) -> None:
    texts = []
    for password in (word, "QZJQZJ"):
        url = f"postgresql://app:{password}@{CLOSED}/db"
        with pytest.raises(StoreUnavailable) as e:
            StorePostgres(url, [BY_WORD])
        texts.append(str(e.value))
    assert texts[0] == texts[1]
    assert texts[0].startswith(f"postgresql://app@{CLOSED}/db, schema 'stepping_spark': ")


def test_the_error_of_a_connection_that_failed_does_not_hold_the_connection() -> None:
    with pytest.raises(StoreUnavailable) as e:
        StorePostgres(f"postgresql://app:QZJЖ@{CLOSED}/db", [BY_WORD])
    assert isinstance(e.value.__cause__, psycopg.OperationalError)
    assert e.value.__context__ is None
    assert e.value.__cause__.pgconn is None


# -- of stores that work

PASSWORD = "QZJ'Ж@ZQ/JQ:ЖZ?JJ#%ZQ&JЖ=Q+ Z\\Q"


@pytest.fixture
def guest(postgres: PostgresServer) -> Iterator[str]:
    """The name of a user with that password, who may make schemas."""
    name = sql.Identifier("guest_of_secrets")
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        connection.execute(
            sql.SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(name, sql.Literal(PASSWORD))
        )
        connection.execute(sql.SQL("GRANT CREATE ON DATABASE postgres TO {}").format(name))
        yield "guest_of_secrets"
        connection.execute(sql.SQL("DROP OWNED BY {} CASCADE; DROP ROLE {}").format(name, name))


def addresses(postgres: PostgresServer, user: str, password: str = PASSWORD) -> list[str]:
    at, word = f"127.0.0.1:{postgres.port}/postgres", quote(password, safe="")
    plain = quoted(password, "connection string")
    return [
        f"postgresql://{user}:{word}@{at}",
        f"postgresql://{at}?user={user}&password={word}",
        f"host=127.0.0.1 port={postgres.port} dbname=postgres user={user} password='{plain}'",
    ]


def test_a_store_opens_with_any_password_and_a_wrong_one_is_told_as_that(
    postgres: PostgresServer, guest: str
) -> None:
    for address in addresses(postgres, guest):
        with Records() as records:
            store = StorePostgres(address, [BY_WORD], schema="secrets", create=True)
            shown = [repr(store), *map(repr, vars(store).values())]
            again = StorePostgres(address, [BY_WORD], schema="secrets")
            with again, pytest.raises(st.StoreLocked) as locked:
                store.read(BY_WORD.name)
        assert not seen(PASSWORD, [*shown, *chain(locked.value), *records.texts])
        wrong = address.replace("ZQ", "QZ")
        with pytest.raises(StoreUnavailable, match="check the user, the password") as refused:
            StorePostgres(wrong, [BY_WORD], schema="secrets")
        assert "is it running" not in str(refused.value)
        assert not seen(PASSWORD.replace("ZQ", "QZ"), list(chain(refused.value)))
    nowhere = addresses(postgres, guest)[0].replace("/postgres", "/nowhere")
    with pytest.raises(StoreUnavailable, match=r'database "nowhere" does not exist.*check the'):
        StorePostgres(nowhere, [BY_WORD])
    none = re.sub(":[^:@/]*@", "@", addresses(postgres, guest)[0])
    with pytest.raises(StoreUnavailable, match="give the user's password, in a password file"):
        StorePostgres(none, [BY_WORD])


def test_a_place_with_a_schema_keeps_the_password_as_it_is(
    postgres: PostgresServer, guest: str
) -> None:
    for address in addresses(postgres, guest)[:2]:
        place = place_of(f"{address}{'&' if '?' in address else '?'}schema=of_place")
        assert not seen(PASSWORD, [str(place), repr(place)])
        assert place.schema == "of_place"
        with pytest.raises(StoreUnavailable, match="there is no state in this schema"):
            place.state().summary()


def check_step(postgres: PostgresServer, guest: str, folder: Path, password: str) -> None:
    """Nothing that a step gives or keeps, nor its metrics and pictures, has a part of it."""
    schema = f"steps {uuid4().hex[:8]}"
    with psycopg.connect(postgres.url, autocommit=True) as connection:
        change = sql.SQL("ALTER ROLE {} PASSWORD {}")
        connection.execute(change.format(sql.Identifier(guest), sql.Literal(password)))
    for address in addresses(postgres, guest, password):
        with (
            Records() as records,
            st.StorePostgres.from_graph(GRAPH, address, schema=schema, create=True) as store,
        ):
            stepper = st.Stepper(GRAPH, store)
            stepper.step((st.ZSetPython({1: 1}),))
            st.write_svg(GRAPH, folder / "graph.svg")
            metrics = stepper.metrics
            shown = [repr(stepper), repr(metrics), str(metrics[-1]), str(st.explain(GRAPH))]
            shown += [(folder / "graph.svg").read_text(), repr(PostgresState(address, schema))]
            shown += [repr(PostgresState(address, schema).summary())]
        assert not seen(password, [*shown, *records.texts]), address
    kept = io.BytesIO()
    with psycopg.connect(postgres.url) as connection:
        tables = (
            "SELECT relname FROM pg_class WHERE relnamespace = %s::regnamespace AND relkind = 'r'"
        )
        for (table,) in connection.execute(tables, [f'"{schema}"']).fetchall():
            copied = sql.SQL("COPY {} TO STDOUT").format(sql.Identifier(schema, table))
            with connection.cursor().copy(copied) as copy:
                for part in copy:
                    kept.write(part)
    assert kept.getvalue()
    assert not seen(password, [kept.getvalue().decode()])


some_passwords = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


@pytest.mark.spark
@settings(some_passwords, max_examples=3)
@given(password=passwords())
@example(password=PASSWORD)
def test_nothing_that_a_step_gives_or_keeps_has_a_part_of_the_password(
    postgres: PostgresServer, guest: str, spark: SparkSession, tmp_path: Path, password: str
) -> None:
    check_step(postgres, guest, tmp_path, password)


@pytest.mark.long
@pytest.mark.spark
@settings(some_passwords, max_examples=100)
@given(password=passwords())
def test_nothing_that_a_step_gives_or_keeps_has_a_part_of_the_password_at_length(
    postgres: PostgresServer, guest: str, spark: SparkSession, tmp_path: Path, password: str
) -> None:
    check_step(postgres, guest, tmp_path, password)


@pytest.mark.parametrize("key", ["ab", "a!b", quote("QZJЖ"), "QUJD"])
@pytest.mark.parametrize("open_it", [StoreParquet, ParquetState])
def test_a_key_in_a_uri_of_azure_is_refused_before_pyarrow_sees_it(key: str, open_it: Any) -> None:
    """It would not be used; and where there are no other credentials, some end the process."""
    uri = f"abfss://container:{key}@account.127.0.0.1.invalid/path"
    said = r"abfss://account.*no account key .*filesystem="
    with pytest.raises(StoreUnavailable, match=said) as e:
        open_it(uri)
    assert f":{key}" not in str(e.value)


def test_nothing_that_is_kept_on_an_object_store_has_a_part_of_the_secret(
    s3: pafs.FileSystem,
) -> None:
    made: Any = s3.__reduce__()
    endpoint = made[1][0]["endpoint_override"]
    uri = (
        f"s3://key:{quote(PASSWORD, safe='')}@bucket/secrets?scheme=http&region=us-east-1"
        f"&endpoint_override={endpoint}"
    )
    with Records() as records, StoreParquet(uri, [BY_WORD], create=True) as store:
        add(store, BY_WORD, as_it_is, [("w", 1, 1)])
        store.commit(1, None)
        shown = [repr(store), *map(repr, vars(store).values())]
        shown += [repr(ParquetState(uri).summary())]
        with StoreParquet(uri, [BY_WORD]), pytest.raises(st.StoreLocked) as locked:
            store.read(BY_WORD.name)
        shown += chain(locked.value)
        names = [
            f.path
            for f in s3.get_file_info(pafs.FileSelector("bucket/secrets", recursive=True))
            if f.is_file
        ]
        kept = [s3.open_input_file(name).read().decode(errors="replace") for name in names]
    assert any("manifest" in name for name in names)
    assert not seen(PASSWORD, [*shown, *records.texts, *kept, *names])
    assert "s3://bucket/secrets" in shown[0]
