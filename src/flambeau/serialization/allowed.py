"""What `load(weights_only=True)` may name in a file: PyTorch's list, and what the program adds with `add_safe_globals`.

Nothing on PyTorch's list runs code that the file chooses: classes of plain data, dtypes, and functions that put a tensor together. Each of
these is called through a function here that looks at the arguments first.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import lru_cache
from math import prod
from pickle import UnpicklingError
from types import BuiltinMethodType, MethodType
from typing import Any

from flambeau import devices, dtypes
from flambeau.serialization import names
from flambeau.serialization.saving import _get_layout
from flambeau.tensor import Size, Tensor
from flambeau.tensor.layouts import layout, sparse_coo
from flambeau.tensor.making import pickling
from flambeau.tensor.making.legacy import TENSOR_TYPES
from flambeau.tensor.making.parameter import Parameter, _rebuild_parameter, _rebuild_parameter_with_state
from flambeau.tensor.memory.typed_storage import LEGACY_STORAGES, TypedStorage
from flambeau.tensor.memory.untyped_storage import UntypedStorage
from flambeau.tensor.quantized import qschemes
from flambeau.tensor.quantized.script_object import CELL, LINEAR, ScriptObject

# -- what the program allows ---------------------------------------------------------------------------------------

_added: dict[str, Any] = {}
SafeGlobal = Callable | tuple[Callable, str]


def add_safe_globals(safe_globals: list[SafeGlobal]) -> None:
    """Allow classes and functions in files that are loaded with weights_only=True, from now on.

    An entry is the object, or a pair (object, "the.name it has in files"). Only add what may run with arguments a stranger chose.
    """
    _added.update(_entry(given) for given in safe_globals)


def get_safe_globals() -> list[SafeGlobal]:
    """What was added with `add_safe_globals`."""
    return [value if _name(value) == name else (value, name) for name, value in _added.items()]


def clear_safe_globals() -> None:
    """Forget what was added with `add_safe_globals`."""
    _added.clear()


class safe_globals:
    """`add_safe_globals` for the duration of a block."""

    def __init__(self, safe_globals: list[SafeGlobal]):
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self.before = dict(_added)
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc: Any) -> None:
        _added.clear()
        _added.update(self.before)


def _entry(given: SafeGlobal) -> tuple[str, Any]:
    if not isinstance(given, tuple):
        return _name(given), given
    if len(given) != 2 or not isinstance(given[1], str):
        raise ValueError(f"Expected a class, a function, or a tuple of it and its full path (a string), got {given!r}")
    return given[1], given[0]


def _name(value: Any) -> str:
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = getattr(value, "__module__", None)
    if not name:
        raise TypeError(f"expected a class or a function, found {type(value).__name__} {value!r}")
    return f"{names.name_in_files(module, name) if names.is_ours(module or '') else module}.{name}"


def added() -> dict[str, Any]:
    """What the program allows, by the names in files."""
    return _added


QSCHEMES = [scheme for scheme in vars(qschemes).values() if isinstance(scheme, qschemes.qscheme)]
BY_CHANNEL = (qschemes.per_channel_affine, qschemes.per_channel_affine_float_qparams)

# -- what PyTorch allows -------------------------------------------------------------------------------------------


@lru_cache(None)
def by_default() -> dict[str, Any]:
    """Everything a file may name without being asked for, by its name there."""
    found: dict[str, Any] = {
        "_codecs.encode": codecs.encode,
        "builtins.bytearray": bytearray,
        "builtins.bytes": bytes,  # b"" is pickled as a call of it. PyTorch refuses this one
        "builtins.complex": complex,
        "builtins.set": set,
        "collections.Counter": Counter,
        "collections.OrderedDict": OrderedDict,
        "torch.Size": Size,
        "torch.Tensor": Tensor,
        "torch._tensor._rebuild_from_type_v2": pickling._rebuild_from_type_v2,
        "torch._utils._rebuild_meta_tensor_no_storage": pickling._rebuild_meta_tensor_no_storage,
        "torch._utils._rebuild_parameter": _rebuild_parameter,
        "torch._utils._rebuild_parameter_with_state": _rebuild_parameter_with_state,
        "torch._utils._rebuild_sparse_tensor": pickling._rebuild_sparse_tensor,
        "torch._utils._rebuild_tensor": pickling._rebuild_tensor,
        "torch._utils._rebuild_tensor_v2": pickling._rebuild_tensor_v2,
        "torch._utils._rebuild_tensor_v3": pickling._rebuild_tensor_v3,
        "torch._utils._rebuild_qtensor": pickling._rebuild_qtensor,
        "torch._utils._rebuild_wrapper_subclass": pickling._rebuild_wrapper_subclass,
        "torch.ScriptObject": ScriptObject,  # which PyTorch refuses; here it is packed weights and nothing else
        "torch.device": devices.device,
        "torch.nn.parameter.Parameter": Parameter,
        "torch.serialization._get_layout": _get_layout,
        "torch.storage.TypedStorage": TypedStorage,
        "torch.storage.UntypedStorage": UntypedStorage,
    }
    found |= {
        f"torch.{d.name}": d for d in (*dtypes.ALL, *dtypes.FLOAT8, *dtypes.OF_BITS, dtypes.qint8, dtypes.quint8, dtypes.qint32, *QSCHEMES)
    }
    for name, kind in LEGACY_STORAGES.items():
        found[f"torch.{name}"] = kind
        if not isinstance(kind._dtype, dtypes.quantized):
            found[f"torch.cuda.{name}"] = kind
    found |= {f"{kind.__module__}.{name}": kind for name, kind in TENSOR_TYPES.items()}
    return found


# PyTorch allows these too; Flambeau has no nested tensors, and no dtypes of less than a byte.
LACKING = re.compile(
    r"torch\.(q?u?int\d\w*|bits\w+|float4_\w+|complex32|QU?Int\w+|(cuda\.)?sparse\.\w+Tensor|cuda\.\w+Tensor"
    r"|_utils\._rebuild_(nested_tensor|wrapper_subclass|device_tensor_from_\w+))"
)
MOST_PARTS = 1000  # of a key
MOST_ALIKE = 100  # keys of one container with the same hash. Numbers have at most about 60, and Python's strings are salted

# -- how each may be called ----------------------------------------------------------------------------------------


class Caller:
    """Calls what is allowed, with arguments that were looked at.

    A pickle can name one large object many times over and have it copied each time: 1 MB of file would become gigabytes. Honest files
    copy hardly anything twice, so what is copied is paid from a budget in proportion to the pickle itself. And it can say that one number
    is a tensor of a million (stride 0), and have something computed on that: such work is paid from a budget in proportion to the file.
    """

    def __init__(self, pickle_size: int, file_size: int):
        self.budget = 4 * pickle_size + 1000
        self.work = 16 * file_size + (1 << 20)  # bytes of elements
        self.alike: dict[int, tuple[Any, Counter]] = {}  # keys by hash, in each container (kept with it, so that its id stays its own)

    def spend(self, amount: int) -> None:
        self.budget -= amount
        if self.budget < 0:
            raise UnpicklingError("the file has one object copied over and over, as no honest file does")

    def compute(self, *tensors: Any) -> None:
        """Pay for something that looks at every element of these."""
        for tensor in tensors:
            if isinstance(tensor, Tensor):
                self.work -= prod(tensor.shape) * 8  # bytes: on the way small numbers may become wide ones
            if self.work < 0:
                found = f"a tensor of shape {tuple(tensor.shape)} looked at, far more elements than it holds itself"
                raise UnpicklingError(f"the file wants {found}")

    def call(self, function: Any, args: Any) -> Any:
        """function(*args), if that is allowed."""
        if not isinstance(args, tuple):
            raise UnpicklingError(f"arguments come in a tuple, found a {type(args).__name__}")
        check = _CALLS.get(function) if _hashable(function) else None
        if check is not None:
            return check(self, args)
        if any(function is value or (isinstance(value, METHODS) and function == value) for value in _added.values()):
            return function(*args)
        raise UnpicklingError(f"Trying to call {_described(function)}, which is not among the functions a file may call")

    def make(self, kind: Any, args: Any, keywords: dict | None = None) -> Any:
        """kind.__new__(kind, *args), if that is allowed."""
        if not isinstance(args, tuple):
            raise UnpicklingError(f"arguments come in a tuple, found a {type(args).__name__}")
        if any(kind is value for value in _added.values()):
            return kind.__new__(kind, *args, **(keywords or {}))
        if (kind is OrderedDict or kind is Counter or kind is set) and not args and not keywords:
            return kind()
        if kind is ScriptObject and not args and not keywords:
            return kind()
        if kind is Parameter:
            return self.call(Parameter, args)
        raise UnpicklingError(f"Trying to make an object of {_described(kind)}, which is not among the classes a file may name")

    def build(self, instance: Any, state: Any) -> None:
        """Give an object its state, as __setstate__ would."""
        if type(instance) is OrderedDict or type(instance) is Counter:
            vars(instance).update(self._attributes(state))
        elif type(instance) is Parameter or type(instance) is Tensor:
            _set_tensor_state(instance, state)
        elif type(instance) is ScriptObject:
            _set_packed(self, instance, state)
        elif any(type(instance) is value for value in _added.values()):
            _set_state(instance, state)
        else:
            raise UnpicklingError(f"Can only build state of objects whose class is allowed, not {_described(type(instance))}")

    def _attributes(self, state: Any) -> dict[str, Any]:
        if not isinstance(state, dict) or not all(isinstance(name, str) for name in state):
            raise UnpicklingError("attributes of an object come in a dictionary of names")
        self.spend(len(state))
        return state

    # -- tensors

    def tensor_state(self, state: Any) -> Any:
        """What the user attached to a tensor; never what the tensor keeps for itself."""
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if part is not None:
                forbidden = pickling.OWN & self._attributes(part).keys()
                if forbidden or any(name.startswith("__") for name in part):
                    raise UnpicklingError(f"a file may not set {sorted(forbidden) or 'special attributes'} of a tensor")
        return state

    # -- keys

    def members(self, found: Any) -> list:
        """What a set will be made of, if that is quick."""
        alike: Counter = Counter()
        return [self._checked(member, alike) for member in found]

    def key(self, key: Any, container: Any) -> Any:
        """What will be a key or a member of a container, if that is quick."""
        if type(key) is str:
            return key
        if id(container) not in self.alike:
            self.alike[id(container)] = (container, Counter())
        return self._checked(key, self.alike[id(container)][1])

    def _checked(self, key: Any, alike: Counter) -> Any:
        """The key of a dictionary or the member of a set, if looking it up is quick.

        Hashing a tuple hashes its members: nested tuples of which each holds the last one twice would take for ever, very deep ones
        would overflow the stack. And anyone can write down tuples that all have one hash, which are compared one by one.
        """
        if type(key) is str or type(key) is bytes:
            return key
        parts, waiting = 0, [key]
        while waiting:
            part = waiting.pop()
            kind = type(part)
            if kind is int and not -(1 << 64) < part < 1 << 64:  # multiples of 2^61 - 1 all have the same hash
                raise UnpicklingError("an integer of more than 64 bits is no key")
            if isinstance(part, (tuple, frozenset)):
                parts += len(part)
                if parts > MOST_PARTS:
                    raise UnpicklingError(f"a key of a dictionary has more than {MOST_PARTS} parts")
                self.spend(len(part))
                waiting.extend(part)
            elif kind is complex or kind.__hash__ is None:
                raise UnpicklingError(f"a {kind.__name__} is no key of a dictionary")
        alike[hash(key)] += 1
        if alike[hash(key)] > MOST_ALIKE:
            raise UnpicklingError("keys of one dictionary all have the same hash, as no honest ones do")
        return key


def _hashable(value: Any) -> bool:
    return isinstance(value, type) or callable(value)


METHODS = (MethodType, BuiltinMethodType)  # of a class: a new object every time one is asked for


def _described(value: Any) -> str:
    name = getattr(value, "__qualname__", None)
    if isinstance(value, METHODS) and isinstance(value.__self__, type):
        return f"{value.__name__} of {_described(value.__self__)}"
    return f"{value.__module__}.{name}" if name else f"a {type(value).__name__}"


def _set_state(instance: Any, state: Any) -> None:
    """As pickle does it, for classes the program allowed."""
    setstate = getattr(instance, "__setstate__", None)
    if setstate is not None:
        setstate(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    if attributes:
        vars(instance).update(attributes)
    for name, value in (slots or {}).items():
        setattr(instance, name, value)


def _set_tensor_state(instance: Tensor, state: Any) -> None:
    """The state of tensors in files of PyTorch before 0.4: (storage, offset, size, stride), or with the tensor itself in front."""
    _need(isinstance(state, tuple) and len(state) in (3, 4, 5), "the state of a tensor is a tuple of three to five")
    if len(state) == 4:
        _window(state, 4)
        _need(state[0].dtype is instance.dtype, "a tensor and its storage are of one dtype")
        pickling.rebuild(
            state[0], state[1], state[2], state[3], instance.dtype
        )  # which looks whether it is inside of the storage: set_ would make room
    elif len(state) == 5:
        _need(isinstance(state[0], Tensor), "the state of a tensor begins with a tensor")
    instance.__setstate__(state)


def _set_packed(caller: Caller, instance: ScriptObject, state: Any) -> None:
    """Packed weights: (weight, bias) of a layer, or two such objects with what belongs to them."""
    _need(isinstance(state, tuple) and len(state) == 2 and isinstance(state[0], tuple), "packed weights have a tuple and a name")
    content, name = state
    if name == LINEAR:
        fits = len(content) == 2 and isinstance(content[0], Tensor) and isinstance(content[1], Tensor | None)
    else:
        fits = name == CELL and len(content) == 5 and isinstance(content[0], str) and all(isinstance(part, list) for part in content[1:])
    _need(fits, "packed weights are (weight, bias), or a kind and four lists")
    caller.compute(*content)
    instance.__setstate__(state)


def _qtensor(caller: Caller, args: tuple) -> Tensor:
    _window(args, 7)
    meaning = args[4]
    _need(isinstance(args[0].dtype, dtypes.quantized) and isinstance(meaning, tuple), "a quantized tensor has a storage of such a dtype")
    by_tensor = len(meaning) == 3 and meaning[0] is qschemes.per_tensor_affine and type(meaning[1]) is float and type(meaning[2]) is int
    by_channel = len(meaning) == 4 and meaning[0] in BY_CHANNEL and all(isinstance(t, Tensor) and t.dim() == 1 for t in meaning[1:3])
    if by_channel:
        axis = meaning[3]
        by_channel = type(axis) is int and 0 <= axis < len(args[2]) and all(t.numel() == args[2][axis] for t in meaning[1:3])
    _need(by_tensor or by_channel, "a quantized tensor has a scale and a zero point, or those of its channels")
    caller.compute(*meaning)
    return pickling._rebuild_qtensor(*args[:7])


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise UnpicklingError(what)


def _ints(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and all(type(n) is int for n in value)


def _window(args: tuple, count: int) -> None:
    """The arguments that every function beginning with (storage, offset, size, stride) has."""
    _need(len(args) >= count, f"a tensor is made of at least {count} arguments, found {len(args)}")
    storage, offset, size, stride = args[:4]
    _need(isinstance(storage, TypedStorage), f"a tensor needs a storage, found {_described(type(storage))}")
    _need(type(offset) is int and offset >= 0, "the offset of a tensor is a number from 0 on")
    _need(_ints(size) and _ints(stride) and len(size) == len(stride) <= 64, "size and stride of a tensor are as many numbers, at most 64")


def _ordered_dict(caller: Caller, args: tuple) -> Any:
    _need(not args or (len(args) == 1 and isinstance(args[0], (list, dict))), "an OrderedDict is made of nothing, or of pairs")
    result: OrderedDict = OrderedDict()
    for pair in (args[0].items() if isinstance(args[0], dict) else args[0]) if args else ():
        _need(isinstance(pair, (list, tuple)) and len(pair) == 2, "an OrderedDict is made of pairs")
        caller.spend(2)
        result[caller.key(pair[0], result)] = pair[1]
    return result


def _counter(caller: Caller, args: tuple) -> Any:
    _need(not args or (len(args) == 1 and type(args[0]) is dict), "a Counter is made of a dictionary")
    caller.spend(len(args[0]) if args else 0)
    result: Counter = Counter()
    dict.update(result, args[0] if args else {})
    return result


def _set(caller: Caller, args: tuple) -> Any:
    _need(not args or (len(args) == 1 and type(args[0]) in (list, tuple)), "a set is made of a list")
    caller.spend(len(args[0]) if args else 0)
    return set(caller.members(args[0])) if args else set()


def _bytearray(caller: Caller, args: tuple) -> Any:
    if len(args) == 2:
        return bytearray(_encode(caller, args))
    _need(not args or (len(args) == 1 and type(args[0]) is bytes), "a bytearray is made of bytes")
    caller.spend(len(args[0]) if args else 0)
    return bytearray(*args)


def _bytes(caller: Caller, args: tuple) -> bytes:
    _need(not args, "bytes() is called without arguments")
    return b""


def _encode(caller: Caller, args: tuple) -> bytes:
    _need(
        len(args) == 2 and type(args[0]) is str is type(args[1]) and args[1] in ("latin1", "latin-1"), "bytes are made of a latin1 string"
    )
    caller.spend(len(args[0]))
    return args[0].encode("latin1")


def _complex(caller: Caller, args: tuple) -> complex:
    _need(len(args) == 2 and all(type(n) in (int, float) for n in args), "a complex number is made of two numbers")
    return complex(*args)


def _size(caller: Caller, args: tuple) -> Size:
    _need(len(args) == 1 and _ints(args[0]), "a Size is made of numbers")
    caller.spend(len(args[0]))
    return Size(args[0])


def _device(caller: Caller, args: tuple) -> devices.device:
    _need(
        1 <= len(args) <= 2 and type(args[0]) is str and all(n is None or type(n) is int for n in args[1:]),
        "a device is a name and an index",
    )
    return devices.device(*args)


def _layout(caller: Caller, args: tuple) -> layout:
    _need(len(args) == 1 and type(args[0]) is str, "a layout is a name")
    return _get_layout(args[0])


def _tensor(function: Callable, count: int, dtype_at: int | None = None) -> Callable:
    def check(caller: Caller, args: tuple) -> Tensor:
        _window(args, count)
        _need(len(args) <= count + 1, "too many arguments for a tensor")
        if count > 4:
            _need(type(args[4]) is bool, "whether a tensor requires a gradient is True or False")
        if dtype_at is not None:
            _need(isinstance(args[dtype_at], dtypes.dtype), "the dtype of a tensor is missing")
        if len(args) > count:
            _need(isinstance(args[count], dict), "the last argument of a tensor is a dictionary")
        return function(*args)

    return check


def _meta(caller: Caller, args: tuple) -> Tensor:
    _need(
        len(args) == 4 and isinstance(args[0], dtypes.dtype) and _ints(args[1]) and _ints(args[2]),
        "a meta tensor is a dtype, a size, a stride",
    )
    _need(len(args[1]) == len(args[2]) <= 64 and all(n >= 0 for n in (*args[1], *args[2])), "size and stride are numbers from 0 on")
    return pickling._rebuild_meta_tensor_no_storage(*args)


def _sparse(caller: Caller, args: tuple) -> Tensor:
    _need(
        len(args) == 2 and isinstance(args[0], layout) and isinstance(args[1], tuple), "a sparse tensor is made of a layout and its parts"
    )
    is_coo = args[0] is sparse_coo
    tensors, size = (args[1][:2], args[1][2:3]) if is_coo else (args[1][:3], args[1][3:4])
    _need(len(args[1]) in ((3, 4) if is_coo else (4,)), "a sparse tensor has indices, values and a size")
    _need(all(isinstance(t, Tensor) for t in tensors), "the indices and values of a sparse tensor are tensors")
    _need(all(t.dtype in (dtypes.int64, dtypes.int32) for t in tensors[:-1]), "the indices of a sparse tensor are of int64 or int32")
    _need(_ints(size[0]) and len(size[0]) <= 64 and all(n >= 0 for n in size[0]), "the size of a sparse tensor is numbers from 0 on")
    _need(len(args[1]) < 4 or not is_coo or args[1][3] is None or type(args[1][3]) is bool, "is_coalesced is True or False")
    caller.compute(*tensors)
    return pickling._rebuild_sparse_tensor(*args)


def _parameter(caller: Caller, args: tuple) -> Parameter:
    _need(1 <= len(args) <= 3 and isinstance(args[0], Tensor), "a Parameter is made of a tensor")
    return _rebuild_parameter(args[0], bool(args[1]) if len(args) > 1 else True, None)


def _parameter_with_state(caller: Caller, args: tuple) -> Parameter:
    _need(len(args) == 4 and isinstance(args[0], Tensor), "a Parameter is made of a tensor")
    return _rebuild_parameter_with_state(args[0], bool(args[1]), None, caller.tensor_state(args[3]))


def _is_tensor_class(kind: Any) -> bool:
    """Whether a file may name this class of tensors: one of ours, or one that was declared to be safe."""
    known = kind is Tensor or kind is Parameter or any(kind is value for value in _added.values())
    return isinstance(kind, type) and issubclass(kind, Tensor) and known


def _wrapper(caller: Caller, args: tuple) -> Tensor:
    _need(
        len(args) == 8 and _is_tensor_class(args[0]), "a tensor without memory is made of a class that a file may name, and what it shows"
    )
    _, dtype, size, stride, offset, arrangement, place, wants = args
    _need(
        isinstance(dtype, dtypes.dtype) and isinstance(arrangement, layout) and isinstance(place, devices.device),
        "a dtype, layout or device",
    )
    _need(_ints(size) and _ints(stride) and len(size) == len(stride) <= 64 and all(n >= 0 for n in size), "size and stride are numbers")
    _need(
        type(offset) is int and offset >= 0 and type(wants) is bool,
        "an offset is a number from 0 on; True or False says whether it requires grad",
    )
    return pickling._rebuild_wrapper_subclass(*args)


def _from_type(caller: Caller, args: tuple) -> Tensor:
    _need(len(args) == 4, "a tensor of another class is made of a function, the class, arguments and a state")
    function, kind, inner, state = args
    _need(_is_tensor_class(kind), f"{_described(kind)} is not a class of tensors that a file may name")
    _need(_hashable(function) and function in _REBUILDERS, f"{_described(function)} does not make tensors")
    if kind.__setstate__ is Tensor.__setstate__:
        caller.tensor_state(state)
    return pickling._rebuild_from_type_v2(lambda: caller.call(function, inner), kind, (), state)


_CALLS: dict[Any, Callable[[Caller, tuple], Any]] = {
    OrderedDict: _ordered_dict,
    Counter: _counter,
    set: _set,
    bytearray: _bytearray,
    bytes: _bytes,
    codecs.encode: _encode,
    complex: _complex,
    Size: _size,
    devices.device: _device,
    _get_layout: _layout,
    Parameter: _parameter,
    _rebuild_parameter: _parameter,
    _rebuild_parameter_with_state: _parameter_with_state,
    pickling._rebuild_tensor: _tensor(pickling._rebuild_tensor, 4),
    pickling._rebuild_tensor_v2: _tensor(pickling._rebuild_tensor_v2, 6),
    pickling._rebuild_tensor_v3: _tensor(pickling._rebuild_tensor_v3, 7, dtype_at=6),
    pickling._rebuild_meta_tensor_no_storage: _meta,
    pickling._rebuild_sparse_tensor: _sparse,
    pickling._rebuild_from_type_v2: _from_type,
    pickling._rebuild_qtensor: _qtensor,
    pickling._rebuild_wrapper_subclass: _wrapper,
}
_REBUILDERS = frozenset(function for function in _CALLS if getattr(function, "__module__", "") == pickling.__name__) - {
    pickling._rebuild_from_type_v2
}
