"""`python -m stepping_spark.cli` is `stepping-spark`."""

from __future__ import annotations

from stepping_spark.cli import main

main(prog_name="stepping-spark")
