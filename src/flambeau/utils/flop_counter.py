"""torch.utils.flop_counter: how many floating-point operations a piece of program takes, by module and by kernel.

    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    counter.get_total_flops()

Products are counted: matrices, convolutions, attention; a multiplication and an addition are two. It stands on the recorder of the profiler,
which sees every operation, those inside others included. A node of backward costs what its operation did, once for each factor that wants a
gradient (attention, whose backward computes the scores again, 2.5 times).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from flambeau.nn.modules import hooks
from flambeau.nn.modules.module import Module
from flambeau.operators.overloads import aten
from flambeau.tensor import Tensor
from flambeau.tracing import flops, names
from flambeau.tracing.recorder import Recorder, sequence_of

__all__ = ["FlopCounterMode"]

# what is counted -> the kernel's name, the one of its backward, which arguments are factors
KERNELS: dict[str, tuple[str, str, slice]] = {
    "mm": ("mm", "mm", slice(0, 2)), "mv": ("mm", "mm", slice(0, 2)), "dot": ("mm", "mm", slice(0, 2)), "bmm": ("bmm", "bmm", slice(0, 2)),
    "matmul": ("mm", "mm", slice(0, 2)), "linear": ("addmm", "mm", slice(0, 2)), "addmm": ("addmm", "mm", slice(1, 3)),
    "baddbmm": ("baddbmm", "bmm", slice(1, 3)), "recurrence": ("mm", "mm", slice(0, 2)),
    **{f"conv{t}{n}d": ("convolution", "convolution_backward", slice(0, 2)) for t in ("", "_transpose") for n in (1, 2, 3)},
    "scaled_dot_product_attention": ("_scaled_dot_product_flash_attention_for_cpu", "_scaled_dot_product_flash_attention_for_cpu_backward", slice(0, 3)),
}  # fmt: skip


class FlopCounterMode:
    """Counts while the `with` block runs. `display` prints the table at its end, `depth` levels of modules deep."""

    def __init__(self, mods: Module | list[Module] | None = None, depth: int = 2, display: bool = True, custom_mapping: dict | None = None):
        if custom_mapping:
            raise NotImplementedError("FlopCounterMode(custom_mapping=...): Flambeau counts the operations it knows, by its own formulas")
        self.depth, self.display = depth, display
        self.flop_counts: dict[str, dict[Any, int]] = {}
        self._inside: list[str] = []
        self._paths: dict[int, tuple[str, Module]] = {}  # by id; the module is kept so that the id stays its own

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts = defaultdict(lambda: defaultdict(int))
        self._recorder = _Counting(self)
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter_module),
            hooks.register_module_forward_hook(self._leave_module, always_call=True),
        ]
        self._recorder.start()
        return self

    def __exit__(self, *problem: Any) -> None:
        self._recorder.stop()
        for handle in self._handles:
            handle.remove()
        self._inside.clear()
        if self.display and problem[0] is None:
            print(self.get_table(self.depth))

    def _enter_module(self, module: Module, args: tuple) -> None:
        if id(module) not in self._paths:  # the outermost module of a tree is called by its class, those inside by their path from there
            root = type(module).__name__
            for name, part in module.named_modules():
                self._paths.setdefault(id(part), (f"{root}.{name}" if name else root, part))
        self._inside.append(self._paths[id(module)][0])

    def _leave_module(self, module: Module, args: tuple, output: Any) -> None:
        if self._inside:
            self._inside.pop()

    def _count(self, kernel: str, number: int, inside: Sequence[str]) -> None:
        for module in dict.fromkeys(("Global", *inside)):
            self.flop_counts[module][getattr(aten, kernel)] += number

    def get_total_flops(self) -> int:
        """Of everything."""
        return sum(self.flop_counts.get("Global", {}).values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Module -> kernel -> number; "Global" is everything."""
        return {module: dict(counts) for module, counts in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as a text, modules down to this depth."""
        deepest, total = self.depth if depth is None else depth, max(1, self.get_total_flops())
        lines = [("Module", "FLOP", "% Total")]
        for module in ["Global", *sorted(self.flop_counts.keys() - {"Global"})]:
            level = 0 if module == "Global" else module.count(".") + 1
            counts = self.flop_counts.get(module, {})
            if level <= deepest and counts:
                lines.append((" " * level + module, f"{sum(counts.values()):,}", f"{sum(counts.values()) / total:.2%}"))
                lines += [(" " * level + f" - {kernel}", f"{number:,}", f"{number / total:.2%}") for kernel, number in counts.items()]
        left, middle, right = (max(map(len, column)) for column in zip(*lines, strict=True))
        rows = [f"{a:{left}}  {b:>{middle}}  {c:>{right}}" for a, b, c in lines]
        return "\n".join([rows[0], "-" * len(rows[0]), *rows[1:]])


class _Counting(Recorder):
    """A recorder that counts and notes nothing."""

    def __init__(self, counter: FlopCounterMode):
        super().__init__(shapes=True)
        self.counter, self.note = counter, _ignore
        self.latest = 0  # when the last counted operation began
        self.costs: dict[int, tuple[str, int, list[str]]] = {}  # sequence of a node -> what it will cost
        self.backward = False

    def operation(self, function: Any, start: int, end: int, line: Any, args: tuple, kwargs: dict, result: Any, device: Any = None) -> None:
        name = names.of(function)
        if name not in KERNELS or start < self.latest:  # what was counted inside this one is its cost
            return
        shapes = [tuple(v.shape) if isinstance(v, Tensor) else None for v in (*args, *kwargs.values())]
        number = flops.count(name, shapes, {**dict(zip(function.op.parameters, args, strict=False)), **kwargs})
        if not number:
            return
        self.latest = start
        kernel, kernel_back, factors = KERNELS[name]
        if not self.backward:
            self.counter._count(kernel, number, self.counter._inside)
        sequence = sequence_of(result)
        if sequence >= 0:
            wanted = sum(isinstance(v, Tensor) and v.requires_grad for v in args[factors])
            share = wanted if name != "scaled_dot_product_attention" else 2.5
            self.costs[sequence] = kernel_back, int(number * share), list(self.counter._inside)

    def handle_node(self, node: Any, grads: Sequence, next: Callable) -> list:
        cost = self.costs.get(node.sequence)
        if cost is not None:
            self.counter._count(*cost)
        before, self.backward = self.backward, cost is not None  # then what the node does is counted; its own nodes will be, if they run
        try:
            return next(grads)
        finally:
            self.backward = before


def _ignore(*note: Any) -> None:
    pass
