"""Random numbers written into tensors, and drawn with the probabilities in them. Gradients do not pass: they are zero.

The numbers are those of `kernels/random/sampling.py`, from the generator given or the default one; a tensor that is not contiguous is filled in
the order of its memory, as PyTorch does.
"""

from __future__ import annotations

from flambeau.kernels import arrays, layout
from flambeau.kernels.random import rejection, sampling
from flambeau.kernels.random.drawing import draw, fill, room, source
from flambeau.ops import specs
from flambeau.ops.declare import on_arrays


def _zeros(grad):
    return grad.new_zeros(grad.shape)


NOTHING: dict = {}


def distribution(signature):
    """Declare Tensor.<name>_, which fills a tensor by the sampler of that name; the function shows its parameters, which are numbers."""
    name = signature.__name__
    op = on_arrays(name=f"Tensor.{name}", public=False, method=False, inplace=True)(signature)

    parameters = op.parameters[1:-1]  # between `input` and `generator`
    names = tuple({"from_": "low", "to": "high"}.get(p, p) for p in parameters)

    @op.writes
    def _(input, *given, generator=None, **by_name):
        if by_name:
            given = tuple(by_name[p] for p in parameters)
        fill(name, input, generator, **{p: float(v) for p, v in zip(names, given, strict=False)} if given else NOTHING)

    @op.work_in_place
    def _(input, *given):
        *numbers, generator = given
        return sampling.filler(name, input, **dict(zip(names, map(float, numbers), strict=True))) if generator is None else None

    op.meta(specs.like)
    op.derivative(input=_zeros)
    return op


@distribution
def uniform(input, from_=0.0, to=1.0, *, generator=None):
    """Uniform on [from, to)."""


@distribution
def normal(input, mean=0.0, std=1.0, *, generator=None):
    """Normal with mean and standard deviation."""


@distribution
def log_normal(input, mean=1.0, std=2.0, *, generator=None):
    """The exponential of a normal number with mean and standard deviation."""


@distribution
def exponential(input, lambd=1.0, *, generator=None):
    """Exponential with rate `lambd`."""


@distribution
def cauchy(input, median=0.0, sigma=1.0, *, generator=None):
    """Cauchy around the median, with half-width sigma."""


@distribution
def geometric(input, p, *, generator=None):
    """The number of trials up to the first success, each of probability p."""


@on_arrays(name="Tensor.random", public=False, method=False, inplace=True, meta=specs.like)
def _random(input, from_=None, to=..., *, generator=None):
    """Whole numbers: random_() of all the dtype holds, random_(to) below `to`, random_(from, to) from `from` on, up to the largest if `to` is None."""


@_random.writes
def _(input, from_=None, to=..., *, generator=None):
    if from_ is None and (to is ... or to is None):
        fill("random_full", input, generator)
    else:
        low, high = (0, from_) if to is ... else (from_ or 0, to)
        fill("randint", input, generator, low=int(low), high=None if high is None else int(high))


_random.derivative(input=_zeros)


@on_arrays(name="Tensor.bernoulli", public=False, method=False, inplace=True, grad_name="BernoulliBackward2", meta=specs.like)
def _bernoulli(input, p=0.5, *, generator=None):
    """1 with probability p (a number, or a tensor that broadcasts), else 0."""


@_bernoulli.writes
def _(input, p=0.5, *, generator=None):
    if hasattr(p, "shape"):
        layout.expand(p.shape, arrays.element_strides(p), input.shape)  # raises where p does not broadcast
    fill("bernoulli", input, generator, p=p if hasattr(p, "shape") else float(p))


@_bernoulli.work_in_place
def _(input, p, generator):
    return sampling.filler("bernoulli", input, p=float(p)) if generator is None and not hasattr(p, "shape") else None


_bernoulli.derivative(input=_zeros, p=lambda grad, p_shape: grad.new_zeros(p_shape))


@on_arrays(out="any", meta=specs.contiguous)
def bernoulli(input, p=None, *, generator=None):
    """1 with the probability given by each element of `input` (or by p, if given), else 0. -> the same shape and dtype"""
    out = arrays.empty_beside(input, input.shape, input.dtype)
    fill("bernoulli", out, generator, p=input if p is None else float(p))
    return out


bernoulli.derivative(input=_zeros)


@on_arrays(out="same")
def multinomial(input, num_samples, replacement=False, *, generator=None):
    """Category numbers drawn with the weights in `input`. (C,) -> (num_samples,), (R, C) -> (R, num_samples), int64"""
    return room(input, sampling).multinomial(
        source(generator, arrays.device_of(input)), arrays.contiguous(input), int(num_samples), replacement
    )


multinomial.meta(lambda input, num_samples, replacement=False, *, generator=None: ((*input.shape[:-1], num_samples), "int64"))


@on_arrays(name="poisson", method=False, meta=specs.contiguous)
def poisson(input, generator=None):
    """A Poisson number for each rate in `input`. -> the same shape and dtype"""
    return room(input, rejection).poisson(source(generator, arrays.device_of(input)), input)


poisson.derivative(input=_zeros)


@on_arrays(method=False, meta=specs.broadcast)
def binomial(count, prob, generator=None):
    """How many of `count` trials succeed, each with probability `prob`. Tensors that broadcast, of one floating dtype"""
    return room(count, rejection).binomial(source(generator, arrays.device_of(count)), count, prob)


binomial.derivative(count=lambda grad, count_shape: grad.new_zeros(count_shape), prob=lambda grad, prob_shape: grad.new_zeros(prob_shape))


@on_arrays(name="_normal_around", public=False, method=False, grad_name="NormalBackward3", meta=specs.broadcast)
def normal_around(mean, std, generator=None):
    """Normal numbers around `mean` with standard deviation `std`, of which one or both are tensors that broadcast."""
    tensors = [v for v in (mean, std) if hasattr(v, "shape")]
    shape = layout.broadcast_shapes(*[v.shape for v in tensors])
    device = arrays.device_of(tensors[0])
    return draw("normal", generator, shape, tensors[0].dtype, device, mean=mean, std=std)


normal_around.derivative(mean=lambda grad, mean_shape: grad.new_zeros(mean_shape), std=lambda grad, std_shape: grad.new_zeros(std_shape))
