"""What an element is: the dtypes, how they combine, and their limits.

A `dtype` knows its NumPy counterpart and its category (bool < integer < float < complex). PyTorch's promotion has two parts:
`promote_types` is the lattice over dtypes, `result_type` adds the rule that tensors with dimensions outrank 0-d tensors, which
outrank Python numbers, unless the lower rank brings a higher category.

>>> promote_types(float16, bfloat16)
torch.float32
"""

from __future__ import annotations

import builtins
from typing import Any

import ml_dtypes
import numpy as np

from flambeau import changes

QUANTIZED, BOOL, INTEGER, FLOAT, COMPLEX = range(-1, 4)


class dtype:
    """The type of a tensor's elements. Instances are singletons: compare with `is` or `==`."""

    __slots__ = ("_aliases", "category", "is_complex", "is_floating_point", "is_signed", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy_type, category: int, aliases: tuple[str, ...] = ()):
        self.name = name
        self.numpy = np.dtype(numpy_type)
        self.category = category
        self.itemsize = self.numpy.itemsize
        self.is_floating_point = category == FLOAT
        self.is_complex = category == COMPLEX
        self.is_signed = category >= FLOAT or (category == INTEGER and self.numpy.kind == "i")
        self._aliases = aliases

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name  # pickled as the global flambeau.dtypes.<name>

    def to_complex(self) -> dtype:
        """The complex dtype with parts of this precision. (No tensor can have that of float16, complex32: `complex_of` is what is computed.)"""
        if not (self.is_complex or self in (float16, bfloat16, float32, float64)):
            raise RuntimeError(f"Unknown Complex ScalarType for {in_messages(self)}: complex numbers are pairs of floats")
        return complex32 if self is float16 else complex_of(self)

    @property
    def abbr(self) -> str:
        """A short name, such as "f32": the first letter of the kind, and the number of bits."""
        name = "bool8" if self.name == "bool" else "b8x1" if self.name == "bits8" else "b16x1" if self.name == "bits16" else self.name
        for long, short in _SHORT.items():
            if name.startswith(long):
                return short + name.removeprefix(long).replace("_", "")
        return name

    def to_real(self) -> dtype:
        """The dtype of the real and imaginary parts."""
        return {"complex32": float16, "complex64": float32, "complex128": float64}.get(self.name, self)


class quantized(dtype):
    """The dtype of integers that stand for floats, by a scale and a zero point: only `quantized_tensor.py` makes tensors of it."""

    __slots__ = ("integers",)

    def __init__(self, name: str, integers):
        self.name, self.integers, self.category, self._aliases = name, np.dtype(integers), QUANTIZED, ()
        self.itemsize = self.integers.itemsize
        self.is_floating_point = self.is_complex = False

    @property
    def is_signed(self):
        """RuntimeError: the integers may have a sign, and what they stand for always has."""
        raise RuntimeError(f"is_signed is not supported for quantized dtypes, found {self}")

    @property
    def numpy(self):
        """None: the integers alone do not say what they mean."""
        refuse_unmade(self)


class float8(dtype):
    """The dtype of floats that are stored, moved and converted, and not computed with (float8.py)."""

    __slots__ = ("limits",)

    def __init__(self, name: str, limits: tuple[float, float, float, float]):
        super().__init__(name, getattr(ml_dtypes, name), FLOAT)
        self.limits = limits  # smallest and largest number, step above 1, smallest normal number
        self.is_signed = limits[0] < 0


class named(dtype):
    """A dtype that programs name, in tables of file formats and in checks, and that no tensor has: there are no loops over such elements."""

    __slots__ = ()

    def __init__(self, name: str, category: int = FLOAT, itemsize: int = 1):
        self.name, self.category, self.itemsize, self._aliases = name, category, itemsize, ()
        self.is_floating_point, self.is_complex = category == FLOAT, category == COMPLEX

    @property
    def is_signed(self):
        """Whether its numbers may be below zero. RuntimeError for quantized numbers: the integers may have a sign, and what they stand for always has."""
        if self.category == QUANTIZED:
            raise RuntimeError(f"is_signed is not supported for quantized dtypes, found {self}")
        return not self.name.startswith("uint")

    @property
    def numpy(self):
        """None: what would make a tensor asks for it, and is told."""
        refuse_unmade(self)


