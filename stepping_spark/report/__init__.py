"""The report: the costs of a circuit's steps, on one HTML page.

`circuit` describes the vertices and registers of a plan, `history` aggregates the metrics of steps,
`svg` prepares the picture of the circuit for the page, `page` writes the HTML file, and `report`
has the public class.

Input: a plan, a store, and the metrics of steps. Output: a page, and its numbers as JSON.
Imports `drawing`, `plan` and `execution.metrics`; takes no steps.

`flat` inlines the bodies of recursions, `picture` chooses boxes, frames and arrows for each level
of detail, and `render` has shapes and colours and writes DOT, SVG and PNG.

Input: a graph. Output: a picture. Imports `graph`; graphs do not know about drawings.
"""

from stepping_spark.report.report import KeptState, Report, report_of, sizes_of, state_of_store

__all__ = ["KeptState", "Report", "report_of", "sizes_of", "state_of_store"]
