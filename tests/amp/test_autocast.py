"""Autocast regions: what they cast, where they end, what they remember, and how gradients pass through the casts."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import flambeau
from flambeau import modes, nn

torch = pytest.importorskip("torch")
F = flambeau.nn.functional
BF16, F16, F32 = flambeau.bfloat16, flambeau.float16, flambeau.float32


def square(n: int = 4):
    return flambeau.linspace(-1, 1, n * n).reshape(n, n)


def both(function):
    """`function` of each framework."""
    return function(flambeau), function(torch)


def test_nested_regions():
    """The innermost region counts, a disabled one inside an enabled one switches it off, and both end where they end."""
    x = square()
    seen = []
    with flambeau.autocast("cpu", BF16):
        seen.append((x @ x).dtype)
        with flambeau.autocast("cpu", F16):
            seen.append((x @ x).dtype)
            with flambeau.autocast("cpu", enabled=False):
                seen.append((x @ x).dtype)
        seen.append((x @ x).dtype)
    seen.append((x @ x).dtype)
    assert seen == [BF16, F16, F32, BF16, F32]
    assert modes.special == 0 and modes.state.stack == ()


def test_region_ends_with_an_exception():
    """An exception inside a region leaves autocast switched on, or the hot path slow."""
    with pytest.raises(RuntimeError), flambeau.autocast("cpu"):
        square(3) @ square(4)
    assert not flambeau.is_autocast_enabled("cpu")
    assert modes.special == 0


def test_decorator_and_recursion():
    """A decorated function runs in a region, also when it calls itself."""

    @flambeau.autocast("cpu", dtype=BF16)
    def power(x, n):
        """A docstring."""
        return x @ power(x, n - 1) if n else x @ x

    assert power(square(), 2).dtype is BF16
    assert power.__name__ == "power" and power.__doc__ == "A docstring."
    assert not flambeau.is_autocast_enabled("cpu")


def test_another_thread_is_not_in_the_region():
    """A region of one thread casts in another."""
    found = []
    with flambeau.autocast("cpu"):
        worker = threading.Thread(target=lambda: found.append((square() @ square()).dtype))
        worker.start()
        worker.join()
    assert found == [F32]


def test_gradients_of_a_network_are_pytorchs():
    """A forward pass in a region and backward outside it: float32 gradients of float32 parameters, as PyTorch's."""

    def run(framework):
        x = framework.from_numpy(np.random.default_rng(0).normal(size=(5, 8)).astype("float32"))
        net = framework.nn.Sequential(
            framework.nn.Linear(8, 16), framework.nn.ReLU(), framework.nn.LayerNorm(16), framework.nn.Linear(16, 3)
        )
        for i, p in enumerate(net.parameters()):
            p.data = framework.linspace(-0.5, 0.5 + 0.01 * i, p.numel()).reshape(p.shape)
        with framework.autocast("cpu", framework.bfloat16):
            out = net(x)
            loss = framework.nn.functional.cross_entropy(out, framework.tensor([0, 1, 2, 0, 1]))
        loss.backward()
        assert {p.grad.dtype for p in net.parameters()} == {framework.float32}
        return [str(out.dtype), str(loss.dtype)], [loss.detach().numpy(), *[p.grad.numpy() for p in net.parameters()]]

    (our_dtypes, ours), (their_dtypes, theirs) = both(run)
    assert our_dtypes == their_dtypes
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=3e-2, atol=4e-3)


def test_parameter_is_cast_once_and_forgotten_at_the_end():
    """A parameter used twice in a region is cast twice, or its cast outlives the outermost region."""
    w = nn.Parameter(square())
    with flambeau.autocast("cpu"):
        with flambeau.autocast("cpu"):
            first = w @ square()
        second = w @ square()
        assert first.grad_fn.next_functions[0][0] is second.grad_fn.next_functions[0][0]
        with flambeau.autocast("cpu", cache_enabled=False):
            third = w @ square()
        assert third.grad_fn.next_functions[0][0] is not second.grad_fn.next_functions[0][0]
    assert modes.state.stack == ()
    with flambeau.autocast("cpu"):
        assert (w @ square()).grad_fn.next_functions[0][0] is not second.grad_fn.next_functions[0][0]
    (first.sum() + second.sum()).backward()
    assert w.grad.dtype is F32


