"""The functions of torch.library that speak of an operator by its name, by its OpOverload, or by its CustomOpDef.

Where no library is given, what they register stays for ever; with `lib=`, as long as the library does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from flambeau.library import autograd, fakes, kernels, vmapping
from flambeau.library.autocasting import autocast_kernel
from flambeau.library.custom_op import CustomOpDef, opdef_of
from flambeau.library.keys import of_device
from flambeau.library.libraries import Library, lookup
from flambeau.operators.overloads import OpOverload
from flambeau.operators.schema_types import ListType, OptionalType, Type

Op = Any  # a name, an OpOverload, or a CustomOpDef
_kept: list[Library] = []  # libraries that nobody else holds


def _name_of(op: Op, what: str) -> str:
    if isinstance(op, CustomOpDef):
        return op._qualname
    if isinstance(op, OpOverload):
        return op.name()
    if isinstance(op, str):
        return op
    raise ValueError(
        f"{what}({op!r}): got unexpected type for op: {type(op)}. An operator is its name, an OpOverload, or what custom_op gave"
    )


def _library(name: str, lib: Library | None, kind: str = "FRAGMENT") -> Library:
    """The library given, or one of the operator's namespace that stays."""
    if lib is not None:
        return lib
    made = Library(name.partition("::")[0], kind)
    _kept.append(made)
    return made


def _overload(name: str) -> OpOverload:
    found = lookup(name)
    if found is None:
        namespace, _, short = name.partition("::")
        raise AttributeError(
            f"'_OpNamespace' '{namespace}' object has no attribute '{short}': define the operator before something is registered for it"
        )
    return found


def define(qualname: Any, schema: Any = None, *, lib: Library | None = None, tags: Any = (), alias_analysis: str = "") -> Any:
    """Define an operator: define("shop::double", "(Tensor x) -> Tensor"). The older define(lib, "double(Tensor x) -> Tensor") is a decorator of what
    implements it everywhere."""
    if isinstance(qualname, Library):
        name = qualname.define(schema, alias_analysis, tags=tags)

        def implement(function: Callable) -> Callable:
            qualname.impl(name, function)
            return function

        return implement
    if not isinstance(qualname, str):
        raise ValueError(f"define(qualname, schema): expected qualname to be instance of str, got {type(qualname)}")
    namespace, separator, name = qualname.rpartition("::")
    if not separator:
        raise ValueError(
            f"Expected `qualname` to be of the form 'namespace::name', but got {qualname!r}. The qualname passed has no namespace"
        )
    if not isinstance(schema, str) or not schema.lstrip().startswith("("):
        raise ValueError(f'define(qualname, schema, ...): expected schema to look like e.g. "(Tensor x) -> Tensor" but got "{schema}"')
    return _library(f"{namespace}::{name}", lib).define(name + schema, alias_analysis="", tags=tags)


def impl(qualname: Any, types: Any, func: Any = None, *, lib: Library | None = None) -> Any:
    """Implement an operator for devices ("cpu", ["cpu", "cuda"], or "default" for all); for dispatch keys too, with `lib`. Without the function, a
    decorator. The older impl(lib, name, key) is one as well."""
    if isinstance(qualname, Library):
        return _impl_of_library(qualname, types, "" if func is None else func)
    keys = _keys(types, lib is not None)

    def register(function: Callable) -> Callable:
        where = _library(qualname, lib)
        for key in keys:
            where.impl(qualname, function, key)
        return function

    return register if func is None else _nothing(register(func))


def _nothing(_: Any) -> None:
    """What a function returns that was not used as a decorator."""


def _impl_of_library(lib: Library, name: Any, key: str) -> Callable:
    def register(function: Callable) -> Callable:
        lib.impl(name, function, key)
        return function

    return register


def _keys(types: str | Iterable[str], keys_too: bool) -> list[str]:
    from flambeau.library.keys import DispatchKey

    found = set()
    for kind in [types] if isinstance(types, str) else types:
        if keys_too and kind in DispatchKey.__members__:
            found.add(kind)
        else:
            found.add("CompositeExplicitAutograd" if kind == "default" else of_device(kind))
    return sorted(found)


def register_kernel(
    op: Op, device_types: str | Iterable[str] | None, func: Callable | None = None, /, *, lib: Library | None = None
) -> Any:
    """Implement an operator for devices, or for all if None."""
    custom = opdef_of(op)
    if custom is not None:
        return custom.register_kernel(device_types, func)
    name = _name_of(op, "register_kernel")
    return impl(name, "default" if device_types is None else device_types, func, lib=lib)


def register_fake(
    op: Op, func: Callable | None = None, /, *, lib: Library | None = None, _stacklevel: int = 1, allow_override: bool = True
) -> Any:  # fmt: skip
    """Say what an operator's results look like without data; without the function, a decorator."""
    name = _name_of(op, "register_fake")

    def register(function: Callable) -> Callable:
        custom = opdef_of(op)
        if custom is not None and lib is None:
            custom.register_fake(function)
        else:
            _library(name, lib)._register_fake(name, function, allow_override=allow_override)
        return function

    return register if func is None else register(func)


def impl_abstract(qualname: str, func: Callable | None = None, *, lib: Library | None = None, _stacklevel: int = 1) -> Any:
    """The old name of `register_fake`."""
    return register_fake(qualname, func, lib=lib, _stacklevel=_stacklevel + 1)


