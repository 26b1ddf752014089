"""Convolutions: values and derivatives of random shapes, layouts, dtypes, what is not finite, errors, and the layers."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
from differences import check, sample
from oracle import assert_same, carried, torch, values

import flambeau
from flambeau.kernels.native import native
from flambeau.kernels.templates import conv_plans

nn, F, T = flambeau.nn, flambeau.nn.functional, torch.nn.functional


def drawn(seed: int) -> dict:
    """A random convolution that makes sense."""
    rng = random.Random(seed)
    n = rng.choice((1, 2, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 3))
    channels, outputs = groups * rng.choice((1, 2, 5, 17)), groups * rng.choice((1, 3, 16, 21, 70))
    kernel = tuple(rng.choice((1, 2, 3, 3, 4)) for _ in range(n)) if rng.random() < 0.7 else (3,) * n
    plain = rng.random() < 0.4
    stride = (1,) * n if plain else tuple(rng.choice((1, 1, 2, 3)) for _ in range(n))
    dilation = (1,) * n if plain else tuple(rng.choice((1, 1, 2, 3)) for _ in range(n))
    padding = tuple(rng.randint(0, 2) for _ in range(n))
    sizes = tuple(d * (k - 1) + 1 + rng.randint(0, (40, 14, 5)[n - 1]) for d, k in zip(dilation, kernel, strict=True))
    more = tuple(rng.randint(0, max(s, d) - 1) for s, d in zip(stride, dilation, strict=True))
    return {
        "n": n, "batch": rng.choice((1, 2, 3)), "channels": channels, "outputs": outputs, "groups": groups, "kernel": kernel,
        "stride": stride, "dilation": dilation, "padding": padding, "sizes": sizes, "more": more, "bias": rng.random() < 0.5,
        "last": n == 2 and rng.random() < 0.3,
    }  # fmt: skip


def operands(c: dict, dtype, transposed: bool = False):
    x = sample(c["batch"], c["channels"], *c["sizes"], dtype=dtype)
    x = x.to(memory_format=torch.channels_last) if c["last"] else x
    ends = (c["channels"], c["outputs"] // c["groups"]) if transposed else (c["outputs"], c["channels"] // c["groups"])
    return x, sample(*ends, *c["kernel"], dtype=dtype, seed=1), sample(c["outputs"], dtype=dtype, seed=2) if c["bias"] else None


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_random_convolutions_are_torchs(seed, dtype):
    """Any stride, padding, dilation and groups: result and gradients are PyTorch's, by compiled loops and without."""
    c = drawn(seed)

    def run(framework, x, w, b):
        return getattr(framework.nn.functional, f"conv{c['n']}d")(x, w, b, c["stride"], c["padding"], c["dilation"], c["groups"])

    check(run, *operands(c, dtype), second=dtype is torch.float64 and seed % 4 == 0, strides=not c["last"] or c["outputs"] > 1)


@pytest.mark.parametrize("seed", range(100, 130))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_random_transposed_convolutions_are_torchs(seed, dtype):
    """The adjoint, with output padding: result and gradients are PyTorch's."""
    c = drawn(seed)
    c["padding"] = (0,) * c["n"]

    def run(framework, x, w, b):
        spread = getattr(framework.nn.functional, f"conv_transpose{c['n']}d")
        return spread(x, w, b, c["stride"], c["padding"], c["more"], c["groups"], c["dilation"])

    check(run, *operands(c, dtype, True), second=dtype is torch.float64 and seed % 4 == 0, strides=False)


