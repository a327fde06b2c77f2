"""Which errors may pass by themselves, and how long a pipeline waits before it tries again."""

from __future__ import annotations

from collections.abc import Iterator

RETRIES = 10
"""Attempts in a row that may fail before `run(every=…)` ends with the error."""

LONGEST = 60.0
"""Seconds: the longest pause between two attempts."""

_LASTING = (FileNotFoundError, PermissionError, NotADirectoryError, IsADirectoryError)
_OF_CONNECTIONS = {
    "psycopg": ("OperationalError", "InterfaceError"),
    "obstore": ("GenericError",),
    "pyiceberg": ("ServerError", "ServiceUnavailableError", "RESTError"),
}
"""The classes of packages that may not be installed, by the packages."""

_AWAY = ("TableNotFoundError", "NoSuchTableError")
"""What deltalake and pyiceberg raise if there is no table."""

_OF_SERVERS = ("08", "40", "53", "57", "58")
"""Classes of SQLSTATEs of a connection or a server: the same statement may succeed later."""


def is_transient(error: BaseException, *, was_there: bool = False) -> bool:
    """Whether an error may pass by itself: a lost connection, a server that does not answer.

    `was_there` says that all tables were there before: one that is not may come back.
    """
    causes = list(_causes(error))
    return any(map(_may_pass, causes)) or (was_there and any(map(_is_away, causes)))


def pause_after(failures: int) -> float:
    """The seconds to wait when so many attempts in a row have failed."""
    return float(min(LONGEST, 2 ** (failures - 1)))


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _is_away(error: BaseException) -> bool:
    return isinstance(error, FileNotFoundError) or type(error).__name__ in _AWAY


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return not isinstance(error, _LASTING)
    state = getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state[:2] in _OF_SERVERS
    return any(
        c.__name__ in _OF_CONNECTIONS.get(c.__module__.partition(".")[0], ())
        for c in type(error).__mro__
    )
