"""torch.library.Library: operators by schema, kernels by dispatch key, and what happens when a library goes: as in PyTorch."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("t", [flambeau, torch], ids=["flambeau", "torch"])
numbers = itertools.count()


def opened(t, kind="DEF"):
    """A library of a namespace that nobody has."""
    name = f"shop{next(numbers)}"
    return t.library.Library(name, kind), getattr(t.ops, name), name


@BOTH
def test_defined_and_implemented(t):
    """An operator has the schema that it was defined with, and runs the kernel of the device, with its arguments as the schema has them."""
    lib, shop, name = opened(t)
    assert lib.define("scale(Tensor x, float factor=2.0, *, int[2] dims=0) -> Tensor") == "scale"
    assert str(shop.scale.default._schema).startswith(f"{name}::scale(Tensor x, float factor=2.")
    seen = []
    lib.impl("scale", lambda *args, **kwargs: seen.append((args[1:], kwargs)) or args[0] * 2, "CPU")
    x = t.ones(2)
    assert shop.scale(x).tolist() == [2.0, 2.0]
    shop.scale(x, 3, dims=[1, 2])
    shop.scale.default(x, factor=2.0, dims=1)
    assert seen == [((), {}), ((3.0,), {"dims": [1, 2]}), ((), {"dims": [1, 1]})]
    with pytest.raises(RuntimeError, match=r"expected at most|takes 2 positional"):
        shop.scale(x, 1.0, 2.0)
    lib._destroy()
    assert not hasattr(shop, "scale")


@BOTH
def test_what_is_missing_is_named(t):
    """No kernel for the device, none for the meta device, no tensor to choose by."""
    lib, shop, _ = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    lib.define("g(int x) -> int")
    with pytest.raises(NotImplementedError, match=r"Could not run .* with arguments from the 'CPU' backend"):
        shop.f(t.ones(1))
    with pytest.raises(NotImplementedError, match="no fake impl or Meta kernel registered"):
        shop.f(t.ones(1, device="meta"))
    with pytest.raises(NotImplementedError, match="There were no tensor arguments to this function"):
        shop.g(1)
    lib.impl("g", lambda x: x + 1, "CompositeExplicitAutograd")
    assert shop.g(1) == 2


@BOTH
def test_which_kernel_runs(t):
    """A device's own comes before one for all; the meta device takes its own, a fake implementation, or the one for all."""
    lib, shop, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    x, meta = t.ones(2), t.ones(2, device="meta")
    lib.impl("f", lambda x: x * 10, "CompositeExplicitAutograd")
    assert shop.f(x).tolist() == [10.0, 10.0] and shop.f(meta).shape == (2,)
    lib.impl("f", lambda x: x * 20, "CPU")
    t.library.register_fake(f"{name}::f", lambda x: x.new_empty(7), lib=lib)
    assert shop.f(x).tolist() == [20.0, 20.0] and shop.f(meta).shape == (7,)


