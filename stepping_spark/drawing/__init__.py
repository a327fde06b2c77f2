"""Pictures of a circuit.

`flat` inlines the bodies of recursions, `picture` chooses boxes, frames and arrows for each level
of detail, and `render` has shapes and colours and writes DOT, SVG and PNG.

Input: a graph. Output: a picture. Imports `graph`; graphs do not know about drawings.
"""