LARGE = {
    "winograd": ((2, 32, 21, 35), (48, 32, 3, 3), {"padding": 1}),
    "winograd, wide": ((1, 16, 6, 300), (80, 16, 3, 3), {}),
    "winograd, groups": ((2, 40, 12, 12), (80, 20, 3, 3), {"padding": 2, "groups": 2}),
    "direct, 5 x 5": ((2, 20, 24, 24), (70, 20, 5, 5), {"padding": 2}),
    "direct, large stride": ((2, 3, 64, 64), (40, 3, 16, 16), {"stride": 16}),
    "direct, wide": ((1, 8, 26, 1500), (16, 8, 2, 9), {"dilation": (1, 3)}),
    "depthwise": ((2, 24, 30, 41), (24, 1, 3, 3), {"padding": 1, "groups": 24}),
    "depthwise, stride 2, two outputs": ((2, 9, 30, 41), (18, 1, 5, 3), {"padding": 1, "groups": 9, "stride": 2}),
    "depthwise, small planes": ((3, 70, 7, 7), (70, 1, 3, 3), {"padding": 1, "groups": 70}),
    "depthwise, tiny planes, two outputs": ((2, 20, 2, 3), (40, 1, 3, 3), {"padding": 1, "groups": 20}),
    "depthwise, stride 2": ((2, 33, 15, 14), (33, 1, 5, 5), {"padding": 2, "groups": 33, "stride": 2}),
    "depthwise, stride 3": ((2, 18, 20, 31), (18, 1, 3, 4), {"padding": 1, "groups": 18, "stride": 3}),
    "depthwise, 7 x 7": ((1, 19, 17, 30), (19, 1, 7, 7), {"padding": 3, "groups": 19}),
    "depthwise, dilated": ((2, 17, 19, 25), (17, 1, 3, 3), {"padding": 2, "groups": 17, "dilation": 2}),
    "depthwise, wide": ((1, 16, 10, 3001), (16, 1, 2, 9), {"groups": 16}),
    "product": ((3, 40, 9, 9), (50, 40, 1, 1), {}),
}


@pytest.mark.parametrize("name", LARGE)
def test_every_loop_is_torchs(name):
    """Each compiled loop on sizes with odd edges, contiguous, channels last and every other number."""
    shape, weight, options = LARGE[name]

    def run(framework, x, w, b):
        return framework.nn.functional.conv2d(x, w, b, **options)

    x, w, b = (
        sample(*shape, dtype=torch.float32),
        sample(*weight, dtype=torch.float32, seed=1),
        sample(weight[0], dtype=torch.float32, seed=2),
    )
    check(run, x, w, b)
    check(run, x.to(memory_format=torch.channels_last), w, b)
    check(run, x.to(memory_format=torch.channels_last).permute(0, 1, 3, 2), w, b, strides=False)
    check(
        lambda framework, x, w, b: run(framework, x[:, :, ::2, 1::2], w[..., :, :], b),
        sample(*shape[:2], *(2 * n for n in shape[2:]), dtype=torch.float32),
        w,
        b,
        strides=False,
    )


@pytest.mark.skipif(native.lib is None, reason="nothing was compiled")
@pytest.mark.parametrize("name", LARGE)
def test_threads_do_not_change_bits(name):
    """Result and gradients have the same bits with any number of threads."""
    shape, weight, options = LARGE[name]
    found, before = [], flambeau.get_num_threads()
    for threads in (1, 2, 5):
        flambeau.set_num_threads(threads)
        x, w = (carried(sample(*s, dtype=torch.float32, seed=i)).requires_grad_() for i, s in enumerate((shape, weight)))
        y = F.conv2d(x, w, **options)
        y.sum().backward()
        found.append([y.detach(), x.grad, w.grad])
    flambeau.set_num_threads(before)
    assert all(flambeau.equal(a, b) for run in found[1:] for a, b in zip(run, found[0], strict=True))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 3e38])
def test_what_is_not_finite_stays_where_it_is(value):
    """One NaN or infinity (or a number near the largest) in the input reaches the outputs whose window it is in, and no others."""
    x, w = sample(1, 16, 12, 12, dtype=torch.float32), sample(16, 16, 3, 3, dtype=torch.float32, seed=1)
    x[0, 3, 5, 6] = value
    expected = T.conv2d(x, w, padding=1)
    room = 1e-4 * float(expected[expected.isfinite()].abs().max())
    np.testing.assert_allclose(values(F.conv2d(carried(x), carried(w), padding=1)), values(expected), rtol=1e-4, atol=min(room, 1e-3))
    grad = sample(1, 16, 12, 12, dtype=torch.float32, seed=2)
    mine, theirs = carried(w).requires_grad_(), w.clone().requires_grad_()
    F.conv2d(carried(x), mine, padding=1).backward(carried(grad))
    T.conv2d(x, theirs, padding=1).backward(grad)
    assert_same(mine.grad.isfinite(), theirs.grad.isfinite())


def test_winograd_is_as_exact_as_it_says():
    """3 x 3 kernels lose at most twice the digits that summing products in float32 loses."""
    x, w = sample(2, 64, 28, 28, dtype=torch.float32), sample(64, 64, 3, 3, dtype=torch.float32, seed=1)
    exact = T.conv2d(x.double(), w.double(), padding=1)
    error = np.abs(values(F.conv2d(carried(x), carried(w), padding=1)) - exact.numpy()).max()
    assert error <= 3 * float((T.conv2d(x, w, padding=1).double() - exact).abs().max())


