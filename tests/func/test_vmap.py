"""vmap itself: which dimensions, trees, chunks, randomness, levels, errors. What it does to operations is in test_vmap_operations.py."""

from __future__ import annotations

import numpy as np
import pytest
from flambeau.functorch import experimental
from test_grad import both, same

import flambeau
from flambeau import functorch
from flambeau.func import grad, vmap

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore:.torch.jit.script. is deprecated:DeprecationWarning"
)  # PyTorch's, when it first imports func
X = np.random.default_rng(0).standard_normal((3, 4, 2))
Y = np.random.default_rng(1).standard_normal((4, 3))

PROGRAMS = {
    "in_dims": lambda t, x, y: t.vmap(lambda a, b: a.sum() * b, in_dims=(1, 0))(x, y),
    "negative": lambda t, x, y: t.vmap(lambda a, b: a * b, in_dims=(-2, -1))(x[:, :, 0], y),
    "none": lambda t, x, y: t.vmap(lambda a, b: a.T @ b, in_dims=(0, None))(x, y),
    "tree": lambda t, x, y: t.vmap(lambda d: d["x"] * d["y"][0].sum(), in_dims=({"x": 0, "y": None},))({"x": x, "y": [y]}),
    "prefix": lambda t, x, y: t.vmap(lambda d, b: d[0] + d[1] * b, in_dims=(0, None))((x, x), 2.0),
    "out_dims": lambda t, x, y: t.vmap(lambda a: a * 2, out_dims=2)(x),
    "out_dims negative": lambda t, x, y: t.vmap(lambda a: a * 2, out_dims=-1)(x),
    "out_dims tree": lambda t, x, y: t.vmap(lambda a: (a * 2, a.sum(0)), out_dims=(1, 0))(x),
    "out_dims of all": lambda t, x, y: t.vmap(lambda a: {"p": a * 2, "q": [a + 1]}, out_dims=1)(x),
    "out_dims dictionary": lambda t, x, y: t.vmap(lambda a: {"p": a * 2, "q": a}, out_dims={"p": 0, "q": 1})(x),
    "not mapped": lambda t, x, y: t.vmap(lambda a: y * 2)(x),
    "not mapped, None": lambda t, x, y: t.vmap(lambda a: (a, y * 2), out_dims=(0, None))(x),
    "input back": lambda t, x, y: t.vmap(lambda a: a)(x),
    "nested": lambda t, x, y: t.vmap(t.vmap(lambda a, b: a * b[:2], in_dims=(0, None)), in_dims=(0, 1))(x, y),
    "nested out": lambda t, x, y: t.vmap(t.vmap(lambda a: a.cumsum(0), out_dims=1), in_dims=1)(x),
    "three": lambda t, x, y: t.vmap(t.vmap(t.vmap(lambda a: a.sin())))(x),
    "all pairs": lambda t, x, y: t.vmap(lambda a: t.vmap(lambda b: (a * b).sum())(y))(y),
    "chunks": lambda t, x, y: t.vmap(lambda a, b: (a @ b[:2], a), in_dims=(1, 0), out_dims=(0, 1), chunk_size=3)(x[:2], y),
    "keyword": lambda t, x, y: t.vmap(lambda a, *, k: a * k)(x, k=3),
    "dtype of numbers": lambda t, x, y: t.vmap(lambda a: a + t.ones(2, dtype=t.float32))(y[0]),
    "numbers and ints": lambda t, x, y: t.vmap(lambda a: a.long() + t.ones(2, dtype=t.int32))(y[0]),
    "shape": lambda t, x, y: t.vmap(lambda a: a.reshape(a.shape[0] * a.size(1)) * a.ndim + len(a) + a.numel())(x),
    "grad of vmap": lambda t, x, y: t.func.grad(lambda x: t.vmap(lambda a: (a.T @ y).exp().sum())(x).sum())(x),
    "vmap of grad": lambda t, x, y: t.vmap(t.func.grad(lambda a: (a.T @ y).exp().sum()))(x),
    "vmap of grad of closed over": lambda t, x, y: t.vmap(lambda a: t.func.grad(lambda w: (a.T @ w).exp().sum())(y))(x),
    "grad of vmap of grad": lambda t, x, y: t.func.grad(
        lambda y: t.vmap(lambda a: t.func.grad(lambda w: (a.T @ w).sin().sum())(y))(x).square().sum()
    )(y),
    "vmap of grad of vmap": lambda t, x, y: t.vmap(t.func.grad(lambda a: t.vmap(lambda r: r.prod())(a).sum()))(x),
    "vmap of grad of grad": lambda t, x, y: t.vmap(lambda a: t.func.grad(lambda z: t.func.grad(lambda u: (u**3).sum())(z).sum())(a))(x),
    "empty": lambda t, x, y: t.vmap(lambda a: a.sin().sum(0))(x[:0]),
    "method": lambda t, x, y: t.vmap(t.Tensor.sum)(x),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    """The same maps of the same functions are PyTorch's."""
    same(*both(PROGRAMS[name], X, Y))


ERRORS = {
    "no inputs": (ValueError, lambda t, x: t.vmap(lambda: 1)()),
    "sizes": (ValueError, lambda t, x: t.vmap(lambda a, b: a)(x, x[:2])),
    "in_dims type": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims="x")(x)),
    "in_dims list": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=[0])(x)),
    "in_dims structure": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=(0, 0))(x)),
    "in_dims entry": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=(1.0,))(x)),
    "in_dims range": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=5)(x)),
    "not a tensor": (ValueError, lambda t, x: t.vmap(lambda a, b: a)(x, 2.0)),
    "all None": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=None)(x)),
    "all None in a tuple": (ValueError, lambda t, x: t.vmap(lambda a: a, in_dims=(None,))(x)),
    "returns a number": (ValueError, lambda t, x: t.vmap(lambda a: 3)(x)),
    "out_dims structure": (ValueError, lambda t, x: t.vmap(lambda a: a, out_dims=(0, 0))(x)),
    "out_dims None": (ValueError, lambda t, x: t.vmap(lambda a: a, out_dims=None)(x)),
    "out_dims range": (IndexError, lambda t, x: t.vmap(lambda a: a, out_dims=7)(x)),
    "item": (RuntimeError, lambda t, x: t.vmap(lambda a: a.sum().item())(x)),
    "if": (RuntimeError, lambda t, x: t.vmap(lambda a: a if a.sum() > 0 else -a)(x)),
    "float": (RuntimeError, lambda t, x: t.vmap(lambda a: a * float(a.sum()))(x)),
    "mask": (RuntimeError, lambda t, x: t.vmap(lambda a: a[a > 0])(x)),
    "nonzero": (RuntimeError, lambda t, x: t.vmap(lambda a: a.nonzero())(x)),
    "write to shared": (RuntimeError, lambda t, x: t.vmap(lambda a: t.zeros(4, 2, dtype=x.dtype).add_(a))(x)),
    "randomness": (RuntimeError, lambda t, x: t.vmap(lambda a: a + t.randn(2))(x)),
    "dropout": (RuntimeError, lambda t, x: t.vmap(lambda a: t.nn.functional.dropout(a))(x)),
    "randomness word": (RuntimeError, lambda t, x: t.vmap(lambda a: a, randomness="some")(x)),
    "chunk_size": (ValueError, lambda t, x: t.vmap(lambda a: a, chunk_size=0)(x)),
    "requires_grad_": (RuntimeError, lambda t, x: t.vmap(lambda a: a.requires_grad_())(x)),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    """What cannot be mapped is refused with PyTorch's type of exception."""
    kind, call = ERRORS[name]
    with pytest.raises(kind):
        call(torch, torch.tensor(X))
    with pytest.raises(kind):
        call(flambeau, flambeau.tensor(X))


