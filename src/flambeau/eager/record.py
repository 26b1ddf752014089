"""Recording: the nodes of pointwise and array operations, and how they save what their derivatives need.

Note [saved tensors and versions]: a node saves a tensor as `(tensor, array, version)`. When backward unpacks it, a storage written to
since then is an error, because the derivative would be computed from other numbers than the forward pass saw. A result is saved as an
alias without history: node -> result -> node would be a cycle, and the memory would wait for the garbage collector.
"""

from __future__ import annotations

import traceback
from typing import Any

from flambeau.autograd import modes
from flambeau.autograd.node import FREED, LEAF, Node, freed_error, next_sequence
from flambeau.kernels import arrays
from flambeau.kernels.pointwise import RESULT
from flambeau.tensor import Tensor, wrap

NUMBERS = arrays.NUMBERS


class Hooked:
    """A tensor saved through the user's pack hook."""

    __slots__ = ("packed", "unpack", "is_result", "nr")

    def __init__(self, packed, unpack, is_result, nr=0):
        self.packed, self.unpack, self.is_result, self.nr = packed, unpack, is_result, nr


class SavedResult:
    """A result saved by its own node."""

    __slots__ = ("array", "storage", "version", "nr")

    def __init__(self, tensor: Tensor, nr: int = 0):
        self.array = tensor._array
        self.storage = tensor._shared_storage()
        self.version = self.storage.version
        self.nr = nr


def save(value: Any) -> Any:
    """What a node keeps of an operand: a tensor with its version, anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    if value._inference:
        raise RuntimeError(
            "Inference tensors cannot be saved for backward. Please do not use Tensors created in inference mode in computation tracked "
            "by autograd. To work around this, you can make a clone to get a normal tensor and use it in autograd, or use "
            "`torch.no_grad()` instead of `torch.inference_mode()`."
        )
    if modes.special and modes.state.pack_hooks:
        pack, unpack = modes.state.pack_hooks[-1]
        with modes.no_grad():
            return Hooked(pack(value), unpack, False)
    s = value._storage
    return value, value._array, 0 if s is None else s.version


def save_result(tensor: Tensor, nr: int = 0) -> Any:
    """What a node keeps of its own result."""
    if modes.special and modes.state.pack_hooks:
        pack, unpack = modes.state.pack_hooks[-1]
        with modes.no_grad():
            return Hooked(pack(tensor.detach()), unpack, True, nr)
    return SavedResult(tensor, nr)


def unpack(entry: Any, node: Node) -> Any:
    """A saved value again: the tensor, with its history if it has one."""
    kind = type(entry)
    if kind is tuple and len(entry) == 3 and isinstance(entry[0], Tensor):
        tensor, array, version = entry
        s = tensor._storage
        now = 0 if s is None else s.version
        if tensor._array is not array:  # .data was exchanged: the old memory is what the forward pass saw
            return _alias(array, tensor)
        if now != version:
            raise modified_error(tensor, version, now, node)
        return tensor
    if kind is SavedResult:
        if entry.storage.version != entry.version:
            raise modified_error(wrap(entry.array), entry.version, entry.storage.version, node, nr=entry.nr)
        return _with_history(wrap(entry.array), node, entry.nr)
    if kind is Hooked:
        value = entry.unpack(entry.packed)
        if not isinstance(value, Tensor):
            raise TypeError(f"a saved-tensor unpack hook must return a Tensor, found {type(value).__name__}")
        return _with_history(wrap(value._array), node, entry.nr) if entry.is_result else value
    return entry


def _alias(array, like: Tensor) -> Tensor:
    alias = wrap(array)
    alias._node, alias._nr, alias._needs = like._node, like._nr, like._needs
    return alias


def _with_history(tensor: Tensor, node: Node, nr: int) -> Tensor:
    if modes.state.grad:
        tensor._node, tensor._nr, tensor._needs = node, nr, True
    return tensor


def modified_error(tensor: Tensor, expected: int, found: int, node: Node, nr: int | None = None) -> RuntimeError:
    """A saved tensor was changed in place between forward and backward."""
    origin = f", which is output {nr} of {node.name()}," if nr is not None else ""
    where = node.metadata_.get("traceback_") if node.metadata_ else None
    hint = (
        "\nThe operation that saved it was called here:\n" + "".join(where)
        if where
        else " Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
        "torch.autograd.set_detect_anomaly(True)."
    )
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.dtype} {list(tensor.shape)}]{origin} is at version {found}; expected version {expected} instead "
        f"(saved for {node.name()}). Use the out-of-place form of the operation that changed it, or .clone() it first.{hint}"
    )


def start(node: Node, tensors, result_arrays) -> None:
    """What every new node gets: edges, sequence number, the shapes and dtypes of its results."""
    node.edges = tuple([t._edge() if isinstance(t, Tensor) and t.requires_grad else None for t in tensors])
    node.sequence = next_sequence()
    if len(result_arrays) == 1:
        node.shape, node.numpy_dtype = result_arrays[0].shape, result_arrays[0].dtype
    else:
        node.n_outputs = len(result_arrays)
        node.shape = [a.shape for a in result_arrays]
        node.numpy_dtype = [a.dtype for a in result_arrays]
    if modes.state.anomaly:
        node.metadata["traceback_"] = traceback.format_stack()[:-3]


def attach(tensor: Tensor, node: Node, nr: int = 0) -> None:
    """Make `node` the origin of `tensor`."""
    tensor._node, tensor._nr, tensor._needs = node, nr, True


class OpNode(Node):
    """A node of a declared operation."""

    op: Any = None


# -- pointwise -----------------------------------------------------------------------------------------------------


class PointwiseNode(OpNode):
    """saved: one entry per operand, then the result, None where the derivative does not read it;  options: the numbers of the call."""

    options: tuple = ()

    def apply(self, grad):
        if self.saved is FREED:
            raise freed_error()
        gradient = self.op.kernel.gradient
        sent: list = []
        for i, edge in enumerate(self.edges):
            if edge is None:
                sent.append(None)
                continue
            plan = gradient(i)
            if plan.kind == "same":
                sent.append(grad)
            elif plan.kind == "zero":
                sent.append(grad.new_zeros(grad.shape))
            elif plan.kind == "kernel":
                sent.append(self.through(plan, grad))
            else:
                raise RuntimeError(f"derivative for {self.op.short} with respect to {self.op.operands[i]} is not implemented")
        return sent

    def through(self, plan, grad: Tensor) -> Tensor:
        """The gradient of one operand, by the kernel of its derivative (by operations, if it is to be differentiated again)."""
        saved = [self.value(i) for i in plan.uses]
        if modes.state.grad:
            from flambeau.eager import interpret

            return interpret.gradient(plan, grad, saved, self.options)
        array = grad._array
        operands = [v._array if isinstance(v, Tensor) else v for v in saved]
        kernel = plan.kernel
        result = kernel.launch(array, *operands, *self.options)
        if result is NotImplemented:
            key = _widest(array.dtype, operands)
            array = bring(array, key, "T")
            operands = [v if isinstance(v, NUMBERS) else bring(v, key, k) for v, k in zip(operands, kernel.kinds[1:], strict=True)]
            result = arrays.run(kernel, (array, *operands), self.options, key, key)
        return wrap(result)

    def value(self, index: int):
        return unpack(self.saved[-1 if index == RESULT else index], self)


def _widest(key, operands):
    """The dtype a derivative is computed in: the gradient's; but a real gradient of a complex operand (abs, angle) takes complex numbers."""
    if key.kind != "c":
        for v in operands:
            if not isinstance(v, NUMBERS) and v.dtype.kind == "c":
                return v.dtype
    return key