@BOTH
def test_derivatives_by_key(t):
    """CompositeImplicitAutograd records by itself; a Function for Autograd calls the kernel below; without either backward warns."""
    lib, shop, _ = opened(t)
    for name in ("implicit", "by_hand", "nothing"):
        lib.define(f"{name}(Tensor x) -> Tensor")
    lib.impl("implicit", lambda x: x.sin() * 2, "CompositeImplicitAutograd")

    class Triple(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            with t._C._AutoDispatchBelowAutograd():
                return shop.by_hand(x)

        @staticmethod
        def backward(ctx, grad):
            return grad * 5

    lib.impl("by_hand", lambda x: x * 3, "CPU")
    lib.impl("by_hand", Triple.apply, "Autograd")
    lib.impl("nothing", lambda x: t.from_numpy(x.detach().numpy() * 2), "CPU")
    x = t.zeros(1, requires_grad=True)
    shop.implicit(x).sum().backward()
    assert x.grad.tolist() == [2.0]
    x.grad = None
    y = shop.by_hand(x + 1)
    y.sum().backward()
    assert y.tolist() == [3.0] and x.grad.tolist() == [5.0]
    x.grad = None
    y = shop.nothing(x)
    assert y.requires_grad
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y.sum().backward()
    assert any("an autograd kernel was not registered" in str(w.message) for w in caught) and x.grad is None


@BOTH
def test_register_autograd_and_vmap_of_a_schema(t):
    """Keyword-only arguments and defaults arrive in setup_context and in the rule for vmap."""
    lib, shop, name = opened(t)
    lib.define("f(Tensor w, int x=2, *, int y=3, int z) -> Tensor")
    lib.impl("f", lambda w, x=2, *, y=3, z: w * x * y * z, "CPU")

    def setup_context(ctx, inputs, keyword_only_inputs, output):
        assert inputs[1:] == (2,) and keyword_only_inputs == {"y": 3, "z": 7}
        ctx.factor = inputs[1] * keyword_only_inputs["y"] * keyword_only_inputs["z"]

    t.library.register_autograd(f"{name}::f", lambda ctx, grad: grad * ctx.factor, setup_context=setup_context, lib=lib)
    w = t.ones(3, requires_grad=True)
    shop.f(w, z=7).sum().backward()
    assert w.grad.tolist() == [42.0] * 3

    def rule(info, in_dims, w, x=2, *, y=3, z):
        assert info.batch_size == 3 and in_dims[0] == 0
        return w * x * y * z + 1, 0

    t.library.register_vmap(f"{name}::f", rule, lib=lib)
    assert t.vmap(lambda w: shop.f(w, z=7))(t.ones(3)).tolist() == [43.0] * 3


@BOTH
def test_lists_of_tensors_have_gradients(t):
    """backward of an operator that takes a list gives a list."""
    name = f"ours::stack{next(numbers)}"

    def stack(xs):
        return t.stack(list(xs)) * 2

    stack.__annotations__ = {"xs": list[t.Tensor], "return": t.Tensor}
    made = t.library.custom_op(name, stack, mutates_args=())
    made.register_autograd(lambda ctx, grad: [g * 2 for g in grad.unbind(0)])
    xs = [t.ones(2, requires_grad=True), t.ones(2), t.ones(2, requires_grad=True)]
    (made(xs) * t.arange(6.0).reshape(3, 2)).sum().backward()
    assert [x.grad.tolist() if x.requires_grad else None for x in xs] == [[0.0, 2.0], None, [8.0, 10.0]]


@BOTH
def test_results_and_arguments_that_are_mutated(t):
    """What an operator says it writes to has another version afterwards, however it was written; unknown means all."""
    n = next(numbers)

    def write(x, y):
        y.detach().numpy()[...] = 3.0

    write.__annotations__ = {"x": t.Tensor, "y": t.Tensor | None, "return": None}
    for mutated, changes in ((("y",), [False, True]), ("unknown", [True, True])):
        made = t.library.custom_op(f"ours::write{n}{len(mutated)}", write, mutates_args=mutated)
        x, y = t.ones(2), t.ones(2)
        made(x, y)
        assert [v._version > 0 for v in (x, y)] == changes and y.tolist() == [3.0, 3.0]
        assert made._opoverload._schema.is_mutable
    with pytest.raises(RuntimeError, match="non-functional"):
        made.register_autograd(lambda ctx, grad: None)
    with pytest.raises(ValueError, match="string"):
        t.library.custom_op(f"ours::write{n}x", write, mutates_args="y")


@BOTH
def test_autocast_of_an_operator(t):
    """register_autocast casts floating-point arguments inside a region, and calls the operator once."""
    name = f"ours::low{next(numbers)}"

    def low(xs, factor):
        return xs[0] * factor

    low.__annotations__ = {"xs": list[t.Tensor], "factor": float, "return": t.Tensor}
    made = t.library.custom_op(name, low, mutates_args=())
    t.library.register_autocast(name, "cpu", t.bfloat16)
    with t.autocast("cpu", dtype=t.bfloat16):
        assert made([t.ones(2), t.ones(2, dtype=t.int64)], 2.0).dtype == t.bfloat16
        assert made([t.ones(2, dtype=t.float64)], 2.0).dtype == t.float64
    assert made([t.ones(2)], 2.0).dtype == t.float32


@BOTH
def test_dispatch_modes_and_their_rules(t):
    """A TorchDispatchMode sees the operator below autograd; a rule registered for the mode stands for its __torch_dispatch__."""
    from importlib import import_module

    Mode = import_module(f"{t.__name__}.utils._python_dispatch").TorchDispatchMode
    lib, shop, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 2, "CPU")
    t.library.register_autograd(f"{name}::f", lambda ctx, grad: grad * 4, lib=lib)
    seen = []

    class Watching(Mode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = t.ones(1, requires_grad=True)
    with Watching():
        y = shop.f(x)
    assert shop.f.default in seen and y.item() == 2.0 and y.requires_grad

    class Ruled(Watching):
        pass

    t.library.register_torch_dispatch(f"{name}::f", Ruled, lambda mode, func, types, args, kwargs: args[0] * 100, lib=lib)
    with Ruled():
        assert shop.f(t.ones(1)).item() == 100.0


@BOTH
def test_operators_of_pytorchs_own_can_be_overridden(t):
    """Library("aten", "IMPL") stands for an operator while it lasts, in every form in which a program calls it."""
    x = t.tensor([1.0, 2.0])
    with t.library._scoped_library("aten", "IMPL") as lib:
        lib.impl("aten::sum", lambda x, **_: x.clone(), "CPU")
        lib.impl("mul.Tensor", lambda a, b: t.full_like(a, 9.0), "CPU")
        assert t.sum(x).tolist() == x.sum().tolist() == t.ops.aten.sum(x).tolist() == [1.0, 2.0]
        assert t.sum(x, 0).item() == 3.0  # another overload
        assert (x * x).tolist() == t.mul(x, x).tolist() == [9.0, 9.0]
        with pytest.raises(RuntimeError, match="already a kernel registered from python"):
            lib.impl("sum", lambda x: x, "CPU", allow_override=False)
    assert t.sum(x).item() == 3.0 and (x * x).tolist() == [1.0, 4.0]


def test_overriding_costs_nothing_afterwards():
    """A library that is gone leaves a mode behind, and every operation asks it."""
    from flambeau import modes

    before = modes.special
    with flambeau.library._scoped_library("aten", "IMPL") as lib:
        lib.impl("sin", lambda x: x, "CPU")
        assert modes.special == before + 1
    assert modes.special == before and not modes.state.stack


@BOTH
def test_a_library_takes_back_what_it_registered(t):
    """The kernel before comes back when a library goes, by `_destroy` or when it is deleted; the operator goes with the one that defined it."""
    lib, shop, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 2, "CPU")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a kernel is overridden
        with t.library._scoped_library(name, "IMPL") as other:
            other.impl("f", lambda x: x * 3, "CPU")
            assert shop.f(t.ones(1)).item() == 3.0
    assert shop.f(t.ones(1)).item() == 2.0
    del lib
    gc.collect()
    assert not hasattr(shop, "f")
    again = t.library.Library(name, "DEF")
    again.define("f(Tensor x) -> Tensor")
    again._destroy()


