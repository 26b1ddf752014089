"""Reductions, extrema, statistics and softmax: one value for many, in every form PyTorch has."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from reduction_oracle import INF, INTEGERS, LAYOUTS, NAN, REALS, check, check_raises, numbers, ours, torch

import flambeau
from flambeau.kernels.reductions import folding
from flambeau.kernels.reductions.reduce import reduce

DIMS = [None, 0, -1, 1, (0, 2), (-1,), (), [0, 1]]
SPECIAL = [[1.0, NAN, 2.0], [INF, 1.0, -INF], [-INF, -INF, -INF], [INF, INF, 1.0], [0.0, -0.0, 0.0], [3.0, 3.0, 3.0], [1e300, -1e300, 1.0]]
OVER_DIMS = ("sum", "mean", "nansum", "nanmean", "amax", "amin", "all", "any", "logsumexp", "var", "std", "count_nonzero")
FLOAT_ONLY = ("mean", "nanmean", "var", "std")


@pytest.mark.parametrize("name", OVER_DIMS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dimensions(name, layout):
    """Dimensions are an int, a tuple, none, or an empty tuple, as PyTorch treats each; strides make no difference."""
    x = LAYOUTS[layout](numbers(3, 4, 5))
    for dim in DIMS:
        if name == "logsumexp" and dim in (None, ()):
            continue
        if name in ("var", "std") and dim == ():  # PyTorch's gradient is infinite here: it counts the elements of no dimension
            continue
        check(name, x, dim)
        if name != "count_nonzero":
            check(name, x, dim, keepdim=True)


@pytest.mark.parametrize("name", OVER_DIMS)
@pytest.mark.parametrize("dtype", REALS + INTEGERS)
def test_dtypes(name, dtype):
    """The dtype of the result is PyTorch's, and half precision is rounded once."""
    x = numbers(4, 33, dtype=dtype)
    if name in FLOAT_ONLY and not dtype.is_floating_point:
        check_raises(name, x, 0)
    else:
        check(name, x, 0)
        check(name, x, (0, 1))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
@pytest.mark.parametrize("name", ["sum", "mean", "prod", "all", "any", "logsumexp", "var", "std", "nansum"])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3), (0, 3)])
def test_empty_and_zero_dimensional(name, shape):
    """Of nothing the sum is 0, the product 1, the mean NaN; a 0-d tensor answers to dimensions 0 and -1."""
    x = numbers(*shape)
    for dim in range(-max(len(shape), 1), max(len(shape), 1)):
        check(name, x, dim)


@pytest.mark.parametrize("values", SPECIAL)
def test_nan_and_infinity(values):
    """NaN and infinity are values, forward and backward."""
    x = torch.tensor(values, dtype=torch.float64)
    for name in ("sum", "mean", "prod", "nansum", "nanmean", "amax", "amin", "max", "min", "logsumexp", "softmax", "log_softmax"):
        args = (0,) if name in ("logsumexp", "softmax", "log_softmax") else ()
        check(name, x, *args)
    for name in ("max", "min", "argmax", "argmin", "any", "all"):
        check(name, x, 0)
    check("aminmax", x)


def test_sum_and_prod_in_another_dtype():
    """dtype= converts the elements before they are added: floats summed as integers are truncated one by one."""
    x = numbers(3, 4, dtype=torch.float32)
    for dtype in (torch.float64, torch.float16, torch.int64, torch.int32, torch.complex64):
        check("sum", x.long(), 1, dtype=dtype)
        check("prod", numbers(3, 4, dtype=torch.int64), 0, dtype=dtype)
        if dtype.is_floating_point:
            check("sum", x, 1, dtype=dtype)
    got = flambeau.sum(ours(x), dtype=flambeau.int64)
    assert got.item() == torch.sum(x, dtype=torch.int64).item()
    check("mean", numbers(3, 4, dtype=torch.int64), 0, dtype=torch.float64)
    check("sum", numbers(3, 4, dtype=torch.complex128), 0)
    check("mean", numbers(3, 4, dtype=torch.complex128))


