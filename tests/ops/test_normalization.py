"""Normalization: values, statistics, first and second derivatives, running averages, layouts, dtypes and errors."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import assert_same, carried, torch, values

import flambeau

F, T = flambeau.nn.functional, torch.nn.functional
ROOM = {torch.float64: 1e-10, torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def sample(*shape, dtype=torch.float64, seed=0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 + 0.5).to(dtype)


def check(run, *operands, first=True, second=False, strides=True):
    """The same call in both frameworks: `run(functions of the framework, *tensors)`; None stays None."""
    theirs = [None if a is None else a.detach().clone(memory_format=torch.preserve_format) for a in operands]
    mine = [None if a is None else carried(a) for a in theirs]
    if first or second:
        for a in (*theirs, *mine):
            if a is not None:
                a.requires_grad_()
    results = run(torch, *theirs), run(flambeau, *mine)
    room = ROOM[operands[0].dtype]
    assert_same(results[1], results[0], strides=strides, tolerance=room)
    if first or second:
        weight = sample(*results[0].shape, dtype=results[0].dtype, seed=7)
        leaves = [(a, b) for a, b in zip(theirs, mine, strict=True) if a is not None]
        of_torch = torch.autograd.grad((results[0] * weight).sum(), [a for a, _ in leaves], create_graph=second)
        of_mine = flambeau.autograd.grad((results[1] * carried(weight)).sum(), [b for _, b in leaves], create_graph=second)
        for found, expected in zip(of_mine, of_torch, strict=True):
            assert_same(found.detach(), expected.detach(), strides=False, tolerance=10 * room)
        if second:
            again = [sample(*g.shape, dtype=g.dtype, seed=11 + i) for i, g in enumerate(of_torch)]
            total = sum((g * w).sum() for g, w in zip(of_torch, again, strict=True))
            mine_total = sum((g * carried(w)).sum() for g, w in zip(of_mine, again, strict=True))
            expected = torch.autograd.grad(total, [a for a, _ in leaves], allow_unused=True)
            found = flambeau.autograd.grad(mine_total, [b for _, b in leaves], allow_unused=True)
            for one, other in zip(found, expected, strict=True):
                if other is not None:
                    assert_same(one, other, strides=False, tolerance=100 * room)
    return results


NORMS = {
    "layer_norm": (lambda t, x, w, b: t.nn.functional.layer_norm(x, (5,), w, b), (3, 4, 5), (5,)),
    "layer_norm over two dimensions": (lambda t, x, w, b: t.nn.functional.layer_norm(x, (4, 5), w, b, eps=0.1), (3, 4, 5), (4, 5)),
    "long rows": (lambda t, x, w, b: t.nn.functional.layer_norm(x, (5000,), w, b), (2, 5000), (5000,)),
    "group_norm": (lambda t, x, w, b: t.nn.functional.group_norm(x, 3, w, b), (2, 6, 3, 2), (6,)),
    "group_norm of a matrix": (lambda t, x, w, b: t.nn.functional.group_norm(x, 2, w, b), (4, 6), (6,)),
    "batch_norm": (lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True), (3, 4, 5, 2), (4,)),
    "batch_norm of a matrix": (lambda t, x, w, b: t.nn.functional.batch_norm(x, None, None, w, b, True), (6, 4), (4,)),
    "instance_norm": (lambda t, x, w, b: t.nn.functional.instance_norm(x, None, None, w, b), (2, 3, 7), (3,)),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("given", ["both", "weight", "neither"])
def test_values_and_both_derivatives(name, given):
    """In double precision, with and without scale and shift."""
    run, shape, parameters = NORMS[name]
    weight = sample(*parameters, seed=1) if given != "neither" else None
    bias = sample(*parameters, seed=2) if given == "both" else None
    check(run, sample(*shape), weight, bias, second=True)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_dtypes(name, dtype):
    """Half precision is normalised in float32 and rounded once."""
    run, shape, parameters = NORMS[name]
    single = dtype is torch.float32
    check(
        run, sample(*shape, dtype=dtype), sample(*parameters, dtype=dtype, seed=1), sample(*parameters, dtype=dtype, seed=2), first=single
    )


def test_rms_norm():
    """Without a mean; eps is the dtype's where none is given."""
    for shape, over, eps in (((3, 4, 5), (5,), None), ((3, 4, 5), (4, 5), 0.3), ((2, 1), (1,), None)):
        for weight in (None, sample(*over, seed=1)):
            check(lambda t, x, w, over=over, eps=eps: t.nn.functional.rms_norm(x, over, w, eps), sample(*shape), weight, second=True)
    check(lambda t, x: t.rms_norm(x, (5,)), sample(3, 5, dtype=torch.float32))
    check(lambda t, x: t.rms_norm(x, (5,)), sample(3, 5, dtype=torch.bfloat16), first=False)


