"""Every optimizer moves parameters as PyTorch's does, and remembers the same."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from optim_oracle import CASES, OPTIONS, TOLERANCE, assert_equal, carried, give_gradients, pair

import flambeau

torch = pytest.importorskip("torch")


def both(name, options, dtype, **more):
    ours, theirs = pair(dtype)
    return ours, theirs, getattr(flambeau.optim, name)(ours, **options), getattr(torch.optim, name)(theirs, **options, **more)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("name", "options"), CASES, ids=lambda c: str(c))
def test_twenty_steps(name, options, dtype):
    """Parameters and states after twenty steps are PyTorch's, whose loop goes tensor by tensor."""
    ours, theirs, a, b = both(name, options, dtype, foreach=False)
    for step in range(20):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
    assert_equal(ours, theirs, TOLERANCE[dtype])
    found, wanted = a.state_dict(), b.state_dict()
    assert_equal(found["state"], wanted["state"], 20 * TOLERANCE[dtype])
    for group in wanted["param_groups"]:
        group["foreach"] = None
    assert_equal(found["param_groups"], wanted["param_groups"], 0)


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", OPTIONS)
def test_complex(name, dtype):
    """A complex parameter moves as the pair of its parts."""
    ours, theirs, a, b = both(name, OPTIONS[name][-1], dtype, foreach=False)
    for step in range(6):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
    assert_equal(ours, theirs, TOLERANCE[dtype])
    assert_equal(a.state_dict()["state"], b.state_dict()["state"], 20 * TOLERANCE[dtype])


@pytest.mark.parametrize("name", OPTIONS)
def test_absent_gradients(name):
    """A parameter without a gradient stays, and counts its steps by itself."""
    options = OPTIONS[name][-1]
    ours, theirs, a, b = both(name, options, "float64", foreach=False)
    for step in range(9):
        give_gradients(ours, theirs, step)
        for i in range(len(ours)):
            if (step + i) % 3 == 0:
                ours[i].grad = theirs[i].grad = None
        a.step()
        b.step()
    assert_equal(ours, theirs, 1e-12)
    assert_equal(a.state_dict()["state"], b.state_dict()["state"], 1e-11)