_SHORT = {"bfloat": "bf", "float": "f", "complex": "c", "uint": "u", "int": "i", "bool": "b", "bits": "b"}


def refuse_unmade(given) -> None:
    """NotImplementedError for a dtype that tensors cannot simply be made of, and how they are made."""
    if isinstance(given, quantized):
        how = f"torch.quantize_per_tensor(x, scale, zero_point, {given})"
        raise NotImplementedError(f"tensors of {given} have a scale and a zero point, and are made by {how}")
    if isinstance(given, named):
        floats = "torch.complex64" if given.is_complex else "torch.bfloat16, or torch.quantize_per_tensor"
        instead = "torch.uint8, with several numbers packed into a byte" if given.category in (INTEGER, QUANTIZED) else floats
        raise NotImplementedError(f"there are no tensors of {given} in Flambeau yet. Try {instead}")


float64 = dtype("float64", np.float64, FLOAT, ("double",))
float32 = dtype("float32", np.float32, FLOAT, ("float",))
float16 = dtype("float16", np.float16, FLOAT, ("half",))
bfloat16 = dtype("bfloat16", ml_dtypes.bfloat16, FLOAT)
complex64 = dtype("complex64", np.complex64, COMPLEX, ("cfloat",))
complex128 = dtype("complex128", np.complex128, COMPLEX, ("cdouble",))
int8 = dtype("int8", np.int8, INTEGER)
int16 = dtype("int16", np.int16, INTEGER, ("short",))
int32 = dtype("int32", np.int32, INTEGER, ("int",))
int64 = dtype("int64", np.int64, INTEGER, ("long",))
uint8 = dtype("uint8", np.uint8, INTEGER)
uint16 = dtype("uint16", np.uint16, INTEGER)
uint32 = dtype("uint32", np.uint32, INTEGER)
uint64 = dtype("uint64", np.uint64, INTEGER)
bool = dtype("bool", np.bool_, BOOL)
qint8, quint8, qint32 = quantized("qint8", np.int8), quantized("quint8", np.uint8), quantized("qint32", np.int32)
float8_e4m3fn = float8("float8_e4m3fn", (-448.0, 448.0, 0.125, 2.0**-6))
float8_e4m3fnuz = float8("float8_e4m3fnuz", (-240.0, 240.0, 0.125, 2.0**-7))
float8_e5m2 = float8("float8_e5m2", (-57344.0, 57344.0, 0.25, 2.0**-14))
float8_e5m2fnuz = float8("float8_e5m2fnuz", (-57344.0, 57344.0, 0.125, 2.0**-15))
float8_e8m0fnu = float8("float8_e8m0fnu", (2.0**-127, 2.0**127, 1.0, 2.0**-127))
FLOAT8 = (float8_e4m3fn, float8_e4m3fnuz, float8_e5m2, float8_e5m2fnuz, float8_e8m0fnu)
float4_e2m1fn_x2, complex32 = named("float4_e2m1fn_x2"), named("complex32", category=COMPLEX, itemsize=4)
# Integers of fewer bits than a byte, for libraries that pack them into bytes themselves and say what they packed.
int1, int2, int3, int4, int5, int6, int7 = [named(f"int{bits}", INTEGER) for bits in range(1, 8)]
uint1, uint2, uint3, uint4, uint5, uint6, uint7 = [named(f"uint{bits}", INTEGER) for bits in range(1, 8)]
OF_BITS = (int1, int2, int3, int4, int5, int6, int7, uint1, uint2, uint3, uint4, uint5, uint6, uint7)
quint4x2, quint2x4 = named("quint4x2", QUANTIZED), named("quint2x4", QUANTIZED)

