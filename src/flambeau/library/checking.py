"""opcheck: whether an operator that a program defines is what its schema and registrations say.

    test_schema                 writes to nothing else, and shares no memory with its arguments, but where the schema says so
    test_autograd_registration  what it records, it records for the key Autograd (or CompositeImplicitAutograd), so that modes below see the operator
    test_faketensor             on the meta device, results look as they do with data: number, shapes, dtypes, strides
    test_aot_dispatch_dynamic   called twice, it gives the same results and gradients

PyTorch's last check traces the operator with symbolic shapes, and holds what its compiler makes of it against the eager call. There is no compiler here: the
result of that check says what was compared instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flambeau import modes
from flambeau.autograd import api
from flambeau.library import autograd, fake_checking, kernels, schema_checking
from flambeau.library.custom_op import CustomOpDef
from flambeau.library.kernels import tensors_of
from flambeau.operators.overloads import OpOverload, OpOverloadPacket
from flambeau.tensor import Tensor
from flambeau.testing import assert_close

__all__ = ["OpCheckError", "opcheck"]

DEFAULT_TEST_UTILS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


class OpCheckError(Exception):
    """An operator is not what it says."""


def opcheck(
    op: Any, args: tuple, kwargs: dict[str, Any] | None = None, *, test_utils: str | Sequence[str] = DEFAULT_TEST_UTILS,
    raise_exception: bool = True, atol: float | None = None, rtol: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Check an operator on these arguments: {check: "SUCCESS", or what was compared instead, or the exception}. The first problem is raised, unless `raise_exception` is False."""
    overload = _overload(op)
    asked = (test_utils,) if isinstance(test_utils, str) else tuple(test_utils)
    if not set(asked) <= CHECKS.keys():
        raise ValueError(f"opcheck(op, ..., test_utils={test_utils}), expected test_utils to be subset of {tuple(CHECKS)} but it was not")
    found: dict[str, Any] = {}
    for name in asked:
        try:
            found[name] = CHECKS[name](overload, tuple(args), kwargs or {}, (rtol, atol)) or "SUCCESS"
        except Exception as problem:
            if raise_exception:
                raise OpCheckError(f"opcheck(op, ...): {name} failed with {problem} (scroll up for stack trace)") from problem
            found[name] = problem
    return found


def _overload(op: Any) -> OpOverload:
    if isinstance(op, CustomOpDef):
        return op._opoverload
    if isinstance(op, OpOverloadPacket):
        if len(op.overloads()) != 1:
            raise RuntimeError(
                f"opcheck can only test operators without overloads. Got the following overloads for {op}: {op.overloads()}. Name one of them"
            )
        return getattr(op, op.overloads()[0])
    if isinstance(op, OpOverload):
        return op
    raise ValueError(
        f"opcheck(op, ...): op must be instance of torch._ops.OpOverload, e.g. torch.ops.aten.sin.default, or what custom_op gave. Got {type(op)}"
    )


def _copied(value: Any) -> Any:
    """Arguments with memory of their own, which want gradients where those do."""
    if isinstance(value, Tensor):
        return value.detach().clone().requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)([_copied(v) for v in value])
    return {k: _copied(v) for k, v in value.items()} if type(value) is dict else value


def check_schema(overload: OpOverload, args: tuple, kwargs: dict[str, Any], tolerance: tuple) -> None:
    """What it writes to, and what shares memory."""
    with modes.no_grad():
        schema_checking.checked(overload, _copied(args), _copied(kwargs))


def check_autograd(overload: OpOverload, args: tuple, kwargs: dict[str, Any], tolerance: tuple) -> None:
    """Where it records."""
    tensors = list(tensors_of((*args, *kwargs.values())))
    if not any(t.requires_grad for t in tensors):
        return
    entry = kernels.registered.get(overload)
    if overload.namespace == "aten" or (entry is not None and entry.for_autograd(tensors[0].device.type.upper()) is not None):
        return
    args, kwargs = _copied(args), _copied(kwargs)
    with fallback("nothing"):
        result = overload(*args, **kwargs)
    outputs = list(tensors_of(result if isinstance(result, tuple | list) else (result,)))
    inputs = {id(t) for t in tensors_of((*args, *kwargs.values()))}
    if any(o.requires_grad for o in outputs if id(o) not in inputs):
        raise AssertionError(
            f"{overload.name()}: at least one output requires grad, but the operator does not have an autograd kernel at an autograd key: the Autograd key (or "
            "CompositeImplicitAutograd): it is incorrectly registered. Use torch.library.register_autograd, or register the kernel there"
        )


@contextmanager
def fallback(mode: str) -> Iterator[None]:
    """Within it, results of operators without a derivative are left as they are."""
    before, autograd.fallback_mode = autograd.fallback_mode, mode
    try:
        yield
    finally:
        autograd.fallback_mode = before


def check_fake(overload: OpOverload, args: tuple, kwargs: dict[str, Any], tolerance: tuple) -> None:
    """What results look like on the meta device."""
    with modes.no_grad():
        real = overload(*_copied(args), **_copied(kwargs))
    fake_checking.compare(overload, args, kwargs, real)


NOT_COMPILED = (
    "NOT COMPILED: two eager calls gave the same results and gradients; there is no compiler here whose results could be compared"
)


def check_calls(overload: OpOverload, args: tuple, kwargs: dict[str, Any], tolerance: tuple) -> str:
    """Whether a second call gives what the first one gave."""
    if overload._schema.is_mutable and any(r.alias_info is not None for r in overload._schema.returns) and overload.namespace != "aten":
        raise RuntimeError(
            f"{overload}: We only support functionalizing operators whose outputs do not have alias annotations. Return nothing, or a new tensor"
        )
    first, second = (_results_and_gradients(overload, args, kwargs) for _ in range(2))
    for i, (a, b) in enumerate(zip(first, second, strict=True)):
        try:
            assert_close(b, a, equal_nan=True, rtol=tolerance[0], atol=tolerance[1])
        except AssertionError as problem:
            what = "results differ between two calls (PyTorch: eager-mode PyTorch vs AOTDispatcher)"
            raise AssertionError(f"{what}: number {i}. {problem}") from problem
    return NOT_COMPILED


def _results_and_gradients(function: Callable, args: tuple, kwargs: dict[str, Any]) -> list[Tensor]:
    args, kwargs = _copied(args), _copied(kwargs)
    result = function(*args, **kwargs)
    outputs = list(tensors_of(result if isinstance(result, tuple | list) else (result,)))
    inputs = [t for t in tensors_of((*args, *kwargs.values())) if t.requires_grad]
    wanted = [o for o in outputs if o.requires_grad]
    grads: list[Any] = []
    if wanted and inputs:
        grads = list(api.grad([o.sum().abs() for o in wanted], inputs, allow_unused=True))
    return [o.detach() for o in outputs] + [g for g in grads if g is not None]


CHECKS: dict[str, Callable[..., Any]] = {
    "test_schema": check_schema,
    "test_autograd_registration": check_autograd,
    "test_faketensor": check_fake,
    "test_aot_dispatch_static": check_calls,
    "test_aot_dispatch_dynamic": check_calls,
}
