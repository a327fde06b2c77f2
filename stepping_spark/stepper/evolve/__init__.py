"""A query that changes keeps its state: the difference between two circuits, and how it is made up.

A state has the sums of streams, and what computed them (`circuit`): the circuit from its inputs to
its outputs, as JSON. When another circuit opens the state, the registers that both have are kept,
and the others are dropped, or filled by one large step of a circuit of its own (`filling`). Its
inputs are the streams whose sums the state has, the frontier; some rows or columns that a register
has of a stream may be enough for another one (`linearity`). Its outputs are the streams of new
registers, and for each view what the new query gives and the old one did not.

The theory is one line of DBSP: where Q∆ = D∘Q∘I is the incremental form of Q, its first step on the
sum of all changes so far gives the sum of all that it has given (Budiu et al., theorem 3.2). So one
step on the frontier makes what many steps have made. `sums` shows for each stream that it has this
form; a stream whose value depends on the order of the steps, such as a delayed one, has not, and is
refused.

`old_streams` reads the circuit before, as the state keeps it. `evolution` decides what becomes of
each register, and `stepping` is the part of a stepper that does it.

Comes in: a circuit, its plan, and what a store says of its state. Goes out: an `Evolution`, which
says what would happen, and the changes of a step that makes it happen. Imports `execution` and all
that comes before it; nothing else of `stepper`.
"""
