"""Dropout: x times a noise that is 0 with probability p and 1 / (1 - p) otherwise. For one seed the noise is PyTorch's.

dropout        a noise of its own for every element         feature_dropout, dropout1d to dropout3d     one for each channel of each sample
alpha_dropout  what is dropped becomes the value a SELU tends to, and the whole is scaled to keep mean 0 and variance 1
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from flambeau import dtypes, errors
from flambeau.kernels import arrays
from flambeau.kernels.language.pointwise import Pointwise
from flambeau.kernels.random import drawing
from flambeau.kernels.random.drawing import fill
from flambeau.ops import specs
from flambeau.ops.asking import array_of
from flambeau.ops.declare import composite, on_arrays

ALPHA = 1.7580993408473766  # -SELU_ALPHA * SELU_SCALE, the limit of SELU, is -ALPHA


@on_arrays(public=False, method=False, differentiable=False)
def _noise(input, shape, keep, scaled):
    """Fresh numbers that are 1 with probability `keep` (1 / keep, if scaled), else 0, with the shape and the order of memory of `input`; or in
    `shape`."""
    out = arrays.empty_like(input) if shape is None else arrays.empty_beside(input, shape, input.dtype)
    value = _scale(input.dtype, keep) if scaled else 1.0
    if type(out) is np.ndarray:
        fill("bernoulli", out, None, p=keep, value=value)
    else:
        fill("bernoulli", out, None, p=keep)
        if scaled:
            arrays.write(out, out * out.dtype.type(value))
    return out


@lru_cache(256)
def _scale(dtype: np.dtype, keep: float) -> float:
    """1 / keep, rounded as PyTorch's quotient is."""
    wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
    return float(wide.type(1) / wide.type(keep))


_noise.draws = True
_noise.meta(lambda input, shape, keep, scaled: (input.shape if shape is None else shape, input.dtype))


def _masked_formula(input, kept, scale):
    from flambeau.kernels.language import expr as e

    return input * e.where(kept, scale, 0.0)  # a product, so that infinity that is dropped is NaN, as in PyTorch


@on_arrays(public=False, method=False, returns="values kept", grad_name="NativeDropoutBackward0")
def _drawn_and_dropped(input, keep, scale):
    """(input * scale where a number drawn for it is at most `keep`, else 0; which those are), in one kernel of a GPU."""
    return drawing.dropped(input, keep, scale)


_drawn_and_dropped.draws = True
_drawn_and_dropped.derivative(input=lambda grads, kept, scale: _masked(grads[0], kept, scale))
_drawn_and_dropped.meta(lambda input, keep, scale: [(input.shape, input.dtype), (input.shape, dtypes.bool.numpy)])


@on_arrays(public=False, method=False, grad_name="MulBackward0", meta=specs.contiguous)
def _masked(input, kept, scale):
    """input * scale where it is kept, input * 0 elsewhere."""
    return arrays.run(MASKED, (input, kept), (scale,), input.dtype, input.dtype)


MASKED = Pointwise("dropout_masked", _masked_formula, ("input", "kept"), ("scale",), ("T", "bool"), dtypes=())
_masked.derivative(input=lambda grad, kept, scale: _masked(grad, kept, scale))


def _dropped(input, p: float, train: bool, inplace: bool, feature: bool = False, alpha: bool = False):
    """What all of them are."""
    p = float(p)  # a tensor of probabilities would be drawn from another way
    if not 0 <= p <= 1:
        raise RuntimeError(f"dropout probability has to be in [0, 1], found {p}")
    if p == 0 or not train or not input.numel():
        return input
    if p < 1 and input.dtype.category < dtypes.FLOAT:
        raise RuntimeError(f"dropout scales what it keeps, and the result type Float can't be {input.dtype}. Try input.float()")
    if p == 1:
        nothing = input.new_zeros(())
        return input.mul_(nothing) if inplace else input * nothing
    shape = None
    if feature:
        if input.dim() < 2:
            raise RuntimeError(f"Feature dropout requires at least 2 dimensions, (N, C, *), found {input.dim()}")
        shape = (*input.shape[:2], *(1,) * (input.dim() - 2))
    if not alpha and not feature and not inplace and drawing.drops_at_once(array_of(input)):
        return _drawn_and_dropped(input, 1 - p, _scale(input.dtype.numpy, 1 - p))[0]
    if not alpha:
        noise = _noise(input, shape, 1 - p, True)
        return input.mul_(noise) if inplace else input * noise
    noise, scale = _noise(input, shape, 1 - p, False), 1 / math.sqrt((ALPHA * ALPHA * p + 1) * (1 - p))
    shift = noise.add(-1).mul_(ALPHA * scale).add_(ALPHA * scale * p)
    noise.mul_(scale)
    return input.mul_(noise).add_(shift) if inplace else input * noise + shift