def test_layouts():
    """Rows that do not lie side by side, repeated rows, images with channels last, nothing at all."""
    x = sample(6, 5, 4)
    run = NORMS["layer_norm"][0]
    for view in (x.transpose(1, 2), x.permute(2, 0, 1), x[::2].mT, x[:1].expand(3, 5, 4).mT):
        theirs, mine = run(torch, view, None, None), run(flambeau, carried(view), None, None)
        assert_same(mine, theirs, tolerance=1e-10)
    images = sample(2, 6, 3, 4).to(memory_format=torch.channels_last)
    for name in ("group_norm", "batch_norm"):
        groups = lambda t, x, name=name: (  # noqa: E731
            t.nn.functional.group_norm(x, 3) if name == "group_norm" else t.nn.functional.batch_norm(x, None, None, training=True)
        )
        check(groups, images, first=False)
    for shape in ((0, 5), (3, 0)):
        assert_same(F.layer_norm(flambeau.ones(shape), shape[1:]), T.layer_norm(torch.ones(shape), shape[1:]))


def test_not_a_number_stays_in_its_row():
    """NaN and infinity make their own row NaN, and no other."""
    x = sample(4, 8, dtype=torch.float32)
    x[1, 3], x[2, 5] = float("nan"), float("inf")
    assert_same(F.layer_norm(carried(x), (8,)), T.layer_norm(x, (8,)), tolerance=1e-5)
    assert_same(F.rms_norm(carried(x), (8,)), T.rms_norm(x, (8,)), tolerance=1e-5)


def test_a_large_mean_costs_no_digits():
    """The variance is that of the distances from the mean."""
    x = torch.randn(3, 4096, generator=torch.Generator().manual_seed(0)) + 1000
    expected = T.layer_norm(x.double(), (4096,))
    np.testing.assert_allclose(values(F.layer_norm(carried(x), (4096,))), expected.numpy(), atol=2e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_statistics(dtype):
    """native_layer_norm, native_group_norm and native_batch_norm hand out the mean and 1 / sqrt(var + eps), in PyTorch's shapes and dtypes."""
    x, w, b = sample(2, 6, 4, dtype=dtype), sample(6, dtype=dtype, seed=1), sample(6, dtype=dtype, seed=2)
    ours = [carried(a) for a in (x, w, b)]
    room = ROOM[dtype]
    assert_same(
        flambeau.native_layer_norm(ours[0], (6, 4), None, None, 1e-5), torch.native_layer_norm(x, (6, 4), None, None, 1e-5), tolerance=room
    )
    found = flambeau.native_group_norm(*ours, 2, 6, 4, 3, 1e-5)
    assert_same(found, torch.native_group_norm(x, w, b, 2, 6, 4, 3, 1e-5), tolerance=room)
    found = flambeau.native_batch_norm(*ours, None, None, True, 0.1, 1e-5)
    assert_same(found, torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5), tolerance=room)
    mixed = torch.native_layer_norm(sample(3, 6, dtype=torch.bfloat16), (6,), w.float(), None, 1e-5)
    found = flambeau.native_layer_norm(carried(sample(3, 6, dtype=torch.bfloat16)), (6,), carried(w.float()), None, 1e-5)
    assert_same(found, mixed, tolerance=2e-2)


