"""Programs of PyTorch's first years still run: arguments in the order of that time, and the private rooms their authors looked into."""

from __future__ import annotations

import pytest
from oracle import assert_same

import flambeau

torch = pytest.importorskip("torch")

CALLS = {
    "add": lambda t, a, b: (t.add(a, 2, b), a.add(0.5, b), a.clone().add_(-0.1, b), t.add(a, t.tensor(2.0), b), a.add(2, 3)),
    "sub": lambda t, a, b: (t.sub(a, 2, b), a.sub(0.5, b), a.clone().sub_(-0.1, b), t.sub(a, 2, b, out=t.empty(2, 2))),
    "addcmul": lambda t, a, b: (t.addcmul(a, 2, b, a), a.addcmul(0.5, b, b), a.clone().addcmul_(-0.1, b, b)),
    "addcdiv": lambda t, a, b: (t.addcdiv(a, 2, b, b), a.addcdiv(0.5, b, b), a.clone().addcdiv_(-0.1, a, b)),
    "addmm": lambda t, a, b: (t.addmm(2, a, 3, b, a), t.addmm(2, a, b, a), a.addmm(2, 3, b, a), a.clone().addmm_(2, b, b)),
    "addmv": lambda t, a, b: (t.addmv(2, a[0], 3, b, b[0]), t.addmv(2, a[0], b, b[0]), a[0].clone().addmv_(2, 3, b, b[0])),
    "addr": lambda t, a, b: (t.addr(2, a, 3, b[0], b[1]), t.addr(2, a, b[0], b[1]), a.clone().addr_(2, 3, b[0], b[1])),
    "addbmm": lambda t, a, b: (t.addbmm(2, a, 3, b[None], b[None]), a.addbmm(2, b[None], b[None])),
    "baddbmm": lambda t, a, b: (t.baddbmm(2, a[None], 3, b[None], b[None]), a[None].clone().baddbmm_(2, b[None], b[None])),
}
REFUSED = {
    "a factor where a tensor belongs": lambda t, a, b: a.clone().addcmul_(2, b),
    "a fraction of integers": lambda t, a, b: a.long().add(0.5, b.long()),
    "too many": lambda t, a, b: a.add(1, b, 3),
    "a tensor for a factor": lambda t, a, b: a.add(b, b),
}


def operands(package):
    return package.tensor([[0.0, 1.0], [2.0, 3.0]]), package.tensor([[2.0, 0.5], [-1.0, 4.0]])


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.filterwarnings("ignore:This overload of")
def test_a_factor_before_its_tensor(name):
    """p.data.add_(-lr, p.grad) and its relatives do what they did."""
    assert_same(*(CALLS[name](package, *operands(package)) for package in (flambeau, torch)))


def test_the_warning_says_how_to_write_it_today():
    a, b = operands(flambeau)
    with pytest.warns(UserWarning, match=r"This overload of add_ is deprecated.*add_\(input, other, alpha=alpha\)"):
        a.add_(2, b)


@pytest.mark.filterwarnings("ignore:This overload of")
def test_gradients_flow_through_the_old_order():
    found = []
    for package in (flambeau, torch):
        a, b = (x.requires_grad_() for x in operands(package))
        package.addmm(2, a, 3, b, a).add(0.5, b).sum().backward()
        found.append((a.grad, b.grad))
    assert_same(*found)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:This overload of")
def test_what_was_never_allowed(name):
    for package in (flambeau, torch):
        with pytest.raises((TypeError, RuntimeError)) as problem:
            REFUSED[name](package, *operands(package))
        if package is flambeau:
            ours = problem.type
    assert ours is problem.type


@pytest.mark.parametrize("name", "add sub mul div floor_divide true_divide multiply subtract".split())
@pytest.mark.parametrize("pair", [(7, 2), (7.0, 2), (True, 2), (1j, 2.5), (1, 0.5)], ids=repr)
def test_two_numbers_are_a_tensor(name, pair):
    """torch.add(1, 2) is tensor(3)."""
    found = []
    for package in (flambeau, torch):
        try:
            found.append(getattr(package, name)(*pair))
        except (RuntimeError, TypeError) as problem:
            found.append(type(problem))
    assert_same(*found)


def test_two_numbers_elsewhere():
    assert_same(*((t.add(1, 2, alpha=3), t.div(7, 2, rounding_mode="floor")) for t in (flambeau, torch)))
    for package in (flambeau, torch):
        for name in ("pow", "maximum", "atan2"):
            with pytest.raises(TypeError):
                getattr(package, name)(7, 2)


