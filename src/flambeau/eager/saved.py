"""What a node saves for its derivative, and how it gets it back.

Note [saved tensors and versions]: a node saves a tensor as `(tensor, array, version)`. When backward unpacks it, a storage written to
since then is an error, because the derivative would be computed from other numbers than the forward pass saw. A result is saved as
`(None, array, version, storage, number)`, without the tensor itself: node -> result -> node would be a cycle, and the memory would wait for
the garbage collector. An in-place form records after it has written, but of what was `Before`: its operands' gradients go where they went
then, and those that share the memory it wrote to are saved with the version they had, so that backward refuses them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau import errors, modes
from flambeau.kernels import arrays
from flambeau.tensor import DISPATCHED, PLAIN, Tensor, wrap
from flambeau.tensor.node import FREED, LEAF, Node, freed_error, next_sequence, operation, refuse_swapped
from flambeau.tensor.storage import Storage

NUMBERS = arrays.NUMBERS
state = modes.state


def save(value: Any, before: Before | None = None) -> Any:
    """What a node keeps of an operand: a tensor with its version, anything else as it is."""
    if type(value) not in PLAIN and not isinstance(value, Tensor):
        return value
    if not (value._inference or modes.special or before is not None):
        s = value._storage
        return value, value._array, 0 if s is None else s.version
    if value._inference and not (state.transforms or state.searching):
        raise RuntimeError("Inference tensors cannot be saved for backward. Try .clone(), or no_grad() instead of inference_mode().")
    if modes.special and state.pack_hooks:
        return Hooked(value, *state.pack_hooks[-1], edge=value._edge() if value.requires_grad else None)
    s = value._storage
    if s is None:
        return value, value._array, 0
    return value, value._array, s.version if before is None or s is not before.storage else s.version - 1


def save_result(tensor: Tensor, nr: int = 0) -> Any:
    """What a node keeps of its own result, which is output number `nr`."""
    if modes.special and state.pack_hooks:
        return Hooked(tensor, *state.pack_hooks[-1], nr=nr)
    s = tensor._storage
    if s is None:
        s = tensor._storage = Storage(tensor._array)
    if type(tensor) in DISPATCHED:
        return None, Kept(tensor), s.version, s, nr
    return None, tensor._array, s.version, s, nr


class Kept:
    """A result that a node has saved, of a class that carries operations out: another tensor that means the same, without history."""

    __slots__ = ("tensor",)

    def __init__(self, result: Tensor):
        with modes.no_grad():
            self.tensor = result.detach()

    def as_tensor(self) -> Tensor:
        """Yet another one: it will get a history."""
        with modes.no_grad():
            return self.tensor.detach()


def unpack(entry: Any, node: Node) -> Any:
    """A saved value again: the tensor, with its history if it has one."""
    kind = type(entry)
    if kind is tuple:
        if len(entry) == 3:
            tensor, array, version = entry
            s = tensor._storage
            if tensor._array is not array:
                if tensor._swapped_at is not None:
                    refuse_swapped(tensor, node)
                if tensor._detached_at is not None and tensor._detached_at < node.sequence:
                    raise RuntimeError(
                        "Trying to use a saved tensor that has been detached in-place. Try .detach(), which gives another tensor"
                    )
                # .data was exchanged. PyTorch keeps a leaf itself, so that backward sees its new values; of others, what they were.
                return tensor if tensor._node is None else with_history(wrap(array), tensor._node, tensor._nr)
            now = 0 if s is None else s.version
            if now != version:
                raise modified_error(tensor, version, now, node)
            return tensor
        _, array, version, storage, nr = entry
        result = array.as_tensor() if hasattr(array, "as_tensor") else wrap(array)  # the former inside vmap
        result._storage = storage
        if storage.version != version:
            raise modified_error(result, version, storage.version, node, nr=nr)
        return with_history(result, node, nr)
    return entry.value(node) if kind is Hooked else entry


def saved_array(entry: Any, node: Node) -> Any:
    """The array of a saved tensor (or a saved number): all that a kernel needs."""
    if type(entry) is tuple:
        if len(entry) == 3:
            tensor, array, version = entry
            s = tensor._storage
            if tensor._array is array and (s is None or s.version == version):
                return array
        elif entry[3].version == entry[2]:
            return entry[1]
    value = unpack(entry, node)
    return value if isinstance(value, NUMBERS) else value._array


def unpack_plain(entry: Any, node: Node) -> Any:
    """A saved value for a derivative, which is the framework's own code: subclasses have no say in it."""
    value = unpack(entry, node)
    kind = type(value)
    if isinstance(value, Tensor) and kind not in PLAIN and kind not in DISPATCHED and not hasattr(value._array, "as_tensor"):
        edge, plain = edge_of(value), wrap(value._array)
        plain._storage = value._storage
        return plain if edge is None else with_history(plain, *edge)
    return value


def with_history(tensor: Tensor, target, nr: int) -> Tensor:
    """`tensor`, whose gradient will go to this edge if operations are being recorded."""
    if state.grad:
        if nr == LEAF:
            node = Alias()
            node.edges = ((target, LEAF),)
            node.sequence = next_sequence()
            node.shape, node.numpy_dtype = tensor._array.shape, tensor._array.dtype
            target, nr = node, 0
        tensor._node, tensor._nr, tensor._needs = target, nr, True
    return tensor


