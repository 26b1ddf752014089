"""`summary(model, input_size)`: a table of the layers, what they give, what they hold and how much they compute.

The model is run once, without gradients and in eval mode unless told otherwise, with hooks that note shapes and a recorder that counts
multiplications. Nothing of the model changes: hooks, mode and random numbers are put back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flambeau import dtypes as _dtypes
from flambeau import random
from flambeau.eager.arguments import tensors_in
from flambeau.modes import no_grad
from flambeau.nn.modules.module import Module
from flambeau.tables import count, html_table, table
from flambeau.tensor import Tensor
from flambeau.tensor.describe import size
from flambeau.tensor.making.factories import zeros
from flambeau.tensor.making.random_factories import randn
from flambeau.tracing import events
from flambeau.tracing.recorder import Recorder, now

COUNTED = ("addmm", "mm", "bmm", "mv", "dot", "linear", "matmul", "baddbmm", "conv1d", "conv2d", "conv3d", "recurrence", "scaled_dot_product_attention",
           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d")  # fmt: skip


class Layer:
    """A row of the summary: one call of a module (or the module, if nothing was run)."""

    def __init__(self, name: str, module: Module, depth: int):
        self.name, self.module, self.depth = name, module, depth
        self.kind = type(module).__name__
        self.input: tuple[int, ...] | None = None
        self.output: Any = None
        self.output_bytes = 0
        self.params = sum(p.numel() for p in module.parameters(recurse=False))
        self.all_params = sum(p.numel() for p in module.parameters())
        self.mult_adds = 0
        self.is_leaf = not any(True for _ in module.children())
        self.again = False  # the module has run before: its parameters are counted there
        self.span = (0, 0)
        self.last = False


class Summary:
    """layers: rows in the order of the calls;  total_params, trainable_params, mult_adds: numbers;  *_bytes: memory."""

    def __init__(self, model: Module, layers: list[Layer], input_bytes: int, ran: bool, depth: int):
        self.model, self.layers, self.input_bytes, self.ran, self.depth = model, layers, input_bytes, ran, depth
        params = {id(p): p for p in model.parameters()}.values()
        self.total_params = sum(p.numel() for p in params)
        self.trainable_params = sum(p.numel() for p in params if p.requires_grad)
        self.param_bytes = sum(p.numel() * p.element_size() for p in params)
        self.buffer_bytes = sum(b.numel() * b.element_size() for b in model.buffers())
        self.activation_bytes = sum(layer.output_bytes for layer in layers if layer.is_leaf)
        self.mult_adds = layers[0].mult_adds if layers else 0
        self.flops = 2 * self.mult_adds

    def _rows(self) -> list[list[str]]:
        shown = [layer for layer in self.layers if layer.depth <= self.depth]
        rows = []
        for layer, branch in zip(shown, _branches(shown), strict=True):
            params = "(again)" if layer.again else count(layer.all_params if layer.depth == self.depth else layer.params)
            title = f"{branch}{layer.kind}" + (f" ({layer.name})" if layer.name else "")
            rows.append([title, _shape(layer.output), params, count(layer.mult_adds)] if self.ran else [title, params])
        return rows

    def _titles(self) -> tuple[list[str], str]:
        return (["Layer", "Output", "Params", "Mult-adds"], "<<>>") if self.ran else (["Layer", "Params"], "<>")

    def _notes(self) -> list[str]:
        frozen = self.total_params - self.trainable_params
        lines = [f"Parameters   {self.total_params:,}" + (f"   ({self.trainable_params:,} trainable, {frozen:,} frozen)" if frozen else "")]
        if self.ran:
            lines.append(f"Mult-adds    {_large(self.mult_adds)}   ({_large(self.flops)} FLOPs)")
        memory = f"Memory       parameters {size(self.param_bytes)}"
        memory += f", buffers {size(self.buffer_bytes)}" if self.buffer_bytes else ""
        if self.ran:
            memory += f", input {size(self.input_bytes)}, outputs of the layers {size(self.activation_bytes)}"
        adam = 3 * self.param_bytes + self.activation_bytes
        training = (
            f"To train     about {size(self.param_bytes + adam)} with Adam (weights, gradients, two moments, outputs kept for backward)"
        )
        return [*lines, memory, training, *self._remarks()] if self.ran else [*lines, memory]

    def _remarks(self) -> list[str]:
        """How layers read their input where it is often meant otherwise. Both orders of batch and sequence run without complaint."""
        return [
            f"Note         {layer.kind} ({layer.name}) reads {layer.input} as sequence {layer.input[0]}, batch {layer.input[1]}: "
            "batch_first=True if it is the other way round"
            for layer in self.layers
            if getattr(layer.module, "batch_first", True) is False and layer.input is not None and len(layer.input) == 3 and not layer.again
        ]

    def __str__(self) -> str:
        titles, sides = self._titles()
        return "\n".join([table(titles, self._rows(), sides), *self._notes()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        titles, sides = self._titles()
        return html_table(titles, self._rows(), sides, self._notes())


def summary(
    model: Module, input_size: Sequence | None = None, input_data: Any = None, *, depth: int = 3, dtypes: Any = None, device: Any = None,
    mode: str = "eval", **kwargs: Any,
) -> Summary:  # fmt: skip
    """A table of the layers of a model.

    input_size   shape of the input with the batch in front, or a list of shapes for several inputs; random numbers of these shapes are made
    input_data   the input itself instead: a tensor, a tuple of arguments, or a dictionary of them; kwargs are passed on to forward
    depth        how deep modules inside modules are shown: those below are added up
    dtypes       of the inputs that are made, one or a list: integers are zeros
    mode         "eval" or "train": how the model is run

    Without any input only parameters are counted.

    >>> from flambeau import nn
    >>> print(summary(nn.Sequential(nn.Linear(4, 8), nn.ReLU()), (1, 4)))
    Layer           Output   Params   Mult-adds
    ───────────────────────────────────────────
    Sequential      (1, 8)        -          32
    ├─ Linear (0)   (1, 8)       40          32
    └─ ReLU (1)     (1, 8)        -           -
    ───────────────────────────────────────────
    Parameters   40
    Mult-adds    32   (64 FLOPs)
    Memory       parameters 160 B, input 16 B, outputs of the layers 64 B
    To train     about 704 B with Adam (weights, gradients, two moments, outputs kept for backward)
    """
    if not isinstance(model, Module):
        raise TypeError(f"summary() takes a Module; found {type(model).__name__}")
    if mode not in ("eval", "train"):
        raise ValueError(f"mode is 'eval' or 'train'; found {mode!r}")
    drawn = random.get_rng_state()
    try:
        arguments, named = _inputs(model, input_size, input_data, dtypes, device)
        named |= kwargs
        if not arguments and not named:
            return Summary(model, list(_tree(model, "", 0)), 0, False, depth)
        layers = _run(model, arguments, named, mode)
    finally:
        random.set_rng_state(drawn)
    held = sum(t.numel() * t.element_size() for t in tensors_in((arguments, named)))
    return Summary(model, layers, held, True, depth)


def _inputs(model: Module, input_size: Any, input_data: Any, kinds: Any, device: Any) -> tuple[tuple, dict]:
    if input_data is not None:
        if isinstance(input_data, dict):
            return (), dict(input_data)
        return (tuple(input_data), {}) if isinstance(input_data, (tuple, list)) else ((input_data,), {})
    if input_size is None:
        return (), {}
    sizes = [input_size] if all(isinstance(n, int) for n in input_size) else list(input_size)
    kinds = list(kinds) if isinstance(kinds, (list, tuple)) else [kinds] * len(sizes)
    first = next(iter(model.parameters()), None)
    device = device or (first.device if first is not None else "cpu")
    made = []
    for shape, kind in zip(sizes, kinds, strict=True):
        kind = kind or (first.dtype if first is not None and first.dtype.is_floating_point else _dtypes.get_default_dtype())
        made.append(randn(*shape, dtype=kind, device=device) if kind.is_floating_point else zeros(*shape, dtype=kind, device=device))
    return tuple(made), {}


def _tree(module: Module, name: str, depth: int):
    """All modules as rows, without running anything."""
    yield Layer(name, module, depth)
    for child_name, child in module.named_children():
        yield from _tree(child, child_name, depth + 1)


def _run(model: Module, arguments: tuple, named: dict, mode: str) -> list[Layer]:
    """Run the model, and make a row of each call."""
    layers: list[Layer] = []
    open_calls: list[Layer] = []
    seen: set[int] = set()
    handles = []

    def before(module: Module, args: tuple, kwargs: dict) -> None:
        outer = open_calls[-1] if open_calls else None
        name = "" if outer is None else next((n for n, m in outer.module.named_modules() if m is module), "")
        layer = Layer(name, module, len(open_calls))
        layer.again = id(module) in seen
        layer.input = next((tuple(v.shape) for v in (*args, *kwargs.values()) if isinstance(v, Tensor)), None)
        layer.span = (now(), 0)
        seen.add(id(module))
        layers.append(layer)
        open_calls.append(layer)

    def after(module: Module, args: tuple, output: Any) -> None:
        layer = open_calls.pop()
        layer.output, layer.span = _shapes(output), (layer.span[0], now())
        layer.output_bytes = sum(t.numel() * t.element_size() for t in tensors_in(output))

    training = {module: module.training for module in model.modules()}
    recorder = Recorder(shapes=True)
    try:
        for module in {id(m): m for m in model.modules()}.values():
            handles += [module.register_forward_pre_hook(before, with_kwargs=True), module.register_forward_hook(after)]
        model.train(mode == "train")
        with no_grad():
            recorder.start()
            try:
                model(*arguments, **named)
            finally:
                recorder.stop()
    finally:
        for handle in handles:
            handle.remove()
        for module, was in training.items():
            module.training = was
    _count(layers, recorder)
    return layers


def _count(layers: list[Layer], recorder: Recorder) -> None:
    """Give each call the multiplications made while it ran."""
    for event in events.build(recorder, with_flops=True):
        if event.flops and event.name.removeprefix("aten::") in COUNTED:
            when = recorder.first + event.time_range.start * 1e3
            for layer in layers:
                if layer.span[0] <= when + 0.5 and when - 0.5 <= layer.span[1]:
                    layer.mult_adds += event.flops // 2


def _shapes(value: Any) -> Any:
    if isinstance(value, Tensor):
        return tuple(value.shape)
    if isinstance(value, dict):
        return [_shapes(v) for v in value.values()]
    return [_shapes(v) for v in value] if isinstance(value, (list, tuple)) else None


def _shape(found: Any) -> str:
    if isinstance(found, list):
        inside = [_shape(f) for f in found if f is not None]
        return ", ".join(inside[:3]) + (", ..." if len(inside) > 3 else "")
    return "-" if found is None else str(found)


def _branches(layers: list[Layer]) -> list[str]:
    """What stands in front of each row so that the rows look like a tree."""
    found = []
    for i, layer in enumerate(layers):
        text = ""
        for level in range(1, layer.depth + 1):
            more = any(True for later in _until(layers[i + 1 :], level) if later.depth == level)
            text += ("├─ " if more else "└─ ") if level == layer.depth else ("│  " if more else "   ")
        found.append(text)
    return found


def _until(layers: list[Layer], level: int):
    for layer in layers:
        if layer.depth < level:
            return
        yield layer


def _large(n: float) -> str:
    for unit, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if n >= scale:
            return f"{n / scale:.2f} {unit}"
    return f"{n:.0f}"
