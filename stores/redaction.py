"""Parses the addresses of stores, and decides which parts messages may show.

Messages are built from parts that are not secret: a scheme, a host and its port, a path, the names
of a database and of a user. An address is never shown with its secrets cut out. An address that can
be read in two ways, so that a part of the password may be in the host or in the path, is refused,
and the message does not quote it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

EXAMPLE = "postgresql://user:password@host:5432/database"
FILES = "a directory, or an object store, is for st.StoreParquet.from_graph(graph, path)"
TABLES = "write st.StorePostgres.from_graph(graph, url)"

UNCLEAR = (
    "it is not clear which part of the address is the password, and which are host and path, so "
    "the address is not shown here; quote the password with urllib.parse.quote(password, "
    "safe=''), which writes @ / : ? # as %40 %2F %3A %3F %23; in a path write @ as %40; after "
    "user:password comes @ and a host, and a port is a number; the name of a user, a host, a "
    "database or a service has no : or ="
)

_URI = re.compile(r"([a-z][a-z0-9+.-]*)://(?:([^@/?#]*)@)?([^@/?#]*)(/[^?#]*)?(.*)", re.I | re.S)
_HOST = re.compile(r"([^:\[\],]*|\[[0-9a-f:.%]+\])(?::\d{1,5})?", re.I)
_POSTGRES_URI = re.compile(r"postgres(?:ql)?://")
_OF_POSTGRES = re.compile(r"(?:postgres:)?(?:jdbc:)?postgres(?:ql)?(?:\+\w+)?:", re.I)
_NO_NAMES = re.compile(r"[^:@=]*")

_LIKE_ADDRESS = re.compile(
    r":.*@|=.*:|=.*\s.*=|(?:pass?w\w*|pwd|secret\w*|token|access_?key|account_?key)\s*=",
    re.I | re.S,
)
"""Signs of an address in a text that should be a path: `user:password@`, `host=… password=…`."""


@dataclass(frozen=True)
class Uri:
    """The parts of a URI; `str` shows no user, no password and no parameters."""

    scheme: str
    user: str = field(repr=False)
    """The user, and the password behind a `:` if there is one."""
    host: str
    path: str
    more: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}{self.path}"

    @property
    def user_name(self) -> str:
        """The user without the password."""
        return unquote(self.user.partition(":")[0])

    @property
    def hosts(self) -> list[str]:
        """The hosts without their ports, and without the brackets of IPv6."""
        matches = (_HOST.fullmatch(host) for host in self.host.split(","))
        return [unquote(match[1].strip("[]")) for match in matches if match]

    @property
    def parameters(self) -> Iterator[tuple[str, str]]:
        """The name and the value of each parameter behind the `?`."""
        for parameter in self.more.removeprefix("?").split("&"):
            name, _, value = parameter.partition("=")
            yield unquote(name), unquote(value)


def uri_of(text: str) -> Uri | None:
    """The parts of a URI; None for other text, and if it is unclear where the password ends."""
    match = _URI.fullmatch(text)
    if match is None or not _can_be_sent(text):
        return None
    uri = Uri(*(part or "" for part in match.groups()))
    if uri.scheme.lower() == "file" and not (uri.user or uri.host):
        return uri  # a path may have any characters
    beyond = f"{uri.path}{uri.more}"
    before_last_at = f"{uri.user}{uri.host}{beyond[: beyond.rfind('@') + 1]}"
    if "@" in beyond and ":" in before_last_at:
        return None
    if not all(_HOST.fullmatch(host) for host in uri.host.split(",")):
        return None
    # A host that is quoted may be a whole `user:password@host`.
    return uri if all(map(_is_clear, uri.hosts if uri.host else [uri.path])) else None


def wrong_with_names(names: Mapping[str, Any]) -> str | None:
    """The problem of the parts of a Postgres address that messages show; None if there is none.

    `names` has the unquoted parts, by libpq's names.
    """
    for part in ("user", "host", "hostaddr", "dbname", "service"):
        value = str(names.get(part) or "")
        if not all(map(_is_clear, value.split(",") if part.startswith("host") else [value])):
            return UNCLEAR
    return None


def _is_clear(name: str) -> bool:
    """Whether no part of a name can be a password: no `:` and no `=`, or a host in IPv6."""
    while (unquoted := unquote(name)) != name:
        name = unquoted
    return not re.search("[:=]", name) or _is_ipv6(name)


def is_of_postgres(text: str) -> bool:
    """Whether a text begins like an address of Postgres, also that of JDBC or SQLAlchemy."""
    return _OF_POSTGRES.match(text) is not None


def wrong_with_files(text: str) -> str | None:
    """The problem of the address of a Parquet store, without quoting it; None if there is none."""
    if is_of_postgres(text):
        return f"expected a path or a URI of files, found a URL of Postgres; {TABLES}"
    if "://" in text:
        return UNCLEAR if uri_of(text) is None else None
    return wrong_with_path(text)


def wrong_with_path(text: str) -> str | None:
    """The problem of a path, without quoting it; None if there is none."""
    if "\0" in text:
        return "a path has no character NUL; leave it out"
    if text.startswith(("./", "../")) or (text.startswith("/") and not text.startswith("//")):
        return None
    if _LIKE_ADDRESS.search(text):
        return (
            "expected a path, found what looks like an address with a password, which is not "
            f"shown here; a URL begins with its scheme: {EXAMPLE}, s3://bucket/path; before the "
            "path of a directory that has such a name write ./"
        )
    return None


def wrong_with_postgres(text: str) -> str | None:
    """The problem of the address of a database, without quoting it; None if none shows so far.

    Connection strings, `host=… dbname=…`, are left to libpq's parser.
    """
    if re.match("jdbc:", text, re.I):
        return (
            "jdbc:… is an address for Java; leave jdbc: out, and give user and password as in "
            f"{EXAMPLE}"
        )
    if re.match(r"postgres(?:ql)?\+\w+:", text, re.I):
        return (
            "a URL with the name of a driver (postgresql+…://) is one for SQLAlchemy; leave the "
            f"+ and the driver out: {EXAMPLE}"
        )
    if _POSTGRES_URI.match(text):
        uri = uri_of(text)
        return UNCLEAR if uri is None else _wrong_quotes(text) or _wrong_with_parts(uri)
    if "=" in text and _can_be_sent(text):
        return None
    shown = f"{text!r} is" if _NO_NAMES.fullmatch(text) else "this is"
    return f"{shown} no address of a Postgres database; give {EXAMPLE}; {FILES}"


def _wrong_quotes(text: str) -> str | None:
    if re.search(r"%(?![0-9a-f]{2})|%00", text, re.I) is None:
        return None
    return (
        "in the URL of the database there is a % that does not begin the %XX of a character; "
        "write % itself as %25, as urllib.parse.quote(password, safe='') does"
    )


def _wrong_with_parts(uri: Uri) -> str | None:
    parts = [
        {"user": uri.user_name, "host": ",".join(uri.hosts), "dbname": unquote(uri.path[1:])},
        *({name: value} for name, value in uri.parameters),
    ]
    return next((wrong for part in parts if (wrong := wrong_with_names(part))), None)


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False


def _can_be_sent(text: str) -> bool:
    """Whether a text can be sent: it has no NUL and no surrogates."""
    return "\0" not in text and not any("\ud800" <= c <= "\udfff" for c in text)
