"""Selective checkpoints: some results of a checkpointed function are kept after all, so that the rerun need not compute them.

    save = [torch.ops.aten.mm.default, torch.ops.aten.addmm.default]             # products take long, and the rest is quick
    context_fn = functools.partial(create_selective_checkpoint_contexts, save)
    y = checkpoint(block, x, use_reentrant=False, context_fn=context_fn)

During forward, `Keeping` asks the policy about the result of every operation that computes something, and keeps those it wants. During the
rerun, `Giving` hands them out again in the same order: the operation is recorded as ever, only its loop is not run. Views are made anew, in-place
forms run again, and so does whatever draws random numbers, because the numbers after it depend on how many it drew.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable
from enum import Enum
from typing import Any

from flambeau import devices
from flambeau.dispatch.leaves import Leaf, sorted_arguments
from flambeau.eager import array_ops, pointwise
from flambeau.eager.arguments import tensors_in
from flambeau.interpreters import stack
from flambeau.kernels import arrays
from flambeau.operators.overloads import OpOverload, overload
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.storage import Storage
from flambeau.tracing import names

__all__ = ["SAC_IGNORED_OPS", "CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]

SAC_IGNORED_OPS: set[OpOverload] = {overload("detach")}


class CheckpointPolicy(Enum):
    """What becomes of an operation's result. PREFER and MUST differ only for compilers, which may know better."""

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


