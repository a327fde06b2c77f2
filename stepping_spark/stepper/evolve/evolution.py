"""The evolution of a state that another query opens: its registers, and the changes of views."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from rich.filesize import decimal

from stepping_spark.base.callsite import user_line
from stepping_spark.base.errors import InputError, StoreMismatch, short
from stepping_spark.base.signature import Signature
from stepping_spark.circuit.graph import AnyGraph, Vertex
from stepping_spark.circuit.operators import Input
from stepping_spark.plan.difference import Described, described, difference
from stepping_spark.plan.planner import plan_of
from stepping_spark.plan.register_words import columns_within, words_of
from stepping_spark.plan.step_ir import Identities
from stepping_spark.relations.store import EvolvingStore, Register, Size, Store
from stepping_spark.rows.atoms import is_time
from stepping_spark.stepper.evolve.circuit import (
    Reader,
    Unreadable,
    digest_of,
    inputs_of,
    named,
    reordered,
)
from stepping_spark.stepper.evolve.filling import Filling, filling_of
from stepping_spark.stepper.evolve.old_streams import KeptCircuit, OldStreams, OtherColumns

MANY_LINES = 8  # of one kind, beyond which a plan counts what stays as it is

AS_BEFORE = "as before"
CHANGES = "changes"
NEW = "new"
UNKNOWN = "new, and what it was before is unknown"
OTHER_COLUMNS = "new, as it has other columns"
WHOLE = (UNKNOWN, OTHER_COLUMNS)
"""The outcomes of views whose rows are known, but not their change."""
MANY_BYTES = 1_000_000
"""Bytes of a register from which on its size is shown, because reading it takes time."""


@dataclass(frozen=True, eq=False)
class Evolution:
    """The difference between a query and a state that another query made.

    `kept` are the registers that stay unchanged, with their numbers of rows (None if they were not
    counted); `filled` are the new registers, each with its sources: registers of the state, and
    inputs. `dropped` are registers of the state that the query does not need. `read_again` are the
    inputs whose rows it needs again, because the state does not determine what they are needed for.
    `views` has the outcome of each view: as before, changed, or new; `changed` has the sources of
    the changes of the latter two. `renamed` maps the old names of renamed inputs to the new ones.

    >>> def before(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> def after(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.filter(st.distinct(a), f=lambda n: n > 1)
    >>> with st.StoreParquet.from_graph(st.compile(before), "state", create=True) as store:
    ...     _ = st.iteration(store, st.compile(before), (st.ZSetPython({1: 1, 2: 1}),))
    >>> with st.StoreParquet.from_graph(st.compile(after), "state", evolve=True) as store:
    ...     print(st.evolution(st.compile(after), store))
    ...     (change,) = st.Stepper(st.compile(after), store).evolve()
    after, at step 1:
      kept: a by _value_, 2 rows
      view after: changes, from a by _value_ (2 rows)
    >>> change == st.ZSetPython({1: -1})
    True
    """

    query: str
    step: int
    kept: Mapping[str, int | None]
    filled: Mapping[str, tuple[str, ...]]
    dropped: tuple[str, ...]
    read_again: tuple[str, ...]
    views: Mapping[str, str]
    changed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    """Views of the old query that the query does not have."""
    moved: bool = False
    """Whether the order of views has changed."""
    why: Mapping[str, str] = field(default_factory=dict)
    """The reason why the old rows of a view are unknown, by its name."""
    names: Mapping[str, str] = field(default_factory=dict, repr=False)
    words: Mapping[str, str] = field(default_factory=dict, repr=False)
    words_before: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The contents of the state's registers in words, by their names there, if it has them."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, Size] = field(default_factory=dict, repr=False)
    """The sizes of kept and of read registers, by their names in the state."""
    filling: Filling | None = field(default=None, repr=False)
    rows_again: Mapping[str, int] = field(default_factory=dict)
    """The numbers of rows of inputs that are read again, if they were counted."""
    missing: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns that the state lacks for a filled register, by its name, if it has the others."""
    counts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The numbers of rows that leave and enter each changed or new view, if they were counted."""
    reordered: tuple[str, ...] = ()
    """The inputs in their order, if those of the old query are in another order."""

    @property
    def is_needed(self) -> bool:
        """Whether the state, a view or a name would change."""
        changed = self.step and any(outcome != AS_BEFORE for outcome in self.views.values())
        views = self.gone or self.moved
        inputs = self.renamed or self.reordered
        return bool(self.filled or self.dropped or changed or inputs or views)

    def check_known(self, but: Collection[str] = ()) -> None:
        """Raise an error for a view with an unknown change, except for the views in `but`."""
        for name, outcome in self.views.items():
            if outcome in WHOLE and name not in but:
                raise StoreMismatch(self._untold(name))

    def _untold(self, name: str) -> str:
        """The text of the error for a view with an unknown change, with the remedy."""
        why = self.why.get(name, "")
        anew = f"empty what was made of it, and take all its rows: evolve(whole=[{name!r}])"
        if self.views[name] == OTHER_COLUMNS:
            return (
                f"view {name!r} has other columns than before: {why}. In a pipeline, give it "
                "another table, or remove the one that it has: the next run with --evolve fills "
                f"it. Else {anew}"
            )
        return (
            f"what view {name!r} was before is unknown, so its change is too: {why}. In a "
            f"pipeline, run with --evolve --refresh {name} (in Python, evolve=True, "
            f"refresh=[{name!r}]), or remove the table that the view has. Else {anew}"
        )

    def __str__(self) -> str:
        return "\n".join([f"{self.query}, at step {self.step:,}:", *self._lines()])

    def _lines(self) -> Iterator[str]:
        def origin(sources: Iterable[str]) -> str:
            return " and ".join(f"{of_state.get(n, n)}{self._size(n, ' ({})')}" for n in sources)

        of_state = {name: f"the old {words}" for name, words in self.words_before.items()}
        of_state |= {
            in_state: self.words.get(name, in_state) for name, in_state in self.names.items()
        }
        if len(self.kept) > MANY_LINES:
            yield f"  kept: {len(self.kept)} registers"
        else:
            for name in self.kept:
                yield f"  kept: {self.words.get(name, name)}{self._size(self.names[name], ', {}')}"
        for name, sources in self.filled.items():
            read = origin(sources) or "nothing: it is empty"
            lacks = ", ".join(self.missing.get(name, ()))
            why = f": the state lacks {lacks}" if lacks else ""
            yield f"  filled: {self.words.get(name, name)}, from {read}{why}"
        for name in self.dropped:
            yield f"  dropped: {self.words_before.get(name, name)}"
        for old, new in self.renamed.items():
            yield f"  renamed: input {old} is {new} now"
        if self.reordered:
            yield f"  the order of the inputs: {', '.join(self.reordered)}"
        for name in self.read_again:
            n = self.rows_again.get(name)
            yield f"  read again: input {name}{'' if n is None else f', {count_told(n)}'}"
        said = {*self.why, *self.counts}
        same = [n for n, outcome in self.views.items() if outcome == AS_BEFORE and n not in said]
        if len(same) <= MANY_LINES:
            same = []
        for name, outcome in self.views.items():
            if name in same:
                continue
            why = f" ({self.why[name]})" if name in self.why else ""
            read = origin(self.changed.get(name, ()))
            counted = "" if name not in self.counts else f", {_counts_text(*self.counts[name])}"
            yield f"  view {name}: {outcome}{why}{counted}{', from ' if read else ''}{read}"
        if same:
            yield f"  {len(same)} views: {AS_BEFORE}"
        for name in self.gone:
            yield f"  view {name}: left out"

    def _size(self, there: str, form: str) -> str:
        """The text of a register's number of rows, and of its bytes if they are many."""
        size = self.sizes.get(there)
        if size is None:
            return ""
        rows = count_told(size.rows)
        return form.format(rows if size.nbytes < MANY_BYTES else f"{rows}, {decimal(size.nbytes)}")


def _missing(wanted: Mapping[str, Any], kept: Described) -> tuple[str, ...]:
    """The columns that a register of the same stream and key lacks in the state."""
    new = Register.described("", wanted)
    columns = columns_within(new.schema.columns)
    for content in kept.values():
        if all(content.get(part) == wanted[part] for part in ("sums", "key")):
            had = set(columns_within(Register.described("", content).schema.columns))
            if had < set(columns):
                return tuple(name for name in columns if name not in had)
    return ()


def count_told(n: int) -> str:
    """The text of a number of rows."""
    return f"{n:,} row{'' if n == 1 else 's'}"


def _counts_text(leave: int, come: int) -> str:
    """The text of the numbers of rows that leave and enter a view."""
    return f"{count_told(leave)} leave{'s' * (leave == 1)} and {come:,} come{'s' * (come == 1)}"


def evolution_of(
    graph: AnyGraph,
    store: Store,
    whole: Iterable[str] = (),
    *,
    renamed: Mapping[str, str] | None = None,
    counted: bool = True,
) -> Evolution:
    """The difference between a circuit and the state in a store. See `Evolution`.

    `whole` names views whose change is all their rows, whatever they were. `renamed` maps the old
    names of inputs to the new ones. Nothing is changed, and no rows are read; `counted` counts the
    rows of kept registers, which takes time in Postgres. A store in files or in Postgres must be
    opened with `evolve=True`.

    Raises `StoreMismatch` for a stream that no sum determines, because it depends on the order of
    the steps, such as the result of a delay or a lateness.

    >>> def before(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.distinct(a)
    >>> def after(a: st.ZSet[int]) -> st.ZSet[int]:
    ...     return st.neg(st.distinct(a))
    >>> store = st.StoreMemory.from_graph(st.compile(before))
    >>> _ = st.iteration(store, st.compile(before), (st.ZSetPython({1: 1, 2: 1}),))
    >>> st.evolution(st.compile(after), store).read_again
    ()
    """
    if not isinstance(store, EvolvingStore):
        raise cannot_evolve(store)
    return _Finder(graph, store, whole, renamed or {}, counted=counted).evolution()


def cannot_evolve(store: Store) -> StoreMismatch:
    """The error for a store whose state cannot become that of another circuit."""
    return StoreMismatch(
        f"{type(store).__name__} cannot evolve its state: it has no method evolve; start with "
        "a new store"
    )


@dataclass(frozen=True)
class _View:
    """A view: its stream, its old stream (the same if nothing changes), and the outcome."""

    now: Vertex
    was: Vertex | None
    outcome: str
    why: str = ""


class _Finder:
    def __init__(
        self,
        graph: AnyGraph,
        store: Any,
        whole: Iterable[str],
        renamed: Mapping[str, str],
        *,
        counted: bool,
    ) -> None:
        self.plan = plan_of(graph)  # raises an error for anything but a graph
        self.whole = _checked(whole, graph)
        self.counted = counted
        self.store = store
        self.graph = graph
        self.kept: Described = store.described()
        self.before: KeptCircuit | None = None
        self.damage = "the state does not say which query gave its outputs"
        text = store.last_circuit()
        if text is not None:
            try:
                self.before = KeptCircuit(text)
            except Unreadable as e:
                self.damage = str(e)
        if renamed and self.before is None and store.last_step():
            raise StoreMismatch(
                f"{user_line()}: renamed= cannot be followed: {self.damage}; run the query before, "
                "with its own names, once with evolve=True, and then this one"
            )
        self.renamed = _renames_to_come(renamed, graph, self._inputs_before())

    def _inputs_before(self) -> Mapping[str, int]:
        return {} if self.before is None else self.before.inputs

    @property
    def by_name(self) -> bool:
        """Whether names identify inputs and outputs: the state has source offsets by input name."""
        before = self._inputs_before()
        return not before.keys().isdisjoint(self.store.last_offsets())

    @property
    def views_before(self) -> list[str]:
        """The names of the old views; "" for a view without a name."""
        return [] if self.before is None else [name for name, _ in self.before.outputs]

    @cached_property
    def places(self) -> list[int | None]:
        """The old place of each view; None for a new one."""
        return _paired(named(self.graph), self.views_before, by_name=self.by_name)

    def evolution(self) -> Evolution:
        same = self.before is not None and self.before.digest == digest_of(self.plan)
        if same and not self.whole:
            return self._unchanged()
        numbered, identities = self._numbered()
        wanted = dict(described(self.plan.registers))
        for name, sums in self.plan.sums_by(identities).items():
            wanted[name] = {**wanted[name], "sums": str(sums)}
        parts = difference(self.kept, wanted, numbered=True)
        frontier = {
            identities.unfused(s.change): parts.names[s.register.name]
            for s in self.plan.states
            if s.register.name in parts.names
        }
        reader = Reader([x for v in numbered.walk() for x in (v.operator, v.type)])
        old = None
        if self.before is not None:
            then = self.store.last_now()
            same_times = all(is_time(then, t) for t in self.plan.times)
            old = OldStreams(
                self.before, self.kept, numbered, frontier, reader, None if same_times else then
            )
        views = self._views(numbered, old)
        pairs = [(view.now, view.was) for view in views.values()]
        filling = filling_of(self.plan, identities, frontier, parts.new, pairs)
        step = self.store.last_step()
        filled = {name: filling.made_of(name) if step else () for name in parts.new}
        changed = {}
        for i, (name, view) in enumerate(views.items()):
            if step and view.outcome != AS_BEFORE:
                changed[name] = filling.change_made_of(i)
        givens = [*filled.values(), *changed.values()]
        read = [n for names in givens for n in names if n in self.kept]
        sizes = self._sizes([*parts.names.values(), *read])
        return Evolution(
            self.graph.name,
            step,
            _rows(parts.names, sizes),
            filled,
            parts.dropped,
            filling.read_again if step else (),
            {name: view.outcome for name, view in views.items()},
            changed,
            tuple(
                n or f"output {i}" for i, n in enumerate(self.views_before) if i not in self.places
            ),
            sorted(places := [i for i in self.places if i is not None]) != places,
            {name: view.why for name, view in views.items() if view.why},
            parts.names,
            words_of(self.plan),
            self._words_before(),
            self.renamed,
            sizes,
            filling,
            missing={n: lacks for n in filled if (lacks := _missing(wanted[n], self.kept))},
            reordered=reordered(self.graph, self._numbers_before()),
        )

    def _numbers_before(self) -> dict[str, int]:
        """The old numbers of inputs, by their names now."""
        return {self.renamed.get(n, n): number for n, number in self._inputs_before().items()}

    def _unchanged(self) -> Evolution:
        names = difference(self.kept, described(self.plan.registers)).names
        views = dict.fromkeys(_view_names(self.graph), AS_BEFORE)
        step = self.store.last_step()
        sizes = self._sizes(names.values())
        rows = _rows(names, sizes)
        words = words_of(self.plan)
        return Evolution(
            self.graph.name, step, rows, {}, (), (), views, names=names, words=words, sizes=sizes
        )

    def _words_before(self) -> dict[str, str]:
        """The contents of the state's registers, in words of the old query."""
        words = {} if self.before is None else self.before.words
        sums = {name: str(description.get("sums", "")) for name, description in self.kept.items()}
        return {name: words[of] for name, of in sums.items() if of in words}

    def _sizes(self, names: Iterable[str]) -> dict[str, Size]:
        """The sizes of registers of the state, if rows are counted."""
        return {n: self.store.size_kept(n) for n in dict.fromkeys(names) if self.counted}

    def _numbered(self) -> tuple[AnyGraph, Identities]:
        """The circuit, whose inputs have the numbers that the old circuit has for their names."""
        identities = self.plan.identities
        graph = identities.graph
        numbers = _numbers(inputs_of(graph), self._numbers_before(), by_name=self.by_name)
        to: dict[Vertex, Vertex] = {}
        for v in graph.walk():
            op = v.operator
            if isinstance(op, Input) and v in graph.inputs:
                to[v] = Vertex(replace(op, number=numbers[op.label]))
            else:
                to[v] = Vertex(op, *(to[i] for i in v.inputs)) if v.inputs else v
        moved = replace(
            graph,
            inputs=tuple(to[v] for v in graph.inputs),
            outputs=tuple(to[v] for v in graph.outputs),
            no_output=tuple(to[v] for v in graph.no_output),
            loops={to[leaf]: to[source] for leaf, source in graph.loops.items()},
            caches={},
            strict={},
            lateness={},
            origins={to[v]: graph.origins[v] for v in to},
        )

        def of(v: Vertex) -> Vertex:
            return to[v] if v in to else Vertex(v.operator, *map(of, v.inputs))

        known = dict(identities.stands_for) or {v: v for v in to}
        return moved, Identities(moved, {v: of(unfused) for v, unfused in known.items()})

    def _views(self, graph: AnyGraph, old: OldStreams | None) -> dict[str, _View]:
        """The outcome of each view, by the name in messages."""
        places = [place for _, place in self.before.outputs] if self.before is not None else []
        shown = zip(_view_names(self.graph), graph.outputs, self.places, strict=True)
        return {
            name: self._view(name, v, old, None if i is None else places[i], graph)
            for name, v, i in shown
        }

    def _view(
        self, name: str, v: Vertex, old: OldStreams | None, place: int | None, graph: AnyGraph
    ) -> _View:
        """The outcome of a view with this place in the old circuit."""
        if name in self.whole or (old is None and not self.store.last_step()):
            return _View(v, None, NEW)
        if old is None:
            alike = v in self._made_alike(graph)
            return _View(v, v, AS_BEFORE) if alike else _View(v, None, UNKNOWN, self.damage)
        if place is None:
            return _View(v, None, NEW)
        try:
            was = old.view(place, v)
        except Unreadable as e:
            outcome = OTHER_COLUMNS if isinstance(e, OtherColumns) else UNKNOWN
            return _View(v, None, outcome, str(e))
        return _View(v, was, AS_BEFORE if was is v else CHANGES)

    def _made_alike(self, graph: AnyGraph) -> set[Vertex]:
        """The unchanged outputs, if the state has only the signatures of its query's outputs."""
        made_by = self.store.last_made_by() or ()
        if len(made_by) != len(graph.outputs):
            return set()
        triples = zip(graph.outputs, made_by, self.graph.made_by, strict=True)
        return {v for v, then, now in triples if Signature.of_text(then).digest == now.digest}


def _numbers(
    inputs: Sequence[tuple[str, int]], before: Mapping[str, int], *, by_name: bool
) -> dict[str, int]:
    """The number of each input: the old number of its name; otherwise its own or a free one.

    An input with a new name keeps its own number if a removed input had it, and counts as that
    input, unless inputs are identified `by_name`.
    """
    if not before:
        return dict(inputs)
    numbers = {label: before[label] for label, _ in inputs if label in before}
    taken = set(numbers.values())
    renamed = set(before.values()) - taken
    for label, number in inputs:
        if label in numbers:
            continue
        if by_name or number not in renamed or number in taken:
            number = 1 + max([*taken, *before.values(), number], default=0)
        numbers[label] = number
        taken.add(number)
    return numbers


def _paired(names: Sequence[str], before: Sequence[str], *, by_name: bool) -> list[int | None]:
    """The old place of each output: by its name, or by its own place if names do not decide."""
    places: list[int | None] = []
    for i, name in enumerate(names):
        if name and name in before:
            places.append(before.index(name))
        elif not by_name and i < len(before) and (not before[i] or before[i] not in names):
            places.append(i)
        else:
            places.append(None)
    return places


def _view_names(graph: AnyGraph) -> list[str]:
    """The names of views in messages; a single view without a name is named after the query."""
    names = named(graph)
    if len(names) == 1:
        return [names[0] or graph.name]
    return [name or f"output {i}" for i, name in enumerate(names)]


def _checked(whole: Iterable[str], graph: AnyGraph) -> set[str]:
    """The names in `whole`, as a set. Raises `InputError` for an unknown view."""
    names, views = list(whole), _view_names(graph)
    for name in names:
        if name not in views:
            raise InputError(
                f"{user_line()}: whole= names {name!r}, and the outputs are "
                f"{', '.join(map(repr, views))}; name one of them"
            )
    return set(names)


def check_renames(renamed: Mapping[str, str], inputs: Collection[str]) -> None:
    """Raise an `InputError` for renames that the inputs of the query contradict."""
    if not isinstance(renamed, Mapping):
        raise InputError(
            f"{user_line()}: renamed=: expected the old name of each input that has another name "
            f"now, with the new one, {{old: new}}, found {short(renamed)}"
        )
    for old, new in renamed.items():
        wrong = ""
        if new not in inputs:
            wrong = f"there is no input {new!r}"
        elif old in inputs:
            wrong = f"{old!r} is an input of the query too, so nobody can tell which has its rows"
        elif list(renamed.values()).count(new) > 1:
            wrong = f"another input is said to be {new!r} now, too"
        if wrong:
            raise _not_renamed(old, new, wrong, inputs)


def _not_renamed(old: str, new: str, wrong: str, inputs: Iterable[str]) -> InputError:
    return InputError(
        f"{user_line()}: renamed= says that the input {old!r} is {new!r} now, and {wrong}; the "
        f"inputs of the query are {', '.join(map(repr, inputs))}: name for each one that has "
        "another name its old name and its new one, {old: new}, and leave out the others"
    )


def _renames_to_come(
    renamed: Mapping[str, str], graph: AnyGraph, before: Mapping[str, int]
) -> dict[str, str]:
    """The renames that were not applied to the state yet."""
    inputs = [label for label, _ in inputs_of(graph)]
    check_renames(renamed, inputs)
    for old, new in renamed.items():
        known = {old, new} & before.keys()
        if len(known) == 2:
            raise _not_renamed(old, new, "the state has both, each with rows of its own", inputs)
        if before and not known:
            names = ", ".join(map(repr, before))
            raise _not_renamed(old, new, f"the state has neither, but {names}", inputs)
    return {old: new for old, new in renamed.items() if old in before}


def _rows(names: Mapping[str, str], sizes: Mapping[str, Size]) -> dict[str, int | None]:
    """The rows of the circuit's registers; `names` maps them to their names in the state."""
    return {n: sizes[in_state].rows if in_state in sizes else None for n, in_state in names.items()}