ALL: tuple[dtype, ...] = (
    float64, float32, float16, bfloat16, complex64, complex128,
    int8, int16, int32, int64, uint8, uint16, uint32, uint64, bool,
)  # fmt: skip
BY_NAME: dict[str, dtype] = {alias: d for d in ALL for alias in (d.name, *d._aliases)}
OF_NUMPY: dict[np.dtype, dtype] = {d.numpy: d for d in (*ALL, *FLOAT8)}
# NumPy's C long is a type of its own on some platforms, equal in width to int64 or int32.
for _spelling in (np.longlong, np.ulonglong, np.intc, np.uintc, np.int_, np.uint):
    OF_NUMPY.setdefault(np.dtype(_spelling), BY_NAME[np.dtype(_spelling).name])


def of_array(array) -> dtype:
    """The dtype of a NumPy (or CuPy) array; of a tensor, its own."""
    try:
        return OF_NUMPY[array.dtype]
    except KeyError:
        if isinstance(array.dtype, dtype):
            return array.dtype
        known = ", ".join(d.name for d in ALL)
        raise TypeError(f"can't convert np.ndarray of {array.dtype}: the supported types are {known}. Try array.astype(...)") from None


# -- promotion ---------------------------------------------------------------------------------------------------


def _promote(a: dtype, b: dtype) -> dtype:
    if a is b:
        return a
    if QUANTIZED in (a.category, b.category):
        raise RuntimeError(f"promoteTypes with quantized numbers is not handled: {a} and {b}. Try x.dequantize()")
    if isinstance(a, named | float8) or isinstance(b, named | float8):
        refuse_unmade(next((d for d in (a, b) if d is complex32), None))
        kind = "Float8 Types" if a.is_floating_point or b.is_floating_point else "integers of less than a byte"
        raise RuntimeError(f"Promotion for {kind} is not supported, attempted to promote {a} and {b}")
    if a.category != b.category:
        low, high = (a, b) if a.category < b.category else (b, a)
        if high.category == COMPLEX and low is float64:
            return complex128
        return high
    if a.category == FLOAT and {a, b} == {float16, bfloat16}:
        return float32
    if a.category != INTEGER or a.is_signed == b.is_signed:
        return a if a.itemsize >= b.itemsize else b
    signed, unsigned = (a, b) if a.is_signed else (b, a)
    if unsigned is not uint8:
        raise RuntimeError(
            f"Promotion for {a.name} and {b.name} is not supported: no integer type holds both. Try .to(...) on one of them."
        )
    return int16 if signed is int8 else signed


_TABLE: dict[tuple[dtype, dtype], dtype] = {}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """The smallest dtype that holds the values of both, by PyTorch's lattice."""
    found = _TABLE.get((type1, type2))
    if found is None:
        found = _TABLE[type1, type2] = _promote(asked(type1), asked(type2))
    return found


_default = float32


def get_default_dtype() -> dtype:
    """The dtype of floats that nobody gave a dtype: float32 unless `set_default_dtype` said otherwise."""
    return _default


def set_default_dtype(d: dtype, /) -> None:
    """Change the dtype that Python floats become. Only floating dtypes are accepted."""
    global _default
    if not isinstance(d, dtype):
        raise TypeError(f"invalid dtype object: expected a torch.dtype such as torch.float64, found {d!r}")
    if not d.is_floating_point:
        raise TypeError(f"the default dtype must be floating point, found {d}")
    refuse_unmade(d)
    if isinstance(d, float8):
        raise TypeError(f"couldn't find storage object for {d}: it cannot be the default dtype, nothing computes with it")
    _default = d
    changes.announce()


def complex_of(d: dtype) -> dtype:
    """The complex dtype that a real one becomes beside complex numbers."""
    return d if d.is_complex else complex128 if d is float64 else complex64


def of_scalar(value) -> dtype:
    """The dtype a Python number becomes on its own."""
    kind = type(value)
    if kind is float:
        return _default
    if kind is int:
        return int64
    if isinstance(value, builtins.bool | np.bool_):
        return bool
    if isinstance(value, int | np.integer):
        return int64
    if isinstance(value, float | np.floating):
        return _default
    if isinstance(value, complex | np.complexfloating):
        return complex_of(_default)
    raise TypeError(f"expected a number, found {type(value).__name__}")


