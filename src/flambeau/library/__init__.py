"""torch.library: operations of a program's own, with a name, a derivative, and a rule for the meta device.

    @custom_op("shop::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.register_autograd(lambda ctx, grad: grad * 2)
    torch.ops.shop.double(x)

The function runs as it is, hidden from autograd: its derivative is the registered one, and backward without one says so.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from flambeau import ops
from flambeau.autograd import modes
from flambeau.autograd.function import Function
from flambeau.eager.arguments import tensors_in

__all__ = ["CustomOpDef", "custom_op", "register_autograd", "register_fake", "register_kernel", "register_vmap"]

_OPERATIONS: dict[str, CustomOpDef] = {}


def custom_op(
    name: str, fn: Callable | None = None, /, *, mutates_args: str | Iterable[str], device_types: str | Iterable[str] | None = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Make an operation named "library::name" of a function; without the function, a decorator. Callable as torch.ops.library.name too."""
    if name.count("::") != 1:
        raise ValueError(f"custom_op: expected a name such as 'library::operation', found {name!r}")

    def make(function: Callable) -> CustomOpDef:
        if schema is None:
            _check_annotations(function)
        return CustomOpDef(name, function, mutates_args, device_types)

    return make if fn is None else make(fn)


class CustomOpDef:
    """An operation made by `custom_op`."""

    def __init__(self, name: str, fn: Callable, mutates_args: str | Iterable[str], device_types: str | Iterable[str] | None):
        self._namespace, self._name = name.split("::")
        self._qualname, self._function, self._signature = name, fn, inspect.signature(fn)
        self._mutated = (mutates_args,) if isinstance(mutates_args, str) else tuple(mutates_args)
        self._kernels: dict[str, Callable] = {}
        self._fake: Callable | None = None
        self._backward: Callable | None = None
        self._setup_context: Callable | None = None
        self._vmap: Callable | None = None
        if device_types is not None:
            self._function = _nowhere_else(self)
            self.register_kernel(device_types, fn)
        _OPERATIONS[name] = self
        setattr(_library(self._namespace), self._name, self)

    @property
    def default(self) -> CustomOpDef:
        """The operation itself: torch.ops.library.name.default."""
        return self

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self._signature.bind(*args, **kwargs)
        given.apply_defaults()
        values, named = given.args, given.kwargs
        tensors = list(tensors_in((*values, *named.values())))
        wants = modes.is_grad_enabled() and any(t.requires_grad for t in tensors)
        mapped = any(hasattr(t._array, "level") for t in tensors)  # inside vmap
        if not (wants or mapped) or self._mutated:
            with modes.no_grad():
                return self._run(values, named)
        return _node(self, named).apply(*values)

    def _run(self, values: tuple, named: dict[str, Any]) -> Any:
        inputs = list(tensors_in((*values, *named.values())))
        kind = inputs[0].device.type if inputs else "cpu"
        if kind == "meta":
            if self._fake is None:
                raise RuntimeError(f"no fake impl registered for {self!r}. `{self._name}.register_fake` adds one.")
            return self._fake(*values, **named)
        result = self._kernels.get(kind, self._function)(*values, **named)
        taken = {t.untyped_storage().data_ptr() for t in inputs if t.numel()}
        for output in tensors_in(result if isinstance(result, tuple | list) else (result,)):
            if output.untyped_storage().data_ptr() in taken:
                raise RuntimeError(
                    f"{self._qualname}: The output of this custom operator must not also be an input to this custom operator and may not "
                    "alias any inputs to this custom operator or other returns. Try x.clone() in the operator"
                )
        return result

    def register_fake(self, fn: Callable, /, *, allow_override: bool = False) -> Callable:
        """Give the function that makes results without data, for tensors on the meta device."""
        self._fake = fn
        return fn

    def register_kernel(self, device_types: str | Iterable[str] | None, fn: Callable | None = None, /) -> Callable:
        """Give another function for tensors on these devices."""

        def keep(function: Callable) -> Callable:
            for kind in ("cpu", "cuda") if device_types is None else (device_types,) if isinstance(device_types, str) else device_types:
                self._kernels[kind] = function
            return function

        return keep if fn is None else keep(fn)

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """Give the derivative: backward(ctx, *grads) -> a gradient for each argument; setup_context(ctx, inputs, output) saves for it."""
        if self._mutated:
            raise RuntimeError(f"{self!r} is not functional, so it has no derivative: it changes {', '.join(self._mutated)}")
        self._backward, self._setup_context = backward, setup_context

    def register_vmap(self, func: Callable | None = None, /) -> Any:
        """Give what vmap does: func(info, in_dims, *args) -> (results, out_dims), where info has batch_size and randomness. Without one, samples
        are computed one by one. Without the function, a decorator."""
        if func is None:
            return self.register_vmap
        self._vmap = func
        return func


