"""Gradient checkpointing: the same gradients, in less memory, by running forward again."""

from __future__ import annotations

import contextlib
import gc
import weakref
from functools import partial

import numpy as np
import pytest

import flambeau
from flambeau import modes, nn
from flambeau.kernels.native import native
from flambeau.utils.checkpoint import (
    CheckpointError,
    CheckpointPolicy,
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
    get_device_states,
    noop_context_fn,
    set_checkpoint_debug_enabled,
    set_checkpoint_early_stop,
    set_device_states,
)

torch = pytest.importorskip("torch")
pytest.importorskip("torch.utils.checkpoint")

both_ways = pytest.mark.parametrize("reentrant", [False, True])


class Net(nn.Module):
    """Two layers with dropout between them, that count how often they are run."""

    def __init__(self, width: int = 8):
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(width, width), nn.Linear(width, width), nn.Dropout(0.5)
        self.runs = 0

    def forward(self, x, scale=1.0):
        self.runs += 1
        return self.b(self.drop(self.a(x).tanh())) * scale


def gradients(net, x, run) -> list:
    flambeau.manual_seed(3)
    net.zero_grad()
    x.grad = None
    out = run(net, x)
    after = flambeau.rand(1).item()
    out.square().sum().backward()
    return [out.detach().numpy(), np.array(after), x.grad.numpy().copy(), *[p.grad.numpy().copy() for p in net.parameters()]]


def assert_same(ours: list, theirs: list) -> None:
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@both_ways
def test_gradients_and_dropout_masks_are_the_same(reentrant: bool):
    """Outputs, gradients or the random numbers drawn afterwards differ from a run without checkpoints."""
    net, x = Net(), flambeau.randn(4, 8, requires_grad=True)
    plain = gradients(net, x, lambda net, x: net(x))
    kept = gradients(net, x, lambda net, x: checkpoint(net, x, use_reentrant=reentrant))
    assert_same(kept, plain)
    assert net.runs == 3  # once without, once in forward, once more in backward


@both_ways
def test_random_state_may_be_left_alone(reentrant: bool):
    """preserve_rng_state=False: the rerun draws other numbers, and the stream goes on where it is."""
    net, x = Net(), flambeau.randn(4, 8, requires_grad=True)
    for preserve in (True, False):
        out = checkpoint(net, x, use_reentrant=reentrant, preserve_rng_state=preserve)
        before = flambeau.get_rng_state()
        out.sum().backward()
        assert flambeau.equal(flambeau.get_rng_state(), before) is preserve


