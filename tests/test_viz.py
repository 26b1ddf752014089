"""Looking at tensors, graphs and gradients: what is shown is right, and shows well."""

from __future__ import annotations

import shutil
import xml.etree.ElementTree as ElementTree

import pytest

import flambeau
from flambeau import nn
from flambeau.viz import layout

NAN, INF = float("nan"), float("inf")


# -- describe ------------------------------------------------------------------------------------------------------------


def test_describe():
    """Numbers of the finite elements, counts of the others, a histogram whose bars are where the elements are."""
    found = flambeau.tensor([0.0, 1.0, 2.0, 3.0, NAN, INF]).describe()
    assert (found.min, found.max, found.mean, found.nan, found.inf, found.zeros) == (0.0, 3.0, 1.5, 1, 1, 1)
    assert found.std == pytest.approx(1.29099, rel=1e-4)
    assert found.bars()[0] == found.bars()[-1] == "█" and len(found.bars()) == len(found.histogram)
    text = repr(found)
    assert "float32 tensor of shape (6,) on cpu: 6 elements, 24 B" in text and "1 NaN (17 %)" in text and "range  0 .. 3" in text
    assert "<pre>" in found._repr_html_()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: flambeau.zeros(0), "0 elements"),
        (lambda: flambeau.tensor(2.5), "1 element, 4 B"),
        (lambda: flambeau.tensor([1, 2, 3]), "range  1 .. 3"),
        (lambda: flambeau.tensor([True, True, False]), "2 True (67 %), 1 False"),
        (lambda: flambeau.tensor([3 + 4j]), "absolute value  5 .. 5"),
        (lambda: flambeau.ones(2, device="meta"), "on meta"),
        (lambda: flambeau.full((2,), NAN), "2 NaN (100 %)"),
        (lambda: flambeau.ones(2, dtype=flambeau.bfloat16), "bfloat16"),
        (lambda: flambeau.ones(2, requires_grad=True), "requires grad"),
        (lambda: flambeau.ones(2, requires_grad=True) * 2, "from MulBackward0"),
        (lambda: flambeau.ones(2, 3).t()[1:], "shape (2, 2)"),
    ],
)
def test_describe_any_tensor(make, words):
    """Empty, 0-d, of any dtype, without data, with history: every tensor can be described."""
    assert words in repr(make().describe())


# -- graph ---------------------------------------------------------------------------------------------------------------


def net_and_graph():
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    h = model(flambeau.ones(5, 3))
    return model, flambeau.viz.graph((h * h.exp()).sum(), model)


def test_graph_as_text():
    """Every node stands under the one it feeds, parameters by name, a node that feeds two in full only once."""
    _, graph = net_and_graph()
    lines = str(graph).splitlines()
    assert lines[0] == "SumBackward0  ()"
    assert lines[1] == "└─ MulBackward0  (5, 2)"
    assert lines[2] == "   ├─ AddmmBackward0  (5, 2)"
    assert any(line.endswith("2.weight  (2, 4)") for line in lines)
    assert lines[-1] == "         AddmmBackward0  (5, 2)  (as in line 3)".replace("         Add", "      └─ Add")
    assert sum("0.bias" in line for line in lines) == 1


def test_graph_knows_names_and_leaves():
    """Names come from a module or a dictionary; a leaf nobody names is a leaf; an edge for each use."""
    a, b = flambeau.ones(2, requires_grad=True), flambeau.ones(2, requires_grad=True)
    graph = flambeau.viz.graph([(a * b).sum(), (a * 2).sum()], params={"a": a})
    kinds = {v.name: v.kind for v in graph.vertices}
    assert kinds["a"] == "parameter" and kinds["leaf"] == "tensor" and graph.vertices[0].name == "outputs"
    named = next(v for v in graph.vertices if v.name == "a")
    assert sum(source is named for source, _ in graph.edges) == 2