class Alias(Node):
    """Stands between a leaf and another tensor that means it: the gradient passes unchanged."""

    def apply(self, grad):
        return [grad]


def modified_error(tensor: Tensor, expected: int, found: int, node: Node, nr: int | None = None) -> RuntimeError:
    """A saved tensor was changed in place between forward and backward."""
    made_by, nr = (tensor.grad_fn, tensor._nr) if nr is None else (node, nr)
    origin = f", which is output {nr} of {operation(made_by)}," if made_by is not None else ""
    changed_at = tensor._storage.changed_at if tensor._storage is not None else None
    hint = f"\nIt was changed by {errors.line_of(changed_at)}." if changed_at else ""
    where = node.metadata_.get("traceback_") if node.metadata_ else None
    hint += (
        "\nThe operation that saved it was called here:\n" + "".join(where)
        if where
        else f" Run it under torch.autograd.set_detect_anomaly(True) to see the line that saved it for {type(node).__name__}."
    )
    return RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{tensor.dtype} {list(tensor.shape)}]{origin} is at version {found}; expected version {expected} instead "
        f"(saved for {type(node).__name__}). Use the out-of-place form of the operation that changed it, or .clone() it first.{hint}"
    )


def edge_of(value: Any) -> tuple | None:
    """Where the gradient of an operand goes, None if it wants none."""
    if type(value) in PLAIN or isinstance(value, Tensor):  # the common case first: it is asked for every operand
        if value._base is None:
            if value._needs:
                node = value._node
                return (value, LEAF) if node is None else (node, value._nr)
        elif value.requires_grad:
            return value._edge()
    return None


class Before:
    """What an in-place form must know from before it writes to `self`.

    original  a copy of what it writes over, if some derivative reads that
    edges     where the gradients of its operands go: a view of what is written to could not tell any more
    """

    __slots__ = ("edges", "original", "storage")

    def __init__(self, self_: Tensor, operands: Iterable, keeps_original: bool):
        self.storage = self_._shared_storage()
        flat = [t for v in operands for t in (v if type(v) in (list, tuple) else (v,)) if isinstance(t, Tensor)]
        self.edges = {id(t): edge_of(t) for t in flat}
        self.original: Tensor | None = None
        if keeps_original:
            self.original = wrap(arrays.copy(self_._array))
            edge = self.edges[id(self_)]
            if edge is not None:
                with_history(self.original, *edge)


# -- hooks on what is saved ----------------------------------------------------------------------------------------


class Hooked:
    """A tensor saved through the user's pack hook. `edge` is where its gradient goes; a result's goes to the node that saved it."""

    __slots__ = ("edge", "nr", "packed", "unpack")

    def __init__(self, tensor: Tensor, pack: Callable, unpack: Callable, edge: tuple | None = None, nr: int | None = None):
        self.unpack, self.edge, self.nr = unpack, edge, nr
        given = tensor if nr is None else tensor.detach()  # a result knows this node: to keep it here would be a cycle
        version = given._version
        with modes.no_grad():
            self.packed = pack(given)
        if given._version != version:
            raise RuntimeError("A saved tensor pack hook is modifying its input in place, which others may still use. Try .clone().")

    def value(self, node: Node) -> Tensor:
        """What the unpack hook gives back, with the history of what was packed."""
        found = self.unpack(self.packed)
        if not isinstance(found, Tensor):
            raise TypeError(f"Output of saved tensor unpack_hook expected to be a Tensor, found {type(found).__name__}")
        edge = (node, self.nr) if self.nr is not None else self.edge
        return found if edge is None or found.requires_grad else with_history(wrap(found._array), *edge)


class SavedTensor:
    """A saved tensor before it is unpacked: `register_hooks` packs it after the fact."""

    def __init__(self, node: Node | None = None, at: int = 0):
        if node is None:
            raise RuntimeError(
                "Trying to create a SavedTensor object from Python is forbidden: look at grad_fn._raw_saved_self and the like"
            )
        self.node, self.at = node, at

    @property
    def data(self) -> Any:
        """What is kept: what a pack hook gave, or the tensor. Of a result, without history."""
        entry = self._entry()
        if isinstance(entry, Hooked):
            return entry.packed
        return entry if type(entry) is not tuple else entry[0] if entry[0] is not None else wrap(entry[1])

    @property
    def unpack_hook(self) -> Callable | None:
        """The hook that makes a tensor of what is kept; None where it is the tensor."""
        entry = self._entry()
        return entry.unpack if isinstance(entry, Hooked) else None

    def _entry(self) -> Any:
        saved = self.node.saved
        if saved is FREED:
            raise freed_error()
        return saved[self.at]

    def register_hooks(self, pack_hook: Callable, unpack_hook: Callable) -> None:
        """Replace the saved tensor by pack_hook(tensor); backward will use unpack_hook of that."""
        entry, saved = self._entry(), self.node.saved
        if isinstance(entry, Hooked):
            raise RuntimeError("register_hooks: hooks of this saved tensor have already been set. There can be one pair of them.")
        if type(entry) is not tuple:
            raise RuntimeError("register_hooks on a saved None is forbidden")
        tensor = entry[0]
        if tensor is None:
            saved[self.at] = Hooked(wrap(entry[1]), pack_hook, unpack_hook, nr=entry[4])
        else:
            saved[self.at] = Hooked(tensor, pack_hook, unpack_hook, edge=tensor._edge() if tensor.requires_grad else None)
