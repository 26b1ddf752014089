"""`graph(loss)`: what backward will walk through, as text and as a picture.

NllLossBackward0  ()                     the loss came from this node
└─ AddmmBackward0  (8, 10)               whose input came from this one, of this shape
   ├─ head.weight  (10, 64)              a parameter, by its name in the model
   ...
"""

from __future__ import annotations

import html
import itertools
import shutil
import subprocess
from typing import Any

from flambeau.nn.modules.module import Module
from flambeau.tensor import Tensor
from flambeau.tensor.node import AccumulateGrad
from flambeau.viz import layout

COLORS = {"root": "#fde2c4", "node": "#e8edf3", "parameter": "#cfe8d5", "tensor": "#dbe7fb"}
LONGEST = 2000  # lines of text


class Vertex:
    """A box: kind is root, node, parameter (known by name) or tensor (a leaf without one)."""

    def __init__(self, number: int, kind: str, name: str, shape: tuple | None):
        self.number, self.kind, self.name, self.shape = number, kind, name, shape
        self.inputs: list[Vertex] = []

    @property
    def detail(self) -> str:
        return "" if self.shape is None else str(tuple(self.shape))


class Graph:
    """vertices: the boxes, the root first, each with its `inputs`. Print it, look at it in a notebook, or `save` it as .svg, .dot or .txt."""

    def __init__(self, vertices: list[Vertex]):
        self.vertices = vertices

    @property
    def edges(self) -> list[tuple[Vertex, Vertex]]:
        """(input, what was computed from it)."""
        return [(source, vertex) for vertex in self.vertices for source in vertex.inputs]

    def __str__(self) -> str:
        lines: list[str] = []
        seen: dict[int, int] = {}
        stack: list[tuple[Vertex, str, str]] = [(self.vertices[0], "", "")]
        while stack and len(lines) < LONGEST:
            vertex, lead, below = stack.pop()
            text = f"{lead}{vertex.name}" + (f"  {vertex.detail}" if vertex.detail else "")
            if vertex.number in seen and vertex.inputs:
                lines.append(f"{text}  (as in line {seen[vertex.number]})")
                continue
            lines.append(text)
            seen[vertex.number] = len(lines)
            for i, source in reversed(list(enumerate(vertex.inputs))):
                last = i == len(vertex.inputs) - 1
                stack.append((source, below + ("└─ " if last else "├─ "), below + ("   " if last else "│  ")))
        if stack:
            lines.append("...")
        return "\n".join(lines)

    __repr__ = __str__

    def dot(self) -> str:
        """The graph in the language of Graphviz."""
        lines = ["digraph {", '  node [shape=box, style="rounded,filled", fontname="sans-serif", fontsize=12]']
        for v in self.vertices:
            label = v.name + (f"\\n{v.detail}" if v.detail else "")
            lines.append(f'  n{v.number} [label="{label}", fillcolor="{COLORS[v.kind]}"]')
        lines += [f"  n{a.number} -> n{b.number}" for a, b in self.edges]
        return "\n".join([*lines, "}"]) + "\n"

    def svg(self, graphviz: bool | None = None) -> str:
        """The graph as a picture, parameters above, the loss below; laid out by Graphviz where that is installed, unless False."""
        found = shutil.which("dot") if graphviz is not False else None
        if graphviz and found is None:
            raise RuntimeError("Graphviz is not installed: there is no program called dot. Leave graphviz= out for the layout made here")
        if found:
            done = subprocess.run([found, "-Tsvg"], input=self.dot(), capture_output=True, text=True, check=True, timeout=60)
            return done.stdout[done.stdout.index("<svg") :]
        return _drawn(self)

    def _repr_svg_(self) -> str:
        return self.svg()

    def save(self, path: str) -> None:
        """Write it to a file: .svg, .dot or .txt."""
        makers = {"svg": self.svg, "dot": self.dot, "txt": lambda: str(self) + "\n"}
        kind = str(path).rpartition(".")[2]
        if kind not in makers:
            raise ValueError(f"a graph is saved as .svg, .dot or .txt; found {path!r}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(makers[kind]())


def graph(outputs: Tensor | list[Tensor] | tuple[Tensor, ...], model: Module | None = None, params: Any = None) -> Graph:
    """The graph behind one tensor or several. Parameters get their names from `model`, or from `params`, a dictionary of tensors.

    >>> import flambeau as torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> print(graph((w * 3).sum(), params={"w": w}))
    SumBackward0  ()
    └─ MulBackward0  (2,)
       └─ w  (2,)
    """
    tensors = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise TypeError(f"graph() takes the tensor that backward starts from; found {type(tensor).__name__}")
        if tensor.grad_fn is None:
            what = "is a leaf" if tensor.requires_grad else "does not require grad"
            raise ValueError(f"this tensor {what}: there is no graph behind it. Was it computed under no_grad, or detached?")
    names = {id(p): name for name, p in model.named_parameters(remove_duplicate=False)} if model is not None else {}
    names |= {id(p): name for name, p in (params.items() if isinstance(params, dict) else params or ())}
    return Graph(_walk([t.grad_fn for t in tensors], names))


def _walk(roots: list, names: dict[int, str]) -> list[Vertex]:
    vertices: list[Vertex] = []
    known: dict[int, Vertex] = {}
    kept: list = []  # leaves show a face that is made anew each time: kept, so that ids stay theirs

    def vertex_of(node: Any, kind: str = "node") -> tuple[Vertex, bool]:
        leaf = node.variable if isinstance(node, AccumulateGrad) else None
        key = id(node if leaf is None else leaf)
        if key in known:
            return known[key], False
        shape = node.shape if node.n_outputs == 1 or node.shape is None else node.shape[0]
        if leaf is not None:
            kind, name = ("parameter", names[key]) if key in names else ("tensor", "leaf")
            name, shape = name, tuple(leaf.shape)
        else:
            name = type(node).__name__
        known[key] = made = Vertex(len(vertices), kind, name, shape)
        vertices.append(made)
        kept.append(node)
        return made, leaf is None

    stack = []
    if len(roots) > 1:
        vertices.append(Vertex(0, "root", "outputs", None))
        for node in roots:
            made, new = vertex_of(node)
            vertices[0].inputs.append(made)
            if new:
                stack.append((node, made))
    else:
        stack.append((roots[0], vertex_of(roots[0], "root")[0]))
    while stack:
        node, vertex = stack.pop()
        for source, _ in node.next_functions:
            if source is not None:
                made, new = vertex_of(source)
                vertex.inputs.append(made)
                if new:
                    stack.append((source, made))
    return vertices


def _drawn(found: Graph) -> str:
    """The picture, laid out here."""
    widths = [max(len(v.name), len(v.detail)) * 7.4 + 24 for v in found.vertices]
    places = layout.layered(widths, [(a.number, b.number) for a, b in found.edges])
    height = 40
    parts = []
    for route in places.routes:
        parts.append(f'<path d="{_curve(route)}" fill="none" stroke="#7a8694" stroke-width="1.3" marker-end="url(#tip)"/>')
    for v, (x, y), width in zip(found.vertices, places.centers, widths, strict=True):
        left, top = x - width / 2, y - height / 2
        parts.append(
            f'<rect x="{left:.1f}" y="{top:.1f}" width="{width:.1f}" height="{height}" rx="8" fill="{COLORS[v.kind]}" stroke="#56616e"/>'
        )
        first = y - 3 if v.detail else y + 4
        parts.append(f'<text x="{x:.1f}" y="{first:.1f}" text-anchor="middle" font-size="12">{html.escape(v.name)}</text>')
        if v.detail:
            parts.append(
                f'<text x="{x:.1f}" y="{y + 13:.1f}" text-anchor="middle" font-size="11" fill="#56616e">{html.escape(v.detail)}</text>'
            )
    tip = '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
    tip += '<path d="M0,0 L10,5 L0,10 z" fill="#7a8694"/></marker></defs>'
    shape = f'width="{places.width:.0f}" height="{places.height:.0f}" viewBox="0 0 {places.width:.0f} {places.height:.0f}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {shape} font-family="sans-serif">{tip}{"".join(parts)}</svg>'


def _curve(route: list[tuple[float, float]]) -> str:
    """A smooth line through points that go downwards."""
    path = f"M{route[0][0]:.1f},{route[0][1]:.1f}"
    for (x0, y0), (x1, y1) in itertools.pairwise(route):
        middle = (y0 + y1) / 2
        path += f" C{x0:.1f},{middle:.1f} {x1:.1f},{middle:.1f} {x1:.1f},{y1:.1f}"
    return path
