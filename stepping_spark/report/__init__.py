"""Pictures of a circuit, and the report: the costs of a circuit's steps, on one HTML page.

`picture` chooses boxes, frames and arrows for each level of detail, with the bodies of recursions
inlined. `render` has shapes and colours, and writes DOT, SVG and PNG. `circuit` describes the
vertices and registers of a plan, `history` aggregates the metrics of steps, and `report` has the
public class, and writes the page. The script of the page, `page/report.js`, draws these numbers,
and compares two runs. `progress` is the line of progress of a run.

Input: a graph; for a report a plan, a store, and the metrics of steps. Output: pictures, a page,
and its numbers as JSON. Imports `plan` and the packages before it; takes no steps.
"""

from stepping_spark.report.report import KeptState, Report, report_of, sizes_of, state_of_store

__all__ = ["KeptState", "Report", "report_of", "sizes_of", "state_of_store"]
