"""The older custom operators, torch._custom_ops: a name and a schema first, then what runs on each device and what backward needs, one by one.

    @custom_op("shop::double")
    def double(x: Tensor) -> Tensor: raise NotImplementedError

    @impl("shop::double")                                   # or device_types="cpu"
    def _(x): return x * 2

    @impl_save_for_backward("shop::double")
    def _(inputs, output): return inputs.x

    @impl_backward("shop::double")
    def _(ctx, saved, grad): return {"x": grad * 2}         # by the names of arguments

torch.library.custom_op is what programs should use now; these are for those that do not yet.
"""

from __future__ import annotations

import inspect
from collections import namedtuple
from collections.abc import Callable, Iterable
from typing import Any

from flambeau import modes
from flambeau.autograd.function import Function
from flambeau.batching import trees
from flambeau.library import kernels
from flambeau.library.autograd import filled, supports_tensorlist
from flambeau.library.guards import AutoDispatchBelowAutograd
from flambeau.library.inference import infer_schema
from flambeau.library.libraries import Library, get_op
from flambeau.library.registering import is_tensors
from flambeau.operators.overloads import OpOverload
from flambeau.operators.schema import FunctionSchema, parse
from flambeau.operators.schema_types import ListType, OptionalType
from flambeau.tensor import Tensor

RESERVED_NS = {"prim", "prims", "aten", "at", "torch", "pytorch"}
SUPPORTED_DEVICE_TYPE_TO_KEY = {"cpu": "CPU", "cuda": "CUDA"}
global_registry: dict[str, CustomOp] = {}


class CustomOp:
    """An operator of this kind. `custom_op` makes it."""

    def __init__(self, lib: Any, cpp_ns: Any, schema: Any, operator_name: Any, ophandle: Any, *, _private_access: bool = False):
        if not _private_access:
            raise RuntimeError(
                "The CustomOp constructor is private and we do not guarantee BC for it. Please use custom_op(...) to create a CustomOp object"
            )
        self._lib: Library = lib
        self._cpp_ns, self._schema, self._opname = cpp_ns, schema, operator_name
        self._opoverload: OpOverload = ophandle
        self._qualname = f"{cpp_ns}::{operator_name}"
        self.__name__ = operator_name
        self._save_for_backward: Callable | None = None
        self._backward: Callable | None = None
        self._differentiable: list[bool] | None = None
        self._recorded = False
        global_registry[self._qualname] = self

    def __repr__(self) -> str:
        return f"<CustomOp(op='{self._cpp_ns}.{self._opname}')>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._opoverload(*args, **kwargs)

    def _destroy(self) -> None:
        """Take the operator away."""
        self._lib._destroy()
        global_registry.pop(self._qualname, None)

    # what runs

    def impl(self, device_types: str | Iterable[str], _stacklevel: int = 2) -> Callable:
        """A decorator: what runs on these devices."""
        kinds = [device_types] if isinstance(device_types, str) else list(device_types)
        for kind in kinds:
            if kind not in SUPPORTED_DEVICE_TYPE_TO_KEY:
                raise ValueError(
                    f"CustomOp.impl(device_types=[{kind}, ...]): we only support device_type in {SUPPORTED_DEVICE_TYPE_TO_KEY.keys()}."
                )

        def register(function: Callable) -> Callable:
            for kind in kinds:
                key = SUPPORTED_DEVICE_TYPE_TO_KEY[kind]
                self._check_free(key)
                self._lib.impl(self._opoverload, function, key)
            return function

        return register

    def _check_free(self, key: str) -> None:
        entry = kernels.entry(self._opoverload)
        for name in (key, "CompositeImplicitAutograd", "CompositeExplicitAutograd"):
            own = entry.own(name)
            if own is not None and not (name == key and own.where == _old):
                raise RuntimeError(
                    f"impl(...): the operator {self._qualname} already has an implementation for this device type via a pre-existing registration to "
                    f"DispatchKey::{name}."
                )

    def impl_save_for_backward(self, _stacklevel: int = 2) -> Callable:
        """A decorator: what is kept for backward, of (inputs, output)."""

        def register(function: Callable) -> Callable:
            self._check_differentiable()
            self._save_for_backward = function
            self._record()
            return function

        return register

    def impl_backward(self, output_differentiability: Any = None, _stacklevel: int = 2) -> Callable:
        """A decorator: backward(ctx, saved, *grads) -> {argument: gradient}."""
        if output_differentiability is not None:
            wanted = f"Expected output_differentiability to be a list of bools, one for each of the {len(self._opoverload._schema.returns)} outputs"
            if not isinstance(output_differentiability, list) or not all(isinstance(v, bool) for v in output_differentiability):
                raise RuntimeError(f"impl_backward(output_differentiability): {wanted}, got {output_differentiability}")
            if len(output_differentiability) != len(self._opoverload._schema.returns):
                raise RuntimeError(f"impl_backward(output_differentiability): {wanted}, got {len(output_differentiability)}")

        def register(function: Callable) -> Callable:
            self._check_differentiable()
            self._backward, self._differentiable = function, output_differentiability
            self._record()
            return function

        return register

    def _check_differentiable(self) -> None:
        schema = self._opoverload._schema
        why = None
        if schema.is_mutable:
            why = "non-functional operator"
        elif not schema.returns:
            why = "operator with no returns"
        elif any(r.alias_info is not None for r in schema.returns):
            why = "operator that returns views"
        entry = kernels.entry(self._opoverload)
        for key in ("CompositeImplicitAutograd", "Autograd", "AutogradCPU", "AutogradCUDA"):
            if entry.own(key) is not None and not (key == "Autograd" and self._recorded):
                why = f"operator that already has an implementation for {key}"
        if why is not None:
            raise RuntimeError(f"Cannot register a backward formula for {self._qualname}, an {why}. Its schema is {schema}")

    def _record(self) -> None:
        """Have the key Autograd ask this object."""
        if not self._recorded:
            self._recorded = True
            self._lib.impl(self._opoverload, self._autograd_kernel, "Autograd")

    def _autograd_kernel(self, *args: Any, **kwargs: Any) -> Any:
        wants = modes.state.grad and any(t.requires_grad for t in kernels.tensors_of((*args, *kwargs.values())))
        if not wants:
            with AutoDispatchBelowAutograd():
                return self._opoverload(*args, **kwargs)
        if self._save_for_backward is None and self._backward is None:
            raise RuntimeError(
                f"Autograd has not been implemented for operator {self._qualname}. impl_backward and impl_save_for_backward do so"
            )
        for what, found in (("save_for_backward", self._save_for_backward), ("backward", self._backward)):
            if found is None:
                raise RuntimeError(
                    f"We were expecting to get a 'backward' and a 'save_for_backward' for {self._qualname}: unable to find a '{what}' registered. "
                    f"impl_{what} registers it"
                )
        return _node(self).apply(*filled(self._opoverload._schema, args, kwargs)[0])


