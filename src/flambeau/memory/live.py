"""Every tensor that is alive, found by walking over Python's objects: what it is for, whose it is, how large the memory behind it is.

Memory that several tensors share (views, a saved activation and its tensor) is one `Block`. The first of these that claims it says what it is:

    weights       parameters of modules, and what optimizers move
    buffers       of modules: running means, masks
    gradients     `.grad`
    optimizer     what optimizers remember about parameters
    activations   what the recorded graph keeps for backward
    other         tensors that somebody holds: data, results, caches

Note [whose activations]: nobody notes in which module an operation runs. But an operation that uses a parameter belongs to the module that has it,
and one that uses none (relu, attention, a sum) to where the newest of its inputs came from. Where lines are recorded, modules are too.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flambeau import errors
from flambeau.eager.saved import Hooked
from flambeau.kernels import arrays
from flambeau.kernels.meta import MetaArray
from flambeau.memory import recording
from flambeau.nn.modules.module import Module
from flambeau.optim.optimizer import Optimizer
from flambeau.tensor import Tensor
from flambeau.tensor.making.parameter import Parameter
from flambeau.tensor.node import FREED, LEAF, Node

KINDS = ("weights", "buffers", "gradients", "optimizer", "activations", "other")


@dataclass
class Block:
    """A piece of memory: `module` is the path of the module it belongs to, `line` where it was made, `name` a variable that holds it."""

    nbytes: int
    kind: str
    device: str
    module: str = ""
    line: str = ""
    name: str = ""
    shape: tuple = ()
    dtype: str = ""


class Live:
    """What is alive now. `blocks` is the result; the rest is what `remedies` wants to know."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.nodes: list[Node] = []
        self.modules: list[Module] = []
        self.optimizers: list[Optimizer] = []
        self._sort_out()
        self.paths: dict[int, str] = {}  # of modules, by id
        self.roots: dict[str, Module] = {}
        self.owners: dict[int, str] = {}  # paths of the modules that parameters belong to, by the parameter's id
        self.blocks: dict[int, Block] = {}
        self._kept: list[Any] = []  # what `blocks` are of, so that ids stay theirs
        self.places: dict[int, str] = {}  # paths of the modules that nodes belong to, by id
        self._claim_modules()
        self._claim_gradients()
        self._claim_optimizers()
        self._claim_graph()
        self._claim_rest()

    def _sort_out(self) -> None:
        """The objects of interest, by kind."""
        lists: dict[type, Any] = {}
        for thing in gc.get_objects():
            kind = type(thing)
            if kind not in lists:
                pairs = ((Tensor, self.tensors), (Node, self.nodes), (Module, self.modules), (Optimizer, self.optimizers))
                lists[kind] = next((found for base, found in pairs if issubclass(kind, base)), None)
            if lists[kind] is not None:
                lists[kind].append(thing)
        self.tensors = [tensor for tensor in self.tensors if hasattr(tensor, "_array")]  # one may be half made

    def claim(self, array: Any, kind: str, module: str = "", line: str = "", name: str = "") -> Block | None:
        """Say what the memory behind an array is for, unless that has been said."""
        found = memory_of(array)
        if found is None:
            return None
        owner, nbytes, device = found
        block = self.blocks.get(id(owner))
        if block is None:
            self._kept.append(owner)
            dtype = str(array.dtype)
            block = self.blocks[id(owner)] = Block(nbytes, kind, device, module, "", name, tuple(array.shape), dtype)
        if not block.line:
            block.line = recording.line_of_array(array) or line  # where it was made, else where it was saved
        block.nbytes = max(block.nbytes, nbytes)
        return block

    # -- those with names

    def _claim_modules(self) -> None:
        inside = {id(child) for module in self.modules for child in _attribute(module, "_modules").values() if child is not None}
        for module in self.modules:
            if id(module) not in inside and "_modules" in vars(module):
                kind = type(module).__name__
                number = sum(root.partition(" #")[0] == kind for root in self.roots) + 1
                root = kind if number == 1 else f"{kind} #{number}"
                self.roots[root] = module
                for path, part in module.named_modules():
                    self.paths.setdefault(id(part), f"{root}.{path}" if path else root)
        for module in self.modules:
            for parameter in _attribute(module, "_parameters").values():
                if parameter is not None:
                    self.owners.setdefault(id(parameter), self.paths.get(id(module), ""))
        for tensor in self.tensors:
            if isinstance(tensor, Parameter) or id(tensor) in self.owners:
                self.claim(tensor._array, "weights", self.owners.get(id(tensor), ""))
        for optimizer in self.optimizers:
            for group in _attribute(optimizer, "param_groups") or ():
                for parameter in group["params"]:
                    self.claim(parameter._array, "weights", self.owners.get(id(parameter), ""))
        for module in self.modules:
            for buffer in _attribute(module, "_buffers").values():
                if buffer is not None:
                    self.claim(buffer._array, "buffers", self.paths.get(id(module), ""))

    def _claim_gradients(self) -> None:
        for tensor in self.tensors:
            if tensor._grad is not None:
                self.claim(tensor._grad._array, "gradients", self.owners.get(id(tensor), ""))

    def _claim_optimizers(self) -> None:
        for optimizer in self.optimizers:
            for parameter, state in dict(_attribute(optimizer, "state")).items():
                for array in arrays_in(state):
                    self.claim(array, "optimizer", self.owners.get(id(parameter), ""))

    # -- the graph

    def _claim_graph(self) -> None:
        """What nodes saved. See Note [whose activations]."""
        self.nodes.sort(key=lambda node: node.sequence)
        lines = recording.Lines()
        for node in self.nodes:
            line, module = lines.of(node)
            self.places[id(node)] = self.paths.get(module, "") or self._place(node)
        for node in self.nodes:
            if node.saved is not FREED:
                line, _ = lines.of(node)
                for array in arrays_in((node.saved, vars(node))):
                    self.claim(array, "activations", self.places[id(node)], line)

    def _place(self, node: Node) -> str:
        newest, found = -1, ""
        for edge in node.edges or ():
            if edge is None:
                continue
            target, nr = edge
            if nr == LEAF:
                if id(target) in self.owners:
                    return self.owners[id(target)]
            elif target.sequence > newest and self.places.get(id(target)):
                newest, found = target.sequence, self.places[id(target)]
        return found

    def graphs(self) -> list[Node]:
        """The nodes that nothing is computed from, of graphs that still keep something for backward."""
        used = {id(edge[0]) for node in self.nodes for edge in node.edges or () if edge is not None}
        return [node for node in self.nodes if id(node) not in used and self._keeps(node)]

    def _keeps(self, node: Node) -> bool:
        stack, seen = [node], set()
        while stack:
            node = stack.pop()
            if node.saved is not None and node.saved is not FREED:
                return True
            for target, nr in filter(None, node.edges or ()):
                if nr != LEAF and id(target) not in seen:
                    seen.add(id(target))
                    stack.append(target)
        return False

    # -- the others

    def _claim_rest(self) -> None:
        names = variables()
        for tensor in self.tensors:
            block = self.claim(tensor._array, "other")
            if block is not None and not block.name:
                block.name = names.get(id(tensor), "")

    def names_of(self, nodes: list[Node]) -> set[str]:
        """The variables that hold results of these nodes."""
        wanted, names = {id(node) for node in nodes}, variables()
        return {names[id(t)] for t in self.tensors if id(t) in names and id(t._node) in wanted}


