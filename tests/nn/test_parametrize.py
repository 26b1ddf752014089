"""Parametrizations and pruning: parameters that are computed from others."""

from __future__ import annotations

import copy
import importlib
import pickle

from both import both, clean, refused


def symmetric(torch):
    class Symmetric(torch.nn.Module):
        def forward(self, x):
            return x.triu() + x.triu(1).mT

        def right_inverse(self, a):
            return a.triu()

    return Symmetric()


def doubled(torch, inverse=False):
    class Doubled(torch.nn.Module):
        def forward(self, x):
            return x * 2

    if inverse:
        Doubled.right_inverse = lambda self, x: x / 2
    return Doubled()


@both
def test_registering_and_removing(torch):
    """A parametrized module shows, stores or computes something else."""
    p = torch.nn.utils.parametrize
    m = torch.nn.Linear(3, 3)
    first = m.weight
    seen = [p.is_parametrized(m), p.register_parametrization(m, "weight", symmetric(torch)) is m, clean(repr(m)), m.state_dict()]
    seen += [m.weight, m.parametrizations.weight.original is first, type(m).__name__, p.is_parametrized(m), p.is_parametrized(m, "bias")]
    seen += [p.type_before_parametrizations(m) is torch.nn.Linear, isinstance(m, torch.nn.Linear), [n for n, _ in m.named_parameters()]]
    p.register_parametrization(m, "bias", doubled(torch))
    p.register_parametrization(m, "weight", doubled(torch, inverse=True))
    m(torch.ones(1, 3)).square().sum().backward()
    seen += [m.weight, m.bias, first.grad, refused(lambda: setattr(m, "bias", torch.ones(3)))]
    m.weight = torch.arange(9.0).reshape(3, 3)
    seen += [m.weight, m.parametrizations.weight.original, first]
    twin = copy.deepcopy(m)
    with torch.no_grad():
        twin.parametrizations.weight.original.zero_()
    seen += [
        twin.weight,
        m.weight,
        refused(lambda: pickle.dumps(m)),
        refused(lambda: setattr(m, "weight", torch.nn.Parameter(torch.ones(3, 3)))),
    ]
    other = torch.nn.Linear(3, 3)
    p.register_parametrization(other, "weight", symmetric(torch))
    p.register_parametrization(other, "weight", doubled(torch, inverse=True))
    p.register_parametrization(other, "bias", doubled(torch))
    other.load_state_dict(m.state_dict())
    seen += [other.weight, other.double().weight.dtype, m.eval().parametrizations.weight[0].training]
    p.remove_parametrizations(m, "weight")
    seen += [clean(repr(m)), m.weight, m.weight is first, m.state_dict()]
    p.remove_parametrizations(m, "bias", leave_parametrized=False)
    return [*seen, clean(repr(m)), m.bias, type(m) is torch.nn.Linear, refused(lambda: p.remove_parametrizations(m, "bias"))]


@both
def test_several_tensors_and_buffers(torch):
    """A parametrization of several tensors, of a buffer, or with a cache goes wrong."""
    p = torch.nn.utils.parametrize

    class LowRank(torch.nn.Module):
        def forward(self, u, v):
            return u @ v

        def right_inverse(self, w):
            return w[:, :1].clone(), w[:1].clone()

    m = torch.nn.Linear(3, 2)
    p.register_parametrization(m, "weight", LowRank())
    seen = [m.weight, m.state_dict(), refused(lambda: p.remove_parametrizations(m, "weight", leave_parametrized=False))]
    m.weight = torch.ones(2, 3)
    seen.append(m.state_dict())
    calls = []

    class Counts(torch.nn.Module):
        def forward(self, x):
            calls.append(1)
            return x + 1

    m.register_buffer("b", torch.zeros(2))
    p.register_parametrization(m, "b", Counts())
    calls.clear()
    with p.cached():
        with p.cached():
            first = m.b
        seen += [m.b is first, len(calls)]
    seen += [m.b is first, len(calls), [n for n, _ in m.named_buffers()]]
    target = torch.nn.Linear(3, 2)
    target.register_buffer("b", torch.zeros(2))
    p.transfer_parametrizations_and_params(m, target, "b")
    seen += [target.b, list(target.state_dict())]
    p.remove_parametrizations(m, "weight")
    p.remove_parametrizations(m, "b")
    return [*seen, m.state_dict(), [type(x).__name__ for x in (m.weight, m.b)]]


