"""Differences and integrals of sampled functions: diff, gradient, trapezoid."""

from __future__ import annotations

from flambeau import dtypes
from flambeau.kernels import layout
from flambeau.ops.declare import OPS, composite
from flambeau.ops.views import whole


@composite(out=True)
def diff(input, n=1, dim=-1, prepend=None, append=None):
    """x_(i+1) - x_i along `dim`, n times over. `prepend` and `append` are put at the ends first. (*, N, *) -> (*, N - n, *)"""
    if not input.dim():
        raise RuntimeError("diff expects input to be at least one-dimensional, found a 0-d tensor")
    n, dim = whole(n), layout.wrap_dim(whole(dim), input.dim())
    parts = [x for x in (prepend, input, append) if x is not None]
    for x in parts:
        if x.dim() != input.dim():
            raise RuntimeError(f"diff expects prepend or append to be the same dimension as input: found {x.dim()} and {input.dim()}")
        if any(a != b for d, (a, b) in enumerate(zip(x.shape, input.shape, strict=True)) if d != dim):
            what = "diff expects the shape of tensor to prepend or append to match that of input"
            raise RuntimeError(f"{what} except along dimension {dim}: found {tuple(x.shape)} and {tuple(input.shape)}")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}")
    if n == 0:
        return input.clone()
    x = OPS["cat"](parts, dim) if len(parts) > 1 else input
    if n >= x.shape[dim]:
        return x.narrow(dim, 0, 0).clone()
    for _ in range(n):
        later, earlier = x.narrow(dim, 1, x.shape[dim] - 1), x.narrow(dim, 0, x.shape[dim] - 1)
        x = later.logical_xor(earlier) if x.dtype is dtypes.bool else later - earlier
    return x


# -- derivatives of samples -----------------------------------------------------------------------------------------------------


@composite(method=False)
def gradient(input, *, spacing=None, dim=None, edge_order=1):
    """The derivative of a sampled function along each of `dim`, in the middle of its neighbours; a tuple of tensors like `input`.

    spacing     the distance of samples (one number, one per dimension), or their coordinates (a list of 1-d tensors)
    edge_order  1 or 2: how many neighbours the first and the last sample look at
    """
    if input.dtype in (dtypes.bool, dtypes.uint8):
        raise RuntimeError(f"torch.gradient only supports signed dtypes, found {input.dtype.name}")
    given = range(input.dim()) if dim is None else dim if isinstance(dim, (tuple, list)) else [dim]
    dims = layout.wrap_dims([whole(d) for d in given], input.dim())
    steps = _spacings(spacing, len(dims))
    if edge_order not in (1, 2):
        raise RuntimeError(f"torch.gradient only supports edge_order=1 and edge_order=2, found {edge_order}")
    for d, step in zip(dims, steps, strict=True):
        n = input.shape[d]
        if n < edge_order + 1:
            raise RuntimeError(f"torch.gradient expected each dimension size to be at least {edge_order + 1}, found {tuple(input.shape)}")
        if hasattr(step, "_array") and tuple(step.shape) != (n,):
            raise RuntimeError(f"torch.gradient expected `spacing` to have {n} coordinates for dimension {d}, found {tuple(step.shape)}")
    return tuple([_slope(input, d, step, edge_order) for d, step in zip(dims, steps, strict=True)])


def _spacings(spacing, n: int) -> list:
    """A number or the coordinates for each of n dimensions."""
    if isinstance(spacing, (tuple, list)):
        if len(spacing) != n:
            raise RuntimeError(f"torch.gradient expected spacing to be unspecified, a scalar or {n} of them, found {len(spacing)}")
        for s in spacing:
            if hasattr(s, "_array") and s.dim() != 1:
                raise RuntimeError(f"torch.gradient expected each tensor in `spacing` to be one-dimensional, found shape {tuple(s.shape)}")
        return list(spacing)
    if hasattr(spacing, "_array") and spacing.dim():
        raise TypeError("gradient(): argument 'spacing' must be Number, or a tuple of Numbers or Tensors, not Tensor")
    return [1.0 if spacing is None else spacing.item() if hasattr(spacing, "_array") else spacing] * n