def test_float32_sums_keep_their_digits_along_any_axis():
    """A long float32 sum is right to the last digits along the first axis as along the last."""
    x = torch.full((4096, 8), 0.1) + numbers(4096, 8, dtype=torch.float32) * 1e-3
    exact = x.double().sum(0)
    for layout in (x, x.t().contiguous().t()):
        found = ours(layout).sum(0)
        np.testing.assert_allclose(found.numpy(), exact.numpy(), rtol=2e-7)
    total = ours(torch.full((1 << 20,), 1.1)).sum().item()
    assert abs(total / (1.1 * (1 << 20)) - 1) < 1e-6


def test_factors_of_opposite_sizes():
    """Large factors and small ones, wherever they stand in a row, overflow on the way to an ordinary product."""
    for length in (16, 64, 130, 1000):
        for apart in (1, 4, 16, 32, length // 4):
            x = torch.ones(3, length)
            for place, factor in enumerate((1e30, 1e30, 1e-30, 1e-30)):
                x[:, place * apart % length] *= factor
            wanted = x.double().prod(1).float().numpy()
            np.testing.assert_allclose(ours(x).prod(1).numpy(), wanted, rtol=1e-6)
            np.testing.assert_allclose(ours(x[0]).prod().numpy(), wanted[0], rtol=1e-6)


@pytest.mark.parametrize("zeros", [(), (3,), (1, 4), (0, 1, 2, 3, 4, 5)])
def test_prod_is_differentiated_through_zeros(zeros):
    """The derivative of a product is the product of the others, also where elements are zero, and again."""
    x = numbers(2, 3)
    for i in zeros:
        x.view(-1)[i] = 0
    check("prod", x, second=True)
    check("prod", x, 1, second=True)
    check("prod", x, 0, True, second=True)
    check("prod", x.to(torch.complex128), 1)


@pytest.mark.parametrize("name", ["sum", "mean", "logsumexp", "var", "std", "amax", "nansum"])
def test_second_derivatives(name):
    """Derivatives are made of operations, so they can be differentiated again."""
    check(name, numbers(3, 4), 1, second=True)


def test_complex_gradients():
    """Derivatives at complex numbers follow PyTorch's convention."""
    z = numbers(3, 4, dtype=torch.complex128)
    for name in ("sum", "mean", "prod", "logsumexp", "var", "std", "cumsum", "cumprod", "logcumsumexp"):
        check(name, z, 1)


def test_ties_share_the_gradient():
    """amax, amin and max over all divide the gradient evenly among equal elements; max along a dimension gives it to its index."""
    x = numbers(4, 5, ties=True)
    for name in ("amax", "amin"):
        check(name, x, 1)
        check(name, x)
    for name in ("max", "min"):
        check(name, x)
        check(name, x, 1)
        check(name, x, -1, True)
        check(name, x, numbers(4, 5, ties=True, seed=1))
    check("aminmax", x)
    check("aminmax", x, dim=1, keepdim=True)


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_places(name):
    """Of equal elements argmax and argmin name the first, over all elements in order of the indices, whatever the strides."""
    for layout in LAYOUTS.values():
        x = layout(numbers(4, 5, ties=True))
        check(name, x)
        check(name, x, keepdim=True)
        for dim in (0, 1, -1):
            check(name, x, dim)
            check(name, x, dim, True)
    check(name, torch.tensor([1.0, NAN, 2.0, NAN]))
    check(name, torch.tensor(3.0), 0)
    for dtype in (torch.int64, torch.uint8, torch.bfloat16, torch.float16):
        check(name, numbers(4, 5, dtype=dtype), 1)


def test_named_results():
    """max along a dimension returns torch.return_types.max, a tuple whose items have names; it prints and pickles as such."""
    pair = ours(torch.tensor([[1.0, 2.0], [4.0, 3.0]])).max(1)
    assert repr(pair) == "torch.return_types.max(\nvalues=tensor([2., 4.]),\nindices=tensor([1, 0]))"
    assert pair.values is pair[0] and pair.indices is pair[1]
    assert type(pair)(pair) == pair
    values, indices = flambeau.sort(ours(torch.tensor([2, 1])))
    assert values.tolist() == [1, 2] and indices.tolist() == [1, 0]
    again = pickle.loads(pickle.dumps(type(pair)(1, 2)))
    assert type(again) is type(pair) and again.values == 1


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_variance_forms(name):
    """All three forms: unbiased, dimensions with unbiased, dimensions with any correction."""
    x = numbers(3, 4, 5)
    check(name, x)
    check(name, x, False)
    check(name, x, unbiased=False)
    check(name, x, 1, True)
    check(name, x, (0, 2), False, True)
    for correction in (0, 1, 2, 0.5, None):
        check(name, x, (0, 1), correction=correction)
        check(name, x, correction=correction, keepdim=True)
    check(name, torch.full((3, 4), 2.0, dtype=torch.float64), 1)
    check(name, torch.full((3, 4), 0.1, dtype=torch.float64), 0)
    with pytest.raises(TypeError):
        functions_of(name)(ours(x), 0, unbiased=True, correction=1)


def functions_of(name):
    return getattr(flambeau, name)


@pytest.mark.parametrize("dtype", REALS)
def test_a_large_mean_costs_no_digits(dtype):
    """The variance is taken around the exact mean, not around the mean rounded to the dtype."""
    x = (numbers(3, 200) + 200).to(dtype)
    for name in ("var", "std"):
        found, exact = getattr(ours(x), name)(1), getattr(x.double(), name)(1)
        np.testing.assert_allclose(found.double().numpy(), exact.numpy(), rtol={torch.bfloat16: 4e-3, torch.float16: 5e-4}.get(dtype, 1e-6))


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_variance_of_too_few():
    """With no degrees of freedom left the variance is infinite or NaN, and so is its derivative; we say so."""
    for values, correction in (([1.0, 2.0, 4.0], 3), ([1.0, 2.0, 4.0], 5), ([2.0, 2.0], 2), ([1.0], 1), (3.0, 0), (3.0, 1)):
        x = torch.tensor(values, dtype=torch.float64)
        check("var", x, correction=correction)
        check("std", x, correction=correction)
    with pytest.warns(UserWarning, match="degrees of freedom"):
        ours(torch.tensor([1.0])).var()


def test_covariance():
    """cov and corrcoef, weighted or not, of rows of observations."""
    x = numbers(3, 6)
    fweights = torch.tensor([1, 2, 1, 3, 1, 1])
    aweights = numbers(6, seed=2).abs()
    for options in ({}, {"correction": 0}, {"fweights": fweights}, {"aweights": aweights}, {"fweights": fweights, "aweights": aweights}):
        check("cov", x, **options)
        check("cov", x[0], **options)
    check("cov", numbers(2, 4, dtype=torch.int64))
    check("cov", numbers(2, 4, dtype=torch.complex128))
    check("corrcoef", x)
    check("corrcoef", numbers(2, 4, dtype=torch.complex128))
    check_raises("cov", numbers(2, 2, 2))
    check_raises("cov", x, fweights=aweights)
    check_raises("cov", x, aweights=torch.tensor([-1.0] * 6, dtype=torch.float64))


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "nn.functional.softmin", "special.softmax", "nn.functional.log_softmax"])
def test_softmax(name):
    """softmax and its relatives along any dimension, in any dtype, differentiable twice."""
    x = numbers(3, 4, 5)
    for layout in LAYOUTS.values():
        for dim in (0, 1, -1):
            check(name, layout(x), dim)
    check(name, x, 1, second=True)
    check(name, torch.tensor(2.0), 0)
    check(name, numbers(2, 0), 1)
    check(name, x * 1e3, 1)
    check(name, torch.tensor([[0.0, -INF, 1.0], [-INF, -INF, -INF]]), 1)
    check(name, numbers(3, 4, dtype=torch.bfloat16), 1)
    check(name, numbers(3, 4, dtype=torch.float16), 1, dtype=torch.float32)
    check(name, numbers(3, 4, dtype=torch.int64), 1, dtype=torch.float64)
    check_raises(name, numbers(3, dtype=torch.int64), 0)
    check_raises(name, x, 3)