def combine(dimensioned: list[dtype], zero_dim: list[dtype], scalars: list[dtype]) -> dtype:
    """PyTorch's three ranks: a lower rank changes the result only if its category is higher."""
    result: dtype | None = None
    for rank in (dimensioned, zero_dim, scalars):
        if not rank:
            continue
        own = rank[0]
        for other in rank[1:]:
            own = promote_types(own, other)
        if result is None:
            result = own
        elif own.category > result.category:
            if own.category == COMPLEX and result.is_floating_point:
                own = complex_of(result)
            result = promote_types(result, own)
    if result is None:
        raise ValueError("result_type needs at least one operand")
    return result


PYTHON_TYPES = {builtins.float: float64, builtins.int: int64, builtins.bool: bool, builtins.complex: complex128}


def asked(d: Any) -> Any:
    """What a dtype= argument stands for: Python's own number types are dtypes, too; all else is returned as it is."""
    return PYTHON_TYPES.get(d, d) if isinstance(d, builtins.type) else d


def can_cast(from_: dtype, to: dtype, /) -> builtins.bool:
    """Whether an in-place result of dtype `from_` may be stored in `to`: never from a higher category to a lower."""
    return asked(from_).category <= asked(to).category


# -- limits ------------------------------------------------------------------------------------------------------


def in_messages(d: dtype) -> str:
    """What PyTorch's messages call a dtype."""
    return _LONG_AGO.get(d.name, d.name)


_LONG_AGO = {
    "float32": "Float", "float64": "Double", "float16": "Half", "bfloat16": "BFloat16", "int64": "Long", "int32": "Int",
    "int16": "Short", "int8": "Char", "uint8": "Byte", "bool": "Bool", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip


class _Limits:
    def __eq__(self, other):
        return type(other) is type(self) and self._dtype is other._dtype

    def __hash__(self):
        return hash((type(self).__name__, self._dtype.name))


class finfo(_Limits):
    """Limits of a floating dtype: `eps`, `max`, `min`, `tiny`, `smallest_normal`, `resolution`, `bits`."""

    def __init__(self, type: dtype | None = None):
        self._dtype = d = _default if type is None else asked(type)
        if not isinstance(d, dtype) or d.category < FLOAT:
            raise TypeError(f"torch.finfo() describes floating point types, and torch.iinfo() others such as '{d}'")
        if isinstance(d, float8):
            self.bits, self.resolution, self.dtype = 8, 1.0, d.name
            self.min, self.max, self.eps, self.tiny = d.limits
            self.smallest_normal = self.tiny
            return
        info = ml_dtypes.finfo(d.to_real().numpy)
        self.bits = d.to_real().itemsize * 8
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.tiny)
        self.resolution = float(f"1e-{info.precision}")  # as many decimal digits as always survive
        self.dtype = d.to_real().name

    def __repr__(self) -> str:
        names = ("resolution", "min", "max", "eps", "smallest_normal", "tiny")
        return f"finfo({', '.join(f'{n}={getattr(self, n):g}' for n in names)}, dtype={self.dtype})"


class iinfo(_Limits):
    """Limits of an integer dtype: `min`, `max`, `bits`."""

    def __init__(self, type: dtype):
        self._dtype = type = asked(type)
        if not isinstance(type, dtype) or type.category != INTEGER:
            raise TypeError(f"torch.iinfo() describes integer types, and torch.finfo() others such as '{type}'")
        info = np.iinfo(type.numpy)
        self.bits, self.min, self.max, self.dtype = info.bits, int(info.min), int(info.max), type.name

    def __repr__(self) -> str:
        return f"iinfo(min={self.min:g}, max={self.max:g}, dtype={self.dtype})"


# -- what else is but a name ----------------------------------------------------------------------------------------------------


class Constant:
    """One of a few values of PyTorch's that have nothing but a name. It is copied and pickled as the global of that name."""

    __slots__ = ("name",)

    def __init__(self, name: str):
        self.name = name

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self):
        return self.name