def test_gradients_equal_pytorchs():
    """The gradients of a checkpointed function are not PyTorch's of the same function."""

    def run(framework):
        x = framework.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        w = framework.linspace(0, 1, 16).reshape(4, 4).requires_grad_()
        y = framework.utils.checkpoint.checkpoint(lambda a, b, *, k: (a @ b).sin() * k, x, w, k=2.0, use_reentrant=False)
        (y * x).sum().backward()
        return x.grad.numpy(), w.grad.numpy()

    for ours, theirs in zip(run(flambeau), run(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_nested():
    """A checkpoint inside a checkpoint, three deep, gives other gradients."""
    net, x = Net(), flambeau.randn(4, 8, requires_grad=True)

    def run(wrap):
        def inner(x):
            return wrap(lambda y: net(y).exp().log1p(), x.sin())

        def middle(x):
            return wrap(inner, x.cos()) * x

        return lambda net, x: wrap(lambda y: middle(y.tanh()).sum(0), x)

    plain = gradients(net, x, run(lambda f, x: f(x)))
    assert_same(gradients(net, x, run(lambda f, x: checkpoint(f, x, use_reentrant=False))), plain)


def test_second_derivatives_and_retained_graphs():
    """create_graph, retain_graph, autograd.grad and backward(inputs=) do not work through a checkpoint."""
    x = flambeau.linspace(0.1, 1, 5, requires_grad=True)
    y = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
    (first,) = flambeau.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = flambeau.autograd.grad(first.sum(), x)
    s, c, e = x.detach().sin(), x.detach().cos(), x.detach().sin().exp()
    np.testing.assert_allclose(second.numpy(), (e * c * c - e * s).numpy(), rtol=1e-5, atol=1e-6)
    z = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False).sum()
    for _ in range(3):
        z.backward(retain_graph=True)
    np.testing.assert_allclose(x.grad.numpy(), 3 * (e * c).numpy(), rtol=1e-5)
    x.grad = None
    z.backward(inputs=[x])
    np.testing.assert_allclose(x.grad.numpy(), (e * c).numpy(), rtol=1e-5)
    with pytest.raises(RuntimeError, match="second time"):
        z.backward()


def test_parameters_without_an_input_that_requires_grad():
    """Without reentrance, a function of data alone gives its parameters no gradient. With it, it is a warning."""
    net, x = Net(), flambeau.randn(4, 8)
    checkpoint(net, x, use_reentrant=False).sum().backward()
    assert all(p.grad is not None for p in net.parameters())
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad"):
        assert not checkpoint(net, x, use_reentrant=True).requires_grad


def test_early_stop():
    """The rerun goes on after backward has all it needs, or stops where it was told not to."""
    reached = []

    def function(x):
        y = x.sin()
        z = y + 1
        reached.append(1)
        return z

    x = flambeau.ones(2, requires_grad=True)
    checkpoint(function, x, use_reentrant=False).sum().backward()
    assert len(reached) == 1
    checkpoint(function, x, use_reentrant=False, early_stop=False).sum().backward()
    assert len(reached) == 3
    with set_checkpoint_early_stop(False):
        out = checkpoint(function, x, use_reentrant=False).sum()
    out.backward()
    assert len(reached) == 5


def changing(*functions):
    """A function that does something else every time."""
    left = list(functions)
    return lambda x: left.pop(0)(x)


def sin_cos(x):
    return x.sin().cos()


DIFFERENT = {
    "another shape": (lambda x: x[:2].sin().cos(), {}, "(?s)different metadata.*position 0.*\\(3,\\).*\\(2,\\).*position 1"),
    "another dtype": (lambda x: x.double().sin().cos(), {}, "(?s)different metadata.*float32.*float64"),
    "fewer tensors": (lambda x: x.sin(), {}, "(?s)different number of tensors.*forward: 2.*recomputation: 1"),
    "more tensors": (lambda x: x.sin().cos().exp(), {"early_stop": False}, "more tensors during recomputation"),
    "with the operations": (lambda x: x[:2].sin().cos(), {"debug": True}, "(?s)in forward: sin, cos.*rerun: .*sin, cos"),
}


@pytest.mark.parametrize("what", DIFFERENT)
def test_functions_that_compute_something_else_are_noticed(what: str):
    """A function that does not do the same again gives wrong gradients silently, or the error does not say what differs."""
    other, options, words = DIFFERENT[what]
    x = flambeau.ones(3, requires_grad=True)
    out = checkpoint(changing(sin_cos, other), x, use_reentrant=False, **options)
    with pytest.raises(CheckpointError, match=words):
        out.sum().backward()
    assert modes.special == 0 and modes.state.pack_hooks == ()


def test_determinism_check_can_be_switched_off():
    """determinism_check="none" compares shapes all the same."""
    x = flambeau.ones(3, requires_grad=True)
    out = checkpoint(changing(sin_cos, lambda x: x.double().sin().cos()), x, use_reentrant=False, determinism_check="none")
    out.sum().backward()
    assert x.grad is not None


def test_contexts_and_debug_setting():
    """context_fn's contexts are not entered, each once around its run."""
    seen = []

    class Note:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            seen.append(self.name)

        def __exit__(self, *exc):
            seen.append(f"end of {self.name}")

    x = flambeau.ones(3, requires_grad=True)
    out = checkpoint(sin_cos, x, use_reentrant=False, context_fn=lambda: (Note("forward"), Note("rerun")))
    assert seen == ["forward", "end of forward"]
    out.sum().backward()
    assert seen[2:] == ["rerun", "end of rerun"]
    with set_checkpoint_debug_enabled(True):
        out = checkpoint(changing(sin_cos, lambda x: x.sin()), x, use_reentrant=False)
    with pytest.raises(CheckpointError, match="Operations in forward: sin, cos"):
        out.sum().backward()
    assert len(noop_context_fn()) == 2


@both_ways
def test_autocast_of_forward_holds_in_the_rerun(reentrant: bool):
    """The rerun, in a backward outside the region, computes in float32 what forward computed in bfloat16; or the other way round."""
    net, x, seen = Net(), flambeau.randn(4, 8, requires_grad=True), []

    def function(x):
        y = net(x)
        seen.append((y.dtype, flambeau.is_autocast_enabled("cpu")))
        return y * 1

    with flambeau.autocast("cpu", flambeau.bfloat16):
        inside = checkpoint(function, x, use_reentrant=reentrant, **({} if reentrant else {"early_stop": False}))
    outside = checkpoint(function, x, use_reentrant=reentrant, **({} if reentrant else {"early_stop": False}))
    inside.float().sum().backward()
    with flambeau.autocast("cpu", flambeau.bfloat16):
        outside.sum().backward()
    cast, plain = (flambeau.bfloat16, True), (flambeau.float32, False)
    assert seen == [cast, plain, cast, plain]


@both_ways
def test_sequential(reentrant: bool):
    """checkpoint_sequential gives other gradients, or runs a segment too often or too seldom."""
    layers = [Net() for _ in range(5)]
    x = flambeau.randn(4, 8, requires_grad=True)
    net = nn.Sequential(*layers)
    plain = gradients(net, x, lambda net, x: net(x))
    assert_same(gradients(net, x, lambda net, x: checkpoint_sequential(net, 2, x, use_reentrant=reentrant)), plain)
    assert [layer.runs for layer in layers] == [3, 3, 2, 2, 2]
    assert_same(gradients(net, x, lambda net, x: checkpoint_sequential(layers, 5, x, use_reentrant=reentrant)), plain)
    with pytest.raises(ValueError, match="must not be zero"):
        checkpoint_sequential(net, 6, x, use_reentrant=reentrant)
    with pytest.raises(ValueError, match="Unexpected keyword arguments: foo"):
        checkpoint_sequential(net, 2, x, use_reentrant=reentrant, foo=1)


def test_several_outputs_and_arguments_that_are_no_tensors():
    """Tuples of results, numbers and None among arguments and results, in the reentrant form too."""

    def function(a, n, none, b):
        return a * n, None, (b.sin() if none is None else b)

    for reentrant in (False, True):
        a, b = flambeau.ones(3, requires_grad=True), flambeau.ones(3)
        first, nothing, second = checkpoint(function, a, 3, None, b, use_reentrant=reentrant)
        assert nothing is None
        (first.sum() + second.sum()).backward()
        assert a.grad.tolist() == [3.0] * 3 and b.grad is None


MISUSES = {
    "keywords with reentrance": (dict(use_reentrant=True, foo=3), ValueError, "Unexpected keyword arguments: foo"),
    "contexts with reentrance": (dict(use_reentrant=True, context_fn=lambda: 1), ValueError, "only supported when use_reentrant=False"),
    "debug with reentrance": (dict(use_reentrant=True, debug=True), ValueError, "only supported when use_reentrant=False"),
    "an unknown check": (dict(use_reentrant=False, determinism_check="foo"), ValueError, "should be one of"),
    "keywords the function does not take": (dict(use_reentrant=False, foo=3), TypeError, "foo"),
}


@pytest.mark.parametrize("what", MISUSES)
def test_misuse(what: str):
    """A misuse that PyTorch refuses passes silently, or raises another type of error or other words."""
    options, error, words = MISUSES[what]
    for framework in (torch, flambeau):
        x = framework.ones(3, requires_grad=True)
        with pytest.raises(error, match=words):
            framework.utils.checkpoint.checkpoint(sin_cos, x, **options)


def test_misuse_in_backward():
    """autograd.grad through the reentrant form, or a function that gives nothing differentiable: errors that say so."""
    for framework in (torch, flambeau):
        x = framework.ones(3, requires_grad=True)
        run = framework.utils.checkpoint.checkpoint
        with pytest.raises(RuntimeError, match=r"incompatible with \.grad\(\)"):
            framework.autograd.grad(run(sin_cos, x, use_reentrant=True).sum(), x)
        with pytest.raises(RuntimeError, match="none of output has requires_grad"):
            run(lambda x: x.detach(), x, use_reentrant=True).sum().backward()
        with pytest.warns(UserWarning, match="use_reentrant parameter should be passed explicitly"):
            run(sin_cos, x)


def test_device_states_without_a_gpu():
    """The states of GPUs that no tensor is on are an empty list."""
    assert get_device_states(flambeau.ones(2), [flambeau.ones(1)]) == ([], [])
    set_device_states([], [])


class Block(nn.Module):
    """A transformer's layer: attention and two linear layers, with dropout."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.1, batch_first=True)

    def forward(self, x):
        return self.layer(x)


@pytest.mark.skipif(native.lib is None, reason="without the extension, memory is not counted")
def test_activation_memory_of_a_transformer():
    """Checkpointing every layer of twelve saves less than 60 % of what forward keeps, or gives other gradients."""
    flambeau.manual_seed(0)
    blocks = nn.ModuleList(Block(32, 4) for _ in range(12))
    x = flambeau.randn(2, 32, 32)

    def step(use: bool):
        flambeau.manual_seed(1)
        for p in blocks.parameters():
            p.grad = None
        gc.collect()
        before, y = native.lib.pool_stats()["live"], x
        for block in blocks:
            y = checkpoint(block, y, use_reentrant=False) if use else block(y)
        loss = y.square().mean()
        gc.collect()
        kept = native.lib.pool_stats()["live"] - before
        loss.backward()
        return kept, [p.grad.numpy().copy() for p in blocks.parameters()]

    step(False)
    everything, plain = step(False)
    little, again = step(True)
    assert_same(again, plain)
    assert little < 0.4 * everything, f"{little / everything:.0%} of the memory is kept"


# -- selective ---------------------------------------------------------------------------------------------------------

aten = flambeau.ops.aten
PRODUCTS = [aten.addmm.default, aten.mm.default, aten.bmm.default]


def selective(policy, **options):
    return partial(create_selective_checkpoint_contexts, policy, **options)


def save_products(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in PRODUCTS else CheckpointPolicy.PREFER_RECOMPUTE


POLICIES = {
    "a list": PRODUCTS,
    "a function": save_products,
    "true or false": lambda ctx, op, *args, **kwargs: op in PRODUCTS,
    "everything": lambda ctx, op, *args, **kwargs: CheckpointPolicy.PREFER_SAVE,
    "nothing": lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_RECOMPUTE,
    "moved away": lambda ctx, op, *args, **kwargs: CheckpointPolicy.MUST_CPU_OFFLOAD,
}


@pytest.mark.parametrize("which", POLICIES)
def test_selective_gradients_are_the_same(which: str):
    """Whatever a policy keeps, outputs, gradients and the random numbers afterwards are those of a run without checkpoints, bit for bit."""
    flambeau.manual_seed(0)
    block, x = Block(16, 2), flambeau.randn(2, 5, 16, requires_grad=True)

    def run(**options):
        flambeau.manual_seed(1)
        block.zero_grad()
        x.grad = None
        y = checkpoint(block, x, use_reentrant=False, **options) if options else block(x)
        (y * flambeau.randn(2, 5, 16)).sum().backward()
        return [y.detach(), x.grad, flambeau.rand(3), *[p.grad for p in block.parameters()]]

    for found, wanted in zip(run(context_fn=selective(POLICIES[which])), run(), strict=True):
        assert flambeau.equal(found, wanted)


def test_what_is_kept_is_not_computed_again():
    """A product that the policy keeps is computed once, one that it does not keep twice, and the names it is asked about are PyTorch's."""
    block, x = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4, bias=False), nn.Softmax(-1)), flambeau.randn(3, 4)
    asked: list = []

    def policy(ctx, op, *args, **kwargs):
        assert not ctx.is_recompute and isinstance(ctx.op_output, flambeau.Tensor) and isinstance(args[0], flambeau.Tensor)
        asked.append(str(op))
        return op == aten.addmm.default

    linear = flambeau.ops.OPS["nn.functional.linear"]
    calls, forward = [], linear.forward
    linear.forward = lambda *args, **kwargs: calls.append(1) or forward(*args, **kwargs)
    try:
        y = checkpoint(block, x, use_reentrant=False, context_fn=selective(policy))
        assert len(calls) == 2
        y.pow(2).sum().backward()
        assert len(calls) == 3
    finally:
        linear.forward = forward
    assert asked == ["aten.addmm.default", "aten.gelu.default", "aten.mm.default", "aten._softmax.default"]


