"""custom_op: an operator of a program's own, made of a Python function.

    @custom_op("shop::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.register_autograd(lambda ctx, grad: grad * 2)
    torch.ops.shop.double(x)

The function runs as it is, hidden from autograd: its derivative is the registered one, and backward without one says so. It may not return what it was
given: results have memory of their own.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from flambeau import devices
from flambeau.autograd.graph import increment_version
from flambeau.library import autograd, fakes, kernels, vmapping
from flambeau.library.autocasting import autocast_kernel
from flambeau.library.inference import infer_schema
from flambeau.library.keys import of_device
from flambeau.library.libraries import Library, get_op
from flambeau.operators.overloads import OpOverload
from flambeau.operators.tags import Tag
from flambeau.tensor import Tensor

__all__ = ["CustomOpDef", "custom_op", "opdef_of"]

log = logging.getLogger("torch._library.custom_ops")  # the name under which PyTorch's users know it
OPDEFS: dict[str, CustomOpDef] = {}


def custom_op(
    name: str, fn: Callable | None = None, /, *, mutates_args: str | Iterable[str], device_types: str | Iterable[str] | None = None,
    schema: str | None = None, tags: Any = None,
) -> Any:  # fmt: skip
    """Make an operator named "library::name" of a function; without the function, a decorator. Callable as torch.ops.library.name too.

    mutates_args  the names of arguments that the function writes to, or "unknown" where it may be any
    device_types  the devices that the function is for; all, if not said
    schema        what it takes and returns, where the annotations do not say so: "(Tensor x, float y) -> Tensor"
    """
    if name.count("::") != 1:
        raise ValueError(f"custom_op: expected a name such as 'library::operation', found {name!r}")

    def make(function: Callable) -> CustomOpDef:
        text = infer_schema(function, mutates_args=mutates_args) if schema is None else schema
        namespace, _, short = name.partition("::")
        made = CustomOpDef(namespace, short, text, function, tags)
        if schema is not None:
            _check_mutated(made, mutates_args, text)
        if device_types is not None:
            made._init_fn = None
            made.register_kernel(device_types, function)
        return made

    return make if fn is None else make(fn)


def _check_mutated(made: CustomOpDef, mutates_args: str | Iterable[str], text: str) -> None:
    found = {a.name for a in made._opoverload._schema.arguments if a.is_write}
    if mutates_args != "unknown" and found != set(mutates_args):
        made._lib._destroy()
        raise ValueError(
            f"Attempted to create a custom op with `mutates_args={mutates_args}` and `schema={text}. The schema suggests that the op mutates {found} which "
            "is different from what was provided to us in `mutates_args`. Please make these consistent."
        )


class CustomOpDef:
    """An operator made by `custom_op`."""

    def __init__(self, namespace: str, name: str, schema: str, fn: Callable, tags: Any = None):
        self._namespace, self._name, self._schema = namespace, name, schema
        self._tags: list[Tag] = [] if tags is None else [tags] if isinstance(tags, Tag) else list(tags)
        self._init_fn: Callable | None = fn
        self._fn_name = getattr(fn, "__name__", name)
        self._module = inspect.getmodule(fn)
        self._backend_fns: dict[str, Callable] = {}
        self._abstract_fn: Callable | None = None
        self._backward_fn: Callable | None = None
        self._setup_context_fn: Callable | None = None
        self._vmap_fn: Callable | None = None
        self._disabled_kernel: set[str] = set()
        self._effect: Any = None
        before = OPDEFS.pop(self._qualname, None)
        if before is not None:
            before._lib._destroy()
        self._lib: Library = Library(namespace, "FRAGMENT")
        self._define()
        OPDEFS[self._qualname] = self

    def _define(self) -> None:
        tags = [*self._tags, *([] if Tag.pt2_compliant_tag in self._tags else [Tag.pt2_compliant_tag])]
        self._lib.define(f"{self._name}{self._schema}", tags=tags)
        self._overload = get_op(self._qualname)
        entry = kernels.entry(self._opoverload)
        entry.custom = self
        schema = self._opoverload._schema
        tensors = [a for a in schema.arguments if "Tensor" in str(a.type)]
        if any(a.kwarg_only for a in tensors):
            self._lib._destroy()
            raise NotImplementedError(
                f"custom_op with kwarg-only Tensor args. Please make your tensors not kwarg-only. Got: {self._schema}"
            )
        if not tensors:
            self._lib.impl(self._name, self._select_device, "BackendSelect")
        self._lib.impl(self._name, self._run_default, "CompositeExplicitAutograd")
        self._set_autograd()
        if schema.is_mutable:
            self._lib.impl(self._name, self._bump_versions, "ADInplaceOrView", with_keyset=True)

    def _set_autograd(self) -> None:
        """The derivative by which the operator is recorded now."""
        entry = kernels.entry(self._opoverload)
        entry.autograd = autograd.Info(self._backward_fn, self._setup_context_fn)
        made = autograd.kernel(self._opoverload, entry.autograd, lambda: self._vmap_fn)
        recording = kernels.Kernel(made, False, "custom_op")
        entry.kernels["Autograd"] = [recording]
        entry.recording = None if autograd.is_symbolic_view(self._opoverload) else recording

    @property
    def _qualname(self) -> str:
        return f"{self._namespace}::{self._name}"

    @property
    def _opoverload(self) -> OpOverload:
        return self._overload

    def __repr__(self) -> str:
        return f"<CustomOpDef({self._qualname})>"

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        return self._overload(*args, **kwargs)

    # what runs

    def _run_default(self, *args: Any, **kwargs: Any) -> Any:
        """The function it was made of."""
        if self._init_fn is None:
            places = ", ".join(self._backend_fns)
            raise NotImplementedError(f"{self._qualname} was made for {places} only. Use register_kernel to add another device")
        return self._checked(self._init_fn, args, kwargs)

    def _kernel_for(self, device: str) -> Callable[..., Any]:
        def backend_impl(*args: Any, **kwargs: Any) -> Any:
            if device in self._disabled_kernel and self._init_fn is not None:
                return self._run_default(*args, **kwargs)
            return self._checked(self._backend_fns[device], args, kwargs)

        return backend_impl

    def _checked(self, function: Callable, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Call a function; RuntimeError if a result shares memory with an argument or another result."""
        result = function(*args, **kwargs)
        if any(a.alias_info is not None and not a.is_write for a in self._opoverload._schema.arguments):
            return result  # the schema says that it is a view
        taken = {_memory(t) for t in kernels.tensors_of((*args, *kwargs.values()))} - {None}
        for output in kernels.tensors_of(result if isinstance(result, tuple | list) else (result,)):
            where = _memory(output)
            if where is not None and where in taken:
                raise RuntimeError(
                    f"{self._name} (with implementation in {self._module}): The output of this custom operator (1) must not also be an input to this custom "
                    "operator and (2) may not alias any inputs to this custom operator or other returns. The most common way to trigger this error is "
                    "y = custom_op(x) where y and x are the same tensor. Return a clone (x.clone()), or write the operator so that it returns nothing"
                )
            taken.add(where)
        return result

    def _bump_versions(self, keys: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Below autograd: what is written to has another version afterwards."""
        with kernels.thread_passes("ADInplaceOrView"):
            result = self._opoverload(*args, **kwargs)
        positional, named = autograd.filled(self._opoverload._schema, args, kwargs)
        arguments = self._opoverload._schema.arguments
        values = (*positional, *named.values())
        for tensor in kernels.tensors_of([v for a, v in zip(arguments, values, strict=True) if a.is_write]):
            increment_version(tensor)
        return result

    def _select_device(self, *args: Any, **kwargs: Any) -> Any:
        """Where no tensor says for which device: the argument that is called so does."""
        positional, named = autograd.filled(self._opoverload._schema, args, kwargs)
        names = [a.name for a in self._opoverload._schema.arguments if not a.kwarg_only]
        bound = {**dict(zip(names, positional, strict=True)), **named}
        if "device" not in bound:
            return self._run_default(*args, **kwargs)
        kind = devices.device(bound["device"]).type
        if kind == "meta" and self._abstract_fn is not None:
            return self._abstract_fn(*args, **kwargs)
        if kind not in self._backend_fns and self._init_fn is None:
            raise RuntimeError(f"{self._name} does not have a kernel registered for {kind}. Please use register_kernel to do so.")
        return self._kernel_for(kind)(*args, **kwargs) if kind in self._backend_fns else self._run_default(*args, **kwargs)

    # what is registered

    def register_kernel(self, device_types: str | Iterable[str] | None, fn: Callable | None = None, /) -> Callable:
        """Give another function for tensors on these devices, or on all if None."""

        def keep(function: Callable) -> Callable:
            if device_types is None:
                self._init_fn = function
                return function
            self._check_device_argument()
            for kind in [device_types] if isinstance(device_types, str) else device_types:
                key = of_device(kind)
                if kind not in self._backend_fns:
                    self._lib.impl(self._name, self._kernel_for(kind), key)
                self._backend_fns[kind] = function
            return function

        return keep if fn is None else keep(fn)

    def _check_device_argument(self) -> None:
        arguments = self._opoverload._schema.arguments
        has_device = any(a.name == "device" and "Device" in str(a.type) for a in arguments)
        if not has_device and not any("Tensor" in str(a.type) for a in arguments):
            raise ValueError("Functions without tensor inputs are required to have a `device: torch.device` argument")

    def register_fake(self, fn: Callable, /, *, allow_override: bool = True) -> Callable:
        """Give the function that makes results without data, for tensors on the meta device."""
        self._abstract_fn = fn
        entry = kernels.entry(self._opoverload)
        entry.fake = fakes.FakeImpl(self._opoverload, fn, fakes.source_of(fn))
        return fn

    def register_autograd(self, backward: Callable, /, *, setup_context: Callable | None = None) -> None:
        """Give the derivative: backward(ctx, *grads) -> a gradient for each argument; setup_context(ctx, inputs, output) saves for it."""
        schema = self._opoverload._schema
        if schema.is_mutable:
            raise RuntimeError(
                f"Cannot register autograd formula for non-functional operator {self!r} with schema {schema}. Please create a functional operator and "
                "register an autograd formula for that."
            )
        self._backward_fn, self._setup_context_fn = backward, setup_context
        self._set_autograd()

    def register_vmap(self, func: Callable | None = None, /) -> Any:
        """Give what vmap does: func(info, in_dims, *args) -> (results, out_dims), where info has batch_size and randomness. Without one, samples
        are computed one by one. Without the function, a decorator."""

        def keep(function: Callable) -> Callable:
            self._vmap_fn = function
            entry = kernels.entry(self._opoverload)
            entry.mapped = function
            entry.kernels["FuncTorchBatched"] = [kernels.Kernel(vmapping.kernel(entry, function), False, "register_vmap")]
            return function

        return keep if func is None else keep(func)

    def register_torch_dispatch(self, torch_dispatch_class: type, fn: Callable | None = None, /) -> Any:
        """Give what the operator does where this class or mode with __torch_dispatch__ meets it: fn(mode or class, func, types, args, kwargs)."""

        def keep(function: Callable) -> Callable:
            kernels.entry(self._opoverload).dispatch_rules[torch_dispatch_class] = function
            return function

        return keep if fn is None else keep(fn)

    def register_autocast(self, device_type: str, cast_inputs: Any) -> Callable:
        """Cast floating-point arguments to this dtype, inside autocast regions of the device."""
        key, made = autocast_kernel(self._opoverload, device_type, cast_inputs)
        kernels.entry(self._opoverload).kernels[key] = [kernels.Kernel(made, False, "register_autocast")]
        return made

    def register_effect(self, effect: Any) -> None:
        """Say that calls have an effect besides their results, so that none may be left out or moved. None is, here."""
        self._effect = effect

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within it, the kernel that was registered for a device is used, or the function the operator was made of instead."""
        action = "enable" if enabled else "disable"
        before = device_type in self._disabled_kernel
        if device_type not in self._backend_fns:
            log.warning("Attempted to %s kernel for %s but no kernel was registered for this device type.", action, device_type)
        elif before is not enabled:
            log.warning("Attempted to %s kernel for %s but it is already %sd.", action, device_type, action)
        (self._disabled_kernel.discard if enabled else self._disabled_kernel.add)(device_type)
        try:
            yield
        finally:
            (self._disabled_kernel.add if before else self._disabled_kernel.discard)(device_type)


def _memory(tensor: Tensor) -> Any:
    """Which memory a tensor is in; None where it has none."""
    if not tensor.numel() or tensor.is_meta or hasattr(tensor._array, "level"):
        return None
    try:
        return tensor.untyped_storage().data_ptr()
    except (RuntimeError, NotImplementedError):
        return None


def opdef_of(op: Any) -> CustomOpDef | None:
    """The CustomOpDef of a name, an operator, or itself; None if it was not made by custom_op."""
    if isinstance(op, CustomOpDef):
        return op
    if isinstance(op, OpOverload):
        return OPDEFS.get(op.name().removesuffix(".default"))
    return OPDEFS.get(op) if isinstance(op, str) else None