def _slope(x, dim: int, step, edge_order: int):
    """The derivative along one dimension."""
    n = x.shape[dim]

    def at(start: int, length: int = 1):
        return x.narrow(dim, start, length)

    if not hasattr(step, "_array"):
        inner = (at(2, n - 2) - at(0, n - 2)) / (2 * step)
        if edge_order == 1:
            first, last = (at(1) - at(0)) / step, (at(n - 1) - at(n - 2)) / step
        else:
            first = (-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / step
            last = (0.5 * at(n - 3) - 2 * at(n - 2) + 1.5 * at(n - 1)) / step
        return OPS["cat"]([first, inner, last], dim)
    gaps = (step.narrow(0, 1, n - 1) - step.narrow(0, 0, n - 1)).reshape([-1 if d == dim else 1 for d in range(x.dim())])

    def around(start: int, length: int = 1):
        """The gaps before and after the middle one of three samples."""
        return gaps.narrow(dim, start, length), gaps.narrow(dim, start + 1, length)

    a, b = around(0, n - 2)
    inner = -b / (a * (a + b)) * at(0, n - 2) + (b - a) / (a * b) * at(1, n - 2) + a / (b * (a + b)) * at(2, n - 2)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / gaps.narrow(dim, 0, 1), (at(n - 1) - at(n - 2)) / gaps.narrow(dim, n - 2, 1)
    else:
        a, b = around(0)
        first = -(2 * a + b) / (a * (a + b)) * at(0) + (a + b) / (a * b) * at(1) - a / (b * (a + b)) * at(2)
        a, b = around(n - 3)
        last = b / (a * (a + b)) * at(n - 3) - (a + b) / (a * b) * at(n - 2) + (2 * b + a) / (b * (a + b)) * at(n - 1)
    return OPS["cat"]([first, inner, last], dim)


# -- integrals ----------------------------------------------------------------------------------------------------------------


@composite(method=False, aliases=("trapz",))
def trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples `y` along `dim` by the trapezoid rule: sum of (x_(i+1) - x_i) (y_i + y_(i+1)) / 2.

    x  their coordinates: (N,), or a shape that broadcasts with y;  dx  their distance, if there are no coordinates
    """
    dim = layout.wrap_dim(whole(dim), y.dim(), scalar_ok=False)
    if y.shape[dim] == 0:
        return y.new_zeros([n for d, n in enumerate(y.shape) if d != dim])
    return _areas("trapezoid", y, x, dx, dim).sum(dim)


@composite(method=False)
def cumulative_trapezoid(y, x=None, *, dx=1, dim=-1):
    """The integral of samples `y` up to each of them but the first, by the trapezoid rule. (*, N, *) -> (*, N - 1, *)"""
    dim = layout.wrap_dim(whole(dim), y.dim(), scalar_ok=False)
    return _areas("cumulative_trapezoid", y, x, dx, dim).cumsum(dim)


def _areas(name: str, y, x, dx, dim: int):
    """The area between each two neighbouring samples."""
    for which, t in (("x", x), ("y", y)):
        if t is not None and t.dtype is dtypes.bool:
            raise RuntimeError(f"{name}: received a bool input for `{which}`, but bool is not supported. Try {which}.float()")
    n = y.shape[dim]
    if not n and (x is None or not x.numel()):
        return y / 2  # there is nothing between no samples
    sums = y.narrow(dim, 1, n - 1) + y.narrow(dim, 0, n - 1)
    if x is None:
        dx = dx.item() if hasattr(dx, "item") else dx
        if isinstance(dx, bool) or not isinstance(dx, (int, float, complex)):
            raise RuntimeError(f"{name}: dx must be a number, found {type(dx).__name__}")
        return sums * (dx / 2)
    if x.dim() == 1:
        if x.shape[0] != n:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point: found {x.shape[0]} and {n}")
        x = x.reshape([-1 if d == dim else 1 for d in range(y.dim())])
    elif x.dim() < y.dim():
        dim += x.dim() - y.dim()
    return (x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1)) * sums / 2