@pytest.mark.skipif(native.lib is None, reason="without the extension, memory is not counted")
def test_selective_memory_lies_between():
    """Keeping products needs more memory than keeping nothing, and less than keeping everything."""
    blocks, x = [Block(64, 4) for _ in range(4)], flambeau.randn(4, 32, 64, requires_grad=True)

    def kept(run) -> int:
        gc.collect()
        before, y = native.lib.pool_stats()["live"], x
        for block in blocks:
            y = run(block, y)
        gc.collect()
        return native.lib.pool_stats()["live"] - before

    kept(lambda block, y: block(y))
    plain = kept(lambda block, y: block(y))
    none = kept(lambda block, y: checkpoint(block, y, use_reentrant=False))
    products = kept(lambda block, y: checkpoint(block, y, use_reentrant=False, context_fn=selective(PRODUCTS)))
    assert 1.2 * none < products < 0.8 * plain


def written_to(x):
    y = x.sin()
    z = y * 2
    y.add_(1)
    return z * y


SELECTIVE_MISUSES = {
    "a function instead of an overload": lambda t, run: t.utils.checkpoint.create_selective_checkpoint_contexts([t.mm]),
    "a packet instead of an overload": lambda t, run: t.utils.checkpoint.create_selective_checkpoint_contexts([t.ops.aten.mm]),
    "a number": lambda t, run: t.utils.checkpoint.create_selective_checkpoint_contexts(3),
    "reentrant": lambda t, run: run(t.sin, use_reentrant=True),
    "written to": lambda t, run: run(written_to).sum().backward(),
    "twice": lambda t, run: [y.backward(retain_graph=True) for y in [run(lambda x: x.sin().exp()).sum()] * 2],
}


