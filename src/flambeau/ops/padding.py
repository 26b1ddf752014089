"""Padding with a constant, and positions in a shape."""

from __future__ import annotations

from flambeau.kernels import layout
from flambeau.ops.declare import composite
from flambeau.ops.views import whole


@composite(method=False)
def constant_pad_nd(input, pad, value=0):
    """`input` with `value` put around it: pairs (before, after), the last dimension first. A negative pad cuts off.

    >>> torch.constant_pad_nd(torch.ones(2), (1, 2), 5.0)
    tensor([5., 1., 1., 5., 5.])
    """
    pad = [whole(p) for p in pad]
    n = input.dim()
    if len(pad) % 2:
        raise RuntimeError(f"Length of pad must be even but instead it equals {len(pad)}: a (before, after) pair for every dimension")
    if len(pad) > 2 * n:
        raise RuntimeError(f"Length of pad should be no more than twice the number of dimensions of the input: {len(pad)} for {n}")
    pairs = [(0, 0)] * (n - len(pad) // 2) + [(pad[i], pad[i + 1]) for i in range(len(pad) - 2, -1, -2)]
    shape = []
    for d, (size, (before, after)) in enumerate(zip(input.shape, pairs, strict=True)):
        shape.append(size + before + after)
        if shape[-1] < 0:
            raise RuntimeError(f"The input size {size} plus negative padding {before}, {after} gives a negative output size in dim {d}")
    inner = input
    for d, (before, after) in enumerate(pairs):
        start = min(max(-before, 0), inner.shape[d])
        inner = inner.narrow(d, start, max(inner.shape[d] - start - max(-after, 0), 0))
    out = input.new_full(shape, value)
    window = out
    for d, (before, _) in enumerate(pairs):
        window = window.narrow(d, max(before, 0), inner.shape[d])
    window.copy_(inner)
    return out


@composite(method=False)
def unravel_index(indices, shape):
    """Positions counted over all elements of a tensor of `shape`, as one index tensor per dimension."""
    sizes = (shape,) if isinstance(shape, int) else tuple(whole(n) for n in shape)
    if any(n < 0 for n in sizes):
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    if indices.is_floating_point() or indices.is_complex() or indices.dtype.name == "bool":
        raise ValueError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    strides, indices = layout.contiguous_strides(sizes), indices.long()
    return tuple(indices.div(s, rounding_mode="floor") % n for s, n in zip(strides, sizes, strict=True))