@pytest.mark.parametrize("name", OPTIONS)
def test_states_travel(name):
    """A state dict of PyTorch's goes on here, and one of ours there, as if nothing had happened."""
    options = OPTIONS[name][-1]
    ours, theirs, a, b = both(name, options, "float64", foreach=False)
    for step in range(3):
        give_gradients(ours, theirs, step)
        a.step()
        b.step()
    a2 = getattr(flambeau.optim, name)(ours)
    b2 = getattr(torch.optim, name)(theirs)
    a2.load_state_dict(carried(b.state_dict()))
    b2.load_state_dict(carried(a.state_dict()))
    for step in range(3, 6):
        give_gradients(ours, theirs, step)
        a2.step()
        b2.step()
    assert_equal(ours, theirs, 1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_any_layout(name):
    """Transposed, strided and expanded gradients and parameters move as dense ones do, and only where they are."""
    rng = np.random.default_rng(0)
    base = rng.standard_normal((6, 10))
    whole = flambeau.tensor(base)
    views = [lambda w: w.T, lambda w: w[::2, 1:], lambda w: w.reshape(2, 3, 10).permute(2, 0, 1), lambda w: w[:, 3]]
    for view in views:
        memory = whole.clone()
        strided = view(memory).detach().requires_grad_()
        dense = view(whole).clone(memory_format=flambeau.contiguous_format).requires_grad_()
        grad = flambeau.from_numpy(rng.standard_normal(tuple(dense.shape)))
        optimizers = [getattr(flambeau.optim, name)([p], **OPTIONS[name][-1]) for p in (strided, dense)]
        for _ in range(3):
            strided.grad, dense.grad = grad, grad
            for optimizer in optimizers:
                optimizer.step()
        assert flambeau.equal(strided, dense)
        view(memory).copy_(view(whole))
        assert flambeau.equal(memory, whole)


@pytest.mark.parametrize("name", OPTIONS)
def test_half_precision(name):
    """bfloat16 moves as float32 does, rounded once per step; its states are bfloat16, its steps float32."""
    start, grads = flambeau.randn(33), [flambeau.randn(33).bfloat16() for _ in range(3)]
    p = start.bfloat16().requires_grad_()
    optimizer = getattr(flambeau.optim, name)([p], **OPTIONS[name][-1])
    p.grad = grads[0]
    optimizer.step()  # states begin
    for g in grads:
        wide = p.detach().float().requires_grad_()
        reference = getattr(flambeau.optim, name)([wide], **OPTIONS[name][-1])
        reference.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        p.grad, wide.grad = g, g.float()
        optimizer.step()
        reference.step()
        assert p.dtype is flambeau.bfloat16 and flambeau.equal(p, wide.bfloat16())
        for key, value in optimizer.state[p].items():
            assert value.dtype is (flambeau.float32 if value.dim() == 0 else flambeau.bfloat16), key


@pytest.mark.parametrize("name", OPTIONS)
def test_differentiable(name):
    """With differentiable=True gradients flow through a step to what it was made of, as in PyTorch."""

    def gradients(f):
        start = f.tensor([0.5, -1.0, 2.0], dtype=f.float64, requires_grad=True)
        slope = f.tensor([1.0, -0.5, 0.3], dtype=f.float64, requires_grad=True)
        p = start.clone()
        optimizer = getattr(f.optim, name)([p], differentiable=True, **OPTIONS[name][-1])
        for k in (1.0,) if name in ("Adamax", "RMSprop", "Rprop") else (1.0, 2.0):  # where PyTorch's second step spoils the first
            p.grad = k * slope * slope
            optimizer.step()
        (p * p).sum().backward()
        return [g.tolist() for g in (p.detach(), start.grad, slope.grad)]

    for found, wanted in zip(gradients(flambeau), gradients(torch), strict=True):
        assert found == pytest.approx(wanted, rel=1e-5, abs=1e-7)  # PyTorch's bias corrections are float32 then


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW", "RMSprop", "Rprop", "ASGD", "Adafactor", "Muon", "LBFGS"])
def test_tensor_lr(name):
    """A learning rate may be a tensor of one element, which schedules write in place."""
    for lr in (flambeau.tensor(0.01), flambeau.tensor([0.01])):
        p, q = (flambeau.ones(3, 2, requires_grad=True) for _ in range(2))
        a, b = getattr(flambeau.optim, name)([p], lr=lr), getattr(flambeau.optim, name)([q], lr=0.01)
        for o, x in ((a, p), (b, q)):

            def closure(x=x, o=o):
                o.zero_grad()
                loss = (x * x).sum()
                loss.backward()
                return loss

            o.step(closure)
        assert flambeau.allclose(p, q)
    with pytest.raises(ValueError, match="1-element"):
        getattr(flambeau.optim, name)([p], lr=flambeau.tensor([0.1, 0.2]))


def test_differentiable_options():
    """lr and betas that are tensors get gradients through a differentiable step."""

    def gradients(f):
        lr = f.tensor(0.1, dtype=f.float64, requires_grad=True)
        betas = tuple(f.tensor(b, dtype=f.float64, requires_grad=True) for b in (0.9, 0.99))
        p = f.tensor([1.0, 2.0], dtype=f.float64, requires_grad=True).clone()
        optimizer = f.optim.Adam([p], lr=lr, betas=betas, differentiable=True)
        for k in (1.0, 3.0):
            p.grad = f.tensor([k, -0.5], dtype=f.float64)
            optimizer.step()
        (p * p).sum().backward()
        return [x.grad.item() for x in (lr, *betas)]

    assert gradients(flambeau) == pytest.approx(gradients(torch), rel=1e-5)


def test_differentiable_product_of_nadam():
    """The product of momentums that NAdam starts from gets a gradient."""

    def gradient(f):
        p, product = f.ones(2, dtype=f.float64), f.tensor(0.5, dtype=f.float64, requires_grad=True)
        optimizer = f.optim.NAdam([p], differentiable=True)
        zeros = [f.zeros_like(p) for _ in range(2)]
        optimizer.state[p].update(step=f.tensor(3.0), exp_avg=zeros[0], exp_avg_sq=zeros[1], mu_product=product.clone())
        p.grad = f.tensor([1.0, -0.5], dtype=f.float64)
        optimizer.step()
        (p * p).sum().backward()
        return product.grad.item()

    assert gradient(flambeau) == pytest.approx(gradient(torch), rel=1e-5)


@pytest.mark.parametrize("name", [*OPTIONS, "Adafactor", "Muon", "LBFGS"])
def test_copies(name):
    """Pickled and deep-copied optimizers go on with copies of their own, and look the same."""
    options = {"max_iter": 2} if name == "LBFGS" else OPTIONS.get(name, [{}])[-1]
    p = flambeau.randn(3, 2, dtype=flambeau.float64).requires_grad_()
    optimizer = getattr(flambeau.optim, name)([p], **options)

    def closure(optimizer=optimizer):
        (q,) = optimizer.param_groups[0]["params"]
        optimizer.zero_grad()
        loss = ((q * q).sum() - 1) ** 2
        loss.backward()
        return loss

    optimizer.step(closure)
    for twin in (copy.deepcopy(optimizer), pickle.loads(pickle.dumps(optimizer))):
        assert repr(twin) == repr(optimizer)
        q = twin.param_groups[0]["params"][0]
        assert q is not p
        before = p.detach().clone()
        twin.step(lambda twin=twin: closure(twin))
        assert flambeau.equal(p, before) and not flambeau.equal(q, before)


@pytest.mark.parametrize("name", [*OPTIONS, "Adafactor", "Muon", "LBFGS"])
def test_repr_and_defaults(name):
    """The options, their defaults and how they are shown are PyTorch's."""
    ours = getattr(flambeau.optim, name)([flambeau.ones(2, 2, requires_grad=True)])
    theirs = getattr(torch.optim, name)([torch.ones(2, 2, requires_grad=True)])
    assert repr(ours) == repr(theirs) and ours.defaults == theirs.defaults


def test_versions():
    """A step is one write to a parameter and to each of its states, which backward notices."""
    p = flambeau.ones(3, requires_grad=True)
    p.grad = flambeau.ones(3)
    optimizer = flambeau.optim.Adam([p])
    optimizer.step()
    before = [t._version for t in (p, *optimizer.state[p].values())]
    loss = (p * p).sum()
    optimizer.step()
    assert [t._version for t in (p, *optimizer.state[p].values())] == [v + 1 for v in before]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_duplicates_move_twice():
    """A parameter given twice moves twice per step, after a warning."""
    results = []
    for f in (flambeau, torch):
        p = f.tensor([1.0, 2.0], requires_grad=True)
        with pytest.warns(UserWarning, match="duplicate parameters"):
            optimizer = f.optim.Adam([p, p], lr=0.1)
        p.grad = f.tensor([0.5, -0.5])
        optimizer.step()
        results.append((p.tolist(), optimizer.state[p]["step"].item()))
    assert results[0][1] == results[1][1] and results[0][0] == pytest.approx(results[1][0])


def test_meta():
    """Without data there is nothing to compute, but states and counters are made."""
    p = flambeau.ones(3, device="meta", requires_grad=True)
    p.grad = flambeau.ones(3, device="meta")
    optimizer = flambeau.optim.AdamW([p])
    optimizer.step()
    assert optimizer.state[p]["exp_avg"].device.type == "meta" and optimizer.state[p]["step"].item() == 1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_adafactor(dtype):
    """Vectors keep a variance, matrices one for rows and one for columns; all of it is PyTorch's."""
    for options in ({}, {"weight_decay": 0.1, "maximize": True, "beta2_decay": -0.3}, {"d": 2.0, "eps": (1e-6, 1e-2), "lr": 1.0}):
        ours, theirs = pair(dtype, shapes=[(4, 5), (7,), (2, 3, 4)])
        a, b = flambeau.optim.Adafactor(ours, **options), torch.optim.Adafactor(theirs, **options)
        for step in range(10):
            give_gradients(ours, theirs, step)
            a.step()
            b.step()
        assert_equal(ours, theirs, 5 * TOLERANCE[dtype])
        assert_equal(a.state_dict()["state"], b.state_dict()["state"], 5 * TOLERANCE[dtype])


def test_muon():
    """Wide and tall matrices, with every way to adjust the rate; bfloat16 inside leaves two digits."""
    for options in (
        {},
        {"nesterov": False, "adjust_lr_fn": "match_rms_adamw"},
        {"momentum": 0.5, "ns_steps": 3, "adjust_lr_fn": "original"},
    ):
        ours, theirs = pair("float32", shapes=[(4, 6), (6, 4)])
        a, b = flambeau.optim.Muon(ours, **options), torch.optim.Muon(theirs, **options)
        for step in range(4):
            give_gradients(ours, theirs, step)
            a.step()
            b.step()
        assert_equal(ours, theirs, 1e-3)
        assert_equal(a.state_dict(), b.state_dict(), 2e-6)
    with pytest.raises(ValueError, match="2D"):
        flambeau.optim.Muon([flambeau.ones(3, requires_grad=True)])


@pytest.mark.parametrize("options", [{}, {"lr": 0.1}, {"line_search_fn": "strong_wolfe"}, {"history_size": 3, "max_iter": 7}], ids=str)
def test_lbfgs(options):
    """Evaluations, losses and the history are PyTorch's, as long as rounding does not lead elsewhere."""

    def losses(f):
        p = f.tensor([-1.2, 1.0, 0.3], dtype=f.float64, requires_grad=True)
        q = f.tensor([[0.5]], dtype=f.float64, requires_grad=True)
        optimizer, seen = f.optim.LBFGS([p, q], **options), []

        def closure():
            optimizer.zero_grad()
            loss = ((1 - p) ** 2).sum() + (p[1:] - p[:-1] ** 2).pow(2).sum() + (q - p[0]).pow(2).sum()
            loss.backward()
            seen.append(loss.item())
            return loss

        returned = [optimizer.step(closure).item() for _ in range(2)]
        return seen[:25], returned, optimizer.state_dict()["state"][0].keys(), optimizer.state_dict()["state"][0]["n_iter"]

    (seen, returned, keys, n), (wanted, wanted_returned, wanted_keys, wanted_n) = losses(flambeau), losses(torch)
    assert seen == pytest.approx(wanted, rel=1e-6, abs=1e-9) and returned == pytest.approx(wanted_returned, rel=1e-4, abs=1e-7)
    assert keys == wanted_keys and n == wanted_n


def test_lbfgs_errors():
    """One group only, and a known line search."""
    p, q = flambeau.ones(2, requires_grad=True), flambeau.ones(2, requires_grad=True)
    with pytest.raises(ValueError, match="parameter groups"):
        flambeau.optim.LBFGS([{"params": [p]}, {"params": [q]}])
    with pytest.raises(TypeError):
        flambeau.optim.LBFGS([p]).step()


def test_same_bits_with_any_number_of_threads():
    """A group is cut into blocks by its sizes alone."""
    results = []
    before = flambeau.get_num_threads()
    try:
        for threads in (1, 2, 5):
            flambeau.set_num_threads(threads)
            flambeau.manual_seed(0)
            params = [flambeau.randn(n).requires_grad_() for n in (5, 70_000, 1, 16_384, 40_000)]
            for p in params:
                p.grad = flambeau.randn(p.shape)
            optimizer = flambeau.optim.AdamW(params)
            for _ in range(3):
                optimizer.step()
            results.append(flambeau.cat([p.detach() for p in params]))
    finally:
        flambeau.set_num_threads(before)
    assert flambeau.equal(results[0], results[1]) and flambeau.equal(results[0], results[2])


@pytest.mark.parametrize("name", OPTIONS)
def test_functional_forms(name):
    """The functions behind the classes move tensors that somebody else keeps, as PyTorch's do."""
    options = OPTIONS[name][-1]
    ours, theirs, a, b = both(name, options, "float64", foreach=False)
    give_gradients(ours, theirs, 0)
    a.step()
    b.step()
    function = name.lower()
    for f, params, optimizer in ((flambeau, ours, a), (torch, theirs, b)):
        group = {
            k: v for k, v in optimizer.param_groups[0].items() if k not in ("params", "foreach", "differentiable", "capturable", "fused")
        }
        for pairs, names in {
            "betas": ("beta1", "beta2"),
            "etas": ("etaminus", "etaplus"),
            "step_sizes": ("step_size_min", "step_size_max"),
        }.items():
            group |= dict(zip(names, group.pop(pairs, ()), strict=False))
        for unused in {"Adagrad": ("initial_accumulator_value",), "AdamW": ("decoupled_weight_decay",), "Rprop": ("lr",)}.get(name, ()):
            del group[unused]
        lists = {key: [optimizer.state[p][key] for p in params] for key in optimizer.state[params[0]]} if optimizer.state else {}
        order = {
            "SGD": ("momentum_buffer",), "Adam": ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "step"), "Adamax": ("exp_avg", "exp_inf", "step"),
            "NAdam": ("exp_avg", "exp_avg_sq", "mu_product", "step"), "RAdam": ("exp_avg", "exp_avg_sq", "step"), "Adagrad": ("sum", "step"),
            "Adadelta": ("square_avg", "acc_delta", "step"), "RMSprop": ("square_avg", "grad_avg", "momentum_buffer", "step"),
            "Rprop": ("prev", "step_size", "step"), "ASGD": ("ax", "mu", "eta", "step"),
        }["Adam" if name == "AdamW" else name]  # fmt: skip
        with f.no_grad():
            home = getattr(__import__(f"{f.__name__}.optim.{function}", fromlist=[function]), function)
            home([*params], [p.grad for p in params], *[lists.get(key, []) for key in order], **group)
    assert_equal(ours, theirs, 1e-12)
    assert_equal(a.state_dict()["state"], b.state_dict()["state"], 1e-11)