@BOTH
def test_what_libraries_refuse(t):
    """Kinds, namespaces, keys and names that are wrong raise what PyTorch raises."""
    lib, _, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="Unsupported kind"):
        t.library.Library("a", "X")
    with pytest.raises(ValueError, match="reserved namespace"):
        t.library.Library("prim", "DEF")
    for kind, match in (
        ("multiple times", lambda: lib.define("f(Tensor x) -> Tensor")),
        ("Only a single", lambda: t.library.Library(name, "DEF")),
    ):
        with pytest.raises(RuntimeError, match=kind):
            match()
    with pytest.raises(RuntimeError, match="does not match namespace"):
        lib.define("other::g(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="Cannot define an operator inside"):
        t.library.Library(name, "IMPL").define("g() -> ()")
    with pytest.raises(RuntimeError, match="could not parse dispatch key"):
        lib.impl("f", lambda x: x, "NOKEY")
    with pytest.raises(TypeError, match="required to be a callable"):
        lib.impl("f", [], "CPU")
    with pytest.raises(RuntimeError, match="inconsistent with the dispatch key"):
        t.library.Library(name, "IMPL", "CPU").impl("f", lambda x: x, "CUDA")
    with pytest.raises(RuntimeError, match="does not match namespace"):
        lib.impl(t.ops.aten.neg.default, lambda x: x, "CPU")
    with pytest.raises(RuntimeError, match="Invalid alias_analysis"):
        lib.define("g() -> ()", "X")
    with pytest.raises(RuntimeError, match="Use `float`"):
        lib.define("g(double x) -> ()")


@BOTH
def test_kernels_may_come_before_their_operator(t):
    """What is registered for a name waits until it is defined."""
    lib, shop, name = opened(t)
    t.library.impl(f"{name}::f", "CPU", lambda x: x * 2, lib=lib)
    t.library.register_fake(f"{name}::f", lambda x: x.new_empty(5), lib=lib)
    assert not hasattr(shop, "f")
    lib.define("f(Tensor x) -> Tensor")
    assert shop.f(t.ones(1)).item() == 2.0 and shop.f(t.ones(1, device="meta")).shape == (5,)


@BOTH
def test_kernels_that_know_their_keys(t):
    """with_keyset gives the keys that a call still meets; redispatch with fewer runs the kernel below; get_kernel keeps one."""
    lib, shop, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 2, "CPU")
    below = t._C._after_autograd_keyset
    lib.impl("f", lambda keys, x: shop.f.default.redispatch(keys & below, x) + 1, "Autograd", with_keyset=True)
    assert shop.f(t.ones(1)).item() == 3.0
    kernel = t.library.get_kernel(f"{name}::f", "CPU")
    assert kernel.call_boxed(t._C.DispatchKeySet(t._C.DispatchKey.CPU), t.ones(1)).item() == 2.0
    assert shop.f.default.has_kernel_for_dispatch_key("CPU") and not shop.f.default.has_kernel_for_dispatch_key("CUDA")
    with pytest.raises(RuntimeError, match="does not exist"):
        t.library.get_kernel(f"{name}::nothing", "CPU")


