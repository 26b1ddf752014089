"""Random numbers on the CPU are PyTorch's, bit for bit: values, and the place in the stream afterwards.

Every question is asked twice: of the NumPy path, and of the compiled extension.
"""

from __future__ import annotations

import copy
import ctypes
import pickle
import shutil
import subprocess
import threading
import time
import warnings
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from flambeau.kernels import generate
from flambeau.kernels.language import print_c
from flambeau.kernels.random import rejection, sampling
from flambeau.kernels.templates import random_loops
from flambeau.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

torch = pytest.importorskip("torch")

SIZES = (0, 1, 5, 15, 16, 17, 100, 1000)
SEEDS = (0, 42, 123456789)
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = {
    torch.float32: np.dtype(np.float32),
    torch.float64: np.dtype(np.float64),
    torch.float16: np.dtype(np.float16),
    torch.bfloat16: BFLOAT16,
}
INTEGERS = {getattr(torch, n): np.dtype(n) for n in ("bool", "uint8", "int8", "int16", "int32", "int64")}
UNSIGNED = {getattr(torch, n): np.dtype(n) for n in ("uint16", "uint32", "uint64")}


# -- comparing -----------------------------------------------------------------------------------------------------------


def as_array(tensor) -> np.ndarray:
    return tensor.view(torch.int16).numpy().view(BFLOAT16) if tensor.dtype == torch.bfloat16 else tensor.numpy()


def assert_same_bits(ours: np.ndarray, theirs) -> None:
    theirs = as_array(theirs)
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    assert ours.flags.c_contiguous
    if ours.tobytes() != theirs.tobytes():
        different = np.flatnonzero(ours.reshape(-1) != theirs.reshape(-1))
        first = int(different[0]) if different.size else 0
        pytest.fail(
            f"{different.size} of {ours.size} values differ, first [{first}]: "
            f"torch {theirs.reshape(-1)[first]!r}, ours {ours.reshape(-1)[first]!r}"
        )


class Twins:
    """Our generator and torch's, from one seed."""

    def __init__(self, start: int) -> None:
        self.ours = Generator().manual_seed(start)
        self.torchs = torch.Generator().manual_seed(start)

    def check(self, ours: np.ndarray, theirs) -> None:
        """Same bits drawn, and both generators in the same state."""
        assert_same_bits(ours, theirs)
        assert self.ours.get_state_bytes().tobytes() == self.torchs.get_state().numpy().tobytes()


# -- the two paths -------------------------------------------------------------------------------------------------------


@pytest.fixture(params=["numpy", "extension"])
def path(request, monkeypatch):
    """Which code computes the samples."""
    if request.param == "numpy":
        for room in (sampling, rejection):
            monkeypatch.setattr(room, "lib", None)
    elif sampling.lib is None:
        pytest.skip("the extension is not compiled")
    return request.param


# -- distributions -------------------------------------------------------------------------------------------------------

REAL = {
    "uniform": (lambda g, n, d: sampling.uniform(g, n, d), lambda t, g: t.uniform_(generator=g)),
    "uniform(-2.5, 3)": (lambda g, n, d: sampling.uniform(g, n, d, -2.5, 3.0), lambda t, g: t.uniform_(-2.5, 3.0, generator=g)),
    "uniform(0.1, 0.3)": (lambda g, n, d: sampling.uniform(g, n, d, 0.1, 0.3), lambda t, g: t.uniform_(0.1, 0.3, generator=g)),
    "uniform(2, 2)": (lambda g, n, d: sampling.uniform(g, n, d, 2.0, 2.0), lambda t, g: t.uniform_(2.0, 2.0, generator=g)),
    "normal": (lambda g, n, d: sampling.normal(g, n, d), lambda t, g: t.normal_(generator=g)),
    "normal(0.3, 1.7)": (lambda g, n, d: sampling.normal(g, n, d, 0.3, 1.7), lambda t, g: t.normal_(0.3, 1.7, generator=g)),
    "normal(1, 0)": (lambda g, n, d: sampling.normal(g, n, d, 1.0, 0.0), lambda t, g: t.normal_(1.0, 0.0, generator=g)),
    "log_normal": (lambda g, n, d: sampling.log_normal(g, n, d, 0.5, 0.25), lambda t, g: t.log_normal_(0.5, 0.25, generator=g)),
    "exponential": (lambda g, n, d: sampling.exponential(g, n, d, 1.5), lambda t, g: t.exponential_(1.5, generator=g)),
    "cauchy": (lambda g, n, d: sampling.cauchy(g, n, d, 0.5, 0.25), lambda t, g: t.cauchy_(0.5, 0.25, generator=g)),
    "geometric": (lambda g, n, d: sampling.geometric(g, n, d, 0.3), lambda t, g: t.geometric_(0.3, generator=g)),
    "bernoulli": (lambda g, n, d: sampling.bernoulli(g, n, d, 0.3), lambda t, g: t.bernoulli_(0.3, generator=g)),
    "random_": (lambda g, n, d: sampling.random_full(g, n, d), lambda t, g: t.random_(generator=g)),
    "random_(100)": (lambda g, n, d: sampling.randint(g, n, 0, 100, d), lambda t, g: t.random_(100, generator=g)),
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", REAL)
def test_real_samples_are_torchs(path, name, dtype):
    """A distribution of real numbers gives torch's bits at every size, and leaves the generator where torch leaves it."""
    ours, theirs = REAL[name]
    for start in SEEDS:
        twins = Twins(start)  # one stream through all sizes: the second normal of a pair is carried over
        for n in SIZES:
            twins.check(ours(twins.ours, n, FLOATS[dtype]), theirs(torch.zeros(n, dtype=dtype), twins.torchs))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64), ids=str)
