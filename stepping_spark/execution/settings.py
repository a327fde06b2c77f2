"""The settings of a session that change the values which functions of rows give."""

from __future__ import annotations

from collections.abc import Mapping

from stepping_spark.errors import StepError
from stepping_spark.packages import SparkSession

_ZONE, _PARSER = "spark.sql.session.timeZone", "spark.sql.legacy.timeParserPolicy"
_NAMES = (
    "spark.sql.ansi.enabled",
    "spark.sql.decimalOperations.allowPrecisionLoss",
    _PARSER,
    _ZONE,
)
_UTC = ("UTC", "Etc/UTC", "Z", "GMT", "+00:00")


def checked(spark: SparkSession, before: Mapping[str, str]) -> dict[str, str]:
    """Those of a session; a `StepError` where a state was made with others."""
    found = {name: str(spark.conf.get(name)) for name in _NAMES}
    for name, value in before.items():
        if found.get(name, value) != value:
            raise StepError(
                f"the session has {name} = {found[name]!r}, and the state was made with "
                f"{value!r}: functions of rows would give other results for rows that are in "
                f"the state already; set it back with spark.conf.set({name!r}, {value!r})"
            )
    return found


def are_in_utc(settings: Mapping[str, str]) -> bool:
    """Whether functions of times have their results of UTC; not with unknown settings."""
    return settings.get(_ZONE) in _UTC and settings.get(_PARSER) != "LEGACY"