@pytest.mark.parametrize("what", SELECTIVE_MISUSES)
def test_selective_misuse(what: str):
    """A misuse that PyTorch refuses passes silently, or raises another type of error or other words."""
    said = []
    for t in (torch, flambeau):

        def run(function, use_reentrant=False, t=t):
            contexts = partial(t.utils.checkpoint.create_selective_checkpoint_contexts, [t.ops.aten.sin.default])
            x = t.ones(3, requires_grad=True)
            return t.utils.checkpoint.checkpoint(function, x, use_reentrant=use_reentrant, context_fn=contexts)

        with pytest.raises(Exception) as caught:
            SELECTIVE_MISUSES[what](t, run)
        said.append((type(caught.value), str(caught.value).partition(" of type")[0].partition(":")[0].partition(". ")[0].rstrip(".")))
    assert said[0] == said[1]


def test_selective_writes_allowed_and_odd_policies():
    """allow_cache_entry_mutation uses what was kept as it is now; a policy that answers neither yes nor no is an error."""
    x = flambeau.ones(3, requires_grad=True)
    checkpoint(
        written_to, x, use_reentrant=False, context_fn=selective([aten.sin.default], allow_cache_entry_mutation=True)
    ).sum().backward()
    with pytest.raises(TypeError, match="a policy returns a CheckpointPolicy, or True to save; found 'save'"):
        checkpoint(flambeau.sin, x, use_reentrant=False, context_fn=selective(lambda ctx, op, *args: "save"))
    assert not flambeau.modes.special