def test_flat_tensors():
    """torch._utils: many tensors as one and back, and in buckets of about a size."""
    import flambeau._utils as ours
    import torch._utils as theirs

    found = []
    for package, room in ((flambeau, ours), (torch, theirs)):
        tensors = [package.arange(4.0).view(2, 2), package.arange(3.0)]
        flat = room._flatten_dense_tensors(tensors)
        mixed = [*tensors, package.ones(1, dtype=package.float64)]
        buckets = [list(room._take_tensors(mixed, limit)) for limit in (1, 16, 28, 1000)]
        found.append((flat, room._unflatten_dense_tensors(flat, tensors), buckets))
    assert_same(*found)


@pytest.mark.filterwarnings("ignore:size_average and reduce")
def test_reductions_by_number_and_by_flag():
    import torch.nn._reduction as theirs

    from flambeau.nn import _reduction as ours

    for flags in [(None, None), (True, False), (False, None), (False, True), (None, False)]:
        assert ours.legacy_get_string(*flags) == theirs.legacy_get_string(*flags)
        assert ours.legacy_get_enum(*flags, emit_warning=False) == theirs.legacy_get_enum(*flags, emit_warning=False)
    assert [ours.get_enum(name) for name in ("none", "mean", "sum")] == [0, 1, 2]
    with pytest.raises(ValueError):
        ours.get_enum("max")


def test_derivatives_of_convolutions():
    """torch.nn.grad, for those who write a backward pass themselves."""
    found = []
    for package in (flambeau, torch):
        package.manual_seed(0)
        grad = package.nn.grad
        x, w, g = package.randn(2, 4, 6, 8), package.randn(6, 2, 3, 2), package.randn(2, 6, 3, 7)
        options = {"stride": (2, 1), "padding": (1, 0), "groups": 2}
        found.append((
            grad.conv2d_input(x.shape, w, g, **options), grad.conv2d_weight(x, w.shape, g, **options),
            grad.conv1d_input([1, 1, 4], w[:1, :1, :, 0], package.ones(1, 1, 2)), grad.conv1d_weight(x[:, 0, :1], (1, 1, 3), g[:, :1, 0, :6]),
            grad.conv3d_input((1, 1, 3, 3, 3), package.ones(1, 1, 2, 2, 2), package.ones(1, 1, 2, 2, 2)),
            grad.conv3d_weight(package.ones(1, 1, 3, 3, 3), (1, 1, 2, 2, 2), package.ones(1, 1, 2, 2, 2)),
        ))  # fmt: skip
    assert_same(*found, tolerance=1e-5)


def test_types_of_results():
    x = flambeau.ones(2, 2)
    assert isinstance(x.max(0), flambeau.return_types.max)
    assert isinstance(x.topk(1), flambeau.return_types.topk)
    assert isinstance(flambeau.linalg.svd(x), flambeau.return_types.linalg_svd)
    with pytest.raises(AttributeError):
        _ = flambeau.return_types.conv2d


def test_where_tensor_lives():
    from flambeau._tensor import Tensor

    assert Tensor is flambeau.Tensor


def test_names_that_copied_layers_import():
    """What stands in PyTorch's files besides their subject, and what layers copied from them ask for."""
    from flambeau._jit_internal import BroadcastingList2, List, Optional, boolean_dispatch

    from flambeau.cuda.amp.grad_scaler import OptState
    from flambeau.distributions.utils import _standard_normal, _sum_rightmost
    from flambeau.functional import Tensor
    from flambeau.nn.modules.normalization import _shape_t

    functional = flambeau.nn.functional
    assert Tensor is functional.Tensor is flambeau.Tensor
    assert functional._pair(3) == (3, 3)
    assert functional._Reduction.get_enum("sum") == 2
    assert not functional.has_torch_function((flambeau.ones(1),))
    assert tuple(_sum_rightmost(_standard_normal((2, 3, 4), flambeau.float32, "cpu"), 2).shape) == (2,)
    assert OptState.READY.value == 0 and _shape_t and BroadcastingList2[int] is None and Optional[List[int]]
    either = boolean_dispatch("flag", 1, False, lambda x, flag=False: x, lambda x, flag=False: -x, "here", "either")
    assert (either(1), either(1, True), either(1, flag=True), either.__name__) == (-1, 1, 1, "either")
    with pytest.raises(AttributeError):
        _ = functional._no_such_name


