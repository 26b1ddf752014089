"""Vectors compared by their direction: cosine_similarity, and normalize, which leaves nothing but the direction."""

from __future__ import annotations

from flambeau.kernels import arrays, layout
from flambeau.kernels.language import expr as e
from flambeau.kernels.reductions.reduce import reduce
from flambeau.ops.declare import composite, on_arrays, pointwise
from flambeau.ops.norms import _vector_norm, vector_norm
from flambeau.ops.promotion import promoted
from flambeau.ops.views import whole


@composite(method=False, aliases=("nn.functional.cosine_similarity",), autocast="cuda float32")
def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """x1 · x2 / (|x1| |x2|) along `dim`; a norm below eps counts as eps. Shapes broadcast, and lose `dim`."""
    common = promoted(x1, x2)
    if not common.is_floating_point:
        x1.sum(dim)  # a dimension that does not exist is the first complaint
        raise RuntimeError(f"cosine_similarity: the dtype of both together must be floating point, found {common}. Try x1.float()")
    if x1.shape == x2.shape and x1.dtype is x2.dtype and common.itemsize > 2 and x1.dim():
        return _cosine(x1, x2, layout.wrap_dim(whole(dim), x1.dim()), float(eps))
    shape = layout.broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    x1, x2 = (x.to(common).expand(shape) for x in (x1, x2))
    return _as_it_stands(x1, x2, dim, eps)


def _as_it_stands(x1, x2, dim, eps):
    unit1, unit2 = (x / _length(x, dim, eps) for x in (x1, x2))  # each scaled first: a product of norms could overflow
    return (unit1 * unit2).sum(dim)


@on_arrays(public=False, method=False, grad_name="SumBackward1")
def _cosine(x1, x2, dim, eps):
    """The same in three loops, of float32 or float64 and one shape."""
    length1, length2 = (_vector_norm.forward(x, 2, (dim,), True, None) for x in (x1, x2))
    terms = arrays.run(_units_multiplied.kernel, (x1, length1, x2, length2), (eps,), x1.dtype, x1.dtype)
    return reduce("sum", terms, (dim,), False, x1.dtype)


_cosine.meta(lambda x1, x2, dim, eps: ((*x1.shape[:dim], *x1.shape[dim + 1 :]), x1.dtype))


@_cosine.joint
def _(grad, x1, x2, dim, eps, result, needs, again):
    grad, cosine = grad.unsqueeze(dim), result.unsqueeze(dim)
    norms = [vector_norm(x, 2, dim, True) for x in (x1, x2)]
    lengths = [_length(x, dim, eps) if again else n.clamp_min(eps) for x, n in zip((x1, x2), norms, strict=True)]
    of_x1 = _of_direction(grad, cosine, x1, norms[0], lengths[0], x2, lengths[1]) if needs["x1"] else None
    return {"x1": of_x1, "x2": _of_direction(grad, cosine, x2, norms[1], lengths[1], x1, lengths[0]) if needs["x2"] else None}


@pointwise(public=False, method=False, dtypes=("float32", "float64"), complex=False)
def _units_multiplied(x1, length1, x2, length2, eps=0.0):
    """x1 / |x1| * x2 / |x2|."""
    return x1 / e.maximum(length1, eps) * (x2 / e.maximum(length2, eps))


@pointwise(public=False, method=False, dtypes=("float32", "float64"), complex=False)
def _of_direction(grad, cosine, x, norm, length, other, other_length):
    """How the gradient of a cosine reaches x: grad / |x| * (the other direction - cosine * that of x), which at 0 has none."""
    return grad / length * (other / other_length - cosine * x / e.where(e.eq(norm, 0), 1, norm))


def _length(x, dim, eps):
    """The norm, or eps if that is more; its derivative, as PyTorch has it, is the norm's all the same."""
    length = vector_norm(x, 2, dim, True).clone()
    length.detach().clamp_min_(eps)
    return length


@composite(name="nn.functional.normalize", method=False, out=True)
def normalize(input, p=2.0, dim=1, eps=1e-12):
    """x / max(|x|_p, eps): vectors along `dim` brought to p-norm 1. Same shape."""
    length = input.norm(p, dim, keepdim=True)
    return input / length.clamp_min(eps)
