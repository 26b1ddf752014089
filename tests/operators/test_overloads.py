"""torch.ops: overloads have names, schemas and identity as PyTorch's, calls find the right one, and run."""

from __future__ import annotations

import copy
import pickle

import pytest

import flambeau
from flambeau.operators.overloads import OpOverload, OpOverloadPacket, resolve

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

NAMES = [
    "add.Tensor",
    "add.Scalar",
    "sum.dim_IntList",
    "sin.default",
    "view.default",
    "sin_.default",
    "max.dim_max",
    "split.Tensor",
    "_to_copy.default",
]


def overload(t, name):
    packet, _, which = name.partition(".")
    return getattr(getattr(t.ops.aten, packet), which)


@pytest.mark.parametrize("name", NAMES)
def test_names_and_facts_are_pytorchs(name):
    """What programs print, compare and ask an overload for."""
    ours, theirs = overload(flambeau, name), overload(torch, name)
    for look in (str, repr, lambda op: op.name(), lambda op: op.__name__, lambda op: op.__qualname__, lambda op: op.namespace,
                 lambda op: op._opname, lambda op: op._overloadname, lambda op: str(op.overloadpacket), lambda op: repr(op.overloadpacket),
                 lambda op: op.__module__, lambda op: str(op._schema), lambda op: op._schema.is_mutable, lambda op: op.is_view,
                 lambda op: op.overloadpacket.__name__, lambda op: op.overloadpacket._qualified_op_name):  # fmt: skip
        assert look(ours) == look(theirs)
    assert set(ours.overloadpacket.overloads()) <= set(theirs.overloadpacket.overloads())


def test_overloads_of_one_name_are_told_apart():
    """Each is itself, is found again by pickle and copy, and equals no other."""
    add = flambeau.ops.aten.add
    assert add.Tensor is flambeau.ops.aten.add.Tensor and add.Tensor != add.Scalar and len({add.Tensor, add.Scalar, add.Tensor}) == 2
    for thing in (add, add.Tensor):
        assert pickle.loads(pickle.dumps(thing)) is thing and copy.deepcopy(thing) is thing and copy.copy(thing) is thing
    assert isinstance(add, OpOverloadPacket) and isinstance(add.Tensor, OpOverload)
    assert not hasattr(add, "nonsense") and not hasattr(flambeau.ops.aten, "nonsense")
    with pytest.raises(AttributeError, match="'_OpNamespace' 'aten' object has no attribute 'nonsense'"):
        _ = flambeau.ops.aten.nonsense
    with pytest.raises(AttributeError, match=r"The underlying op of 'aten.add' has no overload name 'nonsense'"):
        _ = add.nonsense