def test_operations_of_copied_recurrent_layers():
    """_VF.lstm and its relatives, as PyTorch's own layers call them."""
    found = []
    for package in (flambeau, torch):
        package.manual_seed(0)
        _vf = package._VF
        lstm, gru, cell = package.nn.LSTM(3, 4, 2, bidirectional=True), package.nn.GRU(3, 4), package.nn.LSTMCell(3, 4)
        x, zeros = package.randn(5, 2, 3), package.zeros(4, 2, 4)
        packed = package.nn.utils.rnn.pack_padded_sequence(x, [5, 2])
        weights = (cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh)
        found.append((
            *_vf.lstm(x, (zeros, zeros), lstm._flat_weights, True, 2, 0.0, False, True, False),
            *_vf.gru(packed.data, packed.batch_sizes, zeros[:1], gru._flat_weights, True, 1, 0.0, False, False),
            *_vf.lstm_cell(x[0], (zeros[0], zeros[1]), *weights), package._C._VariableFunctions.relu(x),
            package.nn.modules.rnn._apply_permutation(x, package.tensor([1, 0])),
        ))  # fmt: skip
    assert_same(*found, strides=False, tolerance=1e-5)


def test_parts_of_copied_attention():
    found = []
    for package in (flambeau, torch):
        package.manual_seed(0)
        functional = package.nn.functional
        q, kv, w, b = package.randn(5, 2, 8), package.randn(3, 2, 8), package.randn(24, 8), package.randn(24)
        mask = package.tensor([[False, True]])
        found.append((
            tuple(functional._in_projection_packed(q, q, q, w, b)), tuple(functional._in_projection_packed(q, kv, kv, w)),
            tuple(functional._in_projection_packed(q, kv, kv.clone(), w, b)), tuple(functional._in_projection(q, kv, kv, *w.chunk(3))),
            functional._canonical_mask(mask, "mask", functional._none_or_dtype(None), "", package.float32), functional._none_or_dtype(None),
        ))  # fmt: skip
        with pytest.warns(UserWarning, match="Implicit dimension choice for softmax"):
            assert [functional._get_softmax_dim("softmax", n, 2) for n in (1, 2, 3, 4)] == [0, 1, 0, 1]
    assert_same(*found, strides=False, tolerance=1e-5)


def test_arithmetic_as_a_layer():
    """nn.quantized.FloatFunctional, which models made for quantization add and join with."""
    found = []
    for package in (flambeau, torch):
        f, x, y = package.ao.nn.quantized.FloatFunctional(), *operands(package)
        answers = f.add(x, y), f.mul(x, y), f.add_scalar(x, 2.0), f.mul_scalar(x, 2.0), f.cat([x, y], 1), f.add_relu(x, -y), f.matmul(x, y)
        found.append((*answers, repr(f), list(f.state_dict())))
        with pytest.raises(RuntimeError):
            f(x)
    assert_same(*found)


@pytest.mark.parametrize(("name", "newer"), [("qr", "linalg.qr"), ("cholesky", "linalg.cholesky"), ("chain_matmul", "linalg.multi_dot")])
def test_older_names_of_linear_algebra_name_the_newer_ones(name, newer):
    """They work, and warn, as PyTorch's do."""
    a = flambeau.eye(3) * 4
    with pytest.warns(UserWarning, match=f"torch.{name} is .*deprecated.*torch.{newer}") as told:
        getattr(flambeau, name)(*[a] * (2 if name == "chain_matmul" else 1))
    assert told[0].filename == __file__


@pytest.mark.parametrize("call", [
    lambda x: (x * x).sum().backward(create_graph=True),
    lambda x: (x * x).backward(flambeau.ones(2), create_graph=True),
    lambda x: flambeau.autograd.backward([(x * x).sum()], create_graph=True),
])  # fmt: skip
def test_backward_that_keeps_its_graph_in_grad_warns(call):
    """The gradient holds the graph, the graph holds the parameter: memory that is never given back. autograd.grad has no such cycle."""
    x = flambeau.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="reference cycle") as told:
        call(x)
    assert len(told) == 1 and told[0].filename == __file__ and x.grad.requires_grad
    flambeau.autograd.grad((x * x).sum(), x, create_graph=True)
