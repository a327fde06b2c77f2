"""Pictures of a circuit.

`flat` lays the bodies of recursions flat, `picture` decides boxes, frames and arrows at each
level of detail, `render` has shapes and colours and writes DOT, SVG and PNG.

Comes in: a graph. Goes out: a picture. Imports `graph`; a graph does not know its drawing.
"""
