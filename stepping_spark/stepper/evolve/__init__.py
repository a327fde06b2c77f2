"""The evolution of a state: a changed query keeps the state, and computes only the difference.

A state has the sums of streams, and the circuit that computed them, from inputs to outputs, as JSON
(`circuit`). When another circuit opens the state, common registers are kept. The other old ones are
dropped, and new ones are filled by one large step of a separate circuit (`filling`). Its inputs are
the streams whose sums are in the state, the frontier; a register with some rows or columns of a
stream may be enough to compute another one (`linearity`). Its outputs are the streams of new
registers, and for each view the difference between the results of the new and the old query.

The theory is one line of DBSP: if Q∆ = D∘Q∘I is the incremental form of Q, its first step on the
sum of all changes so far returns the sum of all its results (Budiu et al., theorem 3.2). So one
step on the frontier computes the result of many steps. `sums` proves for each stream that it has
this form; a stream that depends on the order of the steps, such as a delayed one, has not, and is
refused.

`old_streams` reads the old circuit from the state. `evolution` decides the fate of each register,
and `stepping` is the part of a stepper that performs it.

Input: a circuit, its plan, and the description of a state by its store. Output: an `Evolution`,
which describes the difference, and the changes of a step that performs it. Imports `execution` and
the packages before it; nothing else of `stepper`.
"""
