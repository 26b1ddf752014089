"""Tensors as text, to the character as PyTorch prints them.

    tensor([[1.0000e+00, 2.5000e-05,         nan],      the body: one layout of brackets, one numeral style
            [3.0000e+00, 4.0000e+00, 5.0000e+00]],      and one column width for all elements
           dtype=torch.float64, requires_grad=True)     the suffixes: only what the body does not already say

`tensor_repr` joins the two. `format_array` writes the body in three steps: take the corners that will be shown, write
each number, put brackets around them. Only the corners are ever read, so a tensor of ten million elements prints
as fast as one of a thousand, and of a tensor on a GPU only the corners travel to the host.

Nothing here knows the class Tensor: whatever has the attributes that `tensor_repr` lists can be printed.
"""

from __future__ import annotations

import contextlib
import math
import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np

from flambeau.kernels import arrays

# Forward mode sets this while it runs: tensor -> (what to print of it, what it carries along or None)
unpack: Callable[[Any], tuple[Any, Any]] | None = None
Kind = Literal["exact", "float", "complex"]  # exact: integers and booleans, which need no choice of notation


def tensor_repr(tensor: Any, *, tensor_contents=None, default_dtype: Any = "torch.float32", default_device="cpu", extra_suffixes=()) -> str:
    """The text of `repr(tensor)`.

    Read from the tensor: `shape`, `dtype` (its str, `is_floating_point`, `is_complex`), `device` (its str, `type`,
    `index`), `requires_grad`, `grad_fn` (None, or a node with `name()`), the name of its class, and `_array`, a NumPy
    or CuPy array, or one of these in a mirror, which is not touched on the meta device nor when `tensor_contents` stands in for the body.

    `default_dtype` and `default_device` are the ones a reader assumes when none is printed: a dtype or its
    name, and a device's name. `extra_suffixes` end the line, for example `tangent=tensor(1.)`.

    A class named Parameter, or derived from one, gets the headline "Parameter containing:" here, so that its `__repr__`
    has nothing to add.
    """
    if unpack is not None:
        tensor, extra_suffixes = _unpacked(unpack, tensor, tuple(extra_suffixes))
    prefix = "tensor(" if _is_plain(tensor) else f"{type(tensor).__name__}("
    body = tensor_contents
    if body is None:
        body = "..." if tensor.device.type == "meta" else format_array(arrays.plain(tensor._array), _kind(tensor.dtype), indent=len(prefix))
    suffixes = [*_suffixes(tensor, str(default_dtype), default_device), *extra_suffixes]
    text = _append_suffixes(prefix + body, suffixes, indent=len(prefix))
    by_class = _inherits_from_parameter(tensor)
    if (by_class or getattr(tensor, "_is_param", False)) and not _is_plain(tensor):
        text = f"Parameter({text})"
    return "Parameter containing:\n" + text if by_class else text


def _unpacked(by: Callable, tensor: Any, suffixes: tuple[str, ...]) -> tuple[Any, tuple[str, ...]]:
    """A tensor without its tangent, and the suffixes with it. Of a tangent only its own numbers are shown."""
    global unpack
    primal, tangent = by(tensor)
    unpack = None
    try:
        return primal, suffixes if tangent is None else (*suffixes, f"tangent={tangent}")
    finally:
        unpack = by


def tensor_format(tensor: Any, format_spec: str) -> str:
    """The text of `format(tensor, format_spec)`: a plain 0-d tensor formats as its number, any other takes no spec.

    PyTorch treats a 0-d Parameter, a 0-d instance of a subclass and a 0-d meta tensor as "any other", and so do we.
    """
    is_number = len(tensor.shape) == 0 and tensor.device.type != "meta"
    if is_number and _is_plain(tensor) and not _inherits_from_parameter(tensor):
        (value,) = _python_numbers(_to_host(arrays.plain(tensor._array)), _kind(tensor.dtype))
        return format(value, format_spec)
    if format_spec:
        found = (
            f"{type(tensor).__name__}.__format__: {format_spec!r} formats one number, not shape {tuple(tensor.shape)} on {tensor.device}"
        )
        raise TypeError(f"unsupported format string passed to {found}. Try t.item(), or set_printoptions(precision=...)")
    return str(tensor)


