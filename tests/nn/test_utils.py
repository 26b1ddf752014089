"""nn.utils: clipping, vectors, norms by hooks, packed sequences, fusion, functional calls."""

from __future__ import annotations

import pytest
from both import both, refused, warned


def with_grads(torch, dtype=None):
    m = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)).to(dtype or torch.float32)
    (m(torch.arange(6.0, dtype=dtype or torch.float32).reshape(2, 3)).square().sum() * 10).backward()
    return m


@both(tolerance=1e-5)
def test_clipping(torch):
    """Gradients are clipped to something else."""
    u = torch.nn.utils
    seen = []
    for norm in (2.0, 1, float("inf"), 3.5, 0.0):
        for limit in (0.5, 1e6):
            m = with_grads(torch)
            seen += [u.clip_grad_norm_(m.parameters(), limit, norm_type=norm), [p.grad for p in m.parameters()]]
    m = with_grads(torch)
    u.clip_grad_value_(m.parameters(), 0.3)
    seen += [[p.grad for p in m.parameters()], u.get_total_norm([p.grad for p in m.parameters()]), u.get_total_norm([])]
    u.clip_grads_with_norm_(m.parameters(), 0.1, torch.tensor(2.0), foreach=False)
    seen += [[p.grad for p in m.parameters()], u.clip_grad_norm_(m[0].weight, 0.1, foreach=True), u.clip_grad_norm_([], 1.0)]
    m[0].bias.grad = None
    m[0].weight.grad[0, 0] = float("nan")
    seen += [
        refused(lambda: u.clip_grad_norm_(m.parameters(), 1.0, error_if_nonfinite=True)),
        m[1].weight.grad,
        u.clip_grad_norm_(m.parameters(), 1.0),
    ]
    double = with_grads(torch, torch.float64)
    seen += [
        u.clip_grad_norm_([*double.parameters(), *with_grads(torch).parameters()], 1.0),
        warned(lambda: u.clip_grad_norm(double.parameters(), 1.0)),
    ]
    return [*seen, warned(lambda: u.clip_grad_norm_((p for p in ()), 1.0))]


@both
def test_vectors(torch):
    """Parameters as a vector are in another order, or are not written back."""
    u = torch.nn.utils
    m = with_grads(torch)
    v = u.parameters_to_vector(m.parameters())
    u.vector_to_parameters(torch.arange(float(v.numel())), m.parameters())
    return [v, list(m.parameters()), refused(lambda: u.vector_to_parameters([1], m.parameters()))]


@both
def test_weight_norm_by_a_hook(torch):
    """weight_norm computes another weight, or cannot be undone."""
    u = torch.nn.utils
    seen = []
    for dim in (0, 1, None):
        m = u.weight_norm(torch.nn.Linear(3, 4), dim=dim)
        out = m(torch.ones(2, 3))
        out.square().sum().backward()
        seen += [m.state_dict(), out, m.weight_g.grad, m.weight_v.grad, type(m.weight).__name__, list(dict(m.named_parameters()))]
        seen += [refused(lambda m=m: u.weight_norm(m)), repr(m)]
        u.remove_weight_norm(m)
        seen += [list(m.state_dict()), m.weight, m(torch.ones(2, 3)), refused(lambda m=m: u.remove_weight_norm(m))]
    return [*seen, warned(lambda: u.weight_norm(torch.nn.Linear(1, 1)))]


@both(tolerance=1e-5)
def test_spectral_norm_by_a_hook(torch):
    """spectral_norm computes another weight, or cannot be undone or loaded."""
    u = torch.nn.utils
    m = u.spectral_norm(torch.nn.Linear(3, 4), n_power_iterations=2)
    seen = [m.state_dict(), m.state_dict()._metadata]
    out = m(torch.ones(2, 3))
    out.square().sum().backward()
    seen += [out, m.weight_orig.grad, m.state_dict(), m.eval()(torch.ones(2, 3)), m.weight_u]
    other = u.spectral_norm(torch.nn.Linear(3, 4), dim=1)
    seen += [
        other(torch.ones(1, 3)),
        refused(lambda: u.spectral_norm(other)),
        refused(lambda: u.spectral_norm(torch.nn.Linear(2, 2), n_power_iterations=0)),
    ]
    fresh = u.spectral_norm(torch.nn.Linear(3, 4))
    fresh.load_state_dict(m.state_dict())
    old = {k: v for k, v in m.state_dict().items() if k != "weight_v"}
    old["weight"] = m.weight.detach()
    fresh.load_state_dict(old)
    seen += [fresh.weight_orig, refused(lambda: fresh.load_state_dict({}))]
    u.remove_spectral_norm(m)
    return [*seen, m.weight, list(m.state_dict()), len(m._state_dict_hooks), refused(lambda: u.remove_spectral_norm(m))]


