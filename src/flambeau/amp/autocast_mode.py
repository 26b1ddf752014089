"""`autocast`: within it, products run in half precision and what is delicate in float32.

with torch.autocast("cpu", dtype=torch.bfloat16):
    loss = F.cross_entropy(model(x), y)     # model's weights stay float32, and so do their gradients
loss.backward()                             # outside: every derivative runs in the dtype its operation ran in
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flambeau import devices, dtypes
from flambeau.eager.autocast import casting
from flambeau.tensor import Tensor
from flambeau.tensor.memory.host_memory import cuda_is_available

__all__ = ["autocast", "autocast_decorator", "custom_bwd", "custom_fwd", "is_autocast_available"]

HALVES = (dtypes.bfloat16, dtypes.float16)
ELSEWHERE = ("hpu", "ipu", "maia", "mps", "mtia", "privateuseone", "xla", "xpu")  # PyTorch casts there; nothing runs there here


class autocast:
    """A region of mixed precision, as a context manager or a decorator.

    device_type    "cpu" or "cuda": operations on tensors of other devices are not touched
    dtype          bfloat16 or float16; None: bfloat16 on the CPU, float16 on CUDA, or what `set_autocast_dtype` has set
    enabled        False: a region without autocast, inside one with it
    cache_enabled  whether a float32 parameter that is used several times is cast once; None: as outside

    Regions nest, the innermost counts; each thread has its own.

    >>> with autocast("cpu"):
    ...     torch.mm(torch.ones(1, 1), torch.ones(1, 1))
    tensor([[1.]], dtype=torch.bfloat16)
    """

    def __init__(self, device_type: str, dtype: dtypes.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None):
        self.device = _device_type(device_type)
        self.fast_dtype = get_autocast_dtype(device_type) if dtype is None else dtype
        if not is_autocast_available(device_type):
            raise RuntimeError(f"User specified an unsupported autocast device_type '{device_type}'")
        self._cache_enabled = casting().cache_enabled if cache_enabled is None else cache_enabled
        self._enabled = enabled and self._possible()

    def _possible(self) -> bool:
        """Whether the device is there and has the dtype; a warning if not, for scripts that run on machines with and without a GPU."""
        if self.device != "cpu" and not (self.device == "cuda" and cuda_is_available()):
            warnings.warn(f"{self.device.upper()} is not available. Disabling autocast.", stacklevel=4)
            return False
        if self.fast_dtype not in HALVES:
            named = self.device.upper()
            words = f"autocast on {named}: the target dtype is not supported. Disabling autocast."
            allowed = ", ".join(map(str, HALVES))
            warnings.warn(f"{words}\n{named} Autocast only supports dtypes of {allowed} currently.", stacklevel=4)
            return False
        return True

    def __enter__(self) -> autocast:
        self.before = (casting().enabled.get(self.device, False), casting().dtype.get(self.device, dtypes.float16), casting().cache_enabled)
        self._set(self._enabled, self.fast_dtype, self._cache_enabled)
        casting().nesting += 1
        return self

    def __exit__(self, *exc) -> None:
        autocast_decrement_nesting()
        if casting().nesting == 0:
            clear_autocast_cache()
        self._set(*self.before)

    def _set(self, enabled: bool, dtype: dtypes.dtype, cache_enabled: bool) -> None:
        casting().enable(self.device, enabled)
        casting().dtype[self.device], casting().cache_enabled = dtype, cache_enabled

    def __call__(self, func: Callable) -> Callable:
        return autocast_decorator(self, func)


def autocast_decorator(autocast_instance: autocast, func: Callable) -> Callable:
    """`func`, each call of which is a region."""
    if not callable(func):
        raise TypeError(
            f"autocast()(func) requires a callable, but got {type(func).__name__}. Try `with autocast(...):` around the computation"
        )

    @functools.wraps(func)
    def decorated(*args, **kwargs):
        # A region of its own for every call, so that a function may call itself.
        region = object.__new__(type(autocast_instance))
        region.__dict__.update(autocast_instance.__dict__)
        with region:
            return func(*args, **kwargs)

    return decorated


def _enter_autocast(*args) -> autocast:
    """Begin a region that `_exit_autocast` ends."""
    return autocast(*args).__enter__()


def _exit_autocast(mode: autocast) -> None:
    mode.__exit__(None, None, None)


# -- settings ------------------------------------------------------------------------------------------------------


def _device_type(device_type: Any) -> str:
    if not isinstance(device_type, str):
        raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
    if device_type not in ELSEWHERE:
        devices.device(device_type)  # raises for what is no device
    return device_type


def is_autocast_available(device_type: str) -> bool:
    """Whether there are lists for this type of device."""
    return _device_type(device_type) in ("cpu", "cuda", *ELSEWHERE)


def is_autocast_enabled(device_type: str = "cuda") -> bool:
    """Whether operations on this type of device are cast here and now."""
    _check(device_type)
    return casting().enabled.get(device_type, False)


def set_autocast_enabled(device_type: str | bool, enabled: bool | None = None) -> None:
    """Switch autocast on or off for a type of device (alone, `enabled` is about CUDA), without a region: use `autocast` if you can."""
    if enabled is None:
        device_type, enabled = "cuda", device_type  # type: ignore[assignment]
    if not isinstance(enabled, bool):
        raise TypeError(f"set_autocast_enabled(): argument 'enabled' must be bool, not {type(enabled).__name__}")
    casting().enable(_check(device_type), enabled)


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """The dtype a region takes if it names none."""
    if _device_type(device_type) == "meta":
        raise RuntimeError("unsupported scalarType: there is no autocast for device type 'meta'")
    return casting().dtype.get(device_type, dtypes.float16)


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Set the dtype of regions that name none."""
    if not isinstance(dtype, dtypes.dtype):
        raise TypeError(f"set_autocast_dtype(): argument 'dtype' must be torch.dtype, found {type(dtype).__name__}")
    casting().dtype[_check(device_type)] = dtype


