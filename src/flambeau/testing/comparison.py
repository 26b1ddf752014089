"""assert_close: two tensors, numbers, or containers of them are equal up to rounding.

Elements agree where |actual - expected| <= atol + rtol |expected|. The tolerances follow from the dtype unless they are given.
"""

from __future__ import annotations

import cmath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flambeau import dtypes
from flambeau.tensor import Tensor
from flambeau.tensor.layouts import sparse_bsr, sparse_coo, sparse_csr, strided
from flambeau.tensor.making.factories import as_tensor

# rtol, atol. What is not here (integers, bool) must be equal.
TOLERANCES = {
    dtypes.float16: (1e-3, 1e-5), dtypes.bfloat16: (1.6e-2, 1e-5), dtypes.float32: (1.3e-6, 1e-5), dtypes.float64: (1e-7, 1e-7),
    dtypes.complex64: (1.3e-6, 1e-5), dtypes.complex128: (1e-7, 1e-7),
}  # fmt: skip
NUMBERS = (bool, int, float, complex)


def assert_close(
    actual: Any,
    expected: Any,
    *,
    allow_subclasses: bool = True,
    rtol: float | None = None,
    atol: float | None = None,
    equal_nan: bool = False,
    check_device: bool = True,
    check_dtype: bool = True,
    check_layout: bool = True,
    check_stride: bool = False,
    msg: str | Callable[[str], str] | None = None,
) -> None:
    """AssertionError, with the number, size and place of the differences, unless the two are close.

    Tensors, NumPy arrays and numbers are compared with their like, sequences item by item, mappings key by key. `msg` replaces the report, or
    makes it out of the usual one.
    """
    if (rtol is None) != (atol is None):
        missing = "rtol" if rtol is None else "atol"
        raise ValueError(f"Both 'rtol' and 'atol' must be either specified or left out, and there is no {missing}.")
    rules = Rules(allow_subclasses, rtol, atol, equal_nan, check_device, check_dtype, check_layout, check_stride)
    problem = compare(actual, expected, rules, ())
    if problem is not None:
        raise AssertionError(msg(problem) if callable(msg) else problem if msg is None else msg)


@dataclass
class Rules:
    """What counts as a difference."""

    allow_subclasses: bool
    rtol: float | None
    atol: float | None
    equal_nan: bool
    device: bool
    dtype: bool
    layout: bool
    stride: bool

    def tolerances(self, *found: dtypes.dtype) -> tuple[float, float]:
        """(rtol, atol): those given, or the larger ones of these dtypes."""
        if self.rtol is not None:
            return self.rtol, self.atol
        pairs = [TOLERANCES.get(dtype, (0.0, 0.0)) for dtype in found]
        return max(p[0] for p in pairs), max(p[1] for p in pairs)


def compare(actual: Any, expected: Any, rules: Rules, path: tuple) -> str | None:
    """What is wrong, or None."""
    if isinstance(actual, Mapping) and isinstance(expected, Mapping):
        missing, more = sorted(set(expected) - set(actual), key=str), sorted(set(actual) - set(expected), key=str)
        if missing or more:
            said = "The keys of the mappings do not match:\n"
            said += f"Missing keys in the actual mapping: {missing}\n" if missing else ""
            said += f"Additional keys in the actual mapping: {more}\n" if more else ""
            return _at(said.rstrip("\n"), path)
        return _first(compare(actual[key], expected[key], rules, (*path, key)) for key in expected)
    if _is_sequence(actual) and _is_sequence(expected):
        if len(actual) != len(expected):
            return _at(f"The length of the sequences mismatch: {len(actual)} != {len(expected)}", path)
        return _first(compare(a, b, rules, (*path, i)) for i, (a, b) in enumerate(zip(actual, expected, strict=True)))
    problem = _compare_leaves(actual, expected, rules)
    return None if problem is None else _at(problem, path)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _first(problems: Any) -> str | None:
    return next((problem for problem in problems if problem is not None), None)


def _at(problem: str, path: tuple) -> str:
    return f"{problem}\n\nThe failure occurred for item {''.join(f'[{key!r}]' for key in path)}" if path else problem


def _compare_leaves(actual: Any, expected: Any, rules: Rules) -> str | None:
    if actual is None or expected is None:
        return None if actual is expected else f"None mismatch: {actual} is not {expected}"
    if isinstance(actual, (bool, np.bool_)) and isinstance(expected, (bool, np.bool_)):
        return None if actual == expected else f"Booleans mismatch: {actual} is not {expected}"
    if isinstance(actual, NUMBERS) and isinstance(expected, NUMBERS):
        if rules.dtype and type(actual) is not type(expected):
            return f"The (d)types do not match: {type(actual)} != {type(expected)}."
        kinds = {float: dtypes.float64, complex: dtypes.complex128}
        return _compare_numbers(actual, expected, rules, kinds.get(type(actual), dtypes.int64), kinds.get(type(expected), dtypes.int64))
    arrays = (Tensor, np.ndarray, np.generic)
    related = rules.allow_subclasses or type(actual) is type(expected)
    if isinstance(actual, arrays) and isinstance(expected, arrays) and related:
        return _compare_tensors(as_tensor(actual), as_tensor(expected), rules)
    raise TypeError(f"No comparison pair was able to handle inputs of type {type(actual)} and {type(expected)}.")


