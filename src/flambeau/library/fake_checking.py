"""CrossRefFakeMode: inside it, every operator that is called by name is run without data, too, and its results have to look alike.

`opcheck` does the same with "test_faketensor".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flambeau import modes
from flambeau.library import fakes
from flambeau.library.kernels import tensors_of
from flambeau.operators.overloads import OpOverload, OpOverloadPacket
from flambeau.overrides import TorchFunctionMode
from flambeau.tensor import Tensor

__all__ = ["CrossRefFakeMode", "MetadataMismatchError", "compare"]


class MetadataMismatchError(AssertionError):
    """Results without data look otherwise than those with data."""


class CrossRefFakeMode(TorchFunctionMode):
    """MetadataMismatchError where an operator's results on the meta device are not as those with data.

    ignore_op_fn   which operators are left alone
    check_strides  whether strides are compared
    """

    def __init__(
        self, ignore_op_fn: Callable[[OpOverload], bool] | None = None, *, check_strides: bool = True, check_aliasing: bool = True,
        only_check_ops_with_meta: bool = True,
    ):  # fmt: skip
        super().__init__()
        self.ignored = ignore_op_fn or (lambda op: False)
        self.check_strides = check_strides

    def __torch_function__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverloadPacket):
            func = func._meant(args, kwargs)
        if not isinstance(func, OpOverload) or self.ignored(func) or any(t.is_meta for t in tensors_of((*args, *kwargs.values()))):
            return func(*args, **kwargs)
        result = func(*args, **kwargs)
        compare(func, args, kwargs, result, self.check_strides)
        return result


def compare(overload: OpOverload, args: tuple, kwargs: dict[str, Any], real: Any, check_strides: bool = True) -> None:
    """Run an operator on the meta device, and hold what comes out against what came out with data."""
    placeholders: list[int] = []

    def size(least: int, most: int | None) -> int:
        """A size that is in the data: a number that nothing else has, which is equal to any."""
        placeholders.append(7919 + 2 * len(placeholders) + least)
        return placeholders[-1]

    with modes.no_grad(), fakes.context(fakes.FakeImplCtx(size, overload)):
        try:
            fake = overload(*on_meta(args), **on_meta(kwargs))
        except NotImplementedError:
            if overload.namespace != "aten":
                raise
            return  # an operator of PyTorch's whose result depends on the data
    expected = list(tensors_of(real if isinstance(real, tuple | list) else (real,)))
    found = list(tensors_of(fake if isinstance(fake, tuple | list) else (fake,)))
    if len(expected) != len(found):
        counts = f"{len(expected)} tensors with data, {len(found)} without"
        raise MetadataMismatchError(f"{overload}: {counts}: the fake implementation returns another number of results")
    for i, (a, b) in enumerate(zip(expected, found, strict=True)):
        _compare_tensors(f"{overload}: result {i} with data, and of the fake implementation", a, b, placeholders, check_strides)


def _compare_tensors(what: str, a: Tensor, b: Tensor, placeholders: list[int], check_strides: bool) -> None:
    unknown = any(n in placeholders for n in b.shape)
    shape = tuple(b.shape)
    if unknown and a.dim() == b.dim():
        shape = tuple([n if m in placeholders else m for n, m in zip(a.shape, b.shape, strict=True)])
    facts = [("Shapes", tuple(a.shape), shape), ("Dtypes", a.dtype, b.dtype)]
    if check_strides and not unknown and a.numel():
        facts.append(("Strides", a.stride(), b.stride()))
    for fact, real, fake in facts:
        if real != fake:
            raise MetadataMismatchError(f"{fact} {real} and {fake} are not equal! {what}")


def on_meta(value: Any) -> Any:
    """The value, with tensors on the meta device in the place of those in it."""
    if isinstance(value, Tensor):
        return value.detach().to("meta")
    if type(value) in (list, tuple):
        return type(value)([on_meta(v) for v in value])
    return {k: on_meta(v) for k, v in value.items()} if type(value) is dict else value