def test_a_tensor_that_left_its_vmap_is_refused():
    """What escapes through a list cannot be used afterwards."""
    kept = []
    vmap(lambda a: kept.append(a) or a)(flambeau.ones(3))
    with pytest.raises(RuntimeError, match="vmap that has ended"):
        kept[0] + 1


def test_errors_inside_leave_no_level_behind():
    """A function that raises inside vmap does not change what happens outside."""
    with pytest.raises(ZeroDivisionError):
        vmap(lambda a: 1 // 0)(flambeau.ones(3))
    assert flambeau.randn(2).shape == (2,)
    assert not flambeau.modes.state.levels


DRAWS = {
    "randn": lambda t, a: t.randn(4),
    "rand tuple": lambda t, a: t.rand((4,)),
    "randint": lambda t, a: t.randint(0, 1000, (4,)).double(),
    "normal": lambda t, a: t.normal(0.0, 1.0, (4,)),
    "randperm": lambda t, a: t.randperm(50).double(),
    "randn_like": lambda t, a: t.randn_like(a),
    "rand_like": lambda t, a: t.rand_like(a),
    "normal_": lambda t, a: t.empty_like(a).normal_(),
    "uniform_": lambda t, a: a.clone().uniform_(),
    "dropout": lambda t, a: t.nn.functional.dropout(t.ones_like(a), 0.5),
    "feature dropout": lambda t, a: t.nn.functional.dropout1d(a.new_ones(20, 4), 0.5),
}


@pytest.mark.parametrize("name", DRAWS)
def test_randomness(name):
    """ "different" draws for every sample, "same" once for all, and both have the shapes PyTorch gives."""
    a, b = flambeau.zeros(5, 8), torch.zeros(5, 8)
    flambeau.manual_seed(0)
    different = vmap(lambda a: DRAWS[name](flambeau, a), randomness="different")(a)
    assert tuple(different.shape) == tuple(torch.vmap(lambda a: DRAWS[name](torch, a), randomness="different")(b).shape)
    assert not bool((different == different[0]).all())
    same_ = vmap(lambda a: DRAWS[name](flambeau, a), randomness="same")(a)
    assert bool((same_ == same_[0]).all())
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(lambda a: DRAWS[name](flambeau, a))(a)


def test_bernoulli_and_multinomial_draw_by_sample():
    """Probabilities that are mapped over draw one by one."""
    p = flambeau.tensor([[0.0, 1.0], [1.0, 0.0]])
    assert vmap(flambeau.bernoulli, randomness="different")(p).equal(p)
    drawn = vmap(lambda w: flambeau.multinomial(w, 1), randomness="different")(p)
    assert drawn.equal(flambeau.tensor([[1], [0]]))
    with pytest.raises(RuntimeError, match="same randomness"):
        vmap(flambeau.bernoulli, randomness="same")(p)


def test_an_operation_without_a_rule_says_so_once():
    """It runs in a loop, and warns the first time, naming the operation."""
    from flambeau.batching import dispatch

    dispatch._told.discard("_histc")
    x = flambeau.rand(3, 10)
    with pytest.warns(UserWarning, match="_histc"):
        found = vmap(lambda a: flambeau.histc(a, 4, 0, 1))(x)
    assert found.equal(flambeau.stack([flambeau.histc(a, 4, 0, 1) for a in x]))
    vmap(lambda a: flambeau.histc(a, 4, 0, 1))(x)  # warnings are errors here


class Cube(flambeau.autograd.Function):
    """x^3 with rules of its own."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * grad


class CubeByHand(Cube):
    """The same with a batching rule written by hand."""

    generate_vmap_rule = False

    @staticmethod
    def vmap(info, in_dims, x):
        assert info.batch_size == 3
        return CubeByHand.apply(x), in_dims[0]


@pytest.mark.parametrize("function", [Cube, CubeByHand])
def test_custom_functions(function):
    """An autograd.Function with a vmap rule goes through vmap and grad in both orders."""
    x = flambeau.arange(6.0).reshape(3, 2)
    assert vmap(function.apply)(x).equal(x**3)
    assert vmap(grad(lambda a: function.apply(a).sum()))(x).equal(3 * x**2)
    assert grad(lambda x: vmap(function.apply)(x).sum())(x).equal(3 * x**2)
    assert grad(lambda x: vmap(grad(lambda a: function.apply(a).sum()))(x).sum())(x).equal(6 * x)


def test_custom_function_without_rule():
    """One without is refused, with a word on what to do."""

    class Plain(Cube):
        generate_vmap_rule = False

    with pytest.raises(RuntimeError, match="vmap"):
        vmap(Plain.apply)(flambeau.ones(3))


PATTERNS = {
    "a b c -> c a b": {}, "a b c -> (a c) b": {}, "a (b x) c -> x (a b) c": {"x": 2}, "... c -> c ...": {}, "a ... -> a (...)": {},
    "a b c -> a 1 b c": {}, "(a x) b c -> a x b c": {"a": 1},
}  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_rearrange(pattern):
    """Axes by name."""
    assert flambeau.func.rearrange is __import__("flambeau.functorch.einops", fromlist=["x"]).rearrange
    same(*both(lambda t, x: t.func.rearrange(x, pattern, **PATTERNS[pattern]), X))
    assert vmap(lambda a: flambeau.func.rearrange(a, "a b -> (b a)"))(flambeau.tensor(X)).shape == (3, 8)


@pytest.mark.parametrize(
    "pattern", ["a b c", "a b -> b a", "a b c -> a b", "a a b -> b a a", "(a b c -> c", "a b c -> (a (b c))", "a b c -> a b d"]
)
def test_rearrange_refuses(pattern):
    """Patterns that say nothing, or too much."""
    for t, x in ((torch, torch.tensor(X)), (flambeau, flambeau.tensor(X))):
        with pytest.raises(ValueError):
            t.func.rearrange(x, pattern)


def test_unwrapping_and_batch_norm():
    """debug_unwrap shows all samples; batch norm without running statistics can be mapped over."""
    seen = []
    vmap(lambda a: seen.append(flambeau.func.debug_unwrap(a).shape) or a)(flambeau.ones(3, 2))
    assert seen == [(3, 2)]
    net = flambeau.func.replace_all_batch_norm_modules_(flambeau.nn.Sequential(flambeau.nn.BatchNorm1d(2)))
    assert net[0].running_mean is None
    assert vmap(net)(flambeau.randn(3, 4, 2)).shape == (3, 4, 2)


# -- around vmap ---------------------------------------------------------------------------------------------------------------


def test_a_shared_cotangent_inside_vmap():
    """The gradient of a shared weight for the results of many samples is computed from the shape of one."""

    def run(t):
        x, v = t.tensor(np.arange(15.0).reshape(3, 5) % 4), t.tensor(np.arange(5.0))
        functions = (lambda r: t.log_softmax(r, -1), lambda r: r.sin(), lambda r: t.linalg.norm(r) * r, lambda r: r.cumsum(0))
        back = lambda f: t.func.vmap(lambda r, w: t.func.vjp(f, r)[1](w)[0], (0, None))(x, v)  # noqa: E731
        return [back(f).numpy() for f in functions]

    for found, expected in zip(run(flambeau), run(torch), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("chunks", [1, 2, 3, 10])
def test_vmap_in_chunks(chunks):
    """chunk_vmap gives other results than vmap."""
    x = flambeau.arange(14.0).reshape(7, 2)
    found = experimental.chunk_vmap(lambda r: r.sin() * r.sum(), chunks=chunks)(x)
    flambeau.testing.assert_close(found, x.sin() * x.sum(1, keepdim=True))


@pytest.mark.parametrize("name", ["functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev", "vmap"])
def test_first_names(name):
    """A function under its first name, functorch's, does not say where it is now, or that of torch.func does."""
    where = "torch.vmap" if name == "vmap" else f"torch.func.{name}"
    with pytest.warns(FutureWarning, match=f"Please use `{where}`"):
        getattr(functorch, name)(flambeau.sin)
    getattr(flambeau.func, name)(flambeau.sin)


class Scaled(flambeau.autograd.Function):
    @staticmethod
    def forward(x, ys):
        return x * ys[0], [x * ys[1]]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, in_dims, x, ys):
        assert in_dims == (0, [None, 0]) and info.batch_size == 2
        return (x * ys[0], [x * ys[1]]), (0, [0])