# ---------------------------------------------------------------------------------------------------- options


class PrintOptions(NamedTuple):
    """How tensors are printed at the moment."""

    precision: int = 4  # digits after the point
    threshold: float = 1000  # with more elements than this, only the edges are shown
    edgeitems: int = 3  # how many of them at either end of every dimension
    linewidth: float = 80  # characters before a row wraps
    sci_mode: bool | None = None  # scientific notation: always, never, or (None) where the numbers ask for it


_PROFILES = {"default": PrintOptions(), "short": PrintOptions(precision=2, edgeitems=2), "full": PrintOptions(threshold=math.inf)}
_current = PrintOptions()


def set_printoptions(precision=None, threshold=None, edgeitems=None, linewidth=None, profile=None, sci_mode=None) -> None:
    """Change how tensors are printed from now on; None leaves an option as it is.

    A `profile` ("default", "short" or "full") is applied first and the other arguments refine it. `sci_mode` is the one
    option that None does not leave alone: every call sets it anew, None meaning "choose by the numbers", as in PyTorch.

    >>> set_printoptions(precision=2, sci_mode=True)
    >>> get_printoptions()["precision"], get_printoptions()["sci_mode"]
    (2, True)
    >>> set_printoptions(profile="default")
    """
    global _current
    chosen = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    given = {name: value for name, value in chosen.items() if value is not None}
    for name in given.keys() & {"precision", "edgeitems"}:
        given[name] = _count(name, given[name])
    base = _current
    if profile in _PROFILES:
        base = _PROFILES[profile]
    elif profile is not None:
        # PyTorch ignores an unknown profile without a word. Such programs still run here; their authors hear of it.
        warnings.warn(f"no print profile is called {profile!r}; there are {sorted(_PROFILES)}", stacklevel=2)
    _current = base._replace(**given, sci_mode=sci_mode)


def get_printoptions() -> dict[str, Any]:
    """The options in force, as keyword arguments for `set_printoptions`."""
    return _current._asdict()


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """`set_printoptions(**kwargs)` for the length of a `with` block."""
    global _current
    before = _current
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        _current = before


def _count(name: str, value: Any) -> int:
    """`value` as a non-negative int, or an error now: at the next print nobody would know where it came from."""
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"set_printoptions: {name} counts digits or items, so it is an int; found {value!r}") from None
    if count < 0:
        raise ValueError(f"set_printoptions: {name} is 0 or more; found {count}")
    return count


# ------------------------------------------------------------------------------------------------------- body


def format_array(array: Any, kind: Kind, *, indent: int = 0, options: PrintOptions | None = None) -> str:
    """The elements of an array in brackets, wrapped to the line width, long dimensions cut to their edges.

    `indent` is the column the first bracket stands in. `kind` says how to read the elements, which a NumPy dtype
    cannot always do: those of ml_dtypes all call themselves void.

    >>> print(format_array(np.array([[1.0, -2.0], [0.5, np.inf]]), "float"))
    [[ 1.0000, -2.0000],
     [ 0.5000,     inf]]
    """
    options = _current if options is None else options
    size = math.prod(array.shape)
    if size == 0:
        return "[]"
    edge = options.edgeitems if size > options.threshold else math.inf
    if edge == 0 and array.shape:
        return "[...]"
    shown = _to_host(_corners(array, edge))
    cells, cell_width = _write_numbers(shown, kind, options)
    if not array.shape:
        return cells[0]
    innermost_indent = indent + len(array.shape) - 1
    cells_per_line = max(1, math.floor((options.linewidth - innermost_indent) / (cell_width + len(", "))))
    cut_after = [options.edgeitems if size > 2 * edge else None for size in array.shape]
    return _bracket(np.array(cells, dtype=object).reshape(shown.shape).tolist(), cut_after, indent, cells_per_line)