def bring(array, key, kind: str):
    """A gradient or a saved operand in the dtype the derivative is computed in."""
    return arrays.cast(array, key) if kind == "T" and array.dtype != key else array


def record_pointwise(op, result: Tensor, operands: tuple, options: tuple, original=None) -> None:
    """Make `result` the output of a node of `op`. `original` replaces operand 0 in what is saved (in-place forms)."""
    node = op.node_class()
    edges: list = []
    needed = 0  # bit i: operand i wants a gradient
    for i, v in enumerate(operands):
        edge = None
        if isinstance(v, Tensor):
            if v._base is not None:
                edge = v._edge() if v.requires_grad else None
            elif v._needs:
                edge = (v, LEAF) if v._node is None else (v._node, v._nr)
            if edge is not None:
                needed |= 1 << i
        edges.append(edge)
    node.edges = edges
    node.sequence = next_sequence()
    array = result._array
    node.shape, node.numpy_dtype = array.shape, array.dtype
    plan = op.saving.get(needed)
    if plan is None:
        plan = op.saving[needed] = _what_to_save(op, needed)
    if plan:
        saved: list = [None] * (len(operands) + 1)
        for i in plan:
            if i == RESULT:
                saved[-1] = save_result(result)
            else:
                saved[i] = save(original if i == 0 and original is not None else operands[i])
        node.saved = saved
    if options:
        node.options = options
    if modes.special and modes.state.anomaly:
        node.metadata["traceback_"] = traceback.format_stack()[:-3]
    result._node, result._nr, result._needs = node, 0, True


def _what_to_save(op, needed: int) -> tuple[int, ...]:
    """The operands (and RESULT) that the derivatives of the operands in `needed` read."""
    used: set[int] = set()
    for i in range(len(op.operands)):
        if needed >> i & 1:
            used.update(op.kernel.gradient(i).uses)
    return tuple(sorted(used))


# -- functions on arrays -------------------------------------------------------------------------------------------