def test_softmax_without_dim_warns():
    """nn.functional.softmax without dim guesses it, with a warning."""
    from flambeau.eager.bind import functions

    x = numbers(2, 3)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        found = functions["nn.functional.softmax"](ours(x))
    np.testing.assert_allclose(found.numpy(), x.softmax(1).numpy())


@pytest.mark.parametrize(
    "call",
    [
        ("sum", (3, 4), 5), ("sum", (3, 4), (0, 0)), ("sum", (3, 4), 1.5), ("mean", (3, 4), -3), ("amax", (0,)), ("amax", (0,), 0),
        ("amax", (2, 0), 1), ("max", (0,)), ("max", (0,), 0), ("min", (2, 0, 3), 1), ("max", (3,), None), ("max", (3, 4), (0, 1)),
        ("argmax", (0,)), ("argmax", (2, 0), 1), ("argmax", (3,), 1), ("prod", (3, 4), (0, 1)), ("prod", (3, 4), 2), ("var", (3,), 1.5),
        ("logsumexp", (3,), 1), ("all", (3,), 2), ("aminmax", (0,)), ("count_nonzero", (3,), 1), ("nansum", (3,), 4), ("std", (), 1),
    ],
)  # fmt: skip
def test_errors(call):
    """Wrong dimensions and empty tensors raise what PyTorch raises."""
    name, shape, *rest = call
    check_raises(name, numbers(*shape), *rest)