@both
def test_what_parametrizations_may_not_do(torch):
    """A parametrization that changes shape or dtype is accepted without `unsafe`."""
    p = torch.nn.utils.parametrize

    def made(forward, inverse=None):
        kind = type("Made", (torch.nn.Module,), {"forward": forward, **({"right_inverse": inverse} if inverse else {})})
        return kind()

    def fresh():
        return torch.nn.Linear(2, 2)

    flat = made(lambda self, x: x.flatten())
    once = p.register_parametrization(fresh(), "weight", doubled(torch))
    unsafe = fresh()
    p.register_parametrization(unsafe, "bias", made(lambda self, x: x[:1]), unsafe=True)
    return [unsafe.bias] + [
        refused(call)
        for call in (
            lambda: p.register_parametrization(fresh(), "weight", flat),
            lambda: p.register_parametrization(once, "weight", flat),
            lambda: p.register_parametrization(fresh(), "weight", made(lambda self, x: x.double())),
            lambda: p.register_parametrization(fresh(), "weight", made(lambda self, x: 3)),
            lambda: p.register_parametrization(fresh(), "weight", made(lambda self, x: x, lambda self, x: x.double())),
            lambda: p.register_parametrization(fresh(), "weight", made(lambda self, x: x, lambda self, x: 3)),
            lambda: p.register_parametrization(once, "weight", made(lambda self, x: x, lambda self, x: x.double())),
            lambda: p.register_parametrization(fresh(), "nothing", doubled(torch)),
            lambda: p.register_parametrization(fresh(), "in_features", doubled(torch)),
            lambda: p.ParametrizationList([], torch.ones(1)),
        )
    ]


@both(tolerance=2e-5)
def test_ready_made(torch):
    """orthogonal, weight_norm or spectral_norm of nn.utils.parametrizations compute something else."""
    z = torch.nn.utils.parametrizations
    seen = []
    for shape in ((3, 3), (4, 3), (3, 4)):
        for name in (None, "matrix_exp", "cayley", "householder"):
            for trivial in (True, False):
                m = torch.nn.Linear(shape[1], shape[0])
                made = refused(
                    lambda m=m, name=name, trivial=trivial: z.orthogonal(m, orthogonal_map=name, use_trivialization=trivial) is m
                )
                seen.append(made)
                if made is True:
                    out = m(torch.ones(1, shape[1]))
                    out.square().sum().backward()
                    if name is None or shape[0] == shape[1]:
                        seen += [m.weight, m.parametrizations.weight.original.grad]
    x = torch.ones(2, 3)
    for dim in (0, 1, None):
        m = z.weight_norm(torch.nn.Linear(3, 4), dim=dim)
        m(x).square().sum().backward()
        seen += [m.state_dict(), m.weight, m.parametrizations.weight.original0.grad, m.parametrizations.weight.original1.grad]
        fresh = z.weight_norm(torch.nn.Linear(3, 4), dim=dim)
        state = m.state_dict()
        old = {
            "bias": state["bias"],
            "weight_g": state["parametrizations.weight.original0"],
            "weight_v": state["parametrizations.weight.original1"],
        }
        fresh.load_state_dict(old)
        seen.append(fresh.weight)
    for dim in (None, 1):
        m = z.spectral_norm(torch.nn.Linear(3, 4), dim=dim)
        m(x).square().sum().backward()
        seen += [m.state_dict(), m.parametrizations.weight.original.grad, m.eval().weight, m.weight]
    m = z.spectral_norm(torch.nn.Linear(3, 4), "bias")
    seen += [m.bias, clean(repr(m))]
    return seen + [
        refused(call)
        for call in (
            lambda: z.orthogonal(torch.nn.Linear(2, 2), "bias"),
            lambda: z.orthogonal(torch.nn.Linear(2, 2), "nothing"),
            lambda: z.orthogonal(torch.nn.Linear(2, 2), orthogonal_map="nothing"),
            lambda: z.spectral_norm(torch.nn.Linear(2, 2), "nothing"),
            lambda: z.spectral_norm(torch.nn.Linear(2, 2), dim=3),
            lambda: z.spectral_norm(torch.nn.Linear(2, 2), n_power_iterations=0),
        )
    ]