def test_samples_by_rejection_are_torchs(path, dtype):
    """Counts and gamma numbers of small, large and impossible parameters; each takes as many words as it wants, and one normal may wait."""
    twins, drawn = Twins(7), np.random.default_rng(0)
    inf, nan = float("inf"), float("nan")

    def both(sampler, torchs, *parameters):
        given = [torch.tensor(p, dtype=dtype) for p in parameters]
        found = sampler(twins.ours, *[g.numpy() for g in given])
        found, expected = np.nan_to_num(found.astype(FLOATS[dtype]), nan=-1), torchs(*given, generator=twins.torchs)
        twins.check(found, expected.nan_to_num(-1))

    for high in (2, 60, 1e6):
        rates, counts = drawn.random((5, 40)) * high, np.floor(drawn.random((5, 40)) * high)
        both(rejection.poisson, torch.poisson, [0.0, *rates.ravel()])
        both(rejection.binomial, torch.binomial, counts, drawn.random((5, 40)))
        both(rejection.binomial, torch.binomial, counts, 1 - drawn.random((5, 40)) / high)
        both(rejection.gamma, torch._standard_gamma, rates[0])
        twins.check(sampling.normal(twins.ours, 3, np.float32), torch.zeros(3).normal_(generator=twins.torchs))
    both(rejection.binomial, torch.binomial, [5, 0, -1, -1, 5, inf, inf, inf], [nan, nan, nan, 0.9, 2, 0.3, 0.8, 1])
    both(rejection.gamma, torch._standard_gamma, [-0.2, 1e30, inf, 0.3])


@pytest.mark.skipif(rejection.lib is None, reason="the extension is not compiled")
def test_many_counts_take_no_time():
    """A million draws are made by compiled loops, not one by one in Python, which takes 4 s."""
    start = time.perf_counter()
    rejection.poisson(Generator(), np.full(1_000_000, 3.0))
    assert time.perf_counter() - start < 2


def test_long_streams_are_torchs(path):
    """A hundred thousand values: no rare rounding differs, across many blocks of the twister."""
    twins = Twins(7)
    for dtype, ours in ((torch.float32, np.float32), (torch.float64, np.float64)):
        for a, b in ((0.0, 1.0), (-0.1, 0.02), (1e5, 1e5 + 7)):
            fresh = torch.zeros(100_003, dtype=dtype)
            twins.check(sampling.uniform(twins.ours, 100_003, ours, a, b), fresh.uniform_(a, b, generator=twins.torchs))
            twins.check(sampling.normal(twins.ours, 100_003, ours, a, b), fresh.normal_(a, b, generator=twins.torchs))


def test_extreme_parameters_are_torchs(path):
    """Huge ranges, infinite or overflowing parameters give torch's values, without a warning."""
    twins = Twins(3)
    for low, high in ((-8e307, 8e307), (-1e-300, 3e-301), (0.0, 1e-320)):
        fresh = torch.zeros(100, dtype=torch.float64)
        twins.check(sampling.uniform(twins.ours, 100, np.float64, low, high), fresh.uniform_(low, high, generator=twins.torchs))
    for n, mean, std in ((5, float("inf"), 1.0), (40, 0.0, float("inf")), (40, 1.0, 1e39), (40, 1e30, 1e30), (5, 1.0, 1e39)):
        twins.check(sampling.normal(twins.ours, n, np.float32, mean, std), torch.zeros(n).normal_(mean, std, generator=twins.torchs))
    twins.check(
        sampling.log_normal(twins.ours, 9, np.float64, 700.0, 50.0), torch.zeros(9).double().log_normal_(700, 50, generator=twins.torchs)
    )