@both
def test_packed_sequences(torch):
    """Packing or padding lays sequences out differently, or loses gradients."""
    r = torch.nn.utils.rnn
    parts = [torch.arange(6.0).reshape(3, 2).requires_grad_(), torch.ones(5, 2, requires_grad=True), torch.full((1, 2), 9.0)]
    seen = []
    packed = r.pack_sequence(parts, enforce_sorted=False)
    seen += [
        tuple(packed),
        list(r.unpack_sequence(packed)),
        packed.to(torch.float64).data.dtype,
        packed.double().data,
        packed.to("cpu") is packed,
    ]
    packed.data.square().sum().backward()
    seen.append(parts[0].grad)
    for first in (False, True):
        padded = r.pad_sequence(parts, batch_first=first, padding_value=-1.0)
        lengths = torch.tensor([3, 5, 1])
        again = r.pack_padded_sequence(padded, lengths, batch_first=first, enforce_sorted=False)
        back, sizes = r.pad_packed_sequence(again, batch_first=first, padding_value=7.0, total_length=6)
        seen += [padded, tuple(again), back, sizes, r.unpad_sequence(padded.clone(), lengths, batch_first=first)]
        seen.append(r.pad_sequence(parts, batch_first=first, padding_side="left"))
    ordered = sorted(parts, key=len, reverse=True)
    sorted_pack = r.pack_sequence(ordered)
    seen += [tuple(sorted_pack), r.invert_permutation(torch.tensor([2, 0, 1])), r.invert_permutation(None), sorted_pack.sorted_indices]
    seen += [r.pack_padded_sequence(torch.ones(4, 2, 3), [4, 2]).batch_sizes, r.pad_sequence(torch.ones(2, 3, 4)), sorted_pack.is_cuda]
    ints = r.pack_sequence([torch.tensor([1, 2]), torch.tensor([3])])
    seen += [tuple(ints), r.pad_packed_sequence(ints)]
    return seen + [
        refused(call)
        for call in (
            lambda: r.pack_sequence(parts),
            lambda: r.pack_padded_sequence(torch.ones(2, 2, 3), [2, 0]),
            lambda: r.pack_padded_sequence(torch.ones(2, 2, 3), [2, 1, 1]),
            lambda: r.pad_sequence([]),
            lambda: r.pad_sequence(3),
            lambda: r.pad_sequence([torch.ones(2, 2), torch.ones(2, 3)]),
            lambda: r.pad_sequence(parts, padding_side="up"),
            lambda: r.pad_packed_sequence(sorted_pack, total_length=2),
        )
    ]