def _compare_numbers(actual: Any, expected: Any, rules: Rules, *found: dtypes.dtype) -> str | None:
    rtol, atol = rules.tolerances(*found)
    if actual == expected or (rules.equal_nan and cmath.isnan(actual) and cmath.isnan(expected)):
        return None
    difference = abs(actual - expected)
    if cmath.isfinite(difference) and difference <= atol + rtol * abs(expected):
        return None
    exact = rtol == 0 and atol == 0
    relative = difference / abs(expected) if expected else float("inf")
    return (
        f"Scalars are not {'equal' if exact else 'close'}!\n\nExpected {expected} but got {actual}.\n"
        f"Absolute difference: {difference}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Relative difference: {relative}{'' if exact else f' (up to {rtol} allowed)'}"
    )


def _compare_tensors(actual: Tensor, expected: Tensor, rules: Rules) -> str | None:
    wanted = {"shape": True, "is_quantized": True, "device": rules.device, "dtype": rules.dtype, "layout": rules.layout}
    for name in [name for name, is_wanted in wanted.items() if is_wanted]:
        if getattr(actual, name) != getattr(expected, name):
            return f"The values for attribute '{name}' do not match: {getattr(actual, name)} != {getattr(expected, name)}."
    if actual.is_quantized:
        if actual.qscheme() != expected.qscheme():
            return f"The values for attribute 'qscheme()' do not match: {actual.qscheme()} != {expected.qscheme()}."
        return _compare_elements(actual.dequantize(), expected.dequantize(), rules, "Quantized tensor-likes")
    if actual.layout is not expected.layout:
        actual, expected = actual.to_dense(), expected.to_dense()
    if actual.layout is not strided:
        return _compare_sparse(actual, expected, rules)
    if rules.stride and actual.stride() != expected.stride():
        return f"The values for attribute 'stride()' do not match: {actual.stride()} != {expected.stride()}."
    return _compare_elements(actual, expected, rules)


def _compare_sparse(actual: Tensor, expected: Tensor, rules: Rules) -> str | None:
    """The stored elements: the same places, and close values."""
    kind = f"sparse {str(actual.layout).rpartition('_')[2].upper()}"
    if actual.layout is sparse_coo and actual.is_coalesced() != expected.is_coalesced():
        actual, expected = actual.coalesce(), expected.coalesce()
    if actual._nnz() != expected._nnz():
        return f"The number of specified values in {kind} tensors does not match: {actual._nnz()} != {expected._nnz()}"
    by_rows, exact = actual.layout in (sparse_csr, sparse_bsr), replace(rules, rtol=0.0, atol=0.0)
    parts = (
        ("_indices", "_values")
        if actual.is_sparse
        else ("crow_indices" if by_rows else "ccol_indices", "col_indices" if by_rows else "row_indices", "values")
    )
    return _first(
        _compare_elements(getattr(actual, p)(), getattr(expected, p)(), rules if "values" in p else exact, f"S{kind[1:]} {p.strip('_')}")
        for p in parts
    )


def _compare_elements(actual: Tensor, expected: Tensor, rules: Rules, what: str = "Tensor-likes") -> str | None:
    rtol, atol = rules.tolerances(actual.dtype, expected.dtype)
    if actual.dim() == 0:
        return _compare_numbers(actual.item(), expected.item(), rules, actual.dtype, expected.dtype)
    a, b = _wide(actual), _wide(expected)
    with np.errstate(all="ignore"):
        difference = np.abs(a - b)
        close = (a == b) | (np.isfinite(difference) & (difference <= atol + rtol * np.abs(b)))
        if rules.equal_nan:
            close |= np.isnan(a) & np.isnan(b)
    if close.all():
        return None
    exact = rtol == 0 and atol == 0
    mismatches = int((~close).sum())
    difference, relative = _differences(actual, expected, close)
    return (
        f"{what} are not {'equal' if exact else 'close'}!\n\n"
        f"Mismatched elements: {mismatches} / {close.size} ({mismatches / close.size:.1%})\n"
        f"Greatest absolute difference: {_greatest(difference)}{'' if exact else f' (up to {atol} allowed)'}\n"
        f"Greatest relative difference: {_greatest(relative)}{'' if exact else f' (up to {rtol} allowed)'}"
    )


def _wide(tensor: Tensor) -> np.ndarray:
    """The values in the widest format of their kind: differences of halves are not halves, and those of unsigned integers may be negative."""
    array = tensor.detach().cpu().resolve_conj().resolve_neg()._array
    return array.astype(np.complex128 if tensor.dtype.is_complex else np.float64 if tensor.dtype.is_floating_point else np.int64)


def _differences(actual: Tensor, expected: Tensor, close: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """|actual - expected|, and that divided by |expected|, in the format of the tensors; 0 where they are close."""
    common = dtypes.promote_types(actual.dtype, expected.dtype)
    common = common if common.is_floating_point or common.is_complex else dtypes.int64
    a, b = (t.detach().cpu().to(common) for t in (actual, expected))
    difference = (a - b).abs()
    pair = difference._array.copy(), (difference / b.abs())._array.copy()
    for array in pair:
        array[close] = 0
    return pair


def _greatest(difference: np.ndarray) -> str:
    index = np.unravel_index(np.argmax(difference), difference.shape)  # of several, and of NaN, the first
    value = difference[index]
    return f"{int(value) if isinstance(value, np.integer) else float(value)} at index {tuple(map(int, index))}"