def _attribute(thing: Any, name: str) -> Any:
    """An attribute of an object that may be half made: an exception in __init__ leaves such behind."""
    return vars(thing).get(name) or {}


def memory_of(array: Any) -> tuple[Any, int, str] | None:
    """(the object that owns the memory, its bytes, the device) behind an array; None where there is no memory."""
    array = array.memory if type(array) is arrays.Mirrored else array
    if type(array) is MetaArray:
        return None
    if hasattr(array, "as_tensor"):  # inside vmap: stands for a whole batch
        return memory_of(array.value._array)
    if isinstance(array, np.ndarray):
        owner: Any = array
        while (base := owner.obj if isinstance(owner, memoryview) else getattr(owner, "base", None)) is not None:
            owner, array = base, base if isinstance(base, np.ndarray) else array
        return owner, _of_pool(owner) or array.nbytes, "cpu"
    owner = array.data
    while hasattr(owner, "mem"):
        owner = owner.mem
    nbytes = owner.nbytes if isinstance(owner, np.ndarray) else getattr(owner, "size", array.nbytes)
    return owner, nbytes, str(arrays.device_of(array))


def _of_pool(owner: Any) -> int:
    """The size of a piece of the memory pool: it is what the capsule that owns it carries (see kernels/native/csrc/arrays.c)."""
    if type(owner).__name__ != "PyCapsule":
        return 0
    import ctypes

    if _context == []:
        function = ctypes.pythonapi.PyCapsule_GetContext
        function.restype, function.argtypes = ctypes.c_ssize_t, [ctypes.py_object]
        _context.append(function)
    return _context[0](owner)