def test_nested_arguments_of_a_batching_rule():
    """A batching rule does not see the tensors inside of a list."""
    x = flambeau.tensor([[1.0, 2.0], [3.0, 4.0]])
    found = flambeau.vmap(lambda x, z: Scaled.apply(x, [flambeau.ones(2), z]))(x, x)
    assert found[0].tolist() == x.tolist() and found[1][0].tolist() == (x * x).tolist()


def without_context(t):
    class Old(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2

    return Old.apply


def returns_its_input(t):
    class Same(t.autograd.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(output)

        @staticmethod
        def backward(ctx, grad):
            return grad

    return Same.apply


def rule(t, answer):
    class Ruled(t.autograd.Function):
        @staticmethod
        def forward(x):
            return x

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x):
            return answer(x)

    return Ruled.apply


def by_name(t):
    class ByName(t.autograd.Function):
        @staticmethod
        def forward(x, *, y):
            return x + y

        @staticmethod
        def setup_context(ctx, inputs, output):
            pass

        @staticmethod
        def vmap(info, in_dims, x, *, y):
            return x + y, 0

    return ByName.apply


def on_cpu(t, function, *args):
    with t.autograd.graph.save_on_cpu():
        return function(*args)


ONE = lambda t: t.ones(3)  # noqa: E731
REFUSED = {
    "no setup_context": (lambda t: t.func.grad(lambda x: without_context(t)(x).sum())(ONE(t)), "must override the setup_context"),
    "input saved": (lambda t: t.func.grad(lambda x: returns_its_input(t)(x * 1).sum())(ONE(t)), "An? input that has been returned as-is"),
    "rule without dims": (lambda t: t.func.vmap(rule(t, lambda x: x))(ONE(t)), "to have two returns"),
    "rule with other dims": (lambda t: t.func.vmap(rule(t, lambda x: (x, (None,))))(ONE(t)), "returned an incompatible"),
    "no output": (lambda t: t.func.vjp(lambda x: None, ONE(t)), "Expected f to be a function that has non-empty output"),
    "a number": (lambda t: t.func.vjp(lambda x: 1, ONE(t)), r"expected f\(\*primals\) to return only tensors"),
    "aux": (lambda t: t.func.jvp(lambda x: (x, "text"), (ONE(t),), (ONE(t),), has_aux=True), "Expected tensors, got unsupported type"),
    "aux of grad": (lambda t: t.func.grad(lambda x: (x.sum(), [x, 1]), has_aux=True)(ONE(t)), "Expected tensors, got unsupported type"),
    "three, no aux": (
        lambda t: t.func.grad(lambda x: (x, x, x), has_aux=True)(ONE(t)),
        r"grad_and_value\(f\)\(\*args\): output of function f should",
    ),
    "vjp, no aux": (
        lambda t: t.func.vjp(lambda x: [x, x], ONE(t), has_aux=True),
        r"vjp\(f, \*primals\): output of function f should be a tuple",
    ),
    "argnums in a list": (lambda t: t.func.grad(t.mul, argnums=[0])(ONE(t), ONE(t)), "argnums must be int or Tuple"),
    "strict": (lambda t: t.func.jvp(lambda x: (x, ONE(t)), (ONE(t),), (ONE(t),), strict=True), "strict"),
    "tensor by name": (lambda t: t.func.vmap(by_name(t))(ONE(t), y=ONE(t)), "kwarg-only Tensor args"),
    "classes": (lambda t: t.func.stack_module_state([t.nn.ReLU(), t.nn.Tanh()]), "stack_module_state:.* models to be of the same class"),
    "requires_grad_": (lambda t: t.func.grad(lambda x: x.requires_grad_().sum())(ONE(t)), "Tensor.requires_grad_()"),
    "retain_grad": (lambda t: t.func.grad(lambda x: [y := x.sin(), y.retain_grad()][0].sum())(ONE(t)), "Tensor.retain_grad()"),
    "jacobian": (lambda t: t.func.grad(lambda x: t.autograd.functional.jacobian(t.sin, x).sum())(ONE(t)), "torch.autograd.functional"),
    "functionalize": (lambda t: t.func.functionalize(without_context(t))(ONE(t)), "must override the setup_context"),
    "random": (lambda t: t.func.vmap(t.bernoulli)(ONE(t)), "called random operation while in randomness error mode"),
    "same": (
        lambda t: t.func.vmap(t.bernoulli, randomness="same")(ONE(t)),
        "Vmap does not currently support same randomness with a batched tensor",
    ),
    "drawn from": (
        lambda t: t.func.vmap(lambda p: ONE(t).bernoulli_(p), randomness="different")(t.ones(2, 3)),
        "there exists a Tensor `other` in extra_args that has more elements than `self`",
    ),
    "data": (lambda t: t.func.vmap(lambda x: x.data)(ONE(t)), "accessing `data` under vmap transform"),
    "data written": (lambda t: t.func.vmap(lambda x: setattr(x, "data", x))(ONE(t)), "mutating directly with `.data` under vmap"),
    "branch": (lambda t: t.func.vmap(lambda x: x if x else -x)(ONE(t)), "data-dependent control flow"),
    "out": (
        lambda t: t.func.vmap(lambda x: t.abs(x, out=x))(ONE(t)),
        "Batching rule not implemented for aten::.+; the fallback path doesn't work",
    ),
    "hooks inside": (lambda t: t.func.grad(lambda x: on_cpu(t, t.sin, x).sum())(ONE(t)), "saved tensor hooks"),
    "hooks outside": (lambda t: on_cpu(t, t.func.vjp, t.sin, ONE(t)), "saved tensor hooks"),
    "other shapes": (lambda t: t.func.vmap(t.nonzero)(ONE(t)), "vmap: We do not support batching operators that can output dynamic shape"),
    "primals": (lambda t: t.func.jvp(t.sin, ONE(t), (ONE(t),)), "Expected primals to be a tuple"),
    "no primals": (lambda t: t.func.jvp(lambda: None, (), ()), "at least one Tensor"),
    "structure": (lambda t: t.func.jvp(t.sin, (ONE(t),), ONE(t)), "same python structure"),
    "complex inputs": (lambda t: t.func.jacrev(t.sin)(ONE(t) * 1j), "jacrev: Expected all inputs to be real"),
    "complex outputs": (lambda t: t.func.jacfwd(lambda x: x * 1j)(ONE(t)), "jacfwd: Expected all outputs to be real"),
    "functional": (lambda t: t.func.vmap(lambda x: t.autograd.functional.jvp(t.sin, x, x))(ONE(t)), "torch.autograd.functional"),
}


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
@pytest.mark.parametrize("case", REFUSED)
def test_words_of_refusals(t, case):
    """A misuse of a transform passes, or is refused with other words than those programs know from PyTorch."""
    question, words = REFUSED[case]
    with pytest.raises(RuntimeError, match=words):
        question(t)


def test_transforms_in_inference_mode():
    """func.grad of func.grad fails in inference mode."""
    with flambeau.inference_mode():
        found = flambeau.func.grad(flambeau.func.grad(lambda x: x**3))(flambeau.tensor(2.0))
        _, tangent = flambeau.func.jvp(lambda x: (x**2).sum(), (flambeau.ones(3),), (flambeau.ones(3),))
    assert found.item() == 12 and tangent.item() == 6


@pytest.mark.parametrize("t", [torch, flambeau], ids=["torch", "flambeau"])
def test_chunks_draw_the_same(t):
    """With randomness="same" every chunk draws numbers of its own."""
    x = t.zeros(5, 2)
    rows = t.func.vmap(lambda x: x + t.rand(2), randomness="same", chunk_size=2)(x)
    assert (rows == rows[0]).all()


def test_debug_unwrap_gives_what_was_mapped():
    """A tensor whose first dimension is mapped comes back from debug_unwrap as another tensor."""
    x, seen = flambeau.ones(2, 3), []
    flambeau.vmap(flambeau.vmap(lambda y: seen.append(flambeau.func.debug_unwrap(y)) or y))(x)
    assert seen[0] is x


def test_results_that_are_no_tensors():
    """What is the same for all samples must be a tensor, or is refused without the word that programs know."""
    x = flambeau.ones(2, 3)
    assert vmap(lambda r: (r, "text", None), out_dims=(0, None, None))(x)[1:] == ("text", None)
    assert vmap(lambda r: "text", out_dims=None)(x) == "text"
    with pytest.raises(ValueError, match="got type <class 'float'>"):
        vmap(lambda r: 3.14)(x)
    with pytest.raises(ValueError, match="must be an int, None or a python collection of ints"):
        vmap(lambda r: r, out_dims="text")(x)


def test_dimensions_come_in_the_containers_of_arguments():
    """A tuple of dimensions stands for a list of arguments, which PyTorch refuses."""
    x = flambeau.ones(2, 3)
    for dims in (([0],), ((0, 0),)):
        with pytest.raises(ValueError, match="in_dims is not compatible with the structure of `inputs`"):
            vmap(lambda z: z[0] + z[1], in_dims=dims)([x, x])
    assert vmap(lambda z: z[0] + z[1], in_dims=([0, 0],))([x, x]).tolist() == (x + x).tolist()


def test_a_library_that_replaces_the_steps_of_vmap_may_keep_samples_for_the_next(monkeypatch):
    """Samples made at a level by `_add_batch_dim` are refused in the next vmap of that level, where a library (tensordict) has kept them."""
    from flambeau._functorch import vmap as steps

    kept, usual = {}, steps._create_batched_inputs

    def remembering(dims, leaves, level, spec):
        return kept.setdefault((level, len(leaves[0])), usual(dims, leaves, level, spec))

    monkeypatch.setattr(steps, "_create_batched_inputs", remembering)
    x, y = flambeau.arange(6.0).view(3, 2), flambeau.ones(2, 2)
    assert vmap(lambda a: a + 1)(x).equal(x + 1)
    assert vmap(lambda a: a * 2)(y).equal(y * 2)
    assert vmap(lambda a: a * 2)(x).equal(x * 2)