@pytest.mark.parametrize("name", ["float16", "bfloat16", "int64", "int32", "uint8", "complex64", "complex128"])
def test_other_dtypes(name):
    """Half precision is summed in float32, integers stay integers, complex numbers are multiplied as such."""
    dtype = getattr(torch, name)
    x, w = (sample(2, 4, 9, 9) * 4).to(dtype), (sample(6, 2, 3, 3, seed=1) * 4).to(dtype)
    if dtype.is_complex:
        x, w = x + 1j * sample(2, 4, 9, 9, seed=3).to(dtype), w + 1j * sample(6, 2, 3, 3, seed=4).to(dtype)
    room = {"float16": 4e-3, "bfloat16": 2e-2, "complex64": 1e-5}.get(name, 1e-10)
    check(
        lambda framework, x, w: framework.conv2d(x, w, stride=2, padding=1, groups=2),
        x,
        w,
        first=dtype.is_complex,
        second=name == "complex128",
        room=room,
    )


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("kernel", [1, 2, 3, 4])
@pytest.mark.parametrize("dilation", [1, 2, 3])
def test_named_padding(kernel, dilation):
    """'same' keeps the size, an odd zero going to the end; 'valid' is none."""
    x, w = sample(2, 3, 11, 9), sample(4, 3, kernel, 3, seed=1)
    for padding in ("same", "valid"):
        check(lambda framework, x, w, p=padding: framework.conv2d(x, w, padding=p, dilation=(dilation, 1)), x, w)
        check(lambda framework, x, w, p=padding: framework.conv2d(x[0], w, padding=p, dilation=(dilation, 1)), x, w)


def test_one_sample_without_a_batch():
    """(C, *S) gives (O, *P)."""
    check(lambda framework, x, w: framework.conv1d(x, w), sample(3, 9), sample(4, 3, 3, seed=1))
    check(lambda framework, x, w: framework.conv_transpose3d(x, w), sample(3, 4, 4, 4), sample(3, 2, 2, 2, 2, seed=1))


def test_empty_batches_and_channels():
    """Nothing in, nothing (or zeros) out."""
    check(lambda framework, x, w: framework.conv2d(x, w), sample(0, 3, 5, 5), sample(4, 3, 3, 3))
    assert not flambeau.conv2d(flambeau.zeros(2, 0, 5, 5), flambeau.zeros(4, 0, 3, 3)).any()
    check(lambda framework, x, w: framework.conv_transpose2d(x, w), sample(0, 3, 5, 5), sample(3, 4, 3, 3))


def test_conv_tbc_and_convolution():
    """Time first, and the function under all the others."""
    check(lambda framework, x, w, b: framework.conv_tbc(x, w, b, 1), sample(7, 2, 3), sample(3, 3, 4), sample(4))
    check(
        lambda framework, x, w: framework.convolution(x, w, None, (2, 1), (1, 0), (1, 1), False, (0, 0), 1),
        sample(2, 3, 6, 6),
        sample(4, 3, 3, 3),
    )
    check(
        lambda framework, x, w: framework.convolution(x, w, None, (2,), (1,), (1,), True, (1,), 1), sample(2, 3, 6, 6), sample(3, 4, 3, 3)
    )