_context: list[Any] = []


def arrays_in(value: Any, depth: int = 6) -> Iterator[Any]:
    """The arrays somewhere in what a node or an optimizer keeps. Other nodes and modules speak for themselves."""
    if depth == 0 or value is None or isinstance(value, (str, int, float, type, Node, Module)):
        return
    if isinstance(value, Tensor):
        if hasattr(value, "_array"):
            yield value._array
    elif isinstance(value, (tuple, list, set)):
        for part in value:
            yield from arrays_in(part, depth - 1)
    elif isinstance(value, dict):
        for part in list(value.values()):
            yield from arrays_in(part, depth - 1)
    elif isinstance(value, Hooked):
        yield from arrays_in(value.packed, depth - 1)
    elif isinstance(value, np.ndarray) or hasattr(value, "__cuda_array_interface__"):
        yield value
    elif type(value).__module__.startswith(("flambeau.utils", "torch.utils")):  # a slot of a checkpoint
        yield from arrays_in(getattr(value, "found", None), depth - 1)


def variables() -> dict[int, str]:
    """The variables of the program that hold tensors, directly or in a container or object, by the tensor's id: "losses[...], train.py:12"."""
    found: dict[int, str] = {}
    for frame in sys._current_frames().values():
        seen: set[int] = set()
        walk: Any = frame
        while walk is not None:
            code = walk.f_code
            if not errors.is_own(code.co_filename):
                where = f"{code.co_name}(), {code.co_filename}"
                local = walk.f_locals
                _name(found, local, "" if local is walk.f_globals else f", in {where}")
                if type(local) is dict and code.co_flags & CO_OPTIMIZED:
                    local.clear()  # a copy that Python (before 3.13) keeps with the frame, and that would keep the tensors
                if id(walk.f_globals) not in seen:
                    seen.add(id(walk.f_globals))
                    _name(found, walk.f_globals, "")
            walk = walk.f_back
    return found


def _name(found: dict[int, str], scope: dict[str, Any], where: str) -> None:
    for name, value in list(scope.items()):
        if isinstance(value, Tensor):
            found.setdefault(id(value), name + where)
        elif isinstance(value, (Module, Optimizer, type)) or name.startswith("__"):
            continue
        elif isinstance(value, (list, tuple, dict)):
            for part in list(value.values() if isinstance(value, dict) else value)[:MOST]:
                if isinstance(part, Tensor):
                    found.setdefault(id(part), f"{name}[...]{where}")
        else:
            for attribute, part in list(getattr(value, "__dict__", {}).items())[:MOST] if not hasattr(value, "__path__") else ():
                for tensor in part if isinstance(part, (list, tuple)) else (part,):
                    if isinstance(tensor, Tensor):
                        found.setdefault(id(tensor), f"{name}.{attribute}{where}")


CO_OPTIMIZED = 1  # code of a function, whose variables are not in a dictionary
MOST = 10_000  # elements of a container that are looked at