def test_shapes_and_scalars(path):
    """A shape of several axes, none, or zero elements gives an array of that shape, filled in C order."""
    twins = Twins(5)
    for shape in ((), (3, 5), (4, 4), (2, 3, 31), (2, 0, 3)):
        twins.check(sampling.uniform(twins.ours, shape, np.float32), torch.rand(shape, generator=twins.torchs))
        twins.check(sampling.normal(twins.ours, shape, np.float32), torch.randn(shape, generator=twins.torchs))
        twins.check(sampling.randint(twins.ours, shape, 0, 9, np.int64), torch.randint(0, 9, shape, generator=twins.torchs))


@pytest.mark.parametrize("dtype", (torch.complex64, torch.complex128), ids=str)
def test_complex_samples_are_torchs(path, dtype):
    """Real and imaginary parts are neighbours in the stream; a normal one has half the variance in each."""
    twins = Twins(11)
    ours = np.dtype(str(dtype).split(".")[1])
    for n in (0, 3, 7, 8, 20):
        twins.check(sampling.normal(twins.ours, n, ours, 0.0, 1.5), torch.zeros(n, dtype=dtype).normal_(0, 1.5, generator=twins.torchs))
        twins.check(sampling.uniform(twins.ours, n, ours, -1.0, 2.0), torch.zeros(n, dtype=dtype).uniform_(-1, 2, generator=twins.torchs))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_normal_with_arrays(path, dtype):
    """Mean and deviation given as tensors scale and shift standard normal values, rounding after each step."""
    twins, ours = Twins(13), FLOATS[dtype]
    for n in (5, 40):
        mean, std = torch.linspace(-1, 1, n).to(dtype), torch.linspace(0, 2, n).to(dtype)
        a, b = as_array(mean), as_array(std)
        twins.check(sampling.normal(twins.ours, n, ours, a, b), torch.normal(mean, std, generator=twins.torchs))
        twins.check(sampling.normal(twins.ours, n, ours, a, 0.37), torch.normal(mean, 0.37, generator=twins.torchs))
        twins.check(sampling.normal(twins.ours, n, ours, 0.37, b), torch.normal(0.37, std, generator=twins.torchs))


@pytest.mark.parametrize("dtype", FLOATS | INTEGERS, ids=str)
@pytest.mark.parametrize("p_dtype", FLOATS, ids=str)
def test_bernoulli_with_probabilities_in_an_array(path, dtype, p_dtype):
    """A tensor of probabilities draws 24 bits each, a float64 one 53, whatever the dtype of the result."""
    twins = Twins(17)
    for n in SIZES:
        p = torch.linspace(0, 1, n).to(p_dtype)
        ours = sampling.bernoulli(twins.ours, n, (FLOATS | INTEGERS)[dtype], as_array(p))
        twins.check(ours, torch.zeros(n, dtype=dtype).bernoulli_(p, generator=twins.torchs))


def test_bernoulli_broadcasts_probabilities(path):
    """Probabilities of shape (3, 1) serve a result of shape (3, 20)."""
    twins, p = Twins(17), torch.tensor([[0.1], [0.5], [0.9]])
    ours = sampling.bernoulli(twins.ours, (3, 20), np.float32, p.numpy())
    twins.check(ours, torch.zeros(3, 20).bernoulli_(p, generator=twins.torchs))


def test_rrelu_slopes_are_torchs(path):
    """The random slopes of rrelu, one per element that is not positive."""
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        twins, x = Twins(19), torch.linspace(-3, 2, 200).to(dtype)
        torch.manual_seed(19)
        expected = torch.nn.functional.rrelu(x, 0.1, 0.4, training=True)
        values = as_array(x).copy()
        negative = values <= 0
        slopes = sampling.rrelu_slopes(twins.ours, int(negative.sum()), values.dtype, 0.1, 0.4)
        values[negative] = (values[negative].astype(slopes.dtype) * slopes).astype(values.dtype)
        assert_same_bits(values, expected)
        assert twins.ours.get_state_bytes().tobytes() == torch.get_rng_state().numpy().tobytes()


