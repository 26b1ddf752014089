"""torch.library: operations of a program's own behave as PyTorch's do: calls, derivatives, the meta device, what is refused."""

from __future__ import annotations

import itertools

import pytest

import flambeau

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("t", [flambeau, torch], ids=["flambeau", "torch"])
numbers = itertools.count()


def scaled_square(t):
    """An operation with an option, a new one each time: PyTorch keeps them for ever."""
    n = next(numbers)

    def function(x, k=1.0):
        return x * x * k

    function.__annotations__ = {"x": t.Tensor, "k": float, "return": t.Tensor}
    return t.library.custom_op(f"ours::square{n}", mutates_args=())(function), n


@BOTH
def test_it_is_called_and_found_by_name(t):
    """Called by itself, through torch.ops, by position and by name, the function's result is what comes out."""
    square, n = scaled_square(t)
    x = t.arange(3.0)
    named = getattr(t.ops.ours, f"square{n}")
    for result in (square(x, 2.0), square(x, k=2.0), named(x, 2.0), named.default(x, k=2.0)):
        assert result.tolist() == [0.0, 2.0, 8.0]
    assert repr(square) == f"<CustomOpDef(ours::square{n})>"
    with pytest.raises(AttributeError):
        _ = t.ops.ours.nothing


@BOTH
def test_the_registered_derivative_is_used(t):
    """Without a derivative backward says so; with one, setup_context gets all inputs with defaults, and its gradients arrive."""
    square, n = scaled_square(t)
    x = t.arange(3.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        square(x).sum().backward()

    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.k = inputs[1]

    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * ctx.k, None  # wrong on purpose: nobody else can have computed it

    t.library.register_autograd(f"ours::square{n}", backward, setup_context=setup_context)
    result = square(x, k=2.0)
    assert result.grad_fn.name() == f"GeneratedBackwardFor_ours_square{n}_defaultBackward"
    result.sum().backward()
    assert x.grad.tolist() == [0.0, 6.0, 12.0]
    with t.no_grad():
        assert square(x).grad_fn is None


@BOTH
def test_shapes_without_data_need_a_rule(t):
    """On the meta device the registered function makes the result; without it, the operation is refused."""
    square, n = scaled_square(t)
    x = t.empty(2, 3, device="meta")
    with pytest.raises(RuntimeError, match="no fake impl registered"):
        square(x)
    t.library.register_fake(f"ours::square{n}", lambda x, k=1.0: t.empty_like(x))
    assert square(x).shape == (2, 3) and square(x).is_meta


@BOTH
def test_several_results_lists_and_changes_in_place(t):
    """Tuples come out, lists of tensors go in, and an operation that says so may change its argument."""
    n = next(numbers)

    def two(x, ys):
        return x + 1, ys[0] * 2

    two.__annotations__ = {"x": t.Tensor, "ys": list[t.Tensor], "return": tuple[t.Tensor, t.Tensor]}
    operation = t.library.custom_op(f"ours::two{n}", mutates_args=())(two)
    assert [r.tolist() for r in operation(t.zeros(1), [t.ones(2)])] == [[1.0], [2.0, 2.0]]

    def add_one(x):
        x.add_(1)

    add_one.__annotations__ = {"x": t.Tensor, "return": None}
    change = t.library.custom_op(f"ours::add_one{n}", mutates_args={"x"})(add_one)
    x = t.zeros(2)
    version = x._version
    assert change(x) is None and x.tolist() == [1.0, 1.0] and x._version > version


@BOTH
def test_what_is_refused(t):
    """A result that is an input, parameters without annotations, names without a library."""
    n = next(numbers)

    def same(x):
        return x

    same.__annotations__ = {"x": t.Tensor, "return": t.Tensor}
    with pytest.raises(RuntimeError, match="must not also be an input"):
        t.library.custom_op(f"ours::same{n}", mutates_args=())(same)(t.ones(2))
    with pytest.raises(ValueError, match="type annotation"):
        t.library.custom_op(f"ours::bare{n}", mutates_args=())(lambda x: x)


def test_devices_without_a_kernel_are_named():
    """An operation for one kind of device says so on another, until a kernel is registered there."""

    def negated(x):
        return -x

    operation = flambeau.library.custom_op("ours::elsewhere", negated, mutates_args=(), device_types="cuda", schema="(Tensor x) -> Tensor")
    with pytest.raises(NotImplementedError, match="cuda only"):
        operation(flambeau.ones(1))
    operation.register_kernel("cpu")(negated)
    assert operation(flambeau.ones(1)).item() == -1.0
    with pytest.raises(ValueError, match="Flambeau's own"):
        flambeau.library.custom_op("OPS::x", negated, mutates_args=(), schema="")


def test_batching_rules():
    """vmap over a custom operation does not call its rule, computes samples wrongly without one, or loses the derivative."""
    calls = []

    @flambeau.library.custom_op("mapped::double", mutates_args=())
    def double(x: flambeau.Tensor, factor: float) -> flambeau.Tensor:
        calls.append(tuple(x.shape))
        return flambeau.from_numpy(x.numpy() * factor)

    double.register_autograd(lambda ctx, grad: (grad * 2, None))
    x = flambeau.arange(6.0).reshape(3, 2)
    assert flambeau.vmap(lambda r: double(r, 2.0))(x).tolist() == (x * 2).tolist() and calls == [(2,)] * 3

    @flambeau.library.register_vmap("mapped::double")
    def rule(info, in_dims, x, factor):
        assert info.batch_size == 3 and in_dims == (0, None)
        return double(x, factor), 0

    calls.clear()
    assert flambeau.vmap(lambda r: double(r, 2.0))(x).tolist() == (x * 2).tolist() and calls == [(3, 2)]
    assert flambeau.func.grad(lambda x: (double(x, 2.0) * x).sum())(x).tolist() == (4 * x).tolist()