SAVE = (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
OFFLOAD = (CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD)


class SelectiveCheckpointContext:
    """What a policy is told: whether this is the rerun, and the result of the operation."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None):
        self.is_recompute, self.op_output = is_recompute, op_output


def create_selective_checkpoint_contexts(policy_fn_or_list: Any, allow_cache_entry_mutation: bool = False) -> tuple[Keeping, Giving]:
    """(context for forward, context for the rerun) that keep some results.

    policy_fn_or_list           policy(ctx, op, *args, **kwargs) -> CheckpointPolicy, or True to save; or a list of operations to save
    allow_cache_entry_mutation  use what was kept even if it was written to since; otherwise that is an error
    """
    kept: Kept = defaultdict(deque)
    return Keeping(_policy(policy_fn_or_list), kept), Giving(kept, allow_cache_entry_mutation)


def _policy(given: Any) -> Callable:
    if isinstance(given, list):
        for op in given:
            if not isinstance(op, OpOverload):
                packet = (
                    ""
                    if not hasattr(op, "overloads")
                    else f". It has several: update the OpOverloadPacket to a specific OpOverload, such as {op}.{op.overloads()[0]}"
                )
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}{packet}")
        wanted = set(given)
        return lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_SAVE if op in wanted else CheckpointPolicy.PREFER_RECOMPUTE
    if not callable(given):
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    return given


class Entry:
    """What was kept of a result: arrays, and the storages with their versions, to see if they were written to."""

    def __init__(self, result: Any, offload: bool):
        tensors = result if isinstance(result, tuple) else (result,)
        self.single = not isinstance(result, tuple)
        self.storages = [(storage := t._shared_storage(), storage.version) for t in tensors]
        self.arrays = [arrays.to_device(t._array, devices.cpu) if offload else t._array for t in tensors]
        self.homes = [arrays.device_of(t._array) for t in tensors]
        if offload:
            self.storages = [(Storage(array), 0) for array in self.arrays]

    def value(self, changes_allowed: bool) -> Any:
        if not changes_allowed and any(storage.version != version for storage, version in self.storages):
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated: an in-place operation wrote to what an operation of the "
                "policy gave. Use its out-of-place form, let the policy recompute, or pass allow_cache_entry_mutation=True"
            )
        found = tuple([arrays.to_device(array, home) for array, home in zip(self.arrays, self.homes, strict=True)])
        return found[0] if self.single else found


Kept = defaultdict[Any, "deque[Entry | None]"]  # operation -> what was kept of each of its calls; None: nothing


class _Selecting(stack.Interpreter):
    """Is given every operation that computes something; the parts of others, too."""

    level, stays, operations, by_operations = stack.CHECKPOINT, True, True, False

    def handle(self, function: Any, args: tuple, kwargs: dict, next: Callable) -> Any:
        """Carry out a call: nothing is kept of views, of what is written in place, and of what draws random numbers."""
        op = function.op
        computes = op.kind in ("pointwise", "array") and function is op.call and kwargs.get("out") is None
        if not computes or getattr(op, "draws", False):
            return next(*args, **kwargs)
        with stack.off(self):
            return self.computed(sorted_arguments(op, args, kwargs), lambda: next(*args, **kwargs))

    def computed(self, leaf: Leaf, compute: Callable) -> Any:
        """The result of an operation."""
        raise NotImplementedError


class Keeping(_Selecting):
    """Forward: keep what the policy wants."""

    def __init__(self, policy: Callable, kept: Kept):
        self.policy, self.kept = policy, kept

    def computed(self, leaf: Leaf, compute: Callable) -> Any:
        result, op, args = compute(), leaf.op, (*leaf.values, *leaf.options)
        answer = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=result), handle(op, args), *args)
        if not isinstance(answer, (bool, CheckpointPolicy)):
            raise TypeError(f"a policy returns a CheckpointPolicy, or True to save; found {answer!r} for {handle(op, args)}")
        saves = answer is True or answer in SAVE or answer in OFFLOAD
        self.kept[op].append(Entry(result, answer in OFFLOAD) if saves else None)
        return result


class Giving(_Selecting):
    """The rerun: give out what was kept, in the order of forward."""

    def __init__(self, kept: Kept, changes_allowed: bool):
        self.kept, self.changes_allowed = kept, changes_allowed
        self.runs = self.given = 0

    def __enter__(self) -> Giving:
        self.runs += 1
        return super().__enter__()

    def computed(self, leaf: Leaf, compute: Callable) -> Any:
        op = leaf.op
        if self.runs > 1 and self.given:
            words = "Trying to backward an extra time. What was kept is used up: one backward is allowed through a region under selective"
            raise RuntimeError(f"{words} activation checkpoint: what was kept is given out once.")
        calls = self.kept[op]
        if not calls:
            what = f"the invocation index of this call of {op.short} was not found in storage"
            raise RuntimeError(f"{what}: the rerun calls it more often than forward did, so the function did not do the same again")
        self.given += 1
        entry = calls.popleft()
        return compute() if entry is None else recorded(leaf, entry.value(self.changes_allowed))


def recorded(leaf: Leaf, known: Any) -> Any:
    """Known arrays as the result of an operation, which is recorded as if it had computed them."""
    op = leaf.op
    if op.kind == "pointwise":
        result = wrap(known)
        options = tuple([v.item() if isinstance(v, Tensor) else v for v in leaf.options])
        pointwise.finish(op, result, tuple([pointwise.tensor_or_number(op, v) for v in leaf.values]), options)
        return result
    by_name = dict(zip(op.arguments.parameters, leaf.values, strict=True))
    values = tuple((array_ops.promote(op, by_name) if op.promote else by_name).values())
    return array_ops.finish(op, known, values, any(t.requires_grad for t in tensors_in(values)))


def handle(op: Any, args: tuple) -> OpOverload:
    """What PyTorch would call the operation: `linear` is `addmm` or `mm` there, by its arguments."""
    name = names.of(op.call)
    tensors = [value for value in args if isinstance(value, Tensor)]
    ranks = [len(tensor._array.shape) for tensor in tensors]
    parts = names.inside("matmul" if name == "bmm" else name, ranks, len(tensors))
    return overload(parts[-1], ()) if parts and name in SPLIT else overload(name, args)


# Operations that PyTorch splits, whose part is what people name.
SPLIT = (
    "linear",
    "matmul",
    "bmm",
    "softmax",
    "log_softmax",
    "conv1d",
    "conv2d",
    "conv3d",
    "layer_norm",
    "group_norm",
    "batch_norm",
    "max_pool2d",
)