# -- whole numbers -------------------------------------------------------------------------------------------------------

RANGES = [(0, 1), (0, 2), (-100, 100), (0, 200), (3, 90), (0, 2**28 - 1), (0, 2**28), (-5, 2**31 - 1), (0, 2**40), (5, None),
          (-(2**50), 2**50), (0, 65504), (-2051, 2051), (2**24 - 5, 2**24 + 5), (-(2**63), 2**63 - 1), (-(2**63), None)]  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS | INTEGERS | UNSIGNED, ids=str)
def test_randint_is_torchs(path, dtype):
    """randint and random_(from, to) for every dtype: the same values, or the same type of error; 64 bits from a range of 2**28 on."""
    twins, ours = Twins(23), (FLOATS | INTEGERS | UNSIGNED)[dtype]
    for low, high in RANGES:
        for n in (0, 1, 25):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "float16 skips integers", ours and torch's
                try:
                    expected = torch.zeros(n, dtype=dtype).random_(low, high, generator=twins.torchs)
                except (RuntimeError, NotImplementedError) as problem:
                    with pytest.raises(type(problem)) as caught:
                        sampling.randint(twins.ours, n, low, high, ours)
                    assert type(caught.value) is type(problem)
                else:
                    twins.check(sampling.randint(twins.ours, n, low, high, ours), expected)


def test_randint_warns_where_floats_skip_integers():
    """Beyond 2**24 float32 has no odd numbers: torch warns, so do we."""
    with pytest.warns(UserWarning, match="float32 skips integers"):
        sampling.randint(Generator(), 3, 0, 2**25, np.float32)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_dtypes_of_the_other_samplers(path, dtype):
    """random_(), bernoulli_(p) and geometric_(p) into integers."""
    twins, ours = Twins(29), INTEGERS[dtype]
    for n in SIZES:
        fresh = torch.zeros(n, dtype=dtype)
        twins.check(sampling.random_full(twins.ours, n, ours), fresh.random_(generator=twins.torchs))
        twins.check(sampling.bernoulli(twins.ours, n, ours, 0.7), fresh.bernoulli_(0.7, generator=twins.torchs))
        if dtype != torch.bool:
            twins.check(sampling.geometric(twins.ours, n, ours, 0.4), fresh.geometric_(0.4, generator=twins.torchs))


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8, torch.float32, torch.float16, torch.bfloat16), ids=str)
def test_permutations_are_torchs(path, dtype):
    """randperm(n) is torch's shuffle, small and large."""
    twins, ours = Twins(31), (FLOATS | INTEGERS)[dtype]
    for n in (0, 1, 2, 7, 16, 33, 100, 256) + ((1000, 10007) if dtype in (torch.int64, torch.int32, torch.float32) else ()):
        twins.check(sampling.permutation(twins.ours, n, ours), torch.randperm(n, dtype=dtype, generator=twins.torchs))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_multinomial_is_torchs(path, dtype):
    """With replacement, without, and the single sample that takes its own road, for one row and for several."""
    twins = Twins(37)
    for shape in ((20,), (4, 5), (3, 1), (0, 3), (2, 50)):
        weights = (torch.arange(int(np.prod(shape))) % 13 + 1).reshape(shape).to(dtype)
        for samples, replacement in ((1, False), (1, True), (2, True), (30, True)):
            expected = torch.multinomial(weights, samples, replacement, generator=twins.torchs)
            twins.check(sampling.multinomial(twins.ours, as_array(weights), samples, replacement), expected)
    weights = torch.arange(1, 21).to(dtype)
    for samples in (2, 5):
        twins.check(
            sampling.multinomial(twins.ours, as_array(weights), samples), torch.multinomial(weights, samples, generator=twins.torchs)
        )


def test_multinomial_never_draws_a_weight_of_zero(path):
    """Categories of weight 0 stay out, at the ends too."""
    g, weights = Generator().manual_seed(1), np.array([0.0, 1.0, 0.0, 2.0, 0.0])
    assert set(sampling.multinomial(g, weights, 500, True)) == {1, 3}
    assert set(sampling.multinomial(g, weights, 2)) == {1, 3}


# -- streams -------------------------------------------------------------------------------------------------------------