def test_errors_of_dtypes():
    """Complex numbers have no order, integers no mean, bools no argmax."""
    z, i, b = numbers(3, dtype=torch.complex64), numbers(3, dtype=torch.int64), numbers(3, dtype=torch.bool)
    for name in ("amax", "max", "argmax", "aminmax", "nansum"):
        check_raises(name, z)
    check_raises("max", z, 0)
    check_raises("argmax", b)
    for name in ("mean", "var", "std", "nanmean"):
        check_raises(name, i)
    check_raises("mean", i, dtype=torch.int32)
    check_raises("sum", i, dtype="float")
    check_raises("sum", [1, 2])
    check_raises("amax", [1, 2])


def test_out():
    """out= receives the result; where PyTorch wants the very dtype, so do we."""
    x = ours(numbers(3, 4, dtype=torch.float32))
    out = flambeau.from_numpy(np.zeros(4))
    assert flambeau.sum(x, 0, out=out) is out
    np.testing.assert_allclose(out.numpy(), x.numpy().astype(np.float64).sum(0), rtol=1e-6)
    values, indices = flambeau.from_numpy(np.zeros(3, np.float32)), flambeau.from_numpy(np.zeros(3, np.int64))
    pair = flambeau.max(x, 1, out=(values, indices))
    assert pair.values is values and indices.tolist() == x.numpy().argmax(1).tolist()
    with pytest.raises(RuntimeError, match="dtype"):
        flambeau.amax(x, 0, out=out)


@pytest.mark.parametrize("out", ["bool", "uint8", "int64", "float32"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "float32"])
@pytest.mark.parametrize("name", ["all", "any"])
def test_truth_goes_into_bool_or_bytes(name, dtype, out):
    """all and any write into bool and uint8, whatever they read, and into nothing else."""
    for dims in ((), (0,), ((0, 1),)):
        said = []
        for t in (flambeau, torch):
            try:
                found = getattr(t, name)(t.ones(2, 3).to(getattr(t, dtype)), *dims, out=t.empty(0, dtype=getattr(t, out)))
                said.append((found.tolist(), str(found.dtype)))
            except RuntimeError as error:
                said.append("only supports bool tensor for result" in str(error))
        assert said[0] == said[1]


META = {
    "sum": [(), (1,), ((0, 2), True)], "mean": [(), (1,)], "prod": [(), (1,)], "nansum": [(1,)], "logsumexp": [(1,)],
    "count_nonzero": [(0,)], "amax": [(), ((0, 1), True)], "max": [(), (1,)], "min": [(0, True)], "aminmax": [()],
    "argmax": [(), (1, True)], "all": [(), (1,)], "any": [((),)], "var": [(), (0,)],
    "std_mean": [(1,)], "softmax": [(1,)], "log_softmax": [(-1,)], "sort": [(0,)],
    "topk": [(2, 1)], "median": [(), (1,)], "kthvalue": [(2, 1, True)], "mode": [(0,)], "cumsum": [(1,)], "cumprod": [(0,)],
    "cummax": [(2,)], "logcumsumexp": [(1,)],
}  # fmt: skip