def test_cast_made_without_gradients_is_not_used_with_them():
    """A parameter first used under no_grad in a region gets no gradient afterwards."""
    w = nn.Parameter(square())
    with flambeau.autocast("cpu"):
        with flambeau.no_grad():
            assert not (w @ w).requires_grad
        assert (w @ w).requires_grad


def test_parameter_changed_in_the_region_is_cast_anew():
    """An optimizer step inside a region is not seen by the products after it."""
    w = nn.Parameter(flambeau.ones(2, 2))
    with flambeau.autocast("cpu"):
        before = w @ w
        with flambeau.no_grad():
            w.mul_(3)
        assert (w @ w)[0, 0].item() == 9 * before[0, 0].item()


def test_backward_inside_the_region():
    """Backward inside a region gives gradients of other dtypes than their tensors."""
    w, v = nn.Parameter(square()), nn.Parameter(square())
    with flambeau.autocast("cpu"):
        y = w @ v
        with flambeau.autocast("cpu", enabled=False):
            z = (y.float() @ v).pow(2).mean()
        z.backward()
    assert w.grad.dtype is F32 and v.grad.dtype is F32
    assert bool(w.grad.isfinite().all())


def test_inplace_and_out_forms_are_left_alone():
    """An in-place or out= form runs in another dtype than the one the user has chosen."""
    x = square()
    with flambeau.autocast("cpu"):
        assert x.clone().addmm_(x, x).dtype is F32
        assert flambeau.mm(x, x, out=flambeau.empty(4, 4)).dtype is F32
        y = x.clone()
        y @= x  # not in place: y is a new tensor
        assert y.dtype is BF16
        z = x.clone()
        z += x @ x
        assert z.dtype is F32
        with pytest.raises(RuntimeError):
            flambeau.addmm(x, x @ x, x.to(F32), out=flambeau.empty(4, 4))


def test_vmap_and_grad_inside_a_region():
    """vmap and func.grad give the dtypes of the same function without them."""
    w = square()
    with flambeau.autocast("cpu"):
        rows = flambeau.vmap(lambda x: w @ x)(square())
        assert rows.dtype is BF16 and rows.shape == (4, 4)
        assert flambeau.vmap(lambda x: F.linear(x, w, w[0]))(square()).dtype is BF16
        assert flambeau.vmap(lambda x: flambeau.prod(x.bfloat16()))(square()).dtype is F32
        slope = flambeau.func.grad(lambda m: (m @ w).float().sum())(w)
        assert slope.dtype is F32
        many = flambeau.vmap(flambeau.func.grad(lambda x: (w @ x).float().sum()))(square())
    assert many.dtype is F32
    np.testing.assert_allclose(many[0].numpy(), w.sum(0).numpy(), atol=2e-2)