def test_words_are_torchs(path):
    """The raw words, 32 and 64 bits wide, at every alignment of the block."""
    for start in (*SEEDS, -3, 2**40 + 17, 2**64 - 1):
        twins = Twins(start)
        for n in (0, 1, 5, 623, 1, 624, 1248, 1000):
            expected = torch.zeros(n, dtype=torch.int64).random_(0, 2**28 - 1, generator=twins.torchs)
            words = sampling._words(twins.ours, n, False).view(np.uint32)
            twins.check((words % (2**28 - 1)).astype(np.int64), expected)
            expected = torch.zeros(n, dtype=torch.int64).random_(-(2**63), None, generator=twins.torchs)
            twins.check(sampling._words(twins.ours, n, True).view(np.int64), expected)


def test_mixed_calls_stay_in_step(path):
    """A program that draws this and that sees torch's numbers from the first call to the last."""
    for start in SEEDS:
        twins = Twins(start)
        g, t = twins.ours, twins.torchs
        for _ in range(3):
            twins.check(sampling.uniform(g, 3, np.float32), torch.rand(3, generator=t))
            twins.check(sampling.normal(g, 5, np.float32), torch.randn(5, generator=t))
            twins.check(sampling.normal(g, 20, np.float32), torch.randn(20, generator=t))
            twins.check(sampling.randint(g, 4, 0, 9, np.int64), torch.randint(0, 9, (4,), generator=t))
            twins.check(sampling.permutation(g, 6), torch.randperm(6, generator=t))
            twins.check(sampling.normal(g, 7, np.float64), torch.randn(7, generator=t, dtype=torch.float64))
            twins.check(
                sampling.bernoulli(g, 9, np.float32, np.full(9, 0.5, np.float32)), torch.bernoulli(torch.full((9,), 0.5), generator=t)
            )
            twins.check(sampling.normal(g, 33, BFLOAT16), torch.randn(33, generator=t, dtype=torch.bfloat16))
            twins.check(sampling.log_normal(g, 4, np.float32), torch.zeros(4).log_normal_(generator=t))
            twins.check(sampling.exponential(g, 2, np.float32), torch.zeros(2).exponential_(generator=t))
            twins.check(sampling.normal(g, 1, np.float32), torch.randn(1, generator=t))
            twins.check(sampling.multinomial(g, np.ones(5, np.float32), 3), torch.multinomial(torch.ones(5), 3, generator=t))


@pytest.mark.parametrize("drawn", (0, 1, 2, 3, 16, 311, 312, 313, 624, 1000))
def test_states_travel_both_ways(drawn):
    """A state of torch's continues here, a state of ours continues there, a waiting second normal included."""
    theirs = torch.Generator().manual_seed(99)
    torch.randn(1, generator=theirs), torch.rand(drawn, generator=theirs)
    ours = Generator().set_state_bytes(theirs.get_state().numpy())
    assert ours.initial_seed() == 99
    assert_same_bits(sampling.normal(ours, 2, np.float64), torch.randn(2, dtype=torch.float64, generator=theirs))
    sampling.uniform(ours, drawn, np.float32)
    back = torch.Generator()
    back.set_state(torch.from_numpy(ours.get_state_bytes()))
    assert back.initial_seed() == 99
    assert_same_bits(sampling.normal(ours, 4, np.float32), torch.randn(4, generator=back))
    assert_same_bits(sampling.uniform(ours, 700, np.float32), torch.rand(700, generator=back))


def test_a_float_normal_in_a_state_is_kept():
    """PyTorch's format has a place for a float32 normal; what is in it survives the round trip."""
    state = Generator().get_state_bytes()
    state[5048:5052] = np.frombuffer(np.float32(0.75).tobytes(), np.uint8)
    state[5052] = 1
    generator = Generator().set_state_bytes(state)
    assert generator.next_float_normal == 0.75
    assert generator.get_state_bytes().tobytes() == state.tobytes()


def test_copies_continue_alike():
    """pickle, copy, deepcopy and clone_state give generators that go on from the same place on their own."""
    original = Generator().manual_seed(8)
    sampling.normal(original, 3, np.float32)
    copies = [pickle.loads(pickle.dumps(original)), copy.copy(original), copy.deepcopy(original), original.clone_state()]
    expected = sampling.normal(original, 5, np.float32).tobytes()
    assert all(sampling.normal(c, 5, np.float32).tobytes() == expected for c in copies)


