"""Fake tensors: they say that they are on a device and have no data. What would come out of a computation is known without the computation.

A FakeTensor shows the geometry of a tensor on the meta device and the device that it pretends to be on. An operation on fakes is the operation
on those meta tensors. Inside a FakeTensorMode functions that make tensors make fakes, too. What depends on values (`x.item()`, `x.nonzero()`)
cannot be known, and raises.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from typing import Any

from flambeau import devices, modes
from flambeau.dispatch import stack
from flambeau.dispatch.mode import TorchDispatchMode
from flambeau.dispatch.proxy import Proxy
from flambeau.dispatch.wrapper import make_wrapper_subclass
from flambeau.eager.arguments import tensors_in
from flambeau.interpreters import stack as interpreters
from flambeau.interpreters.by_name import disabled_torch_function
from flambeau.kernels import arrays
from flambeau.tensor import Tensor, wrap
from flambeau.tensor.making.factories import empty_strided

META = devices.meta
VALUES = frozenset(("aten::_local_scalar_dense", "aten::equal", "aten::item", "aten::is_nonzero"))
SHAPES_OF_VALUES = frozenset(
    "aten::nonzero aten::masked_select aten::_unique aten::_unique2 aten::unique_dim aten::unique_consecutive aten::repeat_interleave.Tensor "
    "aten::bincount aten::histogram".split()
)


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that has no fake: sparse, say."""


class DynamicOutputShapeException(RuntimeError):
    """The shape of a result depends on values, which fakes have not."""

    def __init__(self, func: Any):
        self.func = func
        super().__init__(func)


class DataDependentOutputException(RuntimeError):
    """A result is a number that depends on values, which fakes have not."""

    def __init__(self, func: Any):
        self.func = func
        super().__init__(func)


class FakeTensorDeviceMismatchError(RuntimeError):
    """Two fakes are on two devices."""


class UnsupportedOperatorException(RuntimeError):
    """An operation of which nothing is known without data."""

    def __init__(self, func: Any):
        self.func = func
        super().__init__(func)


class FakeTensor(Tensor):
    """A tensor without data that says it is on `fake_device`."""

    fake_mode: FakeTensorMode
    meta: Tensor  # on the meta device; fakes that are views of one another have metas that are
    constant: Tensor | None = None

    __torch_function__ = classmethod(disabled_torch_function)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, fake_mode: FakeTensorMode, elem: Tensor, device: Any, *, constant: Tensor | None = None, **_) -> FakeTensor:
        if elem.device.type != "meta":
            raise RuntimeError(f"a FakeTensor shows the geometry of a tensor on the meta device, found one on {elem.device}")
        place = devices.device(device)
        if place.type == "cuda" and place.index is None:
            place = devices.device("cuda", 0)
        made: Any = make_wrapper_subclass(
            cls, elem.shape, elem.stride(), elem.storage_offset(), dtype=elem.dtype, device=place, requires_grad=elem.requires_grad
        )
        made.fake_mode, made.meta, made.constant, made.fake_device = (
            fake_mode,
            elem.detach() if elem.requires_grad else elem,
            constant,
            place,
        )
        made._storage = made.meta._shared_storage()
        return made

    def __init__(self, *args: Any, **kwargs: Any):
        pass

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        """A fake that looks like `t`."""
        return fake_mode.from_tensor(t)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if any(not issubclass(kind, FakeTensor) and kind is not Tensor for kind in types):
            return NotImplemented
        fakes = [t for t in tensors_in((args, kwargs)) if isinstance(t, FakeTensor)]
        mode = fakes[0].fake_mode
        for other in fakes:
            if other.fake_mode is not mode:
                raise AssertionError(f"Mixing fake modes NYI: {func} of tensors of two FakeTensorModes")
        return mode.dispatch(func, args, kwargs)

    def __repr__(self, *, tensor_contents=None) -> str:
        more = f", dtype={self.dtype}" if self.dtype is not _default() else ""
        more += (
            f", grad_fn=<{type(self.grad_fn).__name__}>"
            if self.grad_fn is not None
            else ", requires_grad=True"
            if self.requires_grad
            else ""
        )
        return f"{type(self).__name__}(..., device='{self.device}', size={tuple(self.shape)}{more})"

    def _follow(self) -> None:
        """Look as the meta tensor does, which an operation has just changed."""
        array = self.meta._array
        self._array = Proxy(
            self, tuple(array.shape), array.dtype, arrays.element_strides(array), self.meta.storage_offset(), self.fake_device, self.layout
        )
        self._storage = self.meta._shared_storage()

    def tolist(self) -> Any:
        """DataDependentOutputException: there are no values."""
        return [self[i].tolist() for i in range(len(self))] if self.dim() else self.item()