def test_function_modes_and_subclasses_come_first():
    """A subclass or a function mode does not see the operation, or sees it after the cast."""
    seen = []

    class Logged(flambeau.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            seen.append((func.__name__, args[0]._array.dtype))
            return super().__torch_function__(func, types, args, kwargs)

    x = square().as_subclass(Logged)
    with flambeau.autocast("cpu"):
        y = flambeau.matmul(x, x)
    assert ("matmul", np.float32) in seen and type(y) is Logged and flambeau.detach(y).dtype is BF16

    class Mode(flambeau.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    with flambeau.autocast("cpu"), Mode():
        assert flambeau.einsum("ij,jk->ik", square(), square()).dtype is BF16
    assert "einsum" in seen
    assert modes.special == 0


class Product(flambeau.autograd.Function):
    """A product that remembers the dtypes it saw."""

    seen: list = []

    @staticmethod
    @flambeau.amp.custom_fwd(device_type="cpu")
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a.mm(b)

    @staticmethod
    @flambeau.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        a, b = ctx.saved_tensors
        Product.seen.append(grad.mm(b.t()).dtype)
        return grad.mm(b.t()), a.t().mm(grad)


def test_custom_function_runs_backward_as_it_ran_forward():
    """A custom Function's backward forgets the region that its forward ran in."""
    a, b = nn.Parameter(square()), nn.Parameter(square())
    Product.seen.clear()
    with flambeau.autocast("cpu", F16):
        y = Product.apply(a, b)
    assert y.dtype is F16
    y.sum().backward()
    assert Product.seen == [F16] and a.grad.dtype is F32
    Product.apply(a, b).sum().backward()
    assert Product.seen[-1] is F32


def test_custom_function_with_cast_inputs():
    """cast_inputs casts tensors in containers too, and switches autocast off; outside a region it does nothing."""
    seen = []

    class Cast(flambeau.autograd.Function):
        @staticmethod
        @flambeau.amp.custom_fwd(device_type="cpu", cast_inputs=F32)
        def forward(ctx, a, b, name):
            seen.append((a.dtype, b.dtype, flambeau.is_autocast_enabled("cpu"), name))
            return a.mm(a)

        @staticmethod
        @flambeau.amp.custom_bwd(device_type="cpu")
        def backward(ctx, grad):
            return grad, None, None

    a, wide = square().bfloat16().requires_grad_(), square().double()
    with flambeau.autocast("cpu"):
        y = Cast.apply(a, wide, "x")
    y.sum().backward()
    Cast.apply(a, wide, "x")
    assert seen == [(F32, flambeau.float64, False, "x"), (BF16, flambeau.float64, False, "x")]
    assert y.dtype is F32 and a.grad.dtype is BF16


def test_settings():
    """The settings behind regions answer as PyTorch's do."""
    for framework in (flambeau, torch):
        assert framework.get_autocast_dtype("cpu") is framework.bfloat16
        assert framework.get_autocast_dtype("cuda") is framework.float16
        framework.set_autocast_dtype("cpu", framework.float16)
        assert framework.autocast("cpu").fast_dtype is framework.float16
        framework.set_autocast_dtype("cpu", framework.bfloat16)
        assert framework.is_autocast_cache_enabled()
        framework.set_autocast_cache_enabled(False)
        assert not framework.is_autocast_cache_enabled()
        framework.set_autocast_cache_enabled(True)
        framework.clear_autocast_cache()
        assert framework.autocast_increment_nesting() == 1 and framework.autocast_decrement_nesting() == 0
        assert framework.amp.is_autocast_available("cpu") and framework.amp.is_autocast_available("cuda")
        assert not framework.amp.is_autocast_available("meta")
        with framework.autocast("cpu") as region:
            assert isinstance(region, framework.amp.autocast_mode.autocast)
            assert framework.is_autocast_enabled("cpu") and not framework.is_autocast_enabled()
            with pytest.warns(DeprecationWarning):
                assert framework.is_autocast_cpu_enabled()
        with pytest.warns(DeprecationWarning):
            assert framework.get_autocast_gpu_dtype() is framework.float16
        with pytest.warns(FutureWarning):
            assert framework.cpu.amp.autocast().fast_dtype is framework.bfloat16


MISUSES = [
    ("a number as device", lambda f: f.autocast(5), ValueError),
    ("a device that does not exist", lambda f: f.autocast("xyz"), RuntimeError),
    ("a device without data", lambda f: f.autocast("meta"), RuntimeError),
    ("the dtype of a device that does not exist", lambda f: f.get_autocast_dtype("foo"), RuntimeError),
    ("asking about a device without data", lambda f: f.is_autocast_enabled("meta"), RuntimeError),
    ("no device for custom_fwd", lambda f: f.amp.custom_fwd(lambda c, x: x, device_type=3), ValueError),
    ("a tensor instead of a function", lambda f: f.autocast("cpu")(f.ones(2)), TypeError),
    ("something that is not a bool", lambda f: f.set_autocast_enabled("cpu"), TypeError),
]


@pytest.mark.parametrize(("what", "call", "error"), MISUSES, ids=[m[0] for m in MISUSES])
def test_misuse(what: str, call, error: type):
    """A misuse that PyTorch refuses passes silently, or raises another type of error."""
    for framework in (torch, flambeau):
        with pytest.raises(error):
            call(framework)


def test_unsupported_regions_warn_and_do_nothing():
    """float32 as a region's dtype, or a GPU that is not there: a warning, and the program goes on without autocast."""
    for framework in (torch, flambeau):
        with pytest.warns(UserWarning, match="target dtype is not supported"):
            region = framework.autocast("cpu", framework.float32)
        with region:
            assert not framework.is_autocast_enabled("cpu")
        if not framework.cuda.is_available():
            with pytest.warns(UserWarning, match=r"Disabling autocast"):
                assert not framework.autocast("cuda")._enabled
            framework.autocast("cuda", enabled=False)