def test_strided_tensors_are_filled_in_torchs_order(path):
    """A tensor that is not contiguous is filled along its memory, and its normal values are drawn one by one."""
    twins = Twins(41)
    layouts = (
        lambda: torch.zeros(5, 9).t(),
        lambda: torch.zeros(8, 10)[::2, 1::3],
        lambda: torch.zeros(3, 4, 5).permute(2, 0, 1),
        lambda: torch.zeros(3, 1, 5).permute(1, 2, 0),
        lambda: torch.zeros(40)[::2],
    )
    for layout in layouts:
        target, expected = layout().numpy(), layout()
        view = target.transpose(sorted(range(target.ndim), key=lambda axis, target=target: -target.strides[axis]))
        view[...] = sampling.uniform(twins.ours, view.shape, np.float32, 0.1, 0.7)
        assert np.array_equal(target, expected.uniform_(0.1, 0.7, generator=twins.torchs).numpy())
        view[...] = sampling.normal(twins.ours, view.shape, np.float32, 0.1, 0.7, contiguous=False)
        assert np.array_equal(target, expected.normal_(0.1, 0.7, generator=twins.torchs).numpy())
        view[...] = sampling.bernoulli(twins.ours, view.shape, np.float32, 0.7)
        assert np.array_equal(target, expected.bernoulli_(0.7, generator=twins.torchs).numpy())


