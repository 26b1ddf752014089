"""What a class that unwraps and wraps again owes its callers: a view shares the storage of what it is a view of, and a write gives back what was
written to. `return_and_correct_aliasing` sees to both, by what the schema of the operation says."""

from __future__ import annotations

from typing import Any

from flambeau.eager.arguments import tensors_in
from flambeau.tensor import DISPATCHED, Tensor


def return_and_correct_aliasing(func: Any, args: tuple, kwargs: dict, out: Any) -> Any:
    """`out`, the result of `func(*args, **kwargs)` that was carried out on the parts of wrappers, as PyTorch's operations would give it."""
    schema = func._schema
    given = dict(kwargs)
    for argument, value in zip(schema.arguments, args, strict=False):
        given[argument.name] = value
    aliases = {_mark(a): given.get(a.name) for a in schema.arguments if a.alias_info is not None and given.get(a.name) is not None}
    for returned, result in zip(schema.returns, out if len(schema.returns) > 1 else (out,), strict=False):
        if returned.alias_info is None or returned.alias_info.is_write:
            continue
        source = aliases.get(_mark(returned))
        if isinstance(source, Tensor):
            for view in tensors_in(result):
                _share(source, view)
    written = [a.alias_info is not None and a.alias_info.is_write for a in schema.returns]
    if not any(written):
        return out
    if len(schema.returns) == 1:
        return aliases.get(_mark(schema.returns[0]), out)
    return type(out)([aliases.get(_mark(r), o) if w else o for r, o, w in zip(schema.returns, out, written, strict=True)])


def _mark(value: Any) -> frozenset[str]:
    info = value.alias_info
    return frozenset() if info is None else frozenset(info.before_set)


def _share(source: Tensor, view: Tensor) -> None:
    """Let a view be one of the memory of `source`, in name: wrappers have none."""
    if type(source) in DISPATCHED and view is not source:
        view._storage = source._shared_storage()