@pytest.mark.parametrize("name", META)
def test_tensors_without_data(name):
    """On the meta device results have the shapes and dtypes they would have with data."""
    x = ours(numbers(3, 4, 5, dtype=torch.float32))
    for args in META[name]:
        real, hollow = getattr(flambeau, name)(x, *args), getattr(flambeau, name)(x.to("meta"), *args)
        pairs = [(real, hollow)] if isinstance(real, flambeau.Tensor) else list(zip(real, hollow, strict=True))
        for r, h in pairs:
            assert h.is_meta and h.shape == r.shape and h.dtype is r.dtype, (name, args)


def test_sum_to_size():
    """sum_to_size undoes broadcasting."""
    x = numbers(2, 3, 4)
    for size in ((3, 1), (1, 3, 4), (4,), (), (2, 3, 4)):
        check("x.sum_to_size", x, size)
    check_raises("x.sum_to_size", x, (5,))


def test_masked_reductions():
    """torch.masked: elements outside the mask do not count."""
    x, mask = numbers(3, 4), numbers(3, 4, seed=1) > 0
    mask[:, 0] = True
    for name in ("sum", "prod", "amax", "amin", "mean", "logsumexp", "var", "std", "median"):
        check(f"masked.{name}", x, 1, mask=mask)
    for name in ("cumsum", "cumprod", "softmax", "log_softmax", "softmin"):
        check(f"masked.{name}", x, 1, mask=mask)
    check("masked.sum", x, (0, 1), keepdim=True, mask=mask[0])
    for nothing in ([], ()):  # the first names no dimension, the second all
        check("masked.prod", x, nothing, keepdim=True)
    check_raises("masked.mean", x.long(), 1)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [((4, 3, 40, 41), (0, 2, 3)), ((5, 6, 70), (0, 2)), ((7, 20, 9, 64), (0, 2)), ((3, 4, 5, 100), (1, 3)), ((40, 3, 50, 60), (0, 2, 3))],
)
def test_what_is_reduced_on_both_sides_of_what_is_kept_is_not_copied(shape, dims):
    """A reduction over two runs of memory copies the array, or has another value than PyTorch's."""
    array = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    seen, *_, again = folding._geometry(array, dims)
    assert seen is array and len(again) == 2
    for view in (lambda x: x, lambda x: x[::2], lambda x: x[..., ::2], lambda x: x[:, 1:]):
        ours, theirs = view(flambeau.tensor(array)), view(torch.tensor(array))
        for name in ("sum", "mean", "amax", "var", "nansum"):
            for keepdim in (False, True):
                found, expected = (getattr(x, name)(dim=dims, keepdim=keepdim).numpy() for x in (ours, theirs))
                assert found.shape == expected.shape
                np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5, err_msg=f"{name} {shape} {dims}")


@pytest.mark.parametrize(
    ("order", "dims", "copied"),
    [
        ((1, 0), (1,), False),
        ((1, 0), (0,), False),
        ((2, 1, 0), (0, 1, 2), False),
        ((0, 2, 1), (2,), False),
        ((2, 0, 1), (0,), False),
        ((2, 1, 0), (1,), False),
        ((2, 1, 0), (0, 2), True),
    ],
)
def test_transposed_arrays_are_folded_as_they_lie(order, dims, copied):
    """Rows of a transposed array are columns in memory, and are summed as such; only where short rows would repeat is it copied."""
    array = np.arange(3.0 * 5 * 7, dtype=np.float32).reshape(3, 5, 7)[: 3 if len(order) == 3 else 1].squeeze().transpose(order)
    seen = folding._geometry(array, dims)[0]
    assert (seen is not array) == copied
    for keepdim in (False, True):
        found = reduce("sum", array, dims, keepdim, array.dtype)
        assert found.flags.c_contiguous and np.array_equal(found, array.sum(axis=dims, keepdims=keepdim))


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8", "bool"])
@pytest.mark.parametrize("shape", [(300, 5), (3, 48), (70, 49), (2000, 3), (6, 300, 3), (4, 5, 40, 6)])
def test_short_rows_and_columns_apart(shape, dtype):
    """Rows of a few elements, every other column, permuted and expanded tensors are folded as PyTorch folds them, with any number of threads."""
    torch.manual_seed(0)
    x = (torch.randn(shape) * 4).to(getattr(torch, dtype))
    for view in (
        lambda t: t,
        lambda t: t[..., ::2],
        lambda t: t.movedim(0, -1),
        lambda t: t.unsqueeze(-1).expand(*t.shape, 4),
        lambda t: t.flip(0),
    ):
        theirs, mine = view(x), view(flambeau.from_numpy(x.numpy()))
        for dim in range(theirs.dim()):
            for name in ("sum", "amax", "any", *(("mean", "norm", "logsumexp", "var") if dtype.startswith("float") else ())):
                wanted = getattr(theirs.double() if dtype == "float32" else theirs, name)(dim=dim).numpy()  # float32's own digits are fewer
                found = getattr(mine, name)(dim=dim)
                np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-5)
                threads = flambeau.get_num_threads()
                try:
                    flambeau.set_num_threads(1)
                    assert np.array_equal(getattr(mine, name)(dim=dim).numpy(), found.numpy(), equal_nan=True)
                finally:
                    flambeau.set_num_threads(threads)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int64", "bool"])