def test_threads_share_a_generator_without_sharing_words():
    """Two threads that draw from one generator get each word of the stream exactly once."""
    generator, drawn = Generator().manual_seed(2), []
    threads = [threading.Thread(target=lambda: drawn.extend(generator.draw32(97) for _ in range(40))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.array_equal(np.sort(np.concatenate(drawn)), np.sort(Generator().manual_seed(2).draw32(97 * 80)))


# -- seeds and the default generator -------------------------------------------------------------------------------------


@pytest.fixture
def restored():
    """Leaves both default generators as they were."""
    ours, theirs = get_rng_state(), torch.get_rng_state()
    yield
    set_rng_state(ours), torch.set_rng_state(theirs)


def test_a_new_generator_starts_where_torchs_does():
    """The default seed, and the state it expands to."""
    assert Generator().initial_seed() == torch.Generator().initial_seed() == 67280421310721
    assert Generator().get_state_bytes().tobytes() == torch.Generator().get_state().numpy().tobytes()


def test_the_default_generator(restored):
    """manual_seed, initial_seed, seed, get_rng_state and set_rng_state of the module work on one generator."""
    for number in (0, -3, 2**40 + 17, 2**64 - 1, 7.9, "12"):
        assert manual_seed(number) is default_generator
        torch.manual_seed(int(number))
        assert initial_seed() == torch.initial_seed()
        assert get_rng_state().numpy().tobytes() == torch.get_rng_state().numpy().tobytes()
    state = get_rng_state()
    first = default_generator.draw32(5)
    set_rng_state(state)
    assert np.array_equal(default_generator.draw32(5), first)
    assert seed() == initial_seed()
    assert seed() != seed()


@pytest.mark.parametrize(
    "number, error", [(1.5, RuntimeError), ("a", RuntimeError), (True, RuntimeError), (2**64, ValueError), (-(2**63) - 1, ValueError)]
)
def test_bad_seeds(number, error):
    """What torch refuses as a seed is refused with its exception."""
    with pytest.raises(error):
        torch.Generator().manual_seed(number)
    with pytest.raises(error, match="the seed must"):
        Generator().manual_seed(number)


def test_bad_states():
    """Bytes that are no state are refused with torch's exception, and the generator stays as it was."""
    generator = Generator()
    before = generator.get_state_bytes()
    with pytest.raises(RuntimeError, match="5056 bytes, but this array has 10"):
        generator.set_state_bytes(np.zeros(10, np.uint8))
    with pytest.raises(RuntimeError, match="not the state of a Mersenne Twister"):
        generator.set_state_bytes(np.zeros(5056, np.uint8))
    with pytest.raises(TypeError, match="int8"):
        generator.set_state_bytes(np.zeros(5056, np.int8))
    with pytest.raises(TypeError, match="list"):
        generator.set_state_bytes([1, 2])
    with pytest.raises(RuntimeError, match="draws on the CPU"):
        Generator("cuda")
    assert generator.get_state_bytes().tobytes() == before.tobytes()


# -- errors --------------------------------------------------------------------------------------------------------------

G = Generator()
F32, I64, NAN = np.float32, np.int64, float("nan")
LONG = torch.zeros(3, dtype=torch.int64)


def draw(weights, samples=1, replacement=False):
    return sampling.multinomial(G, np.array(weights), samples, replacement)


def torch_draw(weights, samples=1, replacement=False):
    return torch.multinomial(torch.tensor(weights), samples, replacement)


ERRORS = {
    "uniform reversed": (lambda: sampling.uniform(G, 3, F32, 2, 1), lambda: torch.zeros(3).uniform_(2, 1)),
    "uniform integers": (lambda: sampling.uniform(G, 3, I64), lambda: LONG.uniform_()),
    "uniform no integers": (lambda: sampling.uniform(G, 0, I64), lambda: LONG[:0].uniform_()),
    "uniform beyond": (lambda: sampling.uniform(G, 3, np.float16, 0, 1e6), lambda: torch.zeros(3).half().uniform_(0, 1e6)),
    "uniform too wide": (lambda: sampling.uniform(G, 3, np.float16, -6e4, 6e4), lambda: torch.zeros(3).half().uniform_(-6e4, 6e4)),
    "uniform nan": (lambda: sampling.uniform(G, 3, F32, 0, NAN), lambda: torch.zeros(3).uniform_(0, NAN)),
    "normal std": (lambda: sampling.normal(G, 0, F32, 0, -1), lambda: torch.zeros(0).normal_(0, -1)),
    "normal nan": (lambda: sampling.normal(G, 3, F32, 0, NAN), lambda: torch.zeros(3).normal_(0, NAN)),
    "normal integers": (lambda: sampling.normal(G, 3, I64), lambda: LONG.normal_()),
    "normal stds": (lambda: sampling.normal(G, 3, F32, 0.0, -np.ones(3)), lambda: torch.normal(0.0, -torch.ones(3))),
    "log_normal std": (lambda: sampling.log_normal(G, 3, F32, 0, 0), lambda: torch.zeros(3).log_normal_(0, 0)),
    "log_normal integers": (lambda: sampling.log_normal(G, 3, I64), lambda: LONG.log_normal_()),
    "exponential": (lambda: sampling.exponential(G, 3, F32, 0), lambda: torch.zeros(3).exponential_(0)),
    "exponential integers": (lambda: sampling.exponential(G, 3, I64), lambda: LONG.exponential_()),
    "cauchy": (lambda: sampling.cauchy(G, 3, F32, 0, 0), lambda: torch.zeros(3).cauchy_(0, 0)),
    "cauchy no integers": (lambda: sampling.cauchy(G, 0, I64), lambda: LONG[:0].cauchy_()),
    "geometric 1": (lambda: sampling.geometric(G, 3, F32, 1), lambda: torch.zeros(3).geometric_(1)),
    "geometric bool": (lambda: sampling.geometric(G, 3, np.bool_, 0.5), lambda: LONG.bool().geometric_(0.5)),
    "bernoulli p": (lambda: sampling.bernoulli(G, 3, F32, 1.5), lambda: torch.zeros(3).bernoulli_(1.5)),
    "bernoulli nan": (lambda: sampling.bernoulli(G, 3, F32, NAN), lambda: torch.zeros(3).bernoulli_(NAN)),
    "bernoulli ps": (lambda: sampling.bernoulli(G, 2, F32, np.array([0.5, 1.5])), lambda: torch.bernoulli(torch.tensor([0.5, 1.5]))),
    "bernoulli integers": (lambda: sampling.bernoulli(G, 2, F32, np.array([0, 1])), lambda: torch.bernoulli(torch.tensor([0, 1]))),
    "bernoulli uint16": (lambda: sampling.bernoulli(G, 2, np.uint16, 0.5), lambda: LONG.to(torch.uint16).bernoulli_(0.5)),
    "randint reversed": (lambda: sampling.randint(G, 0, 5, 5, I64), lambda: torch.randint(5, 5, (0,))),
    "randint uint8": (lambda: sampling.randint(G, 3, 0, 300, np.uint8), lambda: torch.randint(0, 300, (3,), dtype=torch.uint8)),
    "randint complex": (lambda: sampling.randint(G, 3, 0, 5, np.complex64), lambda: torch.randint(0, 5, (3,), dtype=torch.complex64)),
    "random_ uint16": (lambda: sampling.random_full(G, 3, np.uint16), lambda: LONG.to(torch.uint16).random_()),
    "randperm negative": (lambda: sampling.permutation(G, -1), lambda: torch.randperm(-1)),
    "randperm uint8": (lambda: sampling.permutation(G, 257, np.uint8), lambda: torch.randperm(257, dtype=torch.uint8)),
    "randperm half": (lambda: sampling.permutation(G, 2050, np.float16), lambda: torch.randperm(2050, dtype=torch.half)),
    "randperm bool": (lambda: sampling.permutation(G, 1, np.bool_), lambda: torch.randperm(1, dtype=torch.bool)),
    "multinomial negative": (lambda: draw([-1.0, 2]), lambda: torch_draw([-1.0, 2])),
    "multinomial nan": (lambda: draw([NAN, 2], 2, True), lambda: torch_draw([NAN, 2], 2, True)),
    "multinomial zeros": (lambda: draw([0.0, 0.0]), lambda: torch_draw([0.0, 0.0])),
    "multinomial none": (lambda: draw([1.0, 1.0], 0), lambda: torch_draw([1.0, 1.0], 0)),
    "multinomial too many": (lambda: draw([1.0, 1.0], 3), lambda: torch_draw([1.0, 1.0], 3)),
    "multinomial integers": (lambda: draw([1, 1]), lambda: torch_draw([1, 1])),
    "multinomial 3-d": (lambda: draw([[[1.0]]]), lambda: torch_draw([[[1.0]]])),
    "multinomial no category": (lambda: draw([[], []], 1, True), lambda: torch_draw([[], []], 1, True)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_torchs_type(name):
    """A wrong argument is refused with torch's exception, before a single word is drawn."""
    ours, theirs = ERRORS[name]
    before = G.get_state_bytes()
    with pytest.raises(Exception) as expected:
        theirs()
    with pytest.raises(type(expected.value)) as found:
        ours()
    assert type(found.value) is type(expected.value)
    assert G.get_state_bytes().tobytes() == before.tobytes()


@pytest.mark.parametrize("dtype", [*FLOATS.values(), *INTEGERS.values()], ids=str)
def test_nothing_is_written_beside_the_result(dtype):
    """A loop writes elements of another size than those of the array it fills."""
    room = np.ones(64, dtype)
    sampling.randint(Generator(), (16,), 0, 1, dtype, out=room[8:24])
    assert not room[8:24].any() and room[:8].all() and room[24:].all()


# -- the compiled path ---------------------------------------------------------------------------------------------------


def compiled(folder: Path, flags: tuple[str, ...]):
    """The generated loops, compiled with these flags, in place of sampling._run."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine")
    generate.write_headers(folder)
    texts, _, _ = random_loops.table()
    (folder / "loops.c").write_text("\n".join([generate.HEADER, print_c.IN_BLOCKS, *texts]))
    csrc = Path(__file__).parents[1] / "src" / "flambeau" / "kernels" / "native" / "csrc"
    command = [compiler, "-std=gnu11", "-O3", "-DFL_NAME(x)=x", *flags, "-shared", "-fPIC", f"-I{folder}", f"-I{csrc}"]
    subprocess.run([*command, str(folder / "loops.c"), "-o", str(folder / "loops.so"), "-lm"], check=True)
    library = ctypes.CDLL(str(folder / "loops.so"))

    def run(name: str, out: np.ndarray, operand: np.ndarray, *params: float) -> None:
        pointers = (ctypes.c_void_p * 2)(out.ctypes.data, operand.ctypes.data)
        steps = (ctypes.c_int64 * 2)(*(a.strides[-1] if a.size > 1 else a.itemsize for a in (out, operand)))
        getattr(library, f"random_{name}")(pointers, steps, ctypes.c_int64(out.size), (ctypes.c_double * 2)(*params))

    return run


@pytest.mark.parametrize("flags", [("-ffp-contract=off",), ("-ffp-contract=fast", "-march=native")], ids=" ".join)
def test_no_compiler_flag_changes_a_bit(flags, tmp_path, monkeypatch):
    """The loops give the NumPy path's bits whether or not the compiler may fuse and whichever CPU it compiles for."""
    monkeypatch.setattr(sampling, "_run", compiled(tmp_path, flags))

    def draw(generator, out):
        words = generator.draw64(out.size) if out.itemsize == 8 else generator.draw32(out.size)
        out[...] = words.view(out.dtype).reshape(out.shape)

    monkeypatch.setattr(sampling, "_draw", draw)
    for dtype in (np.float32, np.float64):
        for sample, a, b in ((sampling.normal, 0.3, 1.7), (sampling.uniform, 0.1, 0.7), (sampling.exponential, 1.5, None)):
            bits = []
            for lib in (None, "the loops above"):
                monkeypatch.setattr(sampling, "lib", lib)
                generator = Generator().manual_seed(4)
                arguments = [x for x in (a, b) if x is not None]
                bits.append((sample(generator, 20_003, dtype, *arguments).tobytes(), generator.get_state_bytes().tobytes()))
            assert bits[0] == bits[1]
