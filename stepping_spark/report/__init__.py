"""The report: what a circuit's steps cost, on one page for a browser.

`circuit` tells what a plan knows of its vertices and registers, `history` makes numbers of what the
stepper has kept of its steps, `svg` makes the project's own picture one that a page can colour,
`page` puts them into one HTML file, and `report` is what users hold.

Comes in: a plan, a store, and the metrics of steps. Goes out: a page, and its numbers as JSON.
Imports `drawing`, `plan` and `execution.metrics`; steps nothing.
"""

from stepping_spark.report.report import KeptState, Report, report_of, sizes_of, state_of_store

__all__ = ["KeptState", "Report", "report_of", "sizes_of", "state_of_store"]