def _corners(array: Any, edge: float) -> Any:
    """The first and last `edge` entries along every dimension that is longer than twice that, in one small gather."""
    if all(size <= 2 * edge for size in array.shape):
        return array
    kept = [np.arange(size) if size <= 2 * edge else np.r_[0:edge, size - edge : size] for size in array.shape]
    return array[np.ix_(*kept)]


def _to_host(array: Any) -> np.ndarray:
    """A NumPy array of the same elements. CuPy refuses to convert implicitly, so its arrays are asked by name."""
    return array.get() if hasattr(array, "__cuda_array_interface__") else np.asarray(array)


def _bracket(nested: list[Any], cut_after: list[int | None], indent: int, cells_per_line: int) -> str:
    """Brackets around nested lists of cells: rows of a matrix on lines of their own, matrices a blank line apart.

    `cut_after[d]` is the place of the dots in dimension d, None where nothing was left out.
    """
    cut, *inner_cuts = cut_after
    is_row = not inner_cuts
    items = nested if is_row else [_bracket(part, inner_cuts, indent + 1, cells_per_line) for part in nested]
    if cut is not None:
        # In a row the dots carry one space more than the separator gives them, and count as a cell when lines wrap.
        items = [*items[:cut], " ..." if is_row else "...", *items[cut:]]
    if is_row:
        items = [", ".join(items[i : i + cells_per_line]) for i in range(0, len(items), cells_per_line)]
    newlines = "\n" * max(1, len(inner_cuts))
    return "[" + ("," + newlines + " " * (indent + 1)).join(items) + "]"


# ---------------------------------------------------------------------------------------------------- numbers


def _write_numbers(values: np.ndarray, kind: Kind, options: PrintOptions) -> tuple[list[str], int]:
    """Every element as text in row-major order, padded on the left, and the width that lines are broken by.

    A complex number is a real part, padded, and an imaginary part, not padded: PyTorch's complex columns do not align.
    """
    if kind == "complex":
        real, real_width = _write_floats(values.real, options)
        imag, imag_width = _write_floats(values.imag, options)
        signed = [text if text.startswith("-") else "+" + text for text in imag]
        cells = [re.rjust(real_width) + im + "j" for re, im in zip(real, signed, strict=True)]
        return cells, real_width + imag_width + len("j")
    if kind == "float":
        texts, width = _write_floats(values, options)
    else:
        texts = [str(number) for number in _python_numbers(values, kind)]
        width = max(map(len, texts))
    return [text.rjust(width) for text in texts], width


def _write_floats(values: np.ndarray, options: PrintOptions) -> tuple[list[str], int]:
    """Floats in the one notation that suits them all, not yet padded, and the width of their column.

        12.         every number is whole: the point says that the dtype is not an integer's
        12.5000     `precision` digits after the point
        1.2500e+01  if max > 1000 min, max > 1e8 or min < 1e-4 (of magnitudes), unless `sci_mode` decides

    Zeros, infinities and nan have no say in notation or width: a -0. or -inf may stick out of its column.
    """
    values = values.astype(np.float64)
    has_say = np.isfinite(values) & (values != 0)
    magnitudes = np.abs(values[has_say])
    numbers = values.reshape(-1).tolist()
    if magnitudes.size == 0:
        return [_whole(number) for number in numbers], 1

    smallest, largest = float(magnitudes.min()), float(magnitudes.max())
    wide = largest / smallest > 1000 or largest > 1e8 or smallest < 1e-4
    if wide if options.sci_mode is None else options.sci_mode:
        texts = [f"{number:.{options.precision}e}" for number in numbers]
    elif (magnitudes == np.floor(magnitudes)).all():
        texts = [_whole(number) for number in numbers]
    else:
        texts = [f"{number:.{options.precision}f}" for number in numbers]
    width = max(len(text) for text, counts in zip(texts, has_say.reshape(-1).tolist(), strict=True) if counts)
    return texts, width


