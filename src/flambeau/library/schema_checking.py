"""SchemaCheckMode: inside it, every operator that is called is held against its schema, as `opcheck` does with "test_schema".

It sees operators called by name (torch.ops.aten.sin.default(x), torch.ops.shop.double(x)).
"""

from __future__ import annotations

from typing import Any

from flambeau.library.kernels import tensors_of
from flambeau.operators.overloads import OpOverload, OpOverloadPacket, choose
from flambeau.overrides import TorchFunctionMode
from flambeau.tensor import Tensor

__all__ = ["SchemaCheckMode", "checked"]


class SchemaCheckMode(TorchFunctionMode):
    """RuntimeError where an operator writes to an argument, or returns its memory, and its schema does not say so."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[str] = []

    def reset_cache(self) -> None:
        """Forget which operators were seen."""
        self.ops.clear()

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverloadPacket):
            func = choose(func, args, kwargs)[0]
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        self.ops.append(func._schema.name)
        return checked(func, args, kwargs)


def checked(overload: OpOverload, args: tuple, kwargs: dict[str, Any]) -> Any:
    """The result of a call; RuntimeError if it is not what the schema says."""
    arguments = overload._schema.arguments
    given = {a.name: v for a, v in zip(arguments, args, strict=False)} | kwargs
    before = {name: [None if t.is_meta else t.detach().clone() for t in tensors_of([value])] for name, value in given.items()}
    result = overload(*args, **kwargs)
    outputs = list(tensors_of(result if isinstance(result, tuple | list) else (result,)))
    returned = [r.alias_info for r in overload._schema.returns if r.alias_info is not None]
    for argument in arguments:
        tensors = list(tensors_of([given.get(argument.name)]))
        changed = any(old is not None and not _same(old, new) for old, new in zip(before.get(argument.name, ()), tensors, strict=True))
        if changed and not argument.is_write:
            raise RuntimeError(f"Argument {argument.name} is not defined as mutable but was mutated")
        if any(_shares(t, o) for t in tensors for o in outputs) and not (argument.alias_info is not None and returned):
            raise RuntimeError(f"Argument {argument.name} is not defined to alias output but was aliasing")
    return result


def _same(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and bool(((a == b) | ((a != a) & (b != b))).all())


def _shares(a: Tensor, b: Tensor) -> bool:
    if a.is_meta or b.is_meta or not (a.numel() and b.numel()):
        return False
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