def register_autograd(op: Op, backward: Callable, /, *, setup_context: Callable | None = None, lib: Library | None = None) -> None:
    """Give the derivative: backward(ctx, *grads) -> a gradient for each argument; setup_context(ctx, inputs, output) saves for it."""
    custom = opdef_of(op)
    if custom is not None:
        return custom.register_autograd(backward, setup_context=setup_context)
    name = _name_of(op, "register_autograd")
    overload = _overload(name)
    schema = overload._schema
    if not is_functional(overload):
        raise RuntimeError(
            f"Cannot register autograd formula for non-functional operator {overload} with schema {schema}. Please create a functional operator and register "
            "an autograd formula for that."
        )
    _refuse_named_tensors(overload, "register_autograd")
    entry = kernels.entry(overload)
    entry.autograd = autograd.Info(backward, setup_context)
    where = _library(name, lib)
    where.impl(name, autograd.kernel(overload, entry.autograd, lambda: entry.mapped), "Autograd")
    where._undo.append(lambda: setattr(entry, "autograd", None))
    return None


def register_vmap(op: Op, func: Callable | None = None, /, *, lib: Library | None = None) -> Any:
    """Give what vmap does: func(info, in_dims, *args, **kwargs) -> (results, out_dims); without the function, a decorator."""
    custom = opdef_of(op)
    if custom is not None:
        return custom.register_vmap(func)
    name = _name_of(op, "register_vmap")
    overload = _overload(name)
    _refuse_named_tensors(overload, "register_vmap")

    def register(function: Callable) -> Callable:
        entry = kernels.entry(overload)
        entry.mapped = function
        where = _library(name, lib)
        where.impl(name, vmapping.kernel(entry, function), "FuncTorchBatched")
        where._undo.append(lambda: setattr(entry, "mapped", None))
        return function

    return register if func is None else register(func)


def register_torch_dispatch(op: Op, torch_dispatch_class: type, func: Callable | None = None, /, *, lib: Library | None = None) -> Any:
    """Say what an operator does where this class or mode with __torch_dispatch__ meets it: func(mode or class, func, types, args, kwargs)."""
    custom = opdef_of(op)
    if custom is not None:
        return custom.register_torch_dispatch(torch_dispatch_class, func)
    name = _name_of(op, "register_torch_dispatch")

    def register(function: Callable) -> Callable:
        _library(name, lib)._register_torch_dispatch_rule(name, torch_dispatch_class, function)
        return function

    return register if func is None else register(func)


def register_autocast(op: Op, device_type: str, cast_inputs: Any, /, *, lib: Library | None = None) -> Any:
    """Cast an operator's floating-point arguments to this dtype, inside autocast regions of the device."""
    custom = opdef_of(op)
    if custom is not None:
        return custom.register_autocast(device_type, cast_inputs)
    name = _name_of(op, "register_autocast")
    key, kernel = autocast_kernel(_overload(name), device_type, cast_inputs)
    _library(name, lib).impl(name, kernel, key)
    return kernel


def get_ctx() -> fakes.FakeImplCtx:
    """What a fake implementation asks for a size that is in the data: get_ctx().new_dynamic_size()."""
    return fakes.current()


def get_kernel(op: Op, dispatch_key: Any) -> SafeKernelFunction:
    """What runs for an operator and a key now; it can be called when something else was registered since."""
    name = _name_of(op, "get_kernel")
    overload = lookup(name)
    if overload is None:
        raise RuntimeError(f"operator {name} does not exist")
    from flambeau.library.keys import named

    key = named(dispatch_key)
    entry = kernels.registered.get(overload)
    found = (
        None if entry is None else entry.for_autograd(key.removeprefix("Autograd")) if key.startswith("Autograd") else entry.for_device(key)
    )
    if found is None and not (overload.namespace == "aten" and kernels.has(overload, key)):
        raise RuntimeError(f"no kernel for {key} for {name}")
    return SafeKernelFunction(overload, found)


class SafeKernelFunction:
    """A kernel that was looked up: call_boxed(keys, *args, **kwargs) runs it, as long as who registered it is there."""

    def __init__(self, overload: OpOverload, kernel: kernels.Kernel | None):
        self._overload, self._kernel = overload, kernel

    def call_boxed(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Run it."""
        if self._kernel is None:
            from flambeau.library import aten

            return aten.run(self._overload, args, kwargs)
        return self._kernel(keys.keys, args, kwargs)

    def __repr__(self) -> str:
        return f"SafeKernelFunction(debug='{'Flambeau' if self._kernel is None else self._kernel.where}')"


# -- questions about schemas ---------------------------------------------------------------------------------------------------------------


def is_tensors(kind: Type) -> bool:
    """Whether an argument of this type is a tensor, a list of tensors, or either or None."""
    while isinstance(kind, OptionalType | ListType):
        kind = kind.element
    return kind.kind() == "TensorType"


def is_functional(overload: OpOverload) -> bool:
    """Whether an operator only makes new results: it writes to nothing, returns something, and no result is a view."""
    schema = overload._schema
    return not schema.is_mutable and bool(schema.returns) and not any(r.alias_info is not None and not r.is_write for r in schema.returns)


def _refuse_named_tensors(overload: OpOverload, what: str) -> None:
    if any(a.kwarg_only and is_tensors(a.type) for a in overload._schema.arguments):
        raise NotImplementedError(
            f"{what} with kwarg-only Tensor args. In the original definition of the op, please make your tensors not kwarg-only."
        )
