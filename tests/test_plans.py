"""Calls that have plans: the third call with the same shapes and options must be what the first was, and notice all that may differ."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref

import numpy as np
import pytest

import flambeau as fl

torch = pytest.importorskip("torch")

CALLS = {
    "max_pool2d": (lambda t, x, i: t.nn.functional.max_pool2d(x, 2), (2, 3, 6, 6)),
    "avg_pool2d padded": (lambda t, x, i: t.nn.functional.avg_pool2d(x, 3, 2, 1, True, False), (2, 3, 7, 6)),
    "avg_pool1d": (lambda t, x, i: t.nn.functional.avg_pool1d(x, 3, 2, 1), (2, 3, 9)),
    "adaptive_avg_pool2d": (lambda t, x, i: t.nn.functional.adaptive_avg_pool2d(x, (3, 2)), (2, 3, 6, 6)),
    "interpolate nearest": (lambda t, x, i: t.nn.functional.interpolate(x, scale_factor=2), (2, 3, 4, 5)),
    "interpolate bilinear": (lambda t, x, i: t.nn.functional.interpolate(x, size=(7, 3), mode="bilinear"), (2, 3, 4, 5)),
    "cosine_similarity": (lambda t, x, i: t.nn.functional.cosine_similarity(x, x.detach() + 1, 1), (4, 5)),
    "layer_norm": (lambda t, x, i: t.nn.functional.layer_norm(x, (5,), x[0] * 2, x[1]), (4, 5)),
    "group_norm": (lambda t, x, i: t.nn.functional.group_norm(x, 2, x[0, :, 0], x[0, :, 1]), (2, 4, 5)),
    "instance_norm": (lambda t, x, i: t.nn.functional.instance_norm(x), (2, 4, 5)),
    "rms_norm": (lambda t, x, i: t.nn.functional.rms_norm(x, (5,), x[0]), (4, 5)),
    "cat": (lambda t, x, i: t.cat([x, x * 2, x], 1), (4, 5)),
    "stack": (lambda t, x, i: t.stack([x, x * 2], -1), (4, 5)),
    "max": (lambda t, x, i: x.max(1)[0], (4, 5)),
    "sort": (lambda t, x, i: x.sort(1, descending=True)[0], (4, 5)),
    "gather": (lambda t, x, i: x.gather(1, i), (4, 5)),
    "index_select": (lambda t, x, i: x.index_select(0, i[0]), (4, 5)),
    "scatter_add": (lambda t, x, i: (x * 0).scatter_add(1, i, x[:, :2]), (4, 5)),
    "index_add": (lambda t, x, i: (x * 2).index_add(0, i[0], x[:2], alpha=2.0), (4, 5)),
    "norm": (lambda t, x, i: x.norm(dim=1), (4, 5)),
    "var": (lambda t, x, i: x.var(1), (4, 5)),
    "softmax": (lambda t, x, i: t.nn.functional.softmax(x, -1), (4, 5)),
    "logsumexp": (lambda t, x, i: x.logsumexp(1), (4, 5)),
    "sum of columns": (lambda t, x, i: x[:, 1:3].sum(), (4, 5)),
    "roll": (lambda t, x, i: x.roll(1, 0), (4, 5)),
    "repeat": (lambda t, x, i: x.repeat(2, 1), (4, 5)),
    "pad": (lambda t, x, i: t.nn.functional.pad(x, (1, 2), value=3.0), (4, 5)),
    "split": (lambda t, x, i: x.split(2, 1)[1] * x.split(2, 1)[0], (4, 4)),
    "unbind": (lambda t, x, i: x.unbind(0)[1] * x.unbind(0)[2], (4, 4)),
    "index": (lambda t, x, i: x[i[:, 0], i[:, 1]], (4, 5)),
    "cumsum": (lambda t, x, i: x.cumsum(1), (4, 5)),
    "conv1d": (lambda t, x, i: t.nn.functional.conv1d(x, x[:, :, :3], padding=1), (2, 2, 8)),
    "conv_transpose2d": (lambda t, x, i: t.nn.functional.conv_transpose2d(x, x[:1, :2].reshape(2, 1, 5, 5), stride=2, padding=1), (1, 2, 5, 5)),
    "softmax of columns": (lambda t, x, i: x.softmax(0), (4, 5)),
    "log_softmax": (lambda t, x, i: x.log_softmax(-1), (4, 5)),
    "cat of a tuple": (lambda t, x, i: t.cat((x, x * 2), dim=0), (4, 5)),
    "stack in front": (lambda t, x, i: t.stack((x, x * 3, x)), (4, 5)),
    "topk": (lambda t, x, i: x.topk(2, 0)[0], (4, 5)),
    "take": (lambda t, x, i: x.take(i - 2), (4, 5)),
    "rows by index": (lambda t, x, i: x[i[:, 0] - 1], (4, 5)),
    "embedding": (lambda t, x, i: t.nn.functional.embedding(i, x), (4, 5)),
    "scatter": (lambda t, x, i: (x * 2).scatter(1, i, x[:, :2] * x[:, 2:4]), (4, 5)),
    "prod": (lambda t, x, i: x.prod(1), (4, 5)),
    "mean": (lambda t, x, i: x.mean((0, 1), keepdim=True), (4, 5)),
    "amax": (lambda t, x, i: x.amax(1), (4, 5)),
    "std": (lambda t, x, i: x.std(), (4, 5)),
    "linalg.norm": (lambda t, x, i: t.linalg.norm(x, 1, dim=-1), (4, 5)),
    "mv": (lambda t, x, i: x @ x[:, 0], (4, 4)),
    "dot": (lambda t, x, i: x[0].dot(x[:, 1]), (4, 4)),
    "addmm": (lambda t, x, i: t.addmm(x[0], x, x.t(), alpha=2), (4, 4)),
    "bmm": (lambda t, x, i: x.bmm(x.transpose(1, 2)), (2, 3, 4)),
    "flip": (lambda t, x, i: x.flip(0, 1), (4, 5)),
    "roll over two": (lambda t, x, i: x.roll((1, -2), (0, 1)), (4, 5)),
    "tril": (lambda t, x, i: x.tril(-1), (4, 5)),
    "contiguous": (lambda t, x, i: x.t().contiguous(), (4, 5)),
    "clone": (lambda t, x, i: x.t().clone(), (4, 5)),
    "to": (lambda t, x, i: (x * 2).to(t.float32).double(), (4, 5)),
    "clamp": (lambda t, x, i: x.clamp(-0.5, max=0.5), (4, 5)),
    "masked_fill": (lambda t, x, i: x.t().masked_fill(x.t() > 0, 2.0), (4, 5)),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_the_third_call_is_torchs_too(name):
    """Values, gradients or the gradient of a gradient of a remembered call are not PyTorch's, or its node has another name."""
    call, shape = CALLS[name]
    rng = np.random.default_rng(0)
    index = rng.integers(0, 4, (4, 2))
    for _ in range(3):
        data = rng.standard_normal(shape)
        found = []
        for t in (torch, fl):
            x = t.tensor(data, requires_grad=True)
            y = call(t, x, t.tensor(index))
            (g,) = t.autograd.grad((y * y).sum(), x, create_graph=True)
            (g * g).sum().backward()
            found.append((y.grad_fn.name(), *(v.detach().numpy() for v in (y, g, x.grad))))
        assert found[0][0] == found[1][0]
        for ours, theirs in zip(found[1][1:], found[0][1:], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", CALLS)
def test_whether_a_gradient_is_wanted_is_asked_every_time(name):
    """A call without gradients was remembered, and the same call with them records nothing; or the other way round."""
    call, shape = CALLS[name]
    index = fl.tensor(np.random.default_rng(0).integers(0, 4, (4, 2)))
    for wanted in (False, True, False, True):
        assert call(fl, fl.ones(shape, requires_grad=wanted), index).requires_grad is wanted
    with fl.no_grad():
        assert not call(fl, fl.ones(shape, requires_grad=True), index).requires_grad


def test_options_that_are_equal_but_not_the_same_are_told_apart():
    """0.0 and -0.0, or True and 1, were taken for one request."""
    x = fl.zeros(2, 3)
    for value in (0.0, -0.0, 0.0):
        assert np.signbit(fl.nn.functional.pad(x, (1, 0), value=value).numpy()[0, 0]) == np.signbit(value)
    assert fl.max(x, 1, True)[0].shape == (2, 1)
    assert fl.max(x, 1, False)[0].shape == (2,)
    with pytest.raises(TypeError):
        fl.max(x, 1.0)


def test_what_warns_warns_again():
    """A remembered call keeps its warning to itself the second time."""
    for call in (lambda x: fl.nn.functional.softmax(x), lambda x: x.var(1)):
        for _ in range(3):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                call(fl.ones(2, 1))
            assert len(caught) == 1


def test_errors_are_found_again():
    """An error was remembered as a success, or an index out of bounds was not looked for."""
    x = fl.ones(3, 4)
    assert x.gather(1, fl.zeros(3, 1, dtype=fl.int64)).shape == (3, 1)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.gather(1, fl.full((3, 1), 7))
        with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
            fl.cat([x, fl.ones(2, 5)], 0)


ARRAYS = {
    "row-major": lambda a: a,
    "transposed": lambda a: np.asfortranarray(a),
    "every other": lambda a: np.repeat(a, 2, axis=1)[:, ::2],
    "in two dtypes": lambda a: a.astype(np.float32),
    "whole numbers": lambda a: (a * 7).round().astype(np.int64),
}
WITHOUT_GRADIENT = {
    "argmax": lambda t, x, i: x.argmax(),
    "argmin of rows": lambda t, x, i: x.argmin(1, keepdim=True),
    "topk": lambda t, x, i: x.topk(3, 1)[1],
    "sort": lambda t, x, i: x.sort(0)[1],
    "cumsum": lambda t, x, i: x.cumsum(1),
    "cat": lambda t, x, i: t.cat([x, x + 1], 1),
    "stack": lambda t, x, i: t.stack([x, x + 1], 1),
    "roll": lambda t, x, i: x.roll(2, 1),
    "flip": lambda t, x, i: x.flip(1),
    "triu": lambda t, x, i: x.triu(1),
    "repeat": lambda t, x, i: x.repeat(2, 3),
    "pad": lambda t, x, i: t.nn.functional.pad(x, (1, -1, 2, 0), value=3),
    "gather": lambda t, x, i: x.gather(0, i),
    "scatter_": lambda t, x, i: (x + 0).scatter_(1, i, x[:, 3:]),
    "scatter_ of a number": lambda t, x, i: (x + 0).scatter_(1, i, 7),
    "scatter_add_": lambda t, x, i: (x + 0).scatter_add_(1, i, x[:, 3:]),
    "index_add_": lambda t, x, i: (x + 0).index_add_(0, i[:, 1], x + 1),
    "index_select": lambda t, x, i: x.index_select(1, i[0]),
    "rows": lambda t, x, i: x[i],
    "take": lambda t, x, i: x.take(i),
    "sum": lambda t, x, i: x.sum(0),
    "prod": lambda t, x, i: x.prod(0, keepdim=True),
    "all": lambda t, x, i: x.all(1),
    "amin": lambda t, x, i: x.amin((0, 1)),
    "copy_ of a row": lambda t, x, i: (x + 0).copy_(x[1]),
    "contiguous": lambda t, x, i: x.contiguous(),
    "long": lambda t, x, i: x.long(),
}


@pytest.mark.parametrize("layout", ARRAYS)
@pytest.mark.parametrize("name", WITHOUT_GRADIENT)
def test_the_third_call_is_torchs_whatever_the_layout(name, layout):
    """What was made ready for one layout or dtype is not what PyTorch computes for another."""
    rng = np.random.default_rng(0)
    index = rng.integers(0, 4, (4, 2))
    for _ in range(4):
        data = ARRAYS[layout](rng.permutation(20).reshape(4, 5) / 7.0)
        theirs, ours = (WITHOUT_GRADIENT[name](t, t.from_numpy(data), t.from_numpy(index)) for t in (torch, fl))
        steps = [[s for s, n in zip(y.stride(), y.shape, strict=True) if n > 1] for y in (ours, theirs)]
        assert steps[0] == steps[1] and str(ours.dtype) == str(theirs.dtype)
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


def test_memory_that_must_not_be_written_to_is_read():
    """A call was made ready with memory that may be written to, and fails, or writes, where it may not be."""
    data = np.arange(12.0).reshape(3, 4)
    frozen = data.copy()
    frozen.flags.writeable = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for array in (data, data, data, frozen):
            x = fl.from_numpy(array)
            assert x.cumsum(1)[0].tolist() == [0, 1, 3, 6]
            assert x.topk(1)[1].tolist() == [[3], [3], [3]]
            assert x.argmax(0).tolist() == [2] * 4
    assert (frozen == data).all()


def test_an_index_out_of_bounds_is_found_in_every_call():
    """A call that was made ready does not look at its index, or writes before it has."""
    x, out = fl.arange(12.0).reshape(3, 4), fl.zeros(3, 4)
    calls = {
        "gather": lambda i: x.gather(0, i), "scatter_": lambda i: out.scatter_(0, i, x), "scatter_add_": lambda i: out.scatter_add_(0, i, x),
        "scatter": lambda i: x.scatter(0, i, x * 2), "scatter_ number": lambda i: out.scatter_(0, i, 1.0), "take": lambda i: x.take(i * 4),
        "select": lambda i: x.index_select(0, i[0]), "embedding": lambda i: fl.nn.functional.embedding(i, x), "rows": lambda i: x[i],
        "index_add_": lambda i: out.index_add_(0, i[:, 0], x),
    }  # fmt: skip
    good, bad = fl.tensor([[0, 1, 2, 0], [2, 2, 1, 0], [1, 0, 0, 0]]), fl.tensor([[0, 1, 2, 0], [2, 2, 1, 0], [3, 3, 3, 3]])
    for name, call in calls.items():
        for _ in range(3):
            call(good)
        before = out.clone()
        for _ in range(2):
            with pytest.raises((IndexError, RuntimeError), match=r"out.of"):
                call(bad if name != "select" else bad[2:])
        assert out.equal(before), name


def test_a_write_over_what_it_reads_is_seen_in_every_call():
    """A write that was made ready for tensors apart is refused, as any, where they share memory."""
    index = fl.tensor([[1, 2, 0]])
    for _ in range(3):
        fl.zeros(1, 3).scatter_(1, index, fl.ones(1, 3))
    x = fl.tensor([[1.0, 2.0, 3.0]])
    with pytest.raises(RuntimeError, match="unsupported operation"):
        x.scatter_(1, index, x)
    assert x.tolist() == [[1.0, 2.0, 3.0]]


def test_the_memory_of_calls_keeps_no_tensor():
    """Tensors in a tuple were looked up by themselves, and kept alive for as long as there was room for them."""
    x = [fl.ones(3, 3) for _ in range(4)]
    alive = [weakref.ref(t) for t in x]
    for _ in range(3):
        fl.cat((x[0], x[1]), dim=1)
        fl.stack((x[2], x[3]))
        x[0] @ x[1][0]
    del x
    gc.collect()
    assert not any(r() is not None for r in alive)


def test_function_modes_and_subclasses_see_every_call():
    """A remembered call passes by those who want to see every call."""
    seen = []

    class Watch(fl.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function.__name__)
            return function(*args, **(kwargs or {}))

    class Own(fl.Tensor):
        pass

    x = fl.ones(2, 3)
    for _ in range(3):
        fl.cat([x, x])
        assert type(fl.cat([x.as_subclass(Own), x])) is Own
    with Watch():
        fl.cat([x, x])
    assert seen[-1] == "cat"


def test_autocast_is_asked_every_time():
    """A call remembered outside of autocast ran inside of it as it was."""
    x = fl.ones(4, 4)
    for _ in range(2):
        with fl.autocast("cpu", dtype=fl.bfloat16):
            assert fl.nn.functional.conv1d(x[None], fl.ones(2, 4, 3)).dtype is fl.bfloat16
        assert fl.nn.functional.conv1d(x[None], fl.ones(2, 4, 3)).dtype is fl.float32


def test_tables_are_bounded():
    """The memory of calls grows without end."""
    for n in range(1, 2500):
        fl.roll(fl.ones(n), 1, 0)
    assert 0 < len(fl.roll.plans) <= 1000


def test_no_plans_are_made_in_vain():
    """Every shape comes twice and never again, and each time a plan was made; or what does come again has none for good."""
    table = fl.cummax.plans
    for length in range(3, 60):
        for _ in range(2):
            fl.cummax(fl.ones(length, 3), 0)
    assert table.find(fl.ones(3, 3), 0)  # the first are made in good faith
    assert table.find(fl.ones(59, 3), 0) is None
    for _ in range(30):
        fl.cummax(fl.ones(59, 3), 0)
    assert table.find(fl.ones(59, 3), 0)


def test_a_tensor_given_twice_is_not_taken_for_two():
    """A call with one tensor in two places was remembered, and the next call, with two tensors, used only one of them."""
    x = fl.tensor([[0, 1], [1, 0]])
    y = fl.tensor([[1, 1], [0, 0]])
    assert x.gather(1, x).tolist() == [[0, 1], [0, 1]]
    assert x.gather(1, y).tolist() == [[1, 1], [1, 1]]
    assert y.gather(1, x).tolist() == [[1, 1], [0, 0]]


def test_what_forward_keeps_for_its_backward_is_not_shared():
    """The gradient of one call was made of what another call had kept."""
    for seed in range(5):
        x = np.random.default_rng(seed).standard_normal((6, 4)).astype(np.float32)
        target = np.random.default_rng(seed).integers(0, 4, 6)
        found = []
        for t in (fl, torch):
            logits = t.tensor(x, requires_grad=True)
            first = t.nn.functional.cross_entropy(logits, t.tensor(target))
            second = t.nn.functional.cross_entropy(logits * 2, t.tensor(target[::-1].copy()))
            (second + first).backward()
            found.append(logits.grad.numpy())
        np.testing.assert_allclose(*found, rtol=1e-5, atol=1e-6)


def learned(function, *args, **kwargs):
    """The third result of a call, which its plan has given."""
    for _ in range(3):
        found = function(*args, **kwargs)
    assert type(function.plans.find(*args, **kwargs)).__name__ == "Plan"
    return found


def test_a_plan_holds_for_other_numbers():
    """A plan was made of the numbers of the call that it was learned from."""
    x = fl.tensor([1.0, 2.0, 3.0])
    for number in (2.0, 3.5, -1.0):
        assert (x * number).tolist() == [number, 2 * number, 3 * number]
        assert (number - x).tolist() == [number - 1, number - 2, number - 3]
        assert (number**x).tolist() == pytest.approx([number, number**2, number**3])
        assert x.clone().mul_(number).tolist() == [number, 2 * number, 3 * number]


def test_plans_of_several_steps_have_pytorchs_history():
    """Composites of several operations, carried out by compiled code, give other gradients or other names of nodes."""
    found = []
    for t in (fl, torch):
        x, w = t.arange(6.0).reshape(2, 3).requires_grad_(), t.arange(12.0).reshape(4, 3).requires_grad_()
        for _ in range(3):
            y = t.einsum("ij,kj->ik", x, w)
            z = t.nn.functional.mse_loss(y, t.zeros(2, 4))
        gradients = t.autograd.grad(z, (x, w))
        found.append([type(z.grad_fn).__name__, *[g.tolist() for g in gradients]])
    assert found[0] == found[1]


def test_running_averages_are_moved_by_plans():
    """A plan forgot what the call had written beside its result."""
    found = []
    for t in (fl, torch):
        x, mean, var = t.arange(12.0).reshape(4, 3), t.zeros(3), t.ones(3)
        for _ in range(4):
            t.nn.functional.batch_norm(x, mean, var, training=True)
        found.append([*mean.tolist(), *var.tolist()])
    assert found[0] == pytest.approx(found[1], rel=1e-6)


def test_what_looks_at_values_has_no_plan():
    """A call that went one way for some numbers goes that way for all."""
    x, same = fl.ones(3), fl.ones(3)
    for _ in range(20):  # also where plans of other calls were made in vain, and it takes longer until one is tried
        assert fl.allclose(x, same)
    assert fl.allclose.plans.find(x, same) is False
    assert not fl.allclose(x, x * 2)


def test_the_default_dtype_is_asked_every_time():
    """A factory, or a quotient of integers, kept the dtype that was the default when its plan was made."""
    whole = fl.tensor([1, 2])
    for dtype in (fl.float32, fl.float64, fl.float32):
        fl.set_default_dtype(dtype)
        try:
            for _ in range(3):
                assert fl.zeros(2, 3).dtype is (whole / 2).dtype is dtype
        finally:
            fl.set_default_dtype(fl.float32)


def test_a_debugger_sees_every_line():
    """Under a tracer, calls go through Python, so that they can be stepped through."""
    x, lines = fl.ones(3), []
    learned(fl.mul, x, x)

    def trace(frame, event, argument):
        lines.append(frame.f_code.co_filename)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        fl.mul(x, x)
    finally:
        sys.settrace(before)
    assert any(line.endswith("pointwise.py") for line in lines)


def test_a_plan_in_words():
    """flambeau.plan says something else than what is done, or nothing of backward."""
    shown = str(fl.plan(fl.softmax, fl.zeros(2, 3, requires_grad=True), dim=-1))
    assert shown.splitlines()[0] == "softmax(float32 (2, 3) wants grad, dim=-1)"
    assert "the compiled loop softmax, of argument 0" in shown and "saves result" in shown
    assert "of which other is saved" in str(fl.plan(fl.mul, fl.ones(2, requires_grad=True), fl.ones(2)))
    assert "no plan" in str(fl.plan(fl.allclose, fl.ones(2), fl.ones(2)))
    written = fl.ones(2)
    assert "writes over argument 0" in str(fl.plan(fl.Tensor.add_, written, 1)) and written.tolist() == [1.0, 1.0]
    with pytest.raises(TypeError, match="plan\\(\\) takes an operation"):
        fl.plan(print, 1)


WRITES = {
    "add": lambda t, h, x: h.add_(x),
    "mul": lambda t, h, x: h.mul_(x),
    "mul by a number": lambda t, h, x: h.mul_(0.5),
    "exp, which reads its result": lambda t, h, x: h.exp_(),
    "pow": lambda t, h, x: h.pow_(3),
    "clamp": lambda t, h, x: h.clamp_(-0.5, 0.5),
    "zero": lambda t, h, x: h.zero_(),
    "copy": lambda t, h, x: h.copy_(x),
    "masked_fill": lambda t, h, x: h.masked_fill_(x > 0, 2.0),
    "row": lambda t, h, x: h.__setitem__(1, 2.0),
    "column": lambda t, h, x: h.__setitem__((slice(None), 2), x[:, 0]),
    "row by index": lambda t, h, x: h.__setitem__(t.tensor([0, 2]), x[:2]),
    "mask": lambda t, h, x: h.__setitem__(x > 0, 1.0),
    "through a view": lambda t, h, x: h[1:].mul_(x[1:]),
    "while it keeps its gradient": lambda t, h, x: (h.requires_grad and h.retain_grad(), h.mul_(x))[1],
}


@pytest.mark.parametrize("wants", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("name", WRITES)
def test_recorded_writes_are_torchs(name, wants):
    """What is written, the history that follows, or which numbers the derivative reads, differs once there is a plan."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        numbers = rng.standard_normal((2, 4, 5))
        found = []
        for t in (torch, fl):
            a, b = (t.tensor(v, requires_grad=w) for v, w in zip(numbers, wants, strict=True))
            h = a * 2
            WRITES[name](t, h, b)
            assert h.requires_grad == (h.grad_fn is not None)
            kept = [v for v in (a, b) if v.requires_grad]
            grads = t.autograd.grad((h * h).sum(), kept, allow_unused=True) if h.requires_grad else ()
            found.append((type(h.grad_fn).__name__, h.detach().numpy(), *(None if g is None else g.numpy() for g in grads)))
        assert found[0][0] == found[1][0] or name == "mask"  # which PyTorch calls IndexPutBackward0
        for theirs, ours in zip(found[0][1:], found[1][1:], strict=True):
            assert (theirs is None) == (ours is None)
            if theirs is not None:
                np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_writes_of_plans_are_noticed():
    """A derivative reads what was written over by a plan."""
    a = fl.ones(3, requires_grad=True)
    for _ in range(4):
        h = a * 2
        y = h * h
        h.add_(1)
        g = a * 2
        g.mul_(g)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            g.sum().backward()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


OUTS = {
    "add": lambda t, x, out: t.add(x, x, out=out),
    "exp": lambda t, x, out: t.exp(x, out=out),
    "a number": lambda t, x, out: t.mul(x, float(x[0, 0]), out=out),
    "matmul": lambda t, x, out: t.matmul(x, x, out=out),
    "cumsum": lambda t, x, out: t.cumsum(x, 0, out=out),
    "tril": lambda t, x, out: t.tril(x, out=out),
    "cat": lambda t, x, out: t.cat([x[:2], x[2:]], out=out),
}


@pytest.mark.parametrize("name", OUTS)
def test_out_forms_are_torchs(name):
    """out= of a plan holds other numbers, is not what is returned, or is not refused where PyTorch refuses it."""
    rng = np.random.default_rng(0)
    for turn in range(6):
        numbers, found = rng.standard_normal((4, 4)), []
        for t in (torch, fl):
            x = t.tensor(numbers)
            out = [t.zeros(4, 4, dtype=t.float64), t.zeros(4, 8, dtype=t.float64)[:, ::2], t.zeros(0, dtype=t.float64)][
                (turn > 3) + (turn > 4)
            ]
            assert OUTS[name](t, x, out) is out
            refused = []
            for operand, to in ((t.tensor(numbers, requires_grad=True), out), (x, x[1]), (x, out.to(t.int32))):
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        OUTS[name](t, operand, to)
                    refused.append(None)
                except (RuntimeError, TypeError) as problem:
                    refused.append(type(problem).__name__)
            found.append((out.numpy(), out.stride(), refused))
        np.testing.assert_allclose(found[1][0], found[0][0], rtol=1e-12)
        assert found[1][1:] == found[0][1:]