def _whole(number: float) -> str:
    """A float without fraction, with its point: 3. and -0. but inf and nan."""
    return f"{number:.0f}." if math.isfinite(number) else str(number)


def _python_numbers(values: np.ndarray, kind: Kind) -> list[Any]:
    """The elements in row-major order as Python's bool, int, float or complex."""
    if kind == "float":
        values = values.astype(np.float64)  # the scalars of ml_dtypes are not Python's
    return values.reshape(-1).tolist()


# ---------------------------------------------------------------------------------------- facts about a tensor


def _kind(dtype: Any) -> Kind:
    return "complex" if dtype.is_complex else "float" if dtype.is_floating_point else "exact"


def _is_plain(tensor: Any) -> bool:
    """Whether the class is Tensor or Parameter itself; a subclass prints under its own name.

    Classes are known by name here, so a user's `class Tensor(flambeau.Tensor)` is told apart by having that name twice.
    """
    kin = [cls.__name__ for cls in type(tensor).__mro__ if cls.__name__ in ("Tensor", "Parameter")]
    return type(tensor).__name__ == kin[0] and kin in (["Tensor"], ["Parameter", "Tensor"])


def _inherits_from_parameter(tensor: Any) -> bool:
    return any(cls.__name__ == "Parameter" for cls in type(tensor).__mro__)


def _suffixes(tensor: Any, default_dtype: str, default_device: str) -> list[str]:
    """What the body leaves unsaid, in PyTorch's order: device, size, dtype, and the part played in autograd."""
    suffixes = []
    # A reader guesses the default device. An index matters on CUDA alone.
    place = f"cuda:{tensor.device.index}" if tensor.device.type == "cuda" else tensor.device.type
    if place != (default_device if tensor.device.type == "cuda" else default_device.partition(":")[0]):
        suffixes.append(f"device='{tensor.device}'")

    shape = tuple(tensor.shape)
    is_empty, is_meta = math.prod(shape) == 0, tensor.device.type == "meta"
    # Brackets show a shape, unless nothing is between them. Of empty shapes only (0,) goes without saying.
    if is_meta or (len(shape) != 1 if is_empty else _current.edgeitems == 0):
        suffixes.append(f"size={shape}")

    # Elements tell int64 (1), bool (True) and the complex default (1+2j) apart; without elements only one is assumed.
    default = default_dtype.rpartition(".")[2]
    default_complex = "complex128" if default == "float64" else "complex64"
    assumed = {default} if is_meta or is_empty else {default, default_complex, "int64", "bool"}
    if str(tensor.dtype).rpartition(".")[2] not in assumed:
        suffixes.append(f"dtype={tensor.dtype}")

    try:
        if tensor.grad_fn is not None:
            suffixes.append(f"grad_fn=<{tensor.grad_fn.name().rpartition('::')[2]}>")
        elif tensor.requires_grad:
            suffixes.append("requires_grad=True")
    except RuntimeError:
        # A view made and then changed in place under no_grad has no valid history, and asking for it raises.
        # Printing is how its owner will look at it, so printing must not raise.
        suffixes.append("grad_fn=<Invalid>")
    return suffixes


def _append_suffixes(text: str, suffixes: list[str], indent: int, new_line: bool = False) -> str:
    """`text, suffix, suffix)`, each suffix on a new line where it would cross the line width, the first one if asked."""
    # PyTorch starts two columns further right than the text ends; the sum decides where lines break, so we do too.
    column = len(text) - (text.rfind("\n") + 1) + 2
    for suffix in suffixes:
        wraps = new_line or column + len(suffix) + 2 > _current.linewidth
        new_line = False
        text += (",\n" + " " * indent if wraps else ", ") + suffix
        column = (indent if wraps else column + 2) + len(suffix)
    return text + ")"