def _node(operation: CustomOpDef, named: dict[str, Any]) -> type[Function]:
    """The operation as a node, for these arguments given by name."""

    class Node(Function):
        generate_vmap_rule = operation._vmap is None

        @staticmethod
        def forward(*inputs: Any) -> Any:
            return operation._run(inputs, named)

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple, output: Any) -> None:
            if operation._setup_context is not None:
                operation._setup_context(ctx, inputs, output, **({"keyword_only_inputs": named} if named else {}))

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            if operation._backward is None:
                name = f"{operation._namespace}.{operation._name}.default"
                raise RuntimeError(
                    f"{name}: no autograd formula was registered, so there is no backward through it. register_autograd adds one."
                )
            return operation._backward(ctx, *grads)

    if operation._vmap is not None:
        Node.vmap = staticmethod(functools.partial(operation._vmap, **named))  # type: ignore[method-assign]
    Node.__name__ = Node.__qualname__ = f"GeneratedBackwardFor_{operation._namespace}_{operation._name}_default"
    return Node


def _found(op: str | CustomOpDef) -> CustomOpDef:
    if isinstance(op, CustomOpDef):
        return op
    if op not in _OPERATIONS:
        raise RuntimeError(f"torch.library: no operation named {op!r} was made by torch.library.custom_op")
    return _OPERATIONS[op]


def register_fake(op: str | CustomOpDef, func: Callable | None = None, /, *, lib: Any = None, allow_override: bool = False) -> Any:
    """`CustomOpDef.register_fake` by the operation's name; without the function, a decorator."""
    return _found(op).register_fake if func is None else _found(op).register_fake(func)


def register_vmap(op: str | CustomOpDef, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """`CustomOpDef.register_vmap` by the operation's name; without the function, a decorator."""
    return _found(op).register_vmap(func)


def register_autograd(op: str | CustomOpDef, backward: Callable, /, *, setup_context: Callable | None = None, lib: Any = None) -> None:
    """`CustomOpDef.register_autograd` by the operation's name."""
    _found(op).register_autograd(backward, setup_context=setup_context)


def register_kernel(op: str | CustomOpDef, device_types: Any, func: Callable | None = None, /, *, lib: Any = None) -> Any:
    """`CustomOpDef.register_kernel` by the operation's name."""
    return _found(op).register_kernel(device_types, func)


# -- what they stand on --------------------------------------------------------------------------------------------------------------------


class Namespace:
    """torch.ops.<name>: the operations of one library."""

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.ops.{self.__dict__['_name']} has no operation {name!r}")


def _library(name: str) -> Any:
    found = vars(ops).get(name)
    if found is None:
        found = Namespace(name)
        setattr(ops, name, found)
    elif not isinstance(found, Namespace):
        raise ValueError(f"custom_op: the library {name!r} is Flambeau's own. Choose another name")
    return found


def _check_annotations(fn: Callable) -> None:
    signature = inspect.signature(fn)
    for name, parameter in signature.parameters.items():
        if parameter.annotation is inspect.Parameter.empty:
            raise ValueError(f"infer_schema(func): Parameter {name} must have a type annotation. Got func with signature {signature}")
    if signature.return_annotation is inspect.Signature.empty:
        raise ValueError(
            f"infer_schema(func): the function must say what it returns, such as -> Tensor. Got func with signature {signature}"
        )


def _nowhere_else(operation: CustomOpDef) -> Callable:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        places = ", ".join(operation._kernels)
        raise NotImplementedError(f"{operation._qualname} was made for {places} only. Use register_kernel to add another device")

    return refuse