_old = "registered at torch._custom_ops"


def _node(op: CustomOp) -> Any:
    schema = op._opoverload._schema
    fields = [a.name for a in schema.arguments]
    inputs_kind: Any = namedtuple(op._opname + "_args", fields)  # type: ignore[misc]

    class Node(Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with AutoDispatchBelowAutograd():
                output = op._opoverload(*args)
            saved = op._save_for_backward(inputs_kind(*args), output)  # type: ignore[misc]
            leaves, ctx._saved_shape = trees.flatten(saved)
            ctx._places = [isinstance(leaf, Tensor) for leaf in leaves]
            ctx.save_for_backward(*[leaf for leaf in leaves if isinstance(leaf, Tensor)])
            ctx._others = [None if isinstance(leaf, Tensor) else leaf for leaf in leaves]
            _mark(op, ctx, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            tensors = list(ctx.saved_tensors)
            leaves = [tensors.pop(0) if kept else other for kept, other in zip(ctx._places, ctx._others, strict=True)]
            found = op._backward(ctx, trees.unflatten(leaves, ctx._saved_shape), *grads)  # type: ignore[misc]
            return _in_order(op, schema, found, ctx.needs_input_grad)

    Node.__name__ = Node.__qualname__ = f"{op._cpp_ns}::{op._opname}Backward"
    return supports_tensorlist(Node)


def _mark(op: CustomOp, ctx: Any, output: Any) -> None:
    """Say which outputs have no derivative."""
    if op._differentiable is None:
        return
    outputs = output if isinstance(output, tuple) else (output,)
    constant = []
    for differentiable, value in zip(op._differentiable, outputs, strict=True):
        if differentiable and not any(True for _ in kernels.tensors_of([value])):
            raise RuntimeError(
                f"With output_differentiability={op._differentiable}. the output of {op._qualname} is said to be differentiable and is not a Tensor: found "
                f"{type(value)}"
            )
        if not differentiable:
            constant += list(kernels.tensors_of([value]))
    ctx.mark_non_differentiable(*constant)


def _in_order(op: CustomOp, schema: FunctionSchema, found: Any, needs: Any) -> tuple:
    """The gradients of a dictionary, as many as there are arguments."""
    what = f"the return value of the backward of {op._qualname}"
    if not isinstance(found, dict):
        raise RuntimeError(f"Expected {what} to be a dict but got {type(found)}")
    wanted = {a.name for a in schema.arguments if is_tensors(a.type)}
    extra = found.keys() - wanted
    if extra & {a.name for a in schema.arguments}:
        raise RuntimeError(
            f"Expected {what} to not have gradients for {extra}: they are non-Tensor-like types. Only arguments that are tensors, or lists of them, have one"
        )
    if found.keys() != wanted:
        raise RuntimeError(
            f"Expected {what} to have keys {wanted or set()} but got {set(found) or set()}. One for each argument that is a tensor"
        )
    return tuple([_checked(what, a, found.get(a.name), need) for a, need in zip(schema.arguments, needs, strict=True)])


def _checked(what: str, argument: Any, grad: Any, need: Any) -> Any:
    kind = argument.type.element if isinstance(argument.type, OptionalType) else argument.type
    if isinstance(kind, ListType) and is_tensors(kind):
        if not isinstance(grad, list | tuple):
            raise RuntimeError(f"For {what}, expected the gradient of {argument.name!r} to be a list of gradients but got {type(grad)}")
        if len(grad) != len(need):
            raise RuntimeError(f"For {what}, expected for {argument.name!r} {len(need)} gradients but got {len(grad)}")
        for i, g in enumerate(grad):
            if g is not None and not isinstance(g, Tensor):
                raise RuntimeError(f"For {what}, expected the gradients of {argument.name!r} to be None or Tensor, found {type(g)} at {i}")
        return list(grad)
    if grad is not None and not isinstance(grad, Tensor):
        raise RuntimeError(f"For {what}, expected the gradient of {argument.name!r} to be either None or a Tensor but got {type(grad)}")
    return grad


# -- making them ---------------------------------------------------------------------------------------------------------------------------


def parse_qualname(qualname: str) -> tuple[str, str]:
    """(namespace, name)"""
    namespace, separator, name = qualname.partition("::")
    if not separator or "::" in name:
        raise ValueError(
            f"Expected qualname to be of the form 'namespace::name', found {qualname!r}. The qualname passed has no namespace, or several"
        )
    if "." in name:
        raise ValueError(
            f"The torch.custom_ops APIs do not handle overloads, i.e. operator names with '.' in them. Please name {qualname!r} without"
        )
    return namespace, name


def validate_namespace(namespace: str) -> None:
    """ValueError if operators cannot be defined there."""
    if "." in namespace:
        raise ValueError(f'custom_op(..., ns="{namespace}"): expected ns to not contain any . (and be a valid variable name)')
    if namespace in RESERVED_NS:
        raise ValueError(f"custom_op(..., ns='{namespace}'): '{namespace}' is a reserved namespace, please choose something else. ")


def validate_schema(schema: FunctionSchema) -> None:
    """ValueError if these operators cannot be so."""
    if schema.is_mutable or not schema.returns or any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        raise ValueError(
            f"custom_op only supports functional operators (ops that do not mutate any inputs, do not return views of the inputs, and has at least one return). Got the following non-functional schema: {schema}"
        )
    if any(a.name == "self" for a in schema.arguments):
        raise ValueError(f"custom_op does not support arguments named 'self'. Please rename your argument. Got: {schema}")


def read_schema(name: str, text: str) -> FunctionSchema:
    """The schema of "name" and "(Tensor x) -> Tensor". AssertionError if it is none."""
    try:
        return parse(f"{name}{text}")
    except RuntimeError as problem:
        raise AssertionError(f"Invalid function schema: {name}{text}\n{problem}") from None


def make(qualname: str, text: str) -> CustomOp:
    """A new operator."""
    namespace, name = parse_qualname(qualname)
    validate_namespace(namespace)
    schema = read_schema(name, text)
    if any(a.name == "self" for a in schema.arguments):
        raise ValueError(f"custom_op does not support arguments named 'self'. Please rename your argument. Got: {schema}")
    validate_schema(schema)
    lib = Library(namespace, "FRAGMENT")
    lib.define(str(schema))
    made = CustomOp(lib, namespace, schema, name, get_op(qualname), _private_access=True)
    kernels.entry(made._opoverload).report = lambda device: _nothing(made, device)
    made._record()
    return made


def _nothing(op: CustomOp, device: str) -> NotImplementedError | None:
    if device == "Undefined":
        return NotImplementedError(
            f"{op._qualname}: there were no Tensor inputs: no Tensor inputs were given, which is not supported by this kind of operator"
        )
    if device == "Meta":
        return None
    kind = device.lower()
    return NotImplementedError(
        f"{op._qualname}: we could not find a kernel for a {kind} tensor: there is no {kind} impl registered. Use impl(...) to register one"
    )


def custom_op(qualname: str, func_or_schema: Callable | str | None = None) -> Any:
    """Define an operator, by a schema or by a function with annotations (which is not called); a decorator without either."""
    namespace, name = parse_qualname(qualname)
    validate_namespace(namespace)

    def of_function(function: Callable) -> Callable:
        if name != function.__name__:
            raise ValueError(
                f"custom_op(qualname='{qualname}', ...): expected the function to have name '{name}' but got '{function.__name__}'"
            )
        make(qualname, infer_schema(function, mutates_args=()))
        return function

    if func_or_schema is None:
        return of_function
    if isinstance(func_or_schema, str):
        make(qualname, func_or_schema)
        return _without_function
    return of_function(func_or_schema)


def _without_function(function: Callable) -> Callable:
    """What a schema given as a text decorates: a function that says nothing more."""
    return function


def custom_op_of_impl(qualname: str, manual_schema: str | None = None) -> Callable:
    """torch._custom_op.impl.custom_op: a decorator that gives the CustomOp."""

    def of_function(function: Callable) -> CustomOp:
        namespace, name = parse_qualname(qualname)
        validate_namespace(namespace)
        if not inspect.isfunction(function):
            raise ValueError(f"custom_op(...)(func): Expected `func` to be a Python function, got: {type(function)}")
        if name != function.__name__:
            raise ValueError(
                f"custom_op(qualname='{qualname}', ...)(func): expected `func` to have name '{name}' but got '{function.__name__}'"
            )
        text = infer_schema(function, mutates_args=()) if manual_schema is None else manual_schema
        schema = read_schema(name, text)
        validate_schema(schema)
        if manual_schema is not None:
            validate_function_matches_schema(schema, function)
        return make(qualname, text)

    return of_function


def validate_function_matches_schema(schema: FunctionSchema, function: Callable) -> None:
    """ValueError if a function does not take what a schema says."""
    signature = inspect.signature(function)
    kinds = inspect.Parameter
    found: dict[bool, list[str]] = {True: [], False: []}
    for parameter in signature.parameters.values():
        if parameter.kind not in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY):
            raise ValueError(
                f"custom_op(..., manual_schema)(func): positional-only args, varargs and varkwargs are not supported. Please rewrite `func`: {signature}"
            )
        if parameter.default is not kinds.empty:
            raise ValueError(
                f"custom_op(..., manual_schema)(func): `func` cannot have default arguments. Got func with signature {signature}"
            )
        found[parameter.kind is kinds.KEYWORD_ONLY].append(parameter.name)
    wanted = {flag: [a.name for a in schema.arguments if a.kwarg_only is flag] for flag in (True, False)}
    if found != wanted:
        raise ValueError(
            f"custom_op(..., manual_schema)(func): When passing in manual_schema, we expect `func`'s signature to match it. Got {signature} and {schema}"
        )


def found_or_made(qualname: str) -> CustomOp:
    """The CustomOp of a name; of an operator that was defined otherwise, a new one."""
    if qualname in global_registry:
        return global_registry[qualname]
    overload = get_op(qualname)
    namespace, name = parse_qualname(qualname)
    return CustomOp(Library(namespace, "FRAGMENT"), namespace, overload._schema, name, overload, _private_access=True)


def impl(qualname: str, *, device_types: str | Iterable[str] = ("cpu", "cuda"), func: Callable | None = None) -> Any:
    """What runs on these devices; a decorator without a function."""
    register = found_or_made(qualname).impl(device_types)
    return register if func is None else register(func)


def impl_abstract(qualname: str, *, func: Callable | None = None) -> Any:
    """What results look like without data."""
    from flambeau.library.registering import register_fake

    return register_fake(qualname, func, _stacklevel=2)


def impl_save_for_backward(qualname: str, *, func: Callable | None = None) -> Any:
    """What is kept for backward, of (inputs, output)."""
    register = found_or_made(qualname).impl_save_for_backward()
    return register if func is None else register(func)


def impl_backward(qualname: str, output_differentiability: Any = None, *, func: Callable | None = None) -> Any:
    """backward(ctx, saved, *grads) -> {argument: gradient}"""
    register = found_or_made(qualname).impl_backward(output_differentiability)
    return register if func is None else register(func)


def _destroy(qualname: str) -> None:
    """Take an operator away."""
    found_or_made(qualname)._destroy()