def _check(device_type: Any) -> str:
    if not is_autocast_available(device_type):
        raise RuntimeError(f"unknown device type for autocast: {device_type!r}. It is there for 'cpu' and 'cuda'")
    return device_type


def is_autocast_cache_enabled() -> bool:
    """Whether casts of parameters are remembered until the outermost region ends."""
    return casting().cache_enabled


def set_autocast_cache_enabled(enabled: bool) -> None:
    """Switch the cache on or off."""
    casting().cache_enabled = bool(enabled)


def clear_autocast_cache() -> None:
    """Forget the casts of parameters."""
    casting().cache.clear()


def autocast_increment_nesting() -> int:
    """Note that a region begins; the number of those that are open."""
    casting().nesting += 1
    return casting().nesting


def autocast_decrement_nesting() -> int:
    """Note that a region ends; the number of those that are open."""
    casting().nesting -= 1
    return casting().nesting


def _old(name: str, device_type: str, function: Callable, new: str) -> Callable:
    """A setting under its name from when each device had a function of its own."""

    def old(*args):
        words = f"torch.{name}() is deprecated. Please use torch.{new}('{device_type}') instead."
        warnings.warn(words, DeprecationWarning, stacklevel=2)
        return function(device_type, *args)

    old.__name__ = old.__qualname__ = name
    old.__doc__ = f"{new}('{device_type}', ...)"
    return old


OLD = {}
for _kind, _type in (("cpu", "cpu"), ("gpu", "cuda"), ("ipu", "ipu"), ("xla", "xla")):
    for _new, _function in (
        ("is_autocast_enabled", is_autocast_enabled), ("set_autocast_enabled", set_autocast_enabled),
        ("get_autocast_dtype", get_autocast_dtype), ("set_autocast_dtype", set_autocast_dtype),
    ):  # fmt: skip
        _name = _new.replace("autocast_", f"autocast_{_kind}_")
        if _kind != "gpu" or _new.endswith("dtype"):
            OLD[_name] = _old(_name, _type, _function, _new)
globals().update(OLD)

# -- custom functions ------------------------------------------------------------------------------------------------


def custom_fwd(fwd: Callable | None = None, *, device_type: str, cast_inputs: dtypes.dtype | None = None) -> Callable:
    """Decorates `forward` of an `autograd.Function`: its backward, decorated with `custom_bwd`, will run as forward does.

    cast_inputs  inside a region, floating arguments are cast to this dtype, and forward runs with autocast switched off
    """
    _device_type(device_type)
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def decorated(*args, **kwargs):
        ctx = args[0]
        ctx._dtype, active = get_autocast_dtype(device_type), is_autocast_enabled(device_type)
        ctx._fwd_used_autocast = active and cast_inputs is None
        if cast_inputs is None or not active:
            return fwd(*args, **kwargs)
        with autocast(device_type, enabled=False):
            return fwd(*_cast(args, device_type, cast_inputs), **_cast(kwargs, device_type, cast_inputs))

    return decorated


def custom_bwd(bwd: Callable | None = None, *, device_type: str) -> Callable:
    """Decorates `backward` of an `autograd.Function` whose forward is decorated with `custom_fwd`: both run in the same mode and dtype."""
    _device_type(device_type)
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def decorated(*args, **kwargs):
        with autocast(device_type, enabled=args[0]._fwd_used_autocast, dtype=args[0]._dtype):
            return bwd(*args, **kwargs)

    return decorated


def _cast(value: Any, device_type: str, dtype: dtypes.dtype) -> Any:
    """`value` with the floating tensors of the device in it cast, float64 excepted."""
    if isinstance(value, Tensor):
        eligible = value.is_floating_point() and value.device.type == device_type and value.dtype is not dtypes.float64
        return value.to(dtype) if eligible else value
    if isinstance(value, (str, bytes)):
        return value
    if isinstance(value, Mapping):
        return {_cast(k, device_type, dtype): _cast(v, device_type, dtype) for k, v in value.items()}
    if isinstance(value, Iterable) and type(value).__module__ != "numpy":
        items = [_cast(v, device_type, dtype) for v in value]
        return type(value)(items) if isinstance(value, (list, tuple)) else items
    return value
