"""A circuit as a state keeps it: what computed its registers and its outputs, as JSON.

    {"format": 1, "digest": "…", "name": "query", "inputs": [["orders", 0]],
     "vertices": [{"operator": {…}, "of": [0], "id": "…", "called": "query.filter"}, …],
     "loops": [[3, 7]], "outputs": [["revenue", 9]], "registers": [["distinct … by …", 4]]}

Vertices come after those they are computed from, which `of` has by their places. `id` is the digest
of all that computes a vertex. Beside it is a checksum.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from stepping_spark.callsite import Line
from stepping_spark.evolve.codec import Reader, Unreadable, Unwritable, digest, written
from stepping_spark.graph.fixpoint import Fixpoint
from stepping_spark.graph.graph import AnyGraph, Graph, Origin, Path, Vertex
from stepping_spark.graph.operators import Input, Operator
from stepping_spark.plan.plan import Plan
from stepping_spark.rows.schema import StreamType
from stepping_spark.store import fingerprint

FORMAT = 1


def circuit_of(plan: Plan) -> str:
    """The circuit of a plan, as the text that a state keeps; made once."""
    memo = plan.identities.graph.memo
    found = memo.get("circuit")
    if not isinstance(found, str):
        found = memo["circuit"] = _text_of(plan)
    return found


def _text_of(plan: Plan) -> str:
    identities = plan.identities
    registers = [(s.register.sums, identities.unfused(s.change)) for s in plan.states]
    said, places = _told(identities.graph, [v for _, v in registers])
    said["registers"] = [[sums, places[v]] for sums, v in registers]
    body = {"format": FORMAT, "digest": digest_of(plan), **said}
    return json.dumps({"circuit": body, "checksum": _checksum(body)}, ensure_ascii=False)


def _checksum(body: Any) -> str:
    return digest(json.dumps(body, sort_keys=True))


def digest_of(plan: Plan) -> str:
    """A digest that circuits share which compute the same from the same state."""
    graph = plan.identities.graph
    inputs = [label for label, _ in inputs_of(graph)]
    outputs = [
        f"{name} {graph.told(v)} {v.type.schema.kinds}"
        for name, v in zip(named(graph), graph.outputs, strict=True)
    ]
    return digest("\n".join([*inputs, *outputs, fingerprint(plan.registers)]))


def named(graph: AnyGraph) -> tuple[str, ...]:
    """The names of the outputs; one that has no name of its own has an empty one."""
    return graph.called or ("",) * len(graph.outputs)


def inputs_of(graph: AnyGraph) -> list[tuple[str, int]]:
    """The inputs, by name and number."""
    operators = [v.operator for v in graph.inputs]
    return [(op.label, op.number) for op in operators if isinstance(op, Input)]


def ids_of(graph: AnyGraph, vertices: Iterable[Vertex]) -> dict[Vertex, str]:
    """The digests of all that computes vertices, the same in every process."""
    told = graph.told if graph.loops else (lambda v: v.told)
    return {v: told(v).rpartition(" ")[2] for v in vertices}


def _told(graph: AnyGraph, more: Sequence[Vertex] = ()) -> tuple[dict[str, Any], dict[Vertex, int]]:
    """A circuit as JSON, with more vertices; and the place of each vertex."""
    places: dict[Vertex, int] = {}

    def place(v: Vertex) -> None:
        if v not in places:
            for i in v.inputs:  # not deep: those of the graph are there already
                place(i)
            places[v] = len(places)

    typed = {*graph.outputs, *more}
    for v in (*graph.walk(), *more):
        place(v)
    ids = ids_of(graph, places)
    return {
        "name": graph.name,
        "inputs": [list(pair) for pair in inputs_of(graph)],
        "entries": [places[v] for v in graph.inputs],
        "vertices": [
            {
                "operator": _operator(v.operator, graph),
                "of": [places[i] for i in v.inputs],
                "id": ids[v],
                "called": str(graph.paths[v]) if v in graph.paths else v.operator.name,
                **({"type": written(v.type)} if v in typed else {}),
            }
            for v in places
        ],
        "loops": [[places[leaf], places[source]] for leaf, source in graph.loops.items()],
        "outputs": [[n, places[v]] for n, v in zip(named(graph), graph.outputs, strict=True)],
    }, places


def _operator(operator: Operator, graph: AnyGraph) -> Any:
    if isinstance(operator, Fixpoint):
        body, _ = _told(graph.bodies.get(operator, operator.body))
        most = operator.max_iterations
        return {"body": body, "number": operator.number, "max_iterations": most}
    try:
        return written(operator)
    except Unwritable as e:
        return {"unwritten": str(e)}


class KeptCircuit:
    """The circuit that a state keeps. Its vertices are made of the text when they are asked for.

    Raises `Unreadable` for a text of another version, or one that somebody has edited.
    """

    def __init__(self, text: str) -> None:
        try:
            whole = json.loads(text)
            said = whole["circuit"]
            if whole["checksum"] != _checksum(said):
                raise Unreadable("its checksum is not that of its text: somebody has edited it")
            if said["format"] != FORMAT:
                raise Unreadable(f"its format is {said['format']}, and this version reads {FORMAT}")
            self.digest = str(said["digest"])
            self.inputs = {str(label): int(n) for label, n in said["inputs"]}
            self.outputs = [(str(name), int(place)) for name, place in said["outputs"]]
            self.registers = {str(sums): int(place) for sums, place in said["registers"]}
            self.ids = [str(v["id"]) for v in said["vertices"]]
            self._vertices = said["vertices"]
        except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as e:
            raise Unreadable(f"the circuit of the state is damaged: {e}") from None

    def vertex(self, place: int, known: Callable[[int], Vertex | None], reader: Reader) -> Vertex:
        """The vertex at a place; `known` has those that are there already, by their places.

        Raises `Unreadable` for what this process cannot make, which names the vertex.
        """
        made: dict[int, Vertex] = {}
        needed, pending = set(), [place]
        while pending:
            at = pending.pop()
            if at in needed or at in made:
                continue
            found = known(at)
            if found is not None:
                made[at] = found
            else:
                needed.add(at)
                pending += self._vertices[at]["of"]
        for at in sorted(needed):  # each after its inputs
            said = self._vertices[at]
            try:
                operator = _read(said["operator"], reader)
                if not operator.arity:
                    raise Unreadable(f"{operator.name} has no rows in the state")
                made[at] = Vertex(operator, *(made[i] for i in said["of"]))
            except Exception as e:  # somebody may have edited the text
                raise Unreadable(f"{said.get('called')}: {e}") from e
        return made[place]

    def input_at(self, place: int, reader: Reader) -> Input | None:
        """The input at a place; None: another vertex is there."""
        said = self._vertices[place]["operator"]
        operator = reader.read(said) if said.get("is") == "Input" else None
        return operator if isinstance(operator, Input) else None

    def type_at(self, place: int, reader: Reader) -> StreamType:
        """The type of a stream that a register keeps, or that is an output."""
        found = reader.read(self._vertices[place].get("type"))
        if not isinstance(found, StreamType):
            raise Unreadable(f"{self.called(place)} has no type")
        return found

    def called(self, place: int) -> str:
        """What the query called the vertex at a place."""
        return str(self._vertices[place]["called"])


def _read(said: Mapping[str, Any], reader: Reader) -> Operator:
    if "unwritten" in said:
        raise Unreadable(said["unwritten"])
    if "body" in said:
        return Fixpoint(_body(said["body"], reader), said["number"], said["max_iterations"])
    found = reader.read(said)
    if not isinstance(found, Operator):
        raise Unreadable("it is no operator")
    return found


def _body(said: Mapping[str, Any], reader: Reader) -> AnyGraph:
    """The body of a recursion."""
    made: list[Vertex] = []
    origins: dict[Vertex, Origin] = {}
    for v in said["vertices"]:
        made.append(Vertex(_read(v["operator"], reader), *(made[i] for i in v["of"])))
        path = Path(tuple(v["called"].split(".")))
        origins.setdefault(made[-1], Origin(path, Line(said["name"], 0, "the query before")))
    return Graph(
        name=said["name"],
        inputs=tuple(made[i] for i in said["entries"]),
        outputs=tuple(made[place] for _, place in said["outputs"]),
        no_output=(),
        loops={made[leaf]: made[source] for leaf, source in said["loops"]},
        caches={},
        origins=origins,
        single=len(said["outputs"]) == 1,
    )