x4, w4 = torch.zeros(2, 4, 6, 6), torch.zeros(8, 4, 3, 3)
ERRORS = {
    "channels": ((torch.zeros(2, 6, 6, 4), w4), {}, "looks NHWC"),
    "kernel too large": ((x4, torch.zeros(8, 4, 9, 9)), {}, "Kernel size can't be greater than actual input size"),
    "dimensions": ((torch.zeros(6, 6), w4), {}, "Expected 3D"),
    "groups": ((x4, w4), {"groups": 3}, "divisible by 3"),
    "no groups": ((x4, w4), {"groups": 0}, "non-positive groups"),
    "stride": ((x4, w4), {"stride": 0}, "non-positive stride"),
    "padding": ((x4, w4), {"padding": -1}, "negative padding"),
    "dilation": ((x4, w4), {"dilation": 0}, "dilation"),
    "too many": ((x4, w4), {"stride": (1, 1, 1)}, "list of 2 values"),
    "same and strided": ((x4, w4), {"padding": "same", "stride": 2}, "strided"),
    "unknown padding": ((x4, w4), {"padding": "some"}, "Invalid padding string"),
    "bias": ((x4, w4, torch.zeros(7)), {}, "expected bias to be 1-dimensional with 8"),
    "dtypes": ((x4, w4.double()), {}, "should be the same"),
    "bool": ((x4.bool(), w4.bool()), {}, "not implemented"),
    "fraction": ((x4, w4), {"stride": 1.5}, None),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What makes no sense raises what PyTorch raises, and says what was expected."""
    arguments, options, words = ERRORS[name]
    with pytest.raises(Exception) as theirs:
        torch.conv2d(*arguments, **options)
    with pytest.raises(theirs.type, match=words):
        flambeau.conv2d(*map(carried, arguments), **options)


LAYERS = [
    ("Conv1d", (4, 6, 3), {}, (2, 4, 9)),
    ("Conv2d", (4, 6, (3, 2)), {"stride": 2, "padding": (1, 0), "bias": False}, (2, 4, 9, 8)),
    ("Conv2d", (4, 8, 3), {"padding": "same", "groups": 2, "dilation": 2}, (4, 9, 8)),
    ("Conv3d", (2, 4, 2), {"padding": 1}, (2, 2, 4, 5, 6)),
    ("ConvTranspose1d", (4, 6, 3), {"stride": 2, "output_padding": 1}, (2, 4, 9)),
    ("ConvTranspose2d", (4, 6, 3), {"groups": 2, "dilation": 2, "padding": 1}, (2, 4, 5, 5)),
    ("ConvTranspose3d", (2, 4, 2), {}, (2, 2, 3, 3, 3)),
    ("LazyConv2d", (6, 3), {"bias": False}, (2, 4, 7, 7)),
    ("LazyConvTranspose1d", (6, 3), {"groups": 2}, (2, 4, 7)),
]


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(("name", "arguments", "options", "shape"), LAYERS, ids=lambda v: v if isinstance(v, str) else "")
def test_layers_are_torchs(name, arguments, options, shape):
    """One seed, one layer: representation, weights, result and state are PyTorch's; it can be pickled."""
    torch.manual_seed(5), flambeau.manual_seed(5)
    theirs, mine = getattr(torch.nn, name)(*arguments, **options), getattr(nn, name)(*arguments, **options)
    assert repr(mine) == repr(theirs)
    x = sample(*shape, dtype=torch.float32)
    assert_same(mine(carried(x)).detach(), theirs(x).detach(), tolerance=1e-5)
    assert repr(mine) == repr(theirs)
    assert list(mine.state_dict()) == list(theirs.state_dict())
    assert_same([v.detach() for v in mine.state_dict().values()], [v.detach() for v in theirs.state_dict().values()])
    assert_same(pickle.loads(pickle.dumps(mine))(carried(x)).detach(), theirs(x).detach(), tolerance=1e-5)


def test_output_size_of_a_transposed_layer():
    """`output_size` chooses among the sizes that are convolved to that of the input; others are refused."""
    torch.manual_seed(5), flambeau.manual_seed(5)
    theirs, mine, x = (
        torch.nn.ConvTranspose2d(2, 3, 3, stride=3),
        nn.ConvTranspose2d(2, 3, 3, stride=3),
        sample(1, 2, 4, 4, dtype=torch.float32),
    )
    assert_same(mine(carried(x), output_size=(13, 14)).detach(), theirs(x, output_size=(13, 14)).detach(), tolerance=1e-5)
    with pytest.raises(ValueError, match="valid sizes range from"):
        mine(carried(x), output_size=(20, 20))


def test_layers_refuse():
    """Arguments that do not fit each other raise ValueError when the layer is made."""
    for options in ({"groups": 3}, {"padding": "some"}, {"padding": "same", "stride": 2}, {"padding_mode": "mirror"}, {"groups": 0}):
        with pytest.raises(ValueError, match=r"groups|padding"):
            nn.Conv2d(4, 8, 3, **options)
    with pytest.raises(ValueError, match="zeros"):
        nn.ConvTranspose2d(4, 8, 3, padding_mode="circular")


def test_blocks_cover_every_position_once():
    """A transposed convolution is cut by remainders: together they reach what the whole reaches."""
    for stride, dilation, kernel, padding in ((2, 1, 3, 1), (3, 2, 4, 0), (4, 6, 5, 3), (3, 3, 2, 1)):
        reached = set()
        for r in range(stride):
            found = conv_plans._phase(r, stride, padding, dilation, kernel)
            reached |= set(range(kernel)[found[0]]) if found else set()
        assert reached == set(range(kernel))


def test_without_the_extension():
    """The same convolution on NumPy alone."""
    program = """
import sys, warnings
sys.modules["flambeau.kernels._native"] = None
warnings.filterwarnings("ignore", message="Flambeau runs without")
import flambeau as torch
x, w = torch.arange(2 * 4 * 36.0).reshape(2, 4, 6, 6).requires_grad_(), torch.ones(6, 2, 3, 3, requires_grad=True)
y = torch.nn.functional.max_pool2d(torch.conv2d(x, w, stride=2, padding=1, groups=2), 2)
y.sum().backward()
print(float(y.detach().sum()), float(x.grad.sum()), float(w.grad.sum()))
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    x, w = torch.arange(2 * 4 * 36.0).reshape(2, 4, 6, 6).requires_grad_(), torch.ones(6, 2, 3, 3, requires_grad=True)
    y = T.max_pool2d(torch.conv2d(x, w, stride=2, padding=1, groups=2), 2)
    y.sum().backward()
    assert [float(v) for v in found] == [float(v) for v in (y.detach().sum(), x.grad.sum(), w.grad.sum())]


def test_transposed_to_nothing():
    """A transposed convolution whose padding takes everything gives nothing, and zeros for gradients; an empty batch may be padded freely."""
    for batch, options in ((2, {"padding": 1}), (0, {"output_padding": 1})):
        found = []
        for t in (flambeau, torch):
            layer = t.nn.ConvTranspose2d(2, 3, 2, **options)
            y = layer(t.ones(batch, 2, 1, 1))
            y.sum().backward()
            found.append((tuple(y.shape), layer.weight.grad.tolist(), layer.bias.grad.tolist()))
        assert found[0] == found[1]


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "fresh",
    [
        lambda t: t.nn.Conv2d(0, 4, 1),
        lambda t: t.nn.Conv2d(4, 0, 1),
        lambda t: t.nn.ConvTranspose1d(3, 0, 2),
        lambda t: t.nn.Conv2d(3, 2, 3).to(memory_format=t.channels_last),
        lambda t: t.nn.Conv3d(2, 3, 2, bias=False).to(memory_format=t.channels_last_3d),
    ],
)
def test_new_weights_are_torchs_also_without_channels_and_with_channels_last(fresh):
    """reset_parameters draws what PyTorch draws: a bias when there are no inputs, and in the order of a contiguous weight."""
    found = []
    for t in (flambeau, torch):
        layer = fresh(t)
        t.manual_seed(3)
        layer.reset_parameters()
        found.append([(p.tolist(), p.stride()) for p in layer.parameters()] + [t.rand(2).tolist()])
    assert found[0] == found[1]


def _own(t, base: str, transposed: bool, padding):
    """A convolution of somebody's own, made as PyTorch's base classes want it: every option a tuple, in their order."""

    class Own(getattr(t.nn.modules.conv, base)):
        def __init__(self):
            more = (1, 1) if transposed else (0, 0)
            super().__init__(4, 2, (3, 3), (2, 2), padding, (1, 1), transposed, more, 2, True, "zeros")

        def forward(self, x):
            if not transposed:
                return t.nn.functional.conv2d(
                    t.nn.functional.pad(x, self._reversed_padding_repeated_twice), self.weight, self.bias, groups=2
                )
            more = self._output_padding(x, None, self.stride, self.padding, self.kernel_size, 2, self.dilation)
            return t.nn.functional.conv_transpose2d(x, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    return Own


@pytest.mark.filterwarnings("ignore:`_ConvTransposeMixin`")
@pytest.mark.parametrize(("base", "padding"), [
    ("_ConvNd", (1, 2)), ("_ConvNd", (0, 0)), ("_ConvNd", "valid"), ("_ConvTransposeNd", (0, 1)), ("_ConvTransposeMixin", (1, 1)),
])  # fmt: skip
def test_convolutions_of_ones_own_inherit_as_in_pytorch(base, padding):
    """Options, representation, first weights and results of a subclass of a base class are PyTorch's."""
    found = []
    for t in (torch, flambeau):
        t.manual_seed(1)
        layer = _own(t, base, "Transpose" in base, padding)()
        y = layer(t.ones(1, 4, 5, 5))
        found.append((repr(layer), layer._reversed_padding_repeated_twice, tuple(y.shape), isinstance(layer, t.nn.Module)))
        found.append(y.flatten().tolist())
    assert found[0] == found[2]
    assert found[1] == pytest.approx(found[3], abs=1e-5)


def test_the_older_base_of_transposed_convolutions_warns():
    with pytest.warns(FutureWarning, match="deprecated internal class"):
        _own(flambeau, "_ConvTransposeMixin", True, (0, 0))()
