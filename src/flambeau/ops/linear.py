"""Affine maps of features: linear and bilinear, what the layers of the same names compute; many products at once: grouped_mm."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from flambeau import dtypes
from flambeau.kernels import arrays
from flambeau.kernels.templates import gemm
from flambeau.ops.declare import OPS, composite, on_arrays
from flambeau.ops.matrix import conj
from flambeau.ops.products import _check_dtypes, mm


@on_arrays(name="nn.functional.linear", method=False, grad_name="AddmmBackward0", autocast="half")
def linear(input, weight, bias=None):
    """y = x Aᵀ + b. input (*, in), weight (out, in) or (in,), bias (out,) or () -> (*, out) or (*,)."""
    if bias is not None:
        found = gemm.linear_at_once(input, weight, bias)
        if found is not NotImplemented:
            return found
    shape = _check(input, weight, bias)
    rows = input if input.ndim == 2 else input.reshape(prod(input.shape[:-1]), input.shape[-1])
    columns = (weight if weight.ndim == 2 else weight[None]).T
    if bias is None:
        found = gemm.product(rows, columns)
    else:
        out = arrays.empty_beside(input, (rows.shape[0], columns.shape[1]), input.dtype)
        found = gemm.product_into(out, rows, columns, 1, 1, bias)
    return found if len(shape) == 2 and weight.ndim == 2 else found.reshape(shape)


def _check(input, weight, bias) -> tuple[int, ...]:
    """The shape of the result."""
    if not input.ndim or weight.ndim not in (1, 2):
        found = f"input {tuple(input.shape)}, weight {tuple(weight.shape)}"
        raise RuntimeError(f"linear: input needs at least 1 dimension, weight 1 or 2 (out_features, in_features). Found {found}")
    _check_dtypes("linear", input, weight)
    if bias is not None:
        _check_dtypes("linear", input, bias)
    if input.shape[-1] != weight.shape[-1]:
        raise RuntimeError(_mismatch(tuple(input.shape), tuple(weight.shape)))
    if bias is not None and tuple(bias.shape) not in (tuple(weight.shape[:-1]), (1,), ()) and not _repeats(bias, input, weight):
        found = f"bias has shape {tuple(bias.shape)}, but weight {tuple(weight.shape)} gives {weight.shape[0]} features"
        raise RuntimeError(f"The expanded size of the tensor must match the existing size: linear's {found}")
    return (*input.shape[:-1], *weight.shape[:-1])


def _repeats(bias, input, weight) -> bool:
    """A bias of more dimensions, which PyTorch adds to a batch of rows."""
    return (
        bias.ndim == 2 and input.ndim == 2 and all(b in (1, n) for b, n in zip(bias.shape, (input.shape[0], weight.shape[0]), strict=True))
    )


def _mismatch(input: tuple, weight: tuple) -> str:
    """What does not fit, and what might."""
    rows, out = prod(input[:-1]), weight[0] if len(weight) == 2 else 1
    lines = [
        f"mat1 and mat2 shapes cannot be multiplied ({rows}x{input[-1]} and {weight[-1]}x{out})",
        f"linear: the last dimension of input is {input[-1]}, but this weight takes {weight[-1]}",
        f"    input   {input}",
        f"    weight  {weight}, (out_features, in_features)",
    ]
    if len(input) > 1 and input[-2] == weight[-1]:
        lines.append(f"    try     input.mT has shape {(*input[:-2], input[-1], input[-2])}: are batch and features swapped?")
    elif prod(input[1:]) == weight[-1]:
        lines.append(f"    try     input.flatten(1) has shape {(input[0], prod(input[1:]))}: is an nn.Flatten missing?")
    elif input[-1] == out:
        lines.append("    try     weight.T: are in_features and out_features swapped?")
    return "\n".join(lines)


def _rows(t):
    """(*, C) as a matrix."""
    return t if t.ndim == 2 else t.reshape((prod(t.shape[:-1]), t.shape[-1]))


def _input_gradient(grad, weight, input_shape):
    if weight.ndim == 1:
        return grad.unsqueeze(-1) * conj(weight)
    return mm(_rows(grad), conj(weight)).reshape(input_shape)


def _weight_gradient(grad, input, weight_shape):
    grad = _rows(grad) if len(weight_shape) == 2 else grad.reshape((-1, 1))
    return mm(grad.mT, conj(_rows(input))).reshape(weight_shape)


def _bias_gradient(grad, bias_shape):
    return grad.sum_to_size(bias_shape)


def _called(node) -> str:
    """PyTorch multiplies matrices here, between views where the input is none; the last step gives the history its name."""
    if len(node.edges) == 3:
        return "AddmmBackward0" if len(node.shape) == 2 else "ViewBackward0"
    return {1: "SqueezeBackward4", 2: "MmBackward0"}.get(len(node.shape), "UnsafeViewBackward0")


linear.called = _called
linear.derivative(input=_input_gradient, weight=_weight_gradient, bias=_bias_gradient)
linear.meta(lambda input, weight, bias=None: (_check(input, weight, bias), input.dtype))


linear.work(lambda input, weight, bias: gemm.quick_linear if bias is not None else None)


@composite(name="nn.functional.bilinear", method=False, aliases=("bilinear",), autocast="cpu given, cuda widest")
def bilinear(input1, input2, weight, bias=None):
    """y_o = x₁ᵀ A_o x₂ + b_o. input1 (*, m), input2 (*, n), weight (out, m, n), bias (out,) -> (*, out)."""
    if input1.ndim != input2.ndim or input1.shape[:-1] != input2.shape[:-1]:
        found = f"{tuple(input1.shape)} and {tuple(input2.shape)}"
        raise RuntimeError(f"bilinear(): input batch dimensions do not match: got {found}")
    for name, found, expected in (("input1", input1, weight.shape[1]), ("input2", input2, weight.shape[2])):
        if found.shape[-1] != expected:
            raise RuntimeError(f"bilinear(): {name} size does not match weight size: got {found.shape[-1]} but expected {expected}")
    out, m, n = weight.shape
    rows1, rows2 = input1.reshape(-1, m), input2.reshape(-1, n)
    side = rows1.matmul(weight.permute(1, 0, 2).reshape(m, out * n))  # (B, out * n)
    result = side.view(-1, out, n).matmul(rows2.unsqueeze(-1)).squeeze(-1)
    result = result.reshape(*input1.shape[:-1], out)
    return result if bias is None else result + bias


@composite(name="_int_mm", public=True, method=False)
def _int_mm(self, mat2):
    """Product of matrices of int8 (the first may be uint8), added up in int32. (M, K), (K, N) -> (M, N)."""
    for name, m, allowed in (("self", self, (dtypes.int8, dtypes.uint8)), ("mat2", mat2, (dtypes.int8,))):
        if m.dim() != 2:
            raise RuntimeError(f"_int_mm: Expected {name} to be of dimension 2 but got {m.dim()}")
        if m.dtype not in allowed:
            raise RuntimeError(
                f"_int_mm: Expected {name} dtype to be {' or '.join(d.name for d in allowed)} but got {m.dtype}. Try .to(torch.int8)"
            )
    if self.shape[1] != mat2.shape[0]:
        raise RuntimeError(f"_int_mm: self.size(1) needs to match mat2.size(0) but got {self.shape[1]} and {mat2.shape[0]}")
    # Floats have fast products, and these are exact: a product of two bytes has 16 bits, so 256 of them fit into 24 bits, 2**37 into 53.
    exact = dtypes.float32 if self.shape[1] <= 256 else dtypes.float64
    return (self.to(exact) @ mat2.to(exact)).to(dtypes.int32)


# -- groups ----------------------------------------------------------------------------------------------------------------


@composite(name="nn.functional.grouped_mm", method=False)
def grouped_mm(mat_a, mat_b, *, offs=None, bias=None, out_dtype=None):
    """Several products at once: group i has the part of a matrix that ends before offs[i], and the i-th of what comes in three dimensions.

    (M, K), (K, N), parts of K          -> (G, M, N)        (M, K), (G, K, N), rows of mat_a     -> (M, N)
    (G, M, K), (G, K, N), without offs  -> (G, M, N)        (G, M, K), (K, N), columns of mat_b  -> (M, N)

    A bias is added to the result of every group; what lies behind the last offset belongs to no group, and is zero.
    """
    for name, m in (("mat_a", mat_a), ("mat_b", mat_b)):
        if m.dtype not in (dtypes.float32, dtypes.bfloat16, dtypes.float16):
            raise RuntimeError(f"grouped_mm: Expected {name} to be Float32, BFloat16 or Float16 matrix, got {dtypes.in_messages(m.dtype)}")
        if m.dim() not in (2, 3):
            raise RuntimeError(f"grouped_mm: {name} has to be 2 or 3d, found shape {tuple(m.shape)}")
    if mat_a.shape[-1] != mat_b.shape[-2]:
        shapes = f"{tuple(mat_a.shape)} and {tuple(mat_b.shape)}"
        raise RuntimeError(f"grouped_mm: contraction dimension of mat_a and mat_b must match, found {shapes}")
    kinds = mat_a.dim(), mat_b.dim()
    if (kinds == (3, 3)) != (offs is None):
        raise RuntimeError(
            f"grouped_mm: offs are needed exactly where one of the matrices has 2 dimensions, found {kinds[0]} and {kinds[1]}"
        )
    if out_dtype is not None:  # rounded once
        mat_a, mat_b = mat_a.to(out_dtype), mat_b.to(out_dtype)
    if offs is None:
        found = mat_a @ mat_b
        return found if bias is None else found + bias
    of_a, of_b = {(2, 2): (-1, -2), (2, 3): (-2, None), (3, 2): (None, -1)}[kinds]  # the dimensions that are cut
    size = mat_b.shape[-1] if of_a is None else mat_a.shape[of_a]
    parts = list(pairwise([0, *_ends(offs, size)]))
    groups = len(mat_b) if kinds == (2, 3) else len(mat_a) if kinds == (3, 2) else len(parts)
    if groups != len(parts):
        raise RuntimeError(f"grouped_mm: there are {groups} matrices and {len(parts)} offsets, which should be as many")

    def part(m, axis, i: int):
        start, end = parts[i]
        return m[i] if axis is None else m.narrow(axis, start, end - start)

    results = [part(mat_a, of_a, i) @ part(mat_b, of_b, i) for i in range(groups)]
    results = results if bias is None else [r + bias for r in results]
    if kinds == (2, 2):
        return OPS["stack"](results)
    rest = size - parts[-1][1]
    shape = (rest, mat_b.shape[-1]) if kinds == (2, 3) else (mat_a.shape[-2], rest)
    return OPS["cat"]([*results, mat_a.new_zeros(shape)], -2 if kinds == (2, 3) else -1)


def _ends(offs, size: int) -> list[int]:
    """Where groups end, checked."""
    if offs.dim() != 1 or offs.dtype is not dtypes.int32 or not offs.numel():
        raise RuntimeError(f"grouped_mm: Offsets have to be int32 and 1d, found {offs.dtype} of shape {tuple(offs.shape)}")
    ends = offs.tolist()
    if any(a > b for a, b in pairwise([0, *ends, size])):
        raise RuntimeError(f"grouped_mm: offsets should ascend up to {size}, the size of what they cut, found {ends}")
    return ends