@pytest.mark.parametrize("function", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("momentum", [0.1, 1.0])
def test_running_averages(function, momentum):
    """They move towards the batch's when it is used, and are used themselves when it is not."""
    x, mean, var = sample(3, 4, 5), sample(4, seed=3), sample(4, seed=4).abs()
    mine = [carried(a) for a in (x, mean, var)]
    for uses_batch in (True, False):
        for kept, library in (((x, mean, var), T), (mine, F)):
            result = getattr(library, function)(*kept, None, None, uses_batch, momentum)
            if library is T:
                expected = result
        assert_same(result, expected, tolerance=1e-10)
        assert_same(mine[1], mean, tolerance=1e-10)
        assert_same(mine[2], var, tolerance=1e-10)


def test_evaluation_has_derivatives():
    """With running statistics the normalisation is a fixed scale and shift."""
    mean, var = sample(4, seed=3), sample(4, seed=4).abs()
    check(
        lambda t, x, w, b: t.nn.functional.batch_norm(x, *((mean, var) if t is torch else map(carried, (mean, var))), w, b),
        sample(3, 4, 5), sample(4, seed=1), sample(4, seed=2), second=True,
    )  # fmt: skip


def test_local_response_norm():
    """Neighbouring channels, fewer at the edges; integers, too."""
    for size in (1, 2, 3, 5):
        check(lambda t, x, size=size: t.nn.functional.local_response_norm(x, size, 0.1, 0.6, 1.5), sample(2, 4, 3), second=True)
    x = torch.arange(24).reshape(1, 4, 6)
    assert_same(F.local_response_norm(carried(x), 3), T.local_response_norm(x, 3))


def test_on_the_meta_device():
    """Shapes without data."""
    x, w = flambeau.empty(3, 4, 6, device="meta"), flambeau.empty(6, device="meta")
    assert F.layer_norm(x, (6,), w).shape == (3, 4, 6)
    assert F.rms_norm(x, (6,), w).shape == (3, 4, 6)
    assert F.group_norm(x, 2).shape == (3, 4, 6)
    assert F.batch_norm(x, None, None, training=True).shape == (3, 4, 6)


ERRORS = {
    "no shape": lambda f, t: f.layer_norm(t.ones(3, 4), ()),
    "another shape": lambda f, t: f.layer_norm(t.ones(3, 4), (5,)),
    "too many dimensions": lambda f, t: f.layer_norm(t.ones(4), (3, 4)),
    "another weight": lambda f, t: f.layer_norm(t.ones(3, 4), (4,), t.ones(3)),
    "integers": lambda f, t: f.layer_norm(t.ones(3, 4, dtype=t.int64), (4,)),
    "groups that do not divide": lambda f, t: f.group_norm(t.ones(2, 5, 3), 2),
    "no channels": lambda f, t: f.group_norm(t.ones(5), 1),
    "weight of another length": lambda f, t: f.group_norm(t.ones(2, 4, 3), 2, t.ones(3)),
    "one number in a group": lambda f, t: f.group_norm(t.ones(1, 2), 2),
    "one number in a channel": lambda f, t: f.batch_norm(t.ones(1, 3), None, None, training=True),
    "running statistics missing": lambda f, t: f.batch_norm(t.ones(2, 3), None, None),
    "too few running averages": lambda f, t: f.batch_norm(t.ones(2, 3), t.ones(2), t.ones(3)),
    "one place": lambda f, t: f.instance_norm(t.ones(2, 3, 1)),
    "no statistics at all": lambda f, t: f.instance_norm(t.ones(2, 3, 4), use_input_stats=False),
    "rms of another shape": lambda f, t: f.rms_norm(t.ones(3, 4), (3,)),
    "response of a matrix": lambda f, t: f.local_response_norm(t.ones(3, 4), 2),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """PyTorch's type of exception."""
    with pytest.raises(Exception) as theirs:
        ERRORS[name](T, torch)
    with pytest.raises(theirs.type):
        ERRORS[name](F, flambeau)


@pytest.mark.parametrize("layer", [("BatchNorm1d", (4,)), ("GroupNorm", (2, 4))], ids=str)
def test_an_empty_batch_has_gradients_of_zero(layer):
    """The parameters of a layer that saw an empty batch have no gradient: then averaging gradients over processes fails."""
    for f in (torch, flambeau):
        for training in (True, False):
            m = getattr(f.nn, layer[0])(*layer[1]).train(training)
            m(f.empty(0, 4, 3, requires_grad=True)).sum().backward()
            assert [p.grad.tolist() for p in m.parameters()] == [[0.0] * 4] * 2


@pytest.mark.parametrize("dtypes", [("float32", "float64"), ("float64", "float32"), ("float32", "bfloat16")], ids=str)
@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_rms_norm_takes_a_weight_of_another_dtype(dtypes):
    """The result has the dtype of the input, whatever that of the weight."""
    found = [F_.rms_norm(f.ones(2, 3, dtype=getattr(f, dtypes[0])) * 2, (3,), f.full((3,), 0.5, dtype=getattr(f, dtypes[1])))
             for f, F_ in ((torch, T), (flambeau, F))]  # fmt: skip
    assert str(found[0].dtype) == str(found[1].dtype) == f"torch.{dtypes[0]}"
    np.testing.assert_allclose(found[0].numpy(), found[1].numpy(), rtol=1e-6)