def _default() -> Any:
    from flambeau import dtypes

    return dtypes.get_default_dtype()


class FakeTensorMode(TorchDispatchMode):
    """Within it, functions that make tensors make fakes, and operations on fakes compute nothing.

    >>> import flambeau as torch
    >>> with FakeTensorMode():
    ...     torch.nn.functional.linear(torch.ones(3, 4, device="cuda"), torch.ones(5, 4, device="cuda"))
    FakeTensor(..., device='cuda:0', size=(3, 5))
    """

    def __init__(self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None, **_):
        if shape_env is not None:
            raise NotImplementedError("FakeTensorMode(shape_env=...): sizes of fakes are numbers here, not symbols. Leave shape_env out")
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.shape_env, self.static_shapes = None, True
        self.known: dict[int, tuple[weakref.ref, Any]] = {}  # by id of a tensor or storage: it, and what stands for it

    def is_our_fake(self, t: Any) -> bool:
        """Whether something is a fake of this mode."""
        return isinstance(t, FakeTensor) and t.fake_mode is self

    def from_tensor(self, tensor: Tensor, *, static_shapes: bool | None = None, source: Any = None, **_) -> FakeTensor:
        """A fake that looks like a tensor; the same one for the same tensor. Views of one storage become views of one storage."""
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI: the tensor is a fake of another FakeTensorMode")
            return tensor
        if tensor.layout is not _strided():
            raise UnsupportedFakeTensorException(f"a tensor with layout {tensor.layout} has no fake here. Try .to_dense()")
        found = self._found(tensor)
        return self._remember(tensor, self._made(tensor)) if found is None else found

    def _found(self, thing: Any) -> Any:
        """What stands for a tensor, or a storage, that was met before."""
        kept = self.known.get(id(thing))
        return kept[1] if kept is not None and kept[0]() is thing else None

    def _remember(self, thing: Any, fake: Any) -> Any:
        key = id(thing)
        self.known[key] = weakref.ref(thing, lambda _: self.known.pop(key, None)), fake
        return fake

    def _made(self, tensor: Tensor) -> FakeTensor:
        from flambeau.tensor.making.parameter import Parameter

        with stack.not_dispatching(), modes.no_grad():
            storage = tensor._shared_storage()
            base = self._found(storage)
            if base is None:
                extent = storage.nbytes() // max(tensor.element_size(), 1)
                base = self._remember(storage, empty_strided((extent,), (1,), dtype=tensor.dtype, device="meta"))
            if base.dtype is not tensor.dtype:
                base = (
                    base.view(tensor.dtype)
                    if base.element_size() == tensor.element_size()
                    else empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")
                )
            looks = base.as_strided(tuple(tensor.shape), tensor.stride(), tensor.storage_offset())
            looks._base, looks._view_mode = None, None
        made = FakeTensor(self, looks, tensor.device)
        made._needs = tensor.requires_grad
        if isinstance(tensor, Parameter):
            made.__dict__["_is_param"] = True
        return made

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any(not issubclass(kind, FakeTensor) for kind in types):
            return NotImplemented
        return self.dispatch(func, args, kwargs or {})

    def dispatch(self, func: Any, args: tuple, kwargs: dict) -> Any:
        """An operation on fakes."""
        name = func.name()
        given = list(tensors_in((args, kwargs)))
        fakes = [t for t in given if isinstance(t, FakeTensor)]
        device = self._device(func, fakes, kwargs)
        if name in VALUES:
            if given and not fakes:
                return _really(func, args, kwargs)
            raise DataDependentOutputException(func)
        if name in SHAPES_OF_VALUES:
            raise DynamicOutputShapeException(func)
        if name == "aten::_to_copy" and kwargs.get("device") is not None:
            device = devices.device(kwargs["device"])
        metas = {id(t): self._meta(func, t) for t in given}
        plain_args, plain_kwargs = _replaced(args, metas), _replaced(kwargs, metas)
        if kwargs.get("device") is not None:
            plain_kwargs = plain_kwargs | {"device": META}
        try:
            found = _really(func, plain_args, plain_kwargs)
        except NotImplementedError as problem:
            raise UnsupportedOperatorException(func) from problem
        for fake in fakes:
            if fake.meta._array.shape != fake._array.shape or fake.meta._array.strides != fake._array.strides:
                fake._follow()
        back = {id(metas[id(t)]): t for t in given}
        return self._faked(found, back, device)

    def _device(self, func: Any, fakes: list[FakeTensor], kwargs: dict) -> devices.device:
        """Where the results of an operation are."""
        if kwargs.get("device") is not None:
            return devices.device(kwargs["device"])
        places = {t.device for t in fakes if t.dim()} or {t.device for t in fakes}
        if len(places) > 1 and "copy_" not in func.name():
            first, second, *_ = dict.fromkeys(str(t.device) for t in fakes)
            raise FakeTensorDeviceMismatchError(
                f"Expected all tensors to be on the same device, but found at least two devices, {first} and {second}! ({func}). Try .to('{first}')"
            )
        return next(iter(places), devices.cpu) if len(places) < 2 else fakes[0].device

    def _meta(self, func: Any, tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor.meta
        if not self.allow_non_fake_inputs and tensor.dim():
            raise AssertionError(
                f"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with 'allow_non_fake_inputs'. Found in {func}: "
                f"a tensor of shape {tuple(tensor.shape)} on {tensor.device}"
            )
        return self.from_tensor(tensor).meta

    def _faked(self, found: Any, back: dict[int, Tensor], device: devices.device) -> Any:
        """Results as fakes; what was given is given back."""
        if isinstance(found, Tensor):
            return back[id(found)] if id(found) in back else FakeTensor(self, found, device) if found.is_meta else self.from_tensor(found)
        if isinstance(found, tuple | list):
            items = [self._faked(item, back, device) for item in found]
            return type(found)(*items) if hasattr(found, "_fields") else type(found)(items)
        return found


def _strided() -> Any:
    from flambeau.tensor.layouts import strided

    return strided


def _really(func: Any, args: tuple, kwargs: dict) -> Any:
    with stack.not_dispatching(), modes.no_grad():
        found = func(*args, **kwargs)
        for view in tensors_in(found):
            if view._view_mode == "no_grad":
                view._view_mode = None
        return found


def _replaced(value: Any, by_id: dict[int, Tensor]) -> Any:
    if isinstance(value, Tensor):
        return by_id[id(value)]
    if isinstance(value, dict):
        return {name: _replaced(v, by_id) for name, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)([_replaced(v, by_id) for v in value])
    return value


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[FakeTensorMode | None]:
    """Take a FakeTensorMode that is active off the stack for a while."""
    active = next((mode for mode in reversed(stack.current_modes()) if isinstance(mode, FakeTensorMode)), None)
    with interpreters.kept(lambda entry: not isinstance(getattr(entry, "mode", None), FakeTensorMode)):
        yield active


def is_fake(x: Any) -> bool:
    """Whether a tensor pretends to be on a device, or is made of tensors that do."""
    if isinstance(x, FakeTensor):
        return True
    parts = getattr(type(x), "__tensor_flatten__", None)
    return isinstance(x, Tensor) and parts is not None and all(is_fake(getattr(x, name)) for name in parts(x)[0])


def maybe_get_fake_mode(t: Any) -> FakeTensorMode | None:
    """The mode of a fake; None of anything else."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


_ = wrap