class Seen(TorchDispatchMode):
    """Notes what PyTorch's dispatcher is asked for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.call = func, args, kwargs or {}
        return func(*args, **(kwargs or {}))


def shown(value):
    if isinstance(value, torch.Tensor | flambeau.Tensor):
        return "tensor"
    if isinstance(value, list | tuple):
        return [shown(v) for v in value]
    return str(value)


CALLS = [
    ("sum", lambda x: ((x,), {})),
    ("sum", lambda x: ((x, 0), {})),
    ("sum", lambda x: ((x, [0], True), {})),
    ("add", lambda x: ((x, x), {"alpha": 2})),
    ("add", lambda x: ((x, 2), {})),
    ("mul", lambda x: ((x, 2.5), {})),
    ("eq", lambda x: ((x, 1), {})),
    ("pow", lambda x: ((x, 2), {})),
    ("max", lambda x: ((x, 1), {})),
    ("max", lambda x: ((x,), {})),
    ("split", lambda x: ((x, 1), {})),
    ("view", lambda x: ((x, [-1]), {})),
    ("transpose", lambda x: ((x, 0, 1), {})),
    ("cumsum", lambda x: ((x, 0), {})),
    ("clamp", lambda x: ((x, 0), {"max": 2})),
    ("slice", lambda x: ((x, 0, 0, 1), {})),
    ("mean", lambda x: ((x, [1]), {"keepdim": True})),
    ("native_layer_norm", lambda x: ((x, [3], None, None, 1e-5), {})),
]


@pytest.mark.parametrize(("name", "make"), CALLS)
def test_a_call_finds_the_overload_that_pytorch_finds(name, make):
    """The overload, and its arguments as __torch_dispatch__ receives them: by position, without those that are as if not given."""
    args, kwargs = make(torch.arange(6.0).reshape(2, 3))
    with Seen() as seen:
        expected = getattr(torch.ops.aten, name)(*args, **kwargs)
    func, given, named = seen.call
    args, kwargs = make(flambeau.arange(6.0).reshape(2, 3))
    ours, ours_given, ours_named = resolve(getattr(flambeau.ops.aten, name), args, kwargs)
    assert (str(ours), shown(ours_given), shown(list(ours_named.items()))) == (str(func), shown(given), shown(list(named.items())))
    result = getattr(flambeau.ops.aten, name)(*args, **kwargs)
    pairs = zip(result, expected, strict=True) if isinstance(expected, tuple | list) else [(result, expected)]
    for a, b in pairs:
        torch.testing.assert_close(torch.tensor(a.tolist()), torch.tensor(b.tolist()))


PARTS = [
    ("_to_copy", lambda t, x: ((x,), {"dtype": t.float64})),
    ("alias", lambda t, x: ((x,), {})),
    ("t", lambda t, x: ((x,), {})),
    ("_unsafe_view", lambda t, x: ((x, [6]), {})),
    ("_local_scalar_dense", lambda t, x: ((x[0, 1],), {})),
    ("_softmax", lambda t, x: ((x, 1, False), {})),
    ("_log_softmax", lambda t, x: ((x, 1, False), {})),
    ("_softmax_backward_data", lambda t, x: ((x, x.softmax(1), 1, t.float32), {})),
    ("convolution", lambda t, x: ((x.reshape(1, 2, 3), t.ones(1, 2, 2), None, [1], [0], [1], False, [0], 1), {})),
    (
        "convolution_backward",
        lambda t, x: ((t.ones(1, 1, 2), x.reshape(1, 2, 3), t.ones(1, 2, 2), [0], [1], [0], [1], False, [0], 1, [True, True, False]), {}),
    ),
    (
        "native_layer_norm_backward",
        lambda t, x: ((x, x, [3], *t.ops.aten.native_layer_norm(x, [3], None, None, 1e-5)[1:], None, None, [True, False, False]), {}),
    ),
    ("embedding", lambda t, x: ((x, t.tensor([1, 0])), {})),
    ("embedding_dense_backward", lambda t, x: ((x, t.tensor([1, 1]), 3, -1, False), {})),
    ("nll_loss_forward", lambda t, x: ((x, t.tensor([1, 0]), None, 1, -100), {})),
    ("mse_loss", lambda t, x: ((x, x * 2, 2), {})),
    ("gelu_backward", lambda t, x: ((x, x), {})),
    ("threshold_backward", lambda t, x: ((x, x, 1), {})),
    ("max_pool2d_with_indices", lambda t, x: ((x.reshape(1, 1, 2, 3), [2, 2]), {})),
    ("_adaptive_avg_pool2d", lambda t, x: ((x.reshape(1, 2, 3), [1, 1]), {})),
    ("slice_backward", lambda t, x: ((x, [4, 3], 0, 0, 4, 2), {})),
    ("select_backward", lambda t, x: ((x[0], [2, 3], 0, 1), {})),
    ("upsample_bilinear2d", lambda t, x: ((x.reshape(1, 1, 2, 3), [4, 6], False), {})),
    ("upsample_nearest2d_backward", lambda t, x: ((x.reshape(1, 1, 2, 3), [2, 3], [1, 1, 1, 1]), {})),
    ("index", lambda t, x: ((x, [None, t.tensor([0, 2])]), {})),
    ("index_put", lambda t, x: ((x, [t.tensor([0])], t.zeros(3)), {})),
    ("copy_", lambda t, x: ((t.zeros(2, 3), x), {})),
    ("view_copy", lambda t, x: ((x, [6]), {})),
    ("_fft_r2c", lambda t, x: ((x, [1], 0, True), {})),
    ("_unique2", lambda t, x: ((x, True, True, True), {})),
]


@pytest.mark.parametrize(("name", "make"), PARTS, ids=[name for name, _ in PARTS])
def test_pieces_of_operations_compute_what_pytorchs_do(name, make):
    """Operators that are no function of their own here give other numbers."""
    results = []
    for t in (flambeau, torch):
        args, kwargs = make(t, t.arange(6.0).reshape(2, 3))
        found = getattr(t.ops.aten, name)(*args, **kwargs)
        results.append([v for v in (found if isinstance(found, tuple | list) else (found,)) if v is not None])
    assert len(results[0]) == len(results[1])
    for ours, theirs in zip(*results, strict=True):
        if isinstance(theirs, torch.Tensor):
            assert tuple(ours.shape) == tuple(theirs.shape) and str(ours.dtype) == str(theirs.dtype)
            torch.testing.assert_close(torch.tensor(ours.tolist()), torch.tensor(theirs.tolist()))
        else:
            assert ours == theirs


@pytest.mark.parametrize("t", [flambeau, torch], ids=["flambeau", "torch"])
def test_calls_that_fit_no_schema_are_refused(t):
    """A wrong type, too many arguments, a name that is not there, nothing at all: RuntimeError with the schema."""
    x = t.ones(3)
    for call in (
        lambda: t.ops.aten.sin.default("x"), lambda: t.ops.aten.sin.default(x, x), lambda: t.ops.aten.sin.default(x, bla=3),
        lambda: t.ops.aten.sin.default(), lambda: t.ops.aten.add.Tensor(x, x, 3),
    ):  # fmt: skip
        with pytest.raises(RuntimeError, match=r"aten::"):
            call()
    with pytest.raises(RuntimeError, match="failed to match any schema"):
        t.ops.aten.maximum(x, 3)


def test_what_has_no_counterpart_says_so():
    """A name that cannot be called names itself, and other libraries' binaries are refused."""
    x = flambeau.ones(1, 1, 1, 1)
    with pytest.raises(NotImplementedError, match="_scaled_dot_product_efficient_attention"):
        flambeau.ops.aten._scaled_dot_product_efficient_attention(x, x, x, None, False)
    with pytest.raises(OSError, match="Could not load this library"):
        flambeau.ops.load_library("no_such_library.so")
    with pytest.raises(NotImplementedError, match="custom_op"):
        flambeau.ops.load_library(__file__)


def test_function_modes_see_overloads():
    """A TorchFunctionMode is told what was called: the overload, or all of a name."""
    from flambeau.overrides import TorchFunctionMode

    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    x = flambeau.ones(1)
    with Mode():
        flambeau.ops.aten.sin(x)
        flambeau.ops.aten.sin.default(x)
    assert seen[0] is flambeau.ops.aten.sin and flambeau.ops.aten.sin.default in seen
