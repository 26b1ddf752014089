"""Vectors compared by their direction: cosine_similarity, and normalize, which leaves nothing but the direction."""

from __future__ import annotations

from flambeau.kernels import layout
from flambeau.ops.declare import composite
from flambeau.ops.norms import vector_norm
from flambeau.ops.promotion import promoted


@composite(method=False, aliases=("nn.functional.cosine_similarity",))
def cosine_similarity(x1, x2, dim=1, eps=1e-08):
    """x1 · x2 / (|x1| |x2|) along `dim`; a norm below eps counts as eps. Shapes broadcast, and lose `dim`."""
    common = promoted(x1, x2)
    if not common.is_floating_point:
        raise RuntimeError(f"expected common dtype to be floating point, yet common dtype is {common}")
    shape = layout.broadcast_shapes(tuple(x1.shape), tuple(x2.shape))
    x1, x2 = (x.to(common).expand(shape) for x in (x1, x2))
    unit1, unit2 = (x / _length(x, dim, eps) for x in (x1, x2))  # each scaled first: a product of norms could overflow
    return (unit1 * unit2).sum(dim)


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