def test_repeated_elements_are_folded_once(dtype):
    """Sums, means and extremes over expanded dimensions are PyTorch's; whole sums stay whole."""
    x = (torch.randn(50, 1, 7) * 4).to(getattr(torch, dtype))
    mine = flambeau.tensor(x.tolist(), dtype=getattr(flambeau, dtype))
    for shape in ((50, 49, 7), (3, 50, 64, 7)):
        for name in ("sum", "amax", "amin", "any", "all", *(("mean", "var", "nansum") if "float" in dtype else ())):
            for options in ({}, *({"dim": d, "keepdim": k} for d in (0, 1, 2, (0, 1), (1, 2)) for k in (False, True))):
                wanted, found = getattr(x.expand(shape), name)(**options), getattr(mine.expand(shape), name)(**options)
                assert found.shape == wanted.shape and str(found.dtype) == str(wanted.dtype)
                tolerance = 2e-2 if "16" in dtype else 1e-5
                wanted = getattr((x.double() if "float" in dtype else x).expand(shape), name)(
                    **options
                )  # PyTorch's own sums are less exact
                np.testing.assert_allclose(found.double().numpy(), wanted.double().numpy(), rtol=tolerance, atol=tolerance)
    assert flambeau.ones(1, dtype=getattr(flambeau, dtype)).expand(49).sum().item() == 49


@pytest.mark.parametrize("shape", [(3, 16), (3, 64), (5, 255), (2, 256), (3, 1025), (70, 33), (2000, 3)])
def test_float16_is_folded_in_float32(shape):
    """Folds of float16 along rows and columns are those of the same numbers in float32, rounded once; NaN and infinities stay."""
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    x[0, 0], x[1, 1], x[2 % shape[0], -1] = np.nan, np.inf, 6e-8
    for part in (x, x[:, ::2], x.T, np.ascontiguousarray(x[1:])):
        half, single = flambeau.from_numpy(part), flambeau.from_numpy(part.astype(np.float32))
        for dim in (0, 1):
            for name in ("sum", "mean", "amax", "amin", "norm", "prod", "any"):
                found, wanted = (getattr(t, name)(dim=dim).float().numpy() for t in (half, single))
                np.testing.assert_allclose(found, wanted.astype(np.float16).astype(np.float32), rtol=1e-3, atol=1e-4, err_msg=name)


def test_words_of_refused_reductions():
    """Complex nansum, and histc whose range ends before it begins, whatever the dtype, are refused in the words programs know."""
    with pytest.raises(RuntimeError, match="nansum on CPU does not support complex inputs"):
        flambeau.nansum(flambeau.ones(2, dtype=flambeau.complex64))
    for dtype in (flambeau.uint8, flambeau.int64, flambeau.float32):
        with pytest.raises(RuntimeError, match="max must be larger than min"):
            flambeau.histc(flambeau.ones(3, dtype=dtype), bins=4, min=5, max=1)