@both
def test_pruning(torch):
    """Pruning takes away something else, or cannot be repeated or undone."""
    p = importlib.import_module(f"{torch.__name__}.nn.utils.prune")
    x = torch.ones(1, 6)
    seen = []
    for prune in (
        lambda m: p.identity(m, "weight"),
        lambda m: p.random_unstructured(m, "weight", 0.3),
        lambda m: p.l1_unstructured(m, "weight", 5),
        lambda m: p.l1_unstructured(m, "weight", 0.5, importance_scores=torch.arange(24.0).reshape(4, 6)),
        lambda m: p.random_structured(m, "weight", 0.5, dim=1),
        lambda m: p.ln_structured(m, "weight", 2, n=2, dim=0),
        lambda m: p.ln_structured(m, "weight", 0.34, n=float("inf"), dim=-1),
        lambda m: p.custom_from_mask(m, "weight", torch.eye(4, 6)),
        lambda m: p.random_structured(m, "weight", 0, dim=1),
    ):
        m = torch.nn.Linear(6, 4)
        answer = prune(m)
        out = m(x)
        out.square().sum().backward()
        seen += [answer is m, m.weight, m.weight_mask, m.weight_orig.grad, out, list(m.state_dict()), p.is_pruned(m)]
        p.l1_unstructured(m, "weight", 0.25)  # a second time, of what is left
        p.ln_structured(m, "weight", 1, n=1, dim=0)
        seen += [m.weight_mask, m(x), len(m._forward_pre_hooks), len(next(iter(m._forward_pre_hooks.values())))]
        p.remove(m, "weight")
        seen += [m.weight, list(dict(m.named_parameters())), p.is_pruned(m), len(m._forward_pre_hooks), m(x)]
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, 2))
    p.global_unstructured([(net[0], "weight"), (net[1], "weight"), (net[1], "bias")], p.L1Unstructured, amount=0.5)
    seen += [net.state_dict(), net(torch.ones(1, 3)), p.is_pruned(net)]
    m = torch.nn.Linear(6, 4)
    method = p.L1Unstructured(amount=2)
    seen.append(method.prune(torch.arange(4.0)))
    return (
        seen
        + [
            refused(call)
            for call in (
                lambda: p.random_unstructured(m, "weight", 1.5),
                lambda: p.random_unstructured(m, "weight", -1),
                lambda: p.random_unstructured(m, "weight", "a"),
                lambda: p.random_unstructured(m, "weight", 100),
                lambda: p.random_structured(m, "bias", 0.5, dim=0),
                lambda: p.random_structured(m, "weight", 0.5, dim=2),
                lambda: p.l1_unstructured(m, "nothing", 0.5),
                lambda: p.custom_from_mask(m, "weight", torch.ones(2)),
                lambda: p.remove(m, "weight"),
                lambda: p.global_unstructured(3, p.L1Unstructured, amount=1),
                lambda: p.global_unstructured([(m, "weight")], p.LnStructured, amount=1, n=1),
                lambda: p.PruningContainer().add_pruning_method(3),
            )
        ]
        + [list(m.state_dict())]
    )