@BOTH
def test_define_and_impl_as_functions(t):
    """torch.library.define and impl, by full names or with a library, as functions and decorators."""
    lib, shop, name = opened(t, "FRAGMENT")
    t.library.define(f"{name}::f", "(Tensor x) -> Tensor", lib=lib, tags=(t.Tag.pointwise,))
    assert shop.f.default.tags == [t.Tag.pointwise]
    t.library.impl(f"{name}::f", "cpu", lambda x: x * 2, lib=lib)

    @t.library.define(lib, "g(Tensor x) -> Tensor")
    def g(x):
        return x * 3

    assert shop.f(t.ones(1)).item() == 2.0 and shop.g(t.ones(1)).item() == 3.0
    with pytest.raises(ValueError, match="expected schema to look like"):
        t.library.define(f"{name}::h", "h(Tensor x) -> Tensor")
    with pytest.raises(ValueError, match="namespace"):
        t.library.define("h", "(Tensor x) -> Tensor")
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        t.library.impl(f"{name}::f", "somethingsomething", lambda x: x)


@BOTH
def test_profiles_name_operators(t):
    """A profile has an event of the operator's name, around what its kernel does."""
    lib, shop, name = opened(t)
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x.sin(), "CPU")
    with t.profiler.profile() as profile:
        shop.f(t.ones(2))
    assert {f"{name}::f", "aten::sin"} <= {event.key for event in profile.key_averages()}


def test_operators_are_seen_by_all_threads():
    """A kernel registered in one thread runs in another; what a guard excludes is a thread's own."""
    lib, shop, _ = opened(flambeau)
    lib.define("f(Tensor x) -> Tensor")
    lib.impl("f", lambda x: x * 2, "CPU")
    lib.impl("f", lambda x: x * 3, "Autograd")
    found = []
    guard = flambeau._C._AutoDispatchBelowAutograd()
    thread = threading.Thread(target=lambda: found.append(shop.f(flambeau.ones(1)).item()))
    thread.start()
    thread.join()
    assert found == [3.0] and shop.f(flambeau.ones(1)).item() == 2.0
    del guard
    assert shop.f(flambeau.ones(1)).item() == 3.0 and flambeau.is_grad_enabled()