def _declare(name: str, doc: str, training: bool | None = None, **kind: bool):
    """torch.<name>(input, p, train) and torch.<name>_; nn.functional.<name>, too, if there is one, and whether it is on if nothing is said."""

    def forward(input, p, train):
        return _dropped(input, p, train, False, **kind)

    def write(input, p, train):
        return _dropped(input, p, train, True, **kind)

    def functional(input, p=0.5, training=training, inplace=False):
        _check(p)
        return _dropped(input, p, training, inplace, **kind)

    composite(name=name, method=False, doc=doc)(forward)
    composite(name=f"{name}_", method=False, doc=f"{doc} Written over the input.")(write)
    return None if training is None else composite(name=f"nn.functional.{name}", method=False, doc=f"In training: {doc}")(functional)


def _check(p: float) -> None:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be in [0, 1], found {p}")


functional_dropout = _declare("dropout", "Elements set to zero with probability p, the rest divided by 1 - p. Same shape.", True)
_declare("feature_dropout", "Whole channels set to zero with probability p, the rest divided by 1 - p. (N, C, *).", feature=True)
_declare("alpha_dropout", "Elements set to the limit of SELU with probability p; mean 0 and variance 1 are kept.", False, alpha=True)
_declare("feature_alpha_dropout", "The same with whole channels. (N, C, *).", False, feature=True, alpha=True)


@composite(method=False)
def native_dropout(input, p, train):
    """(dropout of the input, what was kept as bool)."""
    p = float(p)
    if not input.numel() or train is False or p == 0:
        return input.clone() if input.numel() else input, input.new_ones(input.shape, dtype=dtypes.bool)
    if p < 1 and drawing.drops_at_once(array_of(input)):
        return tuple(_drawn_and_dropped(input, 1 - p, _scale(input.dtype.numpy, 1 - p)))
    kept = _noise(input, None, 1 - p, False)
    return input * kept * (1 / (1 - p) if p < 1 else 0.0), kept.to(dtypes.bool)


# -- of whole channels -----------------------------------------------------------------------------------------------------


@composite(name="nn.functional.dropout1d", method=False)
def dropout1d(input, p=0.5, training=True, inplace=False):
    """In training: whole channels set to zero with probability p, the rest divided by 1 - p. (N, C, L) or (C, L)."""
    _check(p)
    if input.dim() not in (2, 3):
        raise RuntimeError(f"dropout1d: Expected 2D or 3D input, but received a {input.dim()}D input: (C, L) or (N, C, L) is meant")
    return _by_channel(input, p, training, inplace, input.dim() == 3)


@composite(name="nn.functional.dropout2d", method=False)
def dropout2d(input, p=0.5, training=True, inplace=False):
    """In training: whole channels set to zero with probability p, the rest divided by 1 - p. (N, C, H, W)."""
    _check(p)
    if input.dim() not in (3, 4):
        errors.warn(f"Received a {input.dim()}-D input to dropout2d. This is deprecated: give it (N, C, H, W)")
    elif input.dim() == 3:
        said = "dropout2d: (N, C, L) is assumed: assuming that channel-wise 1D dropout behavior is desired"
        errors.warn(f"{said}: it is read as (N, C, L). Try dropout1d, or x.unsqueeze(0) for one image")
    return _dropped(input, p, training, inplace, feature=True)


@composite(name="nn.functional.dropout3d", method=False)
def dropout3d(input, p=0.5, training=True, inplace=False):
    """In training: whole channels set to zero with probability p, the rest divided by 1 - p. (N, C, D, H, W) or (C, D, H, W)."""
    _check(p)
    if input.dim() not in (4, 5):
        said = f"Received a {input.dim()}-D input to dropout3d. This is deprecated"
        errors.warn(f"{said}: give it (N, C, D, H, W) or (C, D, H, W)")
    return _by_channel(input, p, training, inplace, input.dim() == 5)


def _by_channel(input, p, training, inplace, batched: bool):
    """A single sample is a batch of one."""
    if batched:
        return _dropped(input, p, training, inplace, feature=True)
    result = _dropped(input.unsqueeze_(0) if inplace else input.unsqueeze(0), p, training, inplace, feature=True)
    return result.squeeze_(0) if inplace else result.squeeze(0)