@both
def test_functional_calls(torch):
    """A functional call uses other tensors than those it was given, or leaves them in the module."""
    m = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    m[1].weight = m[0].weight  # shared
    call = torch.func.functional_call
    x = torch.ones(1, 2)
    given = {"0.weight": torch.full((2, 2), 2.0, requires_grad=True), "1.bias": torch.zeros(2)}
    before = dict(m.named_parameters())
    out = call(m, given, (x,))
    out.sum().backward()
    seen = [out, given["0.weight"].grad, all(p is before[n] for n, p in m.named_parameters()), m(x)]
    seen += [
        call(m, given, x),
        call(m, [{"0.bias": torch.ones(2)}, {"1.bias": torch.ones(2)}], (x,)),
        call(m, given, (x,), tie_weights=False),
    ]
    seen += [call(m, {"nothing": x}, (x,)), hasattr(m, "nothing")]
    whole = dict(m.named_parameters())

    class Counts(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", torch.zeros(1))

        def forward(self, *, by=1):
            self.n = self.n + by
            return self.n

    counts, state = Counts(), {"n": torch.ones(1)}
    seen += [call(counts, state, (), {"by": 5}), state, counts.n]
    return (
        seen
        + [
            refused(f)
            for f in (
                lambda: call(m, {"0.weight": 3}, x),
                lambda: call(m, {"5.weight": x}, x),
                lambda: call(m, [{"0.bias": x}, {"0.bias": x}], x),
                lambda: call(m, 3, x),
                lambda: call(m, [3], x),
                lambda: call(m, {"0.bias": torch.ones(2)}, x, strict=True),
                lambda: call(m, {**whole, "extra": x}, x, strict=True),
                lambda: call(m, {"0.weight": torch.ones(2, 2), "1.weight": torch.zeros(2, 2)}, x),
                lambda: call(m, {"0.weight": torch.ones(2, 3)}, x),
            )
        ]
        + [all(p is before[n] for n, p in m.named_parameters()), warned(lambda: torch.nn.utils.stateless.functional_call(m, {}, x))]
    )


@both
def test_fusing_with_a_batch_norm(torch):
    """A layer fused with the batch norm after it computes something else than the two."""
    f = torch.nn.utils.fusion
    w, b = torch.arange(24.0).reshape(4, 3, 2), torch.ones(4)
    mean, var, gain, shift = torch.arange(4.0), torch.arange(1.0, 5.0), torch.full((4,), 2.0), torch.ones(4)
    seen = [f.fuse_conv_bn_weights(w, None, mean, var, 1e-5, None, None), f.fuse_conv_bn_weights(w, b, mean, var, 1e-5, gain, shift)]
    seen += [f.fuse_conv_bn_weights(w.transpose(0, 1), b, mean, var, 1e-5, gain, shift, transpose=True)]
    seen += [
        f.fuse_linear_bn_weights(w[:, :, 0], b, mean, var, 1e-5, gain, shift),
        f.fuse_linear_bn_weights(w[:, :, 0], None, mean, var, 1e-5, gain, shift),
    ]

    class Norm(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.num_features, self.eps = 4, 1e-5
            self.weight, self.bias = torch.nn.Parameter(gain), torch.nn.Parameter(shift)
            self.register_buffer("running_mean", mean)
            self.register_buffer("running_var", var)

    linear = torch.nn.Linear(3, 4).eval()
    fused = f.fuse_linear_bn_eval(linear, Norm().eval())
    return [*seen, fused.state_dict(), linear.state_dict(), refused(lambda: f.fuse_linear_bn_eval(torch.nn.Linear(3, 4), Norm().eval()))]


@both
def test_skipping_init(torch):
    """skip_init draws numbers, or refuses otherwise."""
    u = torch.nn.utils
    torch.manual_seed(1)
    m = u.skip_init(torch.nn.Linear, 2, 3, bias=False)

    class NoDevice(torch.nn.Module):
        def __init__(self, size):
            super().__init__()

    return [
        torch.rand(1),
        m.weight.shape == (3, 2),
        m.weight.is_meta,
        m.bias,
        refused(lambda: u.skip_init(NoDevice, 3)),
        refused(lambda: u.skip_init(int)),
    ]


@both
def test_what_layers_are_written_with(torch):
    """nn.modules.utils or factory_kwargs answer differently."""
    u = torch.nn.modules.utils
    state = torch.nn.Sequential(torch.nn.Sequential(torch.nn.Linear(1, 1))).state_dict()
    u.consume_prefix_in_state_dict_if_present(state, "0.")
    kwargs = torch.nn.factory_kwargs
    return [
        u._single(3), u._pair(3), u._triple((1, 2)), u._quadruple("abcd"), u._reverse_repeat_tuple((1, 2), 2), u._list_with_default([None, 3], [5, 6, 7]),
        refused(lambda: u._list_with_default([None, 3], [5, 6])), list(state), dict(state._metadata), kwargs(None), kwargs({"device": "cpu", "factory_kwargs": {"dtype": 1}}),
        refused(lambda: kwargs({"a": 1})), refused(lambda: kwargs({"dtype": 1, "factory_kwargs": {"dtype": 1}})),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["clip_grad", "convert_parameters", "fusion", "init", "memory_format", "parametrizations", "parametrize", "prune", "rnn", "stateless"],
)
def test_files_are_where_libraries_look(name):
    """A file of nn.utils is not where PyTorch has it, or lacks a public name."""
    import importlib

    ours, theirs = importlib.import_module(f"flambeau.nn.utils.{name}"), importlib.import_module(f"torch.nn.utils.{name}")
    names = getattr(theirs, "__all__", None) or [
        n for n, v in vars(theirs).items() if getattr(v, "__module__", "") == theirs.__name__ and n[0] != "_"
    ]
    assert [n for n in names if not hasattr(ours, n)] == []


def test_names_of_the_rooms():
    """nn, nn.modules or nn.utils do not show what they promise."""
    import flambeau

    for room in (flambeau.nn, flambeau.nn.modules, flambeau.nn.utils):
        assert [n for n in room.__all__ if not hasattr(room, n)] == []
        assert set(room.__all__) <= set(dir(room))
        with pytest.raises(AttributeError):
            _ = room.nothing_of_the_kind
    assert callable(flambeau.nn.utils.weight_norm) and callable(flambeau.nn.utils.spectral_norm)
    assert flambeau.nn.modules.module.Module is flambeau.nn.Module and flambeau.nn.modules.linear.Linear is flambeau.nn.Linear
    assert flambeau.nn.modules.container.Sequential is flambeau.nn.Sequential and flambeau.nn.parameter.Parameter is flambeau.nn.Parameter


@both
def test_parameters_that_a_module_did_not_have(torch):
    """functional_call with a Parameter under a new name does not show it among the parameters, or keeps it afterwards."""

    class Counts(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x), [name for name, _ in self.named_parameters()]

    m = Counts(1, 1)
    call, extra = torch.func.functional_call, torch.nn.Parameter(torch.ones(1))
    seen = [call(m, {"extra": given}, (torch.ones(1, 1),))[1] for given in (extra, torch.ones(1))]
    m.note = 0.0
    return [
        *seen,
        [name for name, _ in m.named_parameters()],
        hasattr(m, "extra"),
        refused(lambda: call(m, {"note": torch.ones(1)}, (torch.ones(1, 1),))),
        refused(lambda: call(m, {"weight": extra, "more": extra}, (torch.ones(1, 1),), strict=True)),
    ]
