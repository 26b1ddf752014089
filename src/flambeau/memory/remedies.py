"""What would free memory, how much, and what it costs: the arithmetic behind "What would help".

Each remedy looks at what is alive and gives a `Remedy`, or nothing where it would not help. They stand in the order of their cost: what changes nothing
but memory first, what takes time next, what changes the training last.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import prod
from typing import NamedTuple

from flambeau import errors
from flambeau.memory.live import Block, Live
from flambeau.tensor.node import LEAF

LEAST = 0.02  # of all there is: what frees less is not worth a line


class Remedy(NamedTuple):
    """what to do;  nbytes that it frees, about;  cost in words, empty if there is none."""

    action: str
    nbytes: int
    cost: str = ""

    def __str__(self) -> str:
        return f"{self.action}: about {errors.size(self.nbytes)}" + (f" ({self.cost})" if self.cost else "")


def remedies(live: Live, blocks: list[Block], wanted: int = 0) -> list[Remedy]:
    """What would help, for these blocks of what is alive: first the cheapest that frees `wanted` bytes, then the others, cheapest first."""
    total = sum(block.nbytes for block in blocks)
    found = [remedy for look in ALL for remedy in look(live, blocks) if remedy.nbytes >= max(1, LEAST * total)]
    enough = next((remedy for remedy in found if remedy.nbytes >= wanted), None) if wanted else None
    if wanted and enough is None and found:
        enough = max(found, key=lambda remedy: remedy.nbytes)
    return found if enough is None else [enough, *[remedy for remedy in found if remedy is not enough]]


def _sum(blocks: list[Block], kind: str) -> int:
    return sum(block.nbytes for block in blocks if block.kind == kind)


def kept_graphs(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """Losses in a list keep their graphs."""
    graphs = live.graphs()
    if len(graphs) >= 3:
        names = sorted(name for name in live.names_of(graphs) if "[...]" in name)
        held = f" in {names[0]}" if names else ""
        action = f"keep loss.item() or loss.detach(), not results with their history: the graphs of {len(graphs)} results are alive{held}"
        yield Remedy(action, _sum(blocks, "activations") * (len(graphs) - 1) // len(graphs))


def evaluation(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """A model in eval mode that records."""
    sizes: dict[str, int] = defaultdict(int)
    for block in blocks:
        if block.kind == "activations" and block.module:
            sizes[block.module.partition(".")[0]] += block.nbytes
    for root, nbytes in sizes.items():
        if root in live.roots and not live.roots[root].training:
            yield Remedy(f"evaluate under torch.no_grad(): {root} is in eval mode, and its graph keeps activations", nbytes)


def old_gradients(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """Gradients of the last step that are there while the next one is computed."""
    if not _in_backward():
        yield Remedy("optimizer.zero_grad() before the forward pass (set_to_none=True, the default)", _sum(blocks, "gradients"))


def _in_backward() -> bool:
    for frame in sys._current_frames().values():
        walk = frame
        while walk is not None:
            if walk.f_code.co_name == "run_backward" and errors.is_own(walk.f_code.co_filename):
                return True
            walk = walk.f_back  # type: ignore[assignment]
    return False


def variables(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """Large tensors that a variable holds."""
    sizes: dict[str, int] = defaultdict(int)
    for block in blocks:
        if block.kind == "other" and block.name:
            sizes[block.name] += block.nbytes
    total = sum(block.nbytes for block in blocks)
    for name, nbytes in sorted(sizes.items(), key=lambda pair: -pair[1])[:2]:
        if nbytes >= 0.2 * total:
            yield Remedy(f"let go of `{name.partition(',')[0]}`{name.partition(',')[2]} when it is not needed any more", nbytes)


def half_precision(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """Activations in 16 bits."""
    wide = sum(block.nbytes for block in blocks if block.kind == "activations" and block.dtype == "float32")
    device = blocks[0].device.partition(":")[0] if blocks else "cpu"
    yield Remedy(
        f'with torch.autocast("{device}", dtype=torch.bfloat16) around the forward pass', wide // 2, "fewer digits; an upper bound"
    )


def checkpointing(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """The repeated layers of a model, run again in backward: their inputs stay, and while one is run again, what it keeps."""
    best = Remedy("", 0)
    of_module: dict[str, int] = defaultdict(int)
    for block in blocks:
        if block.kind == "activations":
            of_module[block.module] += block.nbytes
    for module in live.modules:
        path = live.paths.get(id(module))
        if path is None:
            continue
        for kind, parts in _alike(module, path).items():
            sizes = [sum(n for at, n in of_module.items() if at == part or at.startswith(f"{part}.")) for part in parts]
            saved = sum(sizes) - max(sizes) - sum(_inputs(live, part) for part in parts)
            if saved > best.nbytes:
                action = f"checkpoint the {len(parts)} {kind}s in {path}: checkpoint(layer, x, use_reentrant=False) of utils.checkpoint"
                best = Remedy(action, saved, "one more forward pass")
    yield best


def _alike(module, path: str) -> dict[str, list[str]]:
    """The paths of children that are of one class, where there are at least two that have parts of their own or several of them."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, child in module._modules.items():
        if child is not None and (child._modules or len(module._modules) > 2) and (child._parameters or child._modules):
            found[type(child).__name__].append(f"{path}.{name}")
    return {kind: parts for kind, parts in found.items() if len(parts) >= 2}


def _inputs(live: Live, path: str) -> int:
    """Bytes of what flows into the nodes of a module from elsewhere."""
    inside = lambda node: live.places[id(node)] == path or live.places[id(node)].startswith(f"{path}.")  # noqa: E731
    found: dict[tuple, int] = {}
    for node in live.nodes:
        if inside(node):
            for edge in node.edges or ():
                if edge is not None and edge[1] != LEAF and id(edge[0]) in live.places and not inside(edge[0]):
                    target, nr = edge
                    shape, dtype = (
                        (target.shape, target.numpy_dtype) if target.n_outputs == 1 else (target.shape[nr], target.numpy_dtype[nr])
                    )
                    found[id(target), nr] = 0 if shape is None else prod(shape) * dtype.itemsize
    return sum(found.values())


def smaller_batch(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """Half of the samples at a time."""
    yield Remedy("halve the batch, and step after two of them", _sum(blocks, "activations") // 2, "more, smaller passes")


def other_optimizer(live: Live, blocks: list[Block]) -> Iterator[Remedy]:
    """An optimizer that remembers rows and columns instead of every element."""
    names = sorted({type(optimizer).__name__ for optimizer in live.optimizers if vars(optimizer).get("state")})
    if names and names != ["Adafactor"]:
        yield Remedy(f"optim.Adafactor instead of {', '.join(names)}", _sum(blocks, "optimizer") * 95 // 100, "other learning rates")


ALL: tuple[Callable[[Live, list[Block]], Iterator[Remedy]], ...] = (
    kept_graphs, evaluation, old_gradients, variables, checkpointing, half_precision, smaller_batch, other_optimizer,
)  # fmt: skip
