"""Maps between spaces, with their inverses and the logarithm of how they stretch volume: y = f(x), log |det dy/dx|.

`domain.event_dim` and `codomain.event_dim` say how many dimensions one value has: 0 if the map works number by number.
"""

from __future__ import annotations

import math
import operator
import weakref
from collections.abc import Sequence
from typing import Any

from flambeau.distributions import constraints
from flambeau.distributions.utils import op, sum_rightmost, tril_matrix_to_vec, vec_to_tril_matrix
from flambeau.dtypes import finfo
from flambeau.tensor import Size, Tensor
from flambeau.tensor.making import factories
from flambeau.tensor.methods.queries import broadcast_shapes

__all__ = [
    "AbsTransform", "AffineTransform", "CatTransform", "ComposeTransform", "CorrCholeskyTransform", "CumulativeDistributionTransform",
    "ExpTransform", "IndependentTransform", "LowerCholeskyTransform", "PositiveDefiniteTransform", "PowerTransform", "ReshapeTransform",
    "SigmoidTransform", "SoftmaxTransform", "SoftplusTransform", "StackTransform", "StickBreakingTransform", "TanhTransform", "Transform",
    "identity_transform",
]  # fmt: skip


class Transform:
    """The base: subclasses have domain, codomain, `_call`, `_inverse` and `log_abs_det_jacobian`.

    cache_size  1: the last pair (x, y) is remembered, so that inverting y gives back x itself
    """

    bijective = False
    domain: Any = constraints.real
    codomain: Any = constraints.real

    def __init__(self, cache_size: int = 0):
        self._cache_size = cache_size
        self._inv: weakref.ref[Transform] | None = None
        if cache_size not in (0, 1):
            raise ValueError("cache_size must be 0 or 1")
        self._cached_x_y: tuple = (None, None)
        super().__init__()

    def __getstate__(self):
        return self.__dict__ | {"_inv": None}

    @property
    def event_dim(self) -> int:
        """The dimensions of a value, where both sides have the same."""
        if self.domain.event_dim == self.codomain.event_dim:
            return self.domain.event_dim
        raise ValueError(
            f"{type(self).__name__} has values of different dimensions on its two sides: ask for .domain.event_dim or .codomain.event_dim"
        )

    @property
    def inv(self) -> Transform:
        """The map the other way round."""
        found = None if self._inv is None else self._inv()
        if found is None:
            found = _InverseTransform(self)
            self._inv = weakref.ref(found)
        return found

    @property
    def sign(self):
        """1 where it increases, -1 where it decreases; for one-to-one maps of numbers."""
        raise NotImplementedError(f"{type(self).__name__} has no sign")

    def with_cache(self, cache_size: int = 1) -> Transform:
        """The same transform with another cache size."""
        if self._cache_size == cache_size:
            return self
        if type(self).__init__ is Transform.__init__:
            return type(self)(cache_size=cache_size)
        raise NotImplementedError(f"{type(self)}.with_cache is not implemented")

    def __eq__(self, other) -> bool:
        return self is other

    __hash__ = object.__hash__

    def __call__(self, x: Tensor) -> Tensor:
        if not self._cache_size:
            return self._call(x)
        old, y = self._cached_x_y
        if x is old:
            return y
        y = self._call(x)
        self._cached_x_y = x, y
        return y

    def _inv_call(self, y: Tensor) -> Tensor:
        if not self._cache_size:
            return self._inverse(y)
        x, old = self._cached_x_y
        if y is old:
            return x
        x = self._inverse(y)
        self._cached_x_y = x, y
        return x

    def _call(self, x: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no formula")

    def _inverse(self, y: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} has no inverse")

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """log |det dy/dx|, one number per value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_abs_det_jacobian")

    def forward_shape(self, shape):
        """The shape of y for x of this shape."""
        return shape

    def inverse_shape(self, shape):
        """The shape of x for y of this shape."""
        return shape

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class _InverseTransform(Transform):
    """A transform the other way round."""

    def __init__(self, transform: Transform):
        super().__init__(cache_size=transform._cache_size)
        self._back = transform

    domain = property(lambda self: self._back.codomain)  # type: ignore[assignment]
    codomain = property(lambda self: self._back.domain)  # type: ignore[assignment]
    bijective = property(lambda self: self._back.bijective)  # type: ignore[assignment]
    sign = property(lambda self: self._back.sign)  # type: ignore[assignment]
    inv = property(lambda self: self._back)  # type: ignore[assignment]

    def with_cache(self, cache_size=1):
        return self.inv.with_cache(cache_size).inv

    def __eq__(self, other):
        return isinstance(other, _InverseTransform) and self._back == other._back

    __hash__ = object.__hash__

    def __call__(self, x):
        return self._back._inv_call(x)

    def _inv_call(self, y):
        return self._back(y)

    def log_abs_det_jacobian(self, x, y):
        return -self._back.log_abs_det_jacobian(y, x)

    def forward_shape(self, shape):
        return self._back.inverse_shape(shape)

    def inverse_shape(self, shape):
        return self._back.forward_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._back!r})"


class ComposeTransform(Transform):
    """Several transforms, the first one first."""

    def __init__(self, parts: Sequence[Transform], cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.parts = [part.with_cache(cache_size) for part in parts] if cache_size else list(parts)

    def __eq__(self, other):
        return isinstance(other, ComposeTransform) and self.parts == other.parts

    __hash__ = object.__hash__

    @property
    def domain(self):  # type: ignore[override]
        return _widened(self.parts, "domain") if self.parts else constraints.real

    @property
    def codomain(self):  # type: ignore[override]
        return _widened(self.parts, "codomain") if self.parts else constraints.real

    bijective = property(lambda self: all(p.bijective for p in self.parts))  # type: ignore[override]

    @property
    def sign(self):
        found: Any = 1
        for p in self.parts:
            found = found * p.sign
        return found

    @property
    def inv(self):
        found = None if self._inv is None else self._inv()
        if found is None:
            found = ComposeTransform([p.inv for p in reversed(self.parts)])
            self._inv, found._inv = weakref.ref(found), weakref.ref(self)
        return found

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ComposeTransform(self.parts, cache_size=cache_size)

    def __call__(self, x):
        for part in self.parts:
            x = part(x)
        return x

    def _inv_call(self, y):
        return self.inv(y)

    def log_abs_det_jacobian(self, x, y):
        if not self.parts:
            return factories.full_like(x, 0)
        places = [x]
        for part in self.parts[:-1]:
            places.append(part(places[-1]))
        places.append(y)
        event_dim, total = self.domain.event_dim, 0
        for part, a, b in zip(self.parts, places, places[1:], strict=False):
            total = total + sum_rightmost(part.log_abs_det_jacobian(a, b), event_dim - part.domain.event_dim)
            event_dim += part.codomain.event_dim - part.domain.event_dim
        return total

    def forward_shape(self, shape):
        for part in self.parts:
            shape = part.forward_shape(shape)
        return shape

    def inverse_shape(self, shape):
        for part in reversed(self.parts):
            shape = part.inverse_shape(shape)
        return shape

    def __repr__(self) -> str:
        inside = ",\n    ".join(repr(p) for p in self.parts)
        return f"{type(self).__name__}(\n    {inside}\n)"


def _widened(parts: Sequence[Transform], side: str):
    """The domain of the first part, or the codomain of the last, with as many dimensions as any part between needs."""
    ends = ("codomain", "domain") if side == "domain" else ("domain", "codomain")
    ordered = list(reversed(parts)) if side == "domain" else list(parts)
    found = getattr(ordered[-1], side)
    event_dim = getattr(ordered[0], ends[0]).event_dim
    for part in ordered:
        event_dim = max(event_dim + getattr(part, ends[1]).event_dim - getattr(part, ends[0]).event_dim, getattr(part, ends[1]).event_dim)
    extra = event_dim - found.event_dim
    return constraints.independent(found, extra) if extra > 0 else found


identity_transform = ComposeTransform([])


def _check_dims(found: int, needed: int) -> None:
    if found < needed:
        raise ValueError(f"Too few dimensions on input: one value has {needed}, and this has {found}")


class IndependentTransform(Transform):
    """A transform whose last batch dimensions count as part of the value."""

    def __init__(self, base_transform: Transform, reinterpreted_batch_ndims: int, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.base_transform = base_transform.with_cache(cache_size)
        self.reinterpreted_batch_ndims = reinterpreted_batch_ndims

    domain = property(lambda self: constraints.independent(self.base_transform.domain, self.reinterpreted_batch_ndims))  # type: ignore[assignment]
    codomain = property(lambda self: constraints.independent(self.base_transform.codomain, self.reinterpreted_batch_ndims))  # type: ignore[assignment]
    bijective = property(lambda self: self.base_transform.bijective)  # type: ignore[assignment]
    sign = property(lambda self: self.base_transform.sign)  # type: ignore[assignment]

    def with_cache(self, cache_size=1):
        if self._cache_size == cache_size:
            return self
        return IndependentTransform(self.base_transform, self.reinterpreted_batch_ndims, cache_size=cache_size)

    def _call(self, x):
        _check_dims(x.dim(), self.domain.event_dim)
        return self.base_transform(x)

    def _inverse(self, y):
        _check_dims(y.dim(), self.codomain.event_dim)
        return self.base_transform.inv(y)

    def log_abs_det_jacobian(self, x, y):
        return sum_rightmost(self.base_transform.log_abs_det_jacobian(x, y), self.reinterpreted_batch_ndims)

    def forward_shape(self, shape):
        return self.base_transform.forward_shape(shape)

    def inverse_shape(self, shape):
        return self.base_transform.inverse_shape(shape)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.base_transform!r}, {self.reinterpreted_batch_ndims})"


class ReshapeTransform(Transform):
    """Another shape for the last dimensions."""

    bijective = True

    def __init__(self, in_shape, out_shape, cache_size: int = 0):
        self.in_shape, self.out_shape = Size(in_shape), Size(out_shape)
        if self.in_shape.numel() != self.out_shape.numel():
            raise ValueError("in_shape, out_shape have different numbers of elements")
        super().__init__(cache_size=cache_size)

    domain = property(lambda self: constraints.independent(constraints.real, len(self.in_shape)))  # type: ignore[assignment]
    codomain = property(lambda self: constraints.independent(constraints.real, len(self.out_shape)))  # type: ignore[assignment]

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else ReshapeTransform(self.in_shape, self.out_shape, cache_size=cache_size)

    def _call(self, x):
        return x.reshape(x.shape[: x.dim() - len(self.in_shape)] + self.out_shape)

    def _inverse(self, y):
        return y.reshape(y.shape[: y.dim() - len(self.out_shape)] + self.in_shape)

    def log_abs_det_jacobian(self, x, y):
        return x.new_zeros(x.shape[: x.dim() - len(self.in_shape)])

    def forward_shape(self, shape):
        return _exchanged(shape, self.in_shape, self.out_shape)

    def inverse_shape(self, shape):
        return _exchanged(shape, self.out_shape, self.in_shape)


def _exchanged(shape, old: Size, new: Size):
    _check_dims(len(shape), len(old))
    cut = len(shape) - len(old)
    if tuple(shape[cut:]) != tuple(old):
        raise ValueError(f"Shape mismatch: expected {shape[cut:]} but got {old}")
    return Size(shape[:cut]) + new


class _Plain(Transform):
    """A transform without parameters: equal to any other of its kind."""

    bijective = True

    def __eq__(self, other):
        return type(self) is type(other)

    __hash__ = object.__hash__


class ExpTransform(_Plain):
    """y = exp(x)."""

    codomain = constraints.positive
    sign = +1

    def _call(self, x):
        return x.exp()

    def _inverse(self, y):
        return y.log()

    def log_abs_det_jacobian(self, x, y):
        return x


class PowerTransform(Transform):
    """y = x ** exponent, of positive numbers."""

    domain = codomain = constraints.positive
    bijective = True

    def __init__(self, exponent, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.exponent = exponent if isinstance(exponent, Tensor) else factories.tensor(exponent)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else PowerTransform(self.exponent, cache_size=cache_size)

    sign = property(lambda self: self.exponent.sign())

    def __eq__(self, other):
        return isinstance(other, PowerTransform) and bool(self.exponent.eq(other.exponent).all())

    __hash__ = object.__hash__

    def _call(self, x):
        return x.pow(self.exponent)

    def _inverse(self, y):
        return y.pow(1 / self.exponent)

    def log_abs_det_jacobian(self, x, y):
        return (self.exponent * y / x).abs().log()

    def forward_shape(self, shape):
        return _broadcast(shape, self.exponent.shape)

    inverse_shape = forward_shape


def _broadcast(*shapes) -> Size:
    return broadcast_shapes(*[tuple(s) for s in shapes])


def _clipped_sigmoid(x):
    limits = finfo(x.dtype)
    return x.sigmoid().clamp(min=limits.tiny, max=1.0 - limits.eps)


class SigmoidTransform(_Plain):
    """y = 1 / (1 + exp(-x)), kept off 0 and 1."""

    codomain = constraints.unit_interval
    sign = +1

    def _call(self, x):
        return _clipped_sigmoid(x)

    def _inverse(self, y):
        limits = finfo(y.dtype)
        y = y.clamp(min=limits.tiny, max=1.0 - limits.eps)
        return y.log() - (-y).log1p()

    def log_abs_det_jacobian(self, x, y):
        return -op("nn.functional.softplus", -x) - op("nn.functional.softplus", x)


class SoftplusTransform(_Plain):
    """y = log(1 + exp(x))."""

    codomain = constraints.positive
    sign = +1

    def _call(self, x):
        return op("nn.functional.softplus", x)

    def _inverse(self, y):
        return (-y).expm1().neg().log() + y

    def log_abs_det_jacobian(self, x, y):
        return -op("nn.functional.softplus", -x)


class TanhTransform(_Plain):
    """y = tanh(x)."""

    codomain = constraints.interval(-1.0, 1.0)
    sign = +1

    def _call(self, x):
        return x.tanh()

    def _inverse(self, y):
        return y.atanh()

    def log_abs_det_jacobian(self, x, y):
        return 2.0 * (math.log(2.0) - x - op("nn.functional.softplus", -2.0 * x))  # log(1 - tanh^2), also where tanh rounds to 1


class AbsTransform(Transform):
    """y = |x|. Not one-to-one: its inverse gives the positive one."""

    codomain = constraints.positive

    def __eq__(self, other):
        return isinstance(other, AbsTransform)

    __hash__ = object.__hash__

    def _call(self, x):
        return x.abs()

    def _inverse(self, y):
        return y


class AffineTransform(Transform):
    """y = loc + scale x; event_dim says how many dimensions of loc and scale are part of a value."""

    bijective = True

    def __init__(self, loc, scale, event_dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.loc, self.scale, self._event_dim = loc, scale, event_dim

    event_dim = property(lambda self: self._event_dim)

    @property
    def domain(self):  # type: ignore[override]
        return constraints.real if self.event_dim == 0 else constraints.independent(constraints.real, self.event_dim)

    codomain = domain

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else AffineTransform(self.loc, self.scale, self.event_dim, cache_size=cache_size)

    def __eq__(self, other):
        return isinstance(other, AffineTransform) and _same(self.loc, other.loc) and _same(self.scale, other.scale)

    __hash__ = object.__hash__

    @property
    def sign(self):
        return self.scale.sign() if isinstance(self.scale, Tensor) else (self.scale > 0) - (self.scale < 0)

    def _call(self, x):
        return self.loc + self.scale * x

    def _inverse(self, y):
        return (y - self.loc) / self.scale

    def log_abs_det_jacobian(self, x, y):
        found = self.scale.abs().log() if isinstance(self.scale, Tensor) else factories.full_like(x, math.log(abs(self.scale)))
        shape = x.shape
        if self.event_dim:
            found = found.view((*found.size()[: -self.event_dim], -1)).sum(-1)
            shape = shape[: -self.event_dim]
        return found.expand(shape)

    def forward_shape(self, shape):
        return _broadcast(shape, *[v.shape for v in (self.loc, self.scale) if isinstance(v, Tensor)])

    inverse_shape = forward_shape


def _same(a, b) -> bool:
    numbers = isinstance(a, (int, float)) and isinstance(b, (int, float))
    return operator.eq(a, b) if numbers else bool((a == b).all())


class CorrCholeskyTransform(Transform):
    """A vector as the Cholesky factor of a correlation matrix: tanh of its entries are partial correlations, and rows have length 1."""

    domain = constraints.real_vector
    codomain = constraints.corr_cholesky
    bijective = True

    def _call(self, x):
        x = x.tanh()
        eps = finfo(x.dtype).eps
        r = vec_to_tril_matrix(x.clamp(min=-1 + eps, max=1 - eps), diag=-1)
        # What is left of the row's length after each entry.
        left = (1 - r**2).sqrt().cumprod(-1)
        r = r + factories.eye(r.shape[-1], dtype=r.dtype, device=r.device)
        return r * op("nn.functional.pad", left[..., :-1], [1, 0], value=1)

    def _inverse(self, y):
        left = op("nn.functional.pad", (1 - (y * y).cumsum(-1))[..., :-1], [1, 0], value=1)
        t = tril_matrix_to_vec(y, diag=-1) / tril_matrix_to_vec(left, diag=-1).sqrt()
        return (t.log1p() - t.neg().log1p()) / 2

    def log_abs_det_jacobian(self, x, y, intermediates=None):
        left = 1 - (y * y).cumsum(-1)
        stretched = 0.5 * tril_matrix_to_vec(left, diag=-2).log().sum(-1)
        return stretched - 2 * (x + op("nn.functional.softplus", -2 * x) - math.log(2.0)).sum(dim=-1)

    def forward_shape(self, shape):
        _check_dims(len(shape), 1)
        n = round((0.25 + 2 * shape[-1]) ** 0.5 + 0.5)
        if n * (n - 1) // 2 != shape[-1]:
            raise ValueError("the last dimension must hold the entries below a diagonal, n (n - 1) / 2 of them for some n")
        return Size((*shape[:-1], n, n))

    def inverse_shape(self, shape):
        _check_square(shape)
        n = shape[-1]
        return Size((*shape[:-2], n * (n - 1) // 2))


def _check_square(shape) -> None:
    _check_dims(len(shape), 2)
    if shape[-2] != shape[-1]:
        raise ValueError("Input is not square")


class SoftmaxTransform(_Plain):
    """y = softmax(x). Not one-to-one, a constant added to x makes no difference: its inverse is the logarithm."""

    bijective = False
    domain = constraints.real_vector
    codomain = constraints.simplex

    def _call(self, x):
        powers = (x - x.max(-1, True)[0]).exp()
        return powers / powers.sum(-1, True)

    def _inverse(self, y):
        return y.log()

    def forward_shape(self, shape):
        _check_dims(len(shape), 1)
        return shape

    inverse_shape = forward_shape


class StickBreakingTransform(_Plain):
    """n numbers as n + 1 that are positive and sum to one: each takes its share of what the ones before have left."""

    domain = constraints.real_vector
    codomain = constraints.simplex

    @staticmethod
    def _offset(x: Tensor) -> Tensor:
        """n, n - 1, ..., 1: so that zeros give equal parts."""
        n = x.shape[-1]
        return factories.tensor([float(i) for i in range(n, 0, -1)], dtype=x.dtype, device=x.device)

    def _call(self, x):
        z = SigmoidTransform()._call(x - self._offset(x).log())
        left = (1 - z).cumprod(-1)
        return op("nn.functional.pad", z, [0, 1], value=1) * op("nn.functional.pad", left, [1, 0], value=1)

    def _inverse(self, y):
        cut = y[..., :-1]
        left = (1 - cut.cumsum(-1)).clamp(min=finfo(y.dtype).tiny)
        return cut.log() - left.log() + self._offset(cut).log()

    def log_abs_det_jacobian(self, x, y):
        x = x - self._offset(x).log()
        return (-x + op("nn.functional.logsigmoid", x) + y[..., :-1].log()).sum(-1)

    def forward_shape(self, shape):
        _check_dims(len(shape), 1)
        return Size((*shape[:-1], shape[-1] + 1))

    def inverse_shape(self, shape):
        _check_dims(len(shape), 1)
        return Size((*shape[:-1], shape[-1] - 1))


class LowerCholeskyTransform(_Plain):
    """A matrix as a lower triangular one with a positive diagonal, which is exponentiated."""

    bijective = False
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.lower_cholesky

    def _call(self, x):
        return _lower_with_diagonal(x, Tensor.exp)

    def _inverse(self, y):
        return _lower_with_diagonal(y, Tensor.log)


def _lower_with_diagonal(matrix: Tensor, function) -> Tensor:
    """What is below the diagonal, and the function of what is on it."""
    on = function(matrix.diagonal(0, -2, -1))
    return on.diag_embed() + matrix.tril(-1)


class PositiveDefiniteTransform(_Plain):
    """A matrix as a positive definite one: its lower Cholesky form, times its transpose."""

    bijective = False
    domain = constraints.independent(constraints.real, 2)
    codomain = constraints.positive_definite

    def _call(self, x):
        factor = LowerCholeskyTransform()(x)
        return factor @ factor.mT

    def _inverse(self, y):
        return LowerCholeskyTransform().inv(op("linalg.cholesky", y))


class _PartwiseTransform(Transform):
    """One transform for each part of a value along a dimension."""

    transforms: list[Transform]
    dim: int

    bijective = property(lambda self: all(t.bijective for t in self.transforms))  # type: ignore[override]

    domain = property(lambda self: self._limits([t.domain for t in self.transforms]))  # type: ignore[assignment]
    codomain = property(lambda self: self._limits([t.codomain for t in self.transforms]))  # type: ignore[assignment]

    def _limits(self, each: list):
        raise NotImplementedError

    def _each(self, *values: Tensor):
        raise NotImplementedError

    def _joined(self, parts: list[Tensor], dim: int) -> Tensor:
        raise NotImplementedError

    def _call(self, x):
        return self._joined([t(v) for t, (v,) in zip(self.transforms, self._each(x), strict=True)], self.dim)

    def _inverse(self, y):
        return self._joined([t.inv(v) for t, (v,) in zip(self.transforms, self._each(y), strict=True)], self.dim)


class CatTransform(_PartwiseTransform):
    """Transforms of the parts of a concatenation, `lengths` long each."""

    def __init__(self, tseq, dim: int = 0, lengths=None, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.lengths = [1] * len(self.transforms) if lengths is None else list(lengths)
        self.dim = dim

    event_dim = property(lambda self: max(t.event_dim for t in self.transforms))

    @property
    def length(self) -> int:
        """The size of the whole."""
        return sum(self.lengths)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CatTransform(self.transforms, self.dim, self.lengths, cache_size)

    def _each(self, *values):
        for v in values:
            if v.size(self.dim) != self.length:
                raise ValueError(f"the parts are {self.length} long together, but dimension {self.dim} has size {v.size(self.dim)}")
        start = 0
        for n in self.lengths:
            yield tuple([v.narrow(self.dim, start, n) for v in values])
            start += n

    def _joined(self, parts, dim):
        return op("cat", parts, dim)

    def log_abs_det_jacobian(self, x, y):
        found = []
        for t, (a, b) in zip(self.transforms, self._each(x, y), strict=True):
            part = t.log_abs_det_jacobian(a, b)
            found.append(sum_rightmost(part, self.event_dim - t.event_dim) if t.event_dim < self.event_dim else part)
        dim = self.dim - x.dim() if self.dim >= 0 else self.dim
        dim += self.event_dim
        return op("cat", found, dim) if dim < 0 else sum(found)

    def _limits(self, each: list):
        return constraints.cat(each, self.dim, self.lengths)


class StackTransform(_PartwiseTransform):
    """Transforms of the parts of a stack."""

    def __init__(self, tseq, dim: int = 0, cache_size: int = 0):
        super().__init__(cache_size=cache_size)
        self.transforms = [t.with_cache(cache_size) for t in tseq] if cache_size else list(tseq)
        self.dim = dim

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else StackTransform(self.transforms, self.dim, cache_size)

    def _each(self, *values):
        for v in values:
            if v.size(self.dim) != len(self.transforms):
                raise ValueError(f"there are {len(self.transforms)} transforms, but dimension {self.dim} has size {v.size(self.dim)}")
        return [tuple([v.select(self.dim, i) for v in values]) for i in range(len(self.transforms))]

    def _joined(self, parts, dim):
        return op("stack", parts, dim)

    def log_abs_det_jacobian(self, x, y):
        pairs = zip(self.transforms, self._each(x, y), strict=True)
        return op("stack", [t.log_abs_det_jacobian(a, b) for t, (a, b) in pairs], self.dim)

    def _limits(self, each: list):
        return constraints.stack(each, self.dim)


class CumulativeDistributionTransform(Transform):
    """A number as its rank in a distribution, y = distribution.cdf(x), whose slope is the density."""

    codomain, bijective, sign = constraints.unit_interval, True, +1
    domain = property(lambda self: self.distribution.support)  # type: ignore[assignment]

    def __init__(self, distribution, cache_size: int = 0):
        self.distribution = distribution
        super().__init__(cache_size)

    def with_cache(self, cache_size=1):
        return self if self._cache_size == cache_size else CumulativeDistributionTransform(self.distribution, cache_size=cache_size)

    def log_abs_det_jacobian(self, x, y):
        return self.distribution.log_prob(x)

    def _inverse(self, y):
        return self.distribution.icdf(y)

    def _call(self, x):
        return self.distribution.cdf(x)