def test_lbfgs_is_as_close_as_rounding_allows():
    """Its steps magnify rounding, a thousandfold in fifty evaluations: PyTorch's own path, started one unit in the last place away, is as far
    from PyTorch's as ours is."""

    def path(t, nudge: float) -> list[np.ndarray]:
        rng = np.random.RandomState(3)
        w1, w2, b1, b2, x, y = (t.from_numpy(rng.standard_normal(s)) for s in ((4, 5), (5, 3), (5,), (3,), (16, 4), (16, 3)))
        params, x = [p.requires_grad_() for p in (w1, w2, b1, b2)], x * (1 + nudge)
        optimizer, seen = t.optim.LBFGS(params, lr=0.5), []

        def closure():
            optimizer.zero_grad()
            loss = (((x @ w1 + b1).tanh() @ w2 + b2 - y) ** 2).mean()
            loss.backward()
            seen.append(w1.detach().numpy().copy())
            return loss

        for _ in range(3):
            optimizer.step(closure)
        return seen

    theirs = path(torch, 0.0)
    ours, nudged = ([abs(a - b).max() for a, b in zip(path(*way), theirs, strict=True)] for way in ((flambeau, 0.0), (torch, 2.3e-16)))
    assert ours[1] < 1e-14
    for k in (5, 10, 20, 40, 55):
        assert ours[k] < 30 * max(nudged[: k + 1]) < 1e-6