class ArrayNode(OpNode):
    """saved: what the derivatives take, by name;  wanted: the tensor parameters that need a gradient."""

    wanted: tuple = ()
    differentiable: tuple = ()  # which results the outputs of this node are

    def apply(self, *grads):
        if self.saved is FREED:
            raise freed_error()
        op = self.op
        known = _Known(self, grads)
        if op.joint_derivative is not None:
            found = _call(op.joint_derivative, known | {"needs": dict(self.wanted)})
        else:
            found = {name: _call(op.derivatives[name], known) for name, needed in self.wanted if needed}
        sent: list = []
        for name, _ in self.wanted:
            value = found.get(name)
            count = self.counts.get(name)
            if count is None:
                sent.append(value)
            else:
                sent.extend(value if value is not None else (None,) * count)
        return tuple(sent)

    counts: dict = {}

    def release(self) -> None:
        if self.saved is not FREED and any(map(_is_tensor_entry, self.saved.values())):
            self.saved = FREED


def _is_tensor_entry(value) -> bool:
    """Whether something saved is a tensor: shapes and numbers need not be forgotten."""
    if isinstance(value, list):
        return any(map(_is_tensor_entry, value))
    return isinstance(value, (SavedResult, Hooked)) or (isinstance(value, tuple) and len(value) == 3 and isinstance(value[0], Tensor))


class _Known(dict):
    """The names a derivative may ask for. Saved tensors are unpacked when asked, so that only those used are checked."""

    def __init__(self, node: ArrayNode, grads):
        super().__init__()
        self.node = node
        self.grads = grads

    def __missing__(self, name: str):
        node = self.node
        if name == "grad":
            return self.grads[0]
        if name == "grads":
            return self.grads
        value = node.saved[name]
        if isinstance(value, list):
            return [unpack(v, node) for v in value]
        return unpack(value, node)

    def __or__(self, other):
        self.update(other)
        return self


def _call(function, known):
    return function(*[known[name] for name in needed_names(function)])


def needed_names(function) -> tuple[str, ...]:
    """The parameters of a derivative."""
    code = function.__code__
    return code.co_varnames[: code.co_argcount]


def record_array(op, results: tuple[Tensor, ...], values: dict[str, Any], originals: dict[str, Any] | None = None) -> None:
    """Make the floating results the outputs of a node of `op`; `values` are the arguments by name."""
    node = op.node_class()
    outputs = [r for r in results if r._is_float()]
    flat: list = []
    wanted: list[tuple[str, bool]] = []
    counts: dict[str, int] = {}
    for name, value in values.items():
        if isinstance(value, Tensor):
            flat.append(value)
            wanted.append((name, value.requires_grad))
        elif isinstance(value, (list, tuple)) and value and all(isinstance(v, Tensor) or v is None for v in value):
            flat.extend(value)
            counts[name] = len(value)
            wanted.append((name, any(v is not None and v.requires_grad for v in value)))
    missing = [n for n, needed in wanted if needed and n not in op.derivatives] if op.joint_derivative is None else []
    if missing:
        raise NotImplementedError(
            f"the derivative for '{op.name}' with respect to {', '.join(missing)} is not implemented. "
            f"Pass {missing[0]}.detach() if no gradient should flow there."
        )
    start(node, flat, [r._array for r in outputs])
    node.wanted, node.counts = tuple(wanted), counts
    node.saved = _save_by_name(op, node, outputs, results, values, originals or {})
    for nr, output in enumerate(outputs):
        attach(output, node, nr)


def _save_by_name(op, node, outputs, results, values, originals) -> dict[str, Any]:
    if op.joint_derivative is not None:
        names = set(needed_names(op.joint_derivative))
    else:
        names = {n for p, needed in node.wanted if needed for n in needed_names(op.derivatives[p])}
    saved: dict[str, Any] = {}
    for name in names - {"grad", "grads", "needs"}:
        if name in values:
            value = originals.get(name, values[name])
            saved[name] = [save(v) for v in value] if isinstance(value, (list, tuple)) and name in node.counts else save(value)
        elif name == "result":
            saved[name] = save_result(outputs[0]) if results[0] is outputs[0] else save(results[0])
        elif name == "results":
            saved[name] = [_save_output(r, outputs) for r in results]
        elif name in op.returns:
            saved[name] = _save_output(results[op.returns.index(name)], outputs)
        elif name.endswith("_shape"):
            saved[name] = _facts(values[name[:-6]], lambda t: tuple(t._array.shape))
        elif name.endswith("_dtype"):
            saved[name] = _facts(values[name[:-6]], lambda t: t.dtype)
        elif name.endswith("_stride"):
            saved[name] = _facts(values[name[:-7]], lambda t: arrays.element_strides(t._array))
        elif name.endswith("_device"):
            saved[name] = _facts(values[name[:-7]], lambda t: t.device)
        else:
            raise TypeError(f"the derivative of {op.name} asks for {name!r}, which is no parameter of it")
    return saved


def _save_output(result: Tensor, outputs: list[Tensor]) -> Any:
    """One of several results: by its number if gradients flow through it."""
    nr = next((i for i, o in enumerate(outputs) if o is result), None)
    return save(result) if nr is None else save_result(result, nr)


def _facts(value, fact):
    return [fact(v) for v in value] if isinstance(value, (list, tuple)) else fact(value)
