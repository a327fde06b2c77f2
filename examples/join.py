"""The first example of the tutorial: flights with one stop, maintained."""

import stepping_spark as st


class Flight(st.Data):
    start: str
    end: str


def one_stop(flights: st.ZSet[Flight]) -> st.ZSet[Flight]:
    both = st.join(flights, flights, on_left=lambda f: f.end, on_right=lambda f: f.start)
    return st.map(both, f=lambda p: Flight(start=p.left.start, end=p.right.end))


graph = st.compile(one_stop)
(flights,) = st.actions(st.StoreMemory.from_graph(graph), graph)
print(flights.insert(Flight(start="Oslo", end="Rome"), Flight(start="Rome", end="Cairo")))
print(flights.replace(Flight(start="Rome", end="Cairo"), Flight(start="Rome", end="Paris")))
st.write_png(graph, "join.png")