def test_graph_of_nothing_says_why():
    """A tensor without history is an error that says so."""
    with pytest.raises(ValueError, match="does not require grad"):
        flambeau.viz.graph(flambeau.ones(2))
    with pytest.raises(ValueError, match="is a leaf"):
        flambeau.viz.graph(flambeau.ones(2, requires_grad=True))
    with pytest.raises(TypeError, match="found float"):
        flambeau.viz.graph(1.0)


def test_picture():
    """The SVG is valid, has a box for every vertex and a line for every edge, and all of it lies inside the frame."""
    _, graph = net_and_graph()
    tree = ElementTree.fromstring(graph.svg(graphviz=False))
    name = "{http://www.w3.org/2000/svg}"
    boxes, lines = tree.findall(f"{name}rect"), tree.findall(f"{name}path")
    assert len(boxes) == len(graph.vertices) and len(lines) == len(graph.edges)
    width, height = float(tree.get("width")), float(tree.get("height"))
    for box in boxes:
        assert float(box.get("x")) >= 0 and float(box.get("x")) + float(box.get("width")) <= width
        assert float(box.get("y")) >= 0 and float(box.get("y")) + float(box.get("height")) <= height


def test_saving(tmp_path):
    """By the end of its name a file is a picture, Graphviz's language, or text."""
    _, graph = net_and_graph()
    for kind, words in (("svg", "<svg"), ("dot", "digraph"), ("txt", "SumBackward0")):
        graph.save(str(tmp_path / f"graph.{kind}"))
        assert words in (tmp_path / f"graph.{kind}").read_text()
    with pytest.raises(ValueError, match="svg"):
        graph.save(str(tmp_path / "graph.png"))
    if shutil.which("dot") is None:
        with pytest.raises(RuntimeError, match="not installed"):
            graph.svg(graphviz=True)


def test_boxes_do_not_overlap():
    """Boxes of one row keep apart, and every edge goes downwards, whatever the graph."""
    edges = [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6), (0, 6), (1, 5), (6, 7), (2, 7)]
    widths = [40.0, 90, 60, 120, 80, 50, 70, 100]
    places = layout.layered(widths, edges)
    for a, b in edges:
        assert places.centers[a][1] < places.centers[b][1]
    for i, (x, y) in enumerate(places.centers):
        for j, (other, row) in enumerate(places.centers[:i]):
            assert row != y or abs(x - other) >= (widths[i] + widths[j]) / 2


# -- gradients -----------------------------------------------------------------------------------------------------------


def test_gradients():
    """Norm, mean, std and shares per parameter, and words where something is odd."""
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2), nn.Linear(2, 2))
    model[2].bias.requires_grad_(False)
    model[0](flambeau.ones(1, 3)).sum().backward()
    model[0].bias.grad.zero_()
    model[0].weight.grad[0, 0] = NAN
    model[1].weight.grad = flambeau.full((2, 3), 1e6)
    found = flambeau.viz.gradients(model)
    assert found["0.bias"].zero == 1 and "all zero" in found["0.bias"].remark
    assert found["0.weight"].nan == 1 and found["0.weight"].remark == "1 NaN" and found["0.weight"].mean == 1
    assert "exploding" in found["1.weight"].remark and found["1.weight"].norm == pytest.approx(6**0.5 * 1e6)
    assert "no gradient" in found["1.bias"].remark and found["2.bias"].remark == "frozen"
    assert found.total_norm == pytest.approx((found["0.weight"].norm ** 2 + found["1.weight"].norm ** 2) ** 0.5)
    assert "Total norm" in str(found) and "exploding" in found._repr_html_()


def test_gradients_of_tensors():
    """A list of tensors, or of names and tensors, instead of a module."""
    w = flambeau.ones(2, requires_grad=True)
    (w * flambeau.tensor([3.0, 4.0])).sum().backward()
    assert flambeau.viz.gradients([w])["[0]"].norm == flambeau.viz.gradients({"w": w})["w"].norm == 5