def test_names_of_kernels():
    """torch.ops.aten has PyTorch's names, which print as PyTorch's, compare, and can be called; what is not there is an AttributeError."""
    for look in (str, repr, lambda op: op.name(), lambda op: op.__name__, lambda op: str(op.overloadpacket), lambda op: op.namespace):
        assert look(aten.mm.default) == look(torch.ops.aten.mm.default) and look(aten.add.Tensor) == look(torch.ops.aten.add.Tensor)
    x = flambeau.tensor([[-1.0, 2.0]])
    assert aten.mm.default is aten.mm.default and aten.mm.default != aten.bmm.default
    assert flambeau.equal(aten.relu.default(x), x.relu()) and flambeau.equal(aten.add(x, 1), x + 1)
    assert flambeau.equal(aten.relu_.default(x.clone()), x.relu())
    assert not hasattr(aten, "nonsense") and not hasattr(flambeau.ops.nonsense, "nonsense")
    with pytest.raises(NotImplementedError, match="cannot be called"):
        aten._scaled_dot_product_efficient_attention.default(x, x, x, None, False)


def test_a_reversible_block_draws_the_same_numbers_again():
    """Reformer-like networks keep random states by hand: torch.cuda._initialized, get_device_states, fork_rng, a Function over two streams."""

    torch = pytest.importorskip("torch")

    def program(t):
        from importlib import import_module

        checkpoint = import_module(f"{t.__name__}.utils.checkpoint")

        class Remembering(t.nn.Module):
            def __init__(self, net):
                super().__init__()
                self.net = net

            def forward(self, x, again=False):
                if not again:
                    self.state, self.cuda_in_fwd = t.get_rng_state(), t.cuda._initialized
                    if self.cuda_in_fwd:
                        self.devices, self.states = checkpoint.get_device_states(x)
                    return self.net(x)
                with t.random.fork_rng(devices=[], enabled=True):
                    t.set_rng_state(self.state)
                    if self.cuda_in_fwd:
                        checkpoint.set_device_states(self.devices, self.states)
                    return self.net(x)

        class Reversible(t.autograd.Function):
            @staticmethod
            def forward(ctx, x, f, g):
                a, b = x.chunk(2, dim=1)
                with t.no_grad():
                    c = a + f(b)
                    d = b + g(c)
                ctx.f, ctx.g, ctx.out = f, g, t.cat([c, d], 1).detach()
                return t.cat([c, d], 1)

            @staticmethod
            def backward(ctx, grad):
                c, d = ctx.out.chunk(2, dim=1)
                dc, dd = grad.chunk(2, dim=1)
                with t.enable_grad():
                    c = c.detach().requires_grad_()
                    gc = ctx.g(c, again=True)
                    t.autograd.backward(gc, dd)
                with t.no_grad():
                    b, da = d - gc, dc + c.grad
                with t.enable_grad():
                    b = b.detach().requires_grad_()
                    t.autograd.backward(ctx.f(b, again=True), da)
                return t.cat([da, dd + b.grad], 1), None, None

        t.manual_seed(0)
        f, g = (Remembering(t.nn.Sequential(t.nn.Linear(4, 4), t.nn.Tanh(), t.nn.Dropout(0.5))) for _ in range(2))
        x = t.randn(3, 8, requires_grad=True)
        y = Reversible.apply(x, f, g)
        y.square().sum().backward()
        return [v.tolist() for v in (y, x.grad, f.net[0].weight.grad, g.net[0].bias.grad, t.rand(2))]

    for ours, theirs in zip(program(flambeau), program(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


# -- passes over parts, and inside of forward --------------------------------------------------------------------------


@pytest.mark.parametrize("grouped", [False, True])
def test_passes_of_a_group_share_a_rerun(grouped):
    """Two backward passes over disjoint parts of a checkpointed function run it again twice in a GraphExecGroup, or once outside of one."""

    def run(T):
        runs = []

        def function(x):
            runs.append(1)
            y = x.sin().cos()
            return y, y.sin().cos()

        x = T.tensor([0.5, 1.5], requires_grad=True)
        y, z = T.utils.checkpoint.checkpoint(function, x, use_reentrant=False)
        with T.utils.checkpoint.GraphExecGroup() if grouped else contextlib.nullcontext():
            (grad_y,) = T.autograd.grad(z, (y,), (T.ones(2),))
            (grad_x,) = T.autograd.grad(y, (x,), (grad_y,))
        return len(runs), grad_x.tolist()

    assert run(flambeau)[0] == run(torch)[0]
    np.testing.assert_allclose(run(flambeau)[1], run(torch)[1], rtol=1e-6)


def test_passes_of_a_group_share_no_node():
    """A second backward over the same nodes is computed from values that were given out already."""
    x = flambeau.ones(3, requires_grad=True)
    out = checkpoint(lambda x: x.sin().cos(), x, use_reentrant=False)
    with flambeau.utils.checkpoint.GraphExecGroup():
        out.sum().backward(retain_graph=True)
        with pytest.raises(RuntimeError, match="two backward calls that overlap"):
            out.sum().backward()
        with pytest.raises(RuntimeError, match="cannot be nested"), flambeau.utils.checkpoint.GraphExecGroup():
            pass


@pytest.mark.parametrize("early_stop", [True, False])
def test_backward_inside_of_a_checkpoint(early_stop):
    """A backward pass inside of a checkpointed function, before its forward has ended, fails or gives other numbers."""

    def inner(x):
        return checkpoint(lambda y: y.sin().exp().sin(), x, use_reentrant=False, early_stop=early_stop).sum()

    def slope(x):
        x = x.detach().requires_grad_()
        (found,) = flambeau.autograd.grad(inner(x), x, create_graph=True)
        return found.sum() + inner(x)

    x = flambeau.tensor([0.3, 0.7], requires_grad=True)
    with flambeau.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        expected = slope(x)
    found = checkpoint(slope, x, use_reentrant=False, early_stop=early_stop)
    np.testing.assert_allclose(found.item(), expected.item(), rtol=1e-6)


def test_checkpointed_graphs_die():
    """What was checkpointed stays in memory after backward until the garbage collector comes."""

    def scope():
        x = flambeau.ones(3, requires_grad=True)
        out = checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False)
        (grad,) = flambeau.autograd.grad(out.sum(), x, create_graph=True)
        return weakref.ref(grad.grad_fn)

    gc.disable()
    try:
        assert scope()() is None
    finally:
        gc.enable()


def test_arguments_without_gradient_keep_their_identity():
    """What a checkpointed function saves of an argument that wants no gradient is another object than the argument."""
    seen = []

    class Save(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            ctx.save_for_backward(y)
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            seen.extend(ctx.saved_tensors)
            return grad, None

    x, y = flambeau.ones(2, requires_grad=True), flambeau.ones(2)
    checkpoint(Save.apply, x, y, use_reentrant=False).sum().backward()
    assert seen[0] is y
