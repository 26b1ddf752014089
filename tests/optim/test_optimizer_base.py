"""What all optimizers share: groups, errors, hooks, saving and loading."""

from __future__ import annotations

import copy
import warnings

import pytest
from optim_oracle import OPTIONS, assert_equal

import flambeau

torch = pytest.importorskip("torch")


def leaf(*shape):
    return flambeau.ones(shape, requires_grad=True)


def refused(f, build):
    """(type of the exception) that building an optimizer raises in a framework; None if it does not."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            build(f)
    except Exception as problem:
        return type(problem)
    return None


BAD = {
    "no parameters": lambda f: f.optim.SGD([]),
    "a tensor": lambda f: f.optim.SGD(f.ones(2, requires_grad=True)),
    "a set": lambda f: f.optim.SGD([{"params": {f.ones(2, requires_grad=True)}}]),
    "a number": lambda f: f.optim.SGD([3.0]),
    "a non-leaf": lambda f: f.optim.SGD([f.ones(2, requires_grad=True) * 2]),
    "a group that is no dict": lambda f: f.optim.SGD([f.ones(2, requires_grad=True)]).add_param_group([1]),
    "some names": lambda f: f.optim.SGD([("a", f.ones(2, requires_grad=True)), f.ones(2, requires_grad=True)]),
    "a named group to others": lambda f: f.optim.SGD([f.ones(2, requires_grad=True)]).add_param_group(
        {"params": [("a", f.ones(2, requires_grad=True))]}
    ),
    "fused and foreach": lambda f: f.optim.Adam([f.ones(2, requires_grad=True)], fused=True, foreach=True),
    "fused and differentiable": lambda f: f.optim.SGD([f.ones(2, requires_grad=True)], fused=True, differentiable=True),
    "foreach and tensor lr": lambda f: f.optim.Adam([f.ones(2, requires_grad=True)], lr=f.tensor(0.1), foreach=True),
    "one tensor beta": lambda f: f.optim.Adam([f.ones(2, requires_grad=True)], betas=(f.tensor(0.1), 0.9)),
    "nesterov without momentum": lambda f: f.optim.SGD([f.ones(2, requires_grad=True)], nesterov=True),
    "no step": lambda f: f.optim.Optimizer([f.ones(2, requires_grad=True)], {}).step(),
    "an unknown option": lambda f: f.optim.SGD([f.ones(2, requires_grad=True)], speed=3),
    "capturable without a GPU": lambda f: stepped(f, f.optim.Adam, capturable=True),
    "fused complex": lambda f: stepped(f, f.optim.SGD, fused=True, dtype=f.complex64),
}


def stepped(f, cls, dtype=None, **options):
    p = f.ones(2, requires_grad=True, dtype=dtype)
    p.grad = f.ones(2, dtype=dtype)
    cls([p], **options).step()


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    """What PyTorch refuses is refused with the same exception."""
    wanted = refused(torch, BAD[case])
    assert wanted is not None and refused(flambeau, BAD[case]) is wanted


@pytest.mark.parametrize("name", [*OPTIONS, "Adafactor", "Muon", "LBFGS"])
def test_bad_options(name):
    """Options out of their range are ValueErrors wherever PyTorch says so."""
    for option in ("lr", "eps", "weight_decay", "momentum", "alpha", "rho", "lr_decay", "momentum_decay", "initial_accumulator_value", "d"):
        for value in (-0.5, -1e-9):
            build = lambda f: getattr(f.optim, name)([f.ones(2, 2, requires_grad=True)], **{option: value})  # noqa: B023, E731
            assert refused(flambeau, build) is refused(torch, build), option
    for option, value in {"betas": (1.0, 0.5), "etas": (1.1, 1.2), "eps": (-1.0, 1.0), "adjust_lr_fn": "no", "beta2_decay": 0.5}.items():
        build = lambda f: getattr(f.optim, name)([f.ones(2, 2, requires_grad=True)], **{option: value})  # noqa: B023, E731
        assert refused(flambeau, build) is refused(torch, build), option


def test_groups():
    """Groups have options of their own; what they do not say is the default; a parameter is in one group only."""
    p, q = leaf(2), leaf(3)
    optimizer = flambeau.optim.SGD([{"params": [p]}, {"params": q, "lr": 0.5}], lr=0.1)
    assert [g["lr"] for g in optimizer.param_groups] == [0.1, 0.5] and optimizer.param_groups[1]["params"] == [q]
    with pytest.raises(ValueError, match="more than one parameter group"):
        optimizer.add_param_group({"params": [p]})
    p.grad, q.grad = flambeau.ones(2), flambeau.ones(3)
    optimizer.step()
    assert flambeau.allclose(p, flambeau.tensor(0.9)) and flambeau.allclose(q, flambeau.tensor(0.5))


def test_names():
    """Named parameters are listed with their names, which are saved."""
    optimizer = flambeau.optim.Adam([("w", leaf(2)), ("b", leaf(1))])
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["w", "b"]
    other = flambeau.optim.Adam([("v", leaf(2)), ("c", leaf(1))])
    saved = optimizer.state_dict()
    del saved["param_groups"][0]["param_names"]
    other.load_state_dict(saved)
    assert other.param_groups[0]["param_names"] == ["v", "c"]


def test_zero_grad():
    """Gradients are forgotten, or become zeros without a history."""
    p = leaf(2)
    optimizer = flambeau.optim.SGD([p])
    p.grad = (p * 2).detach() if p.grad is None else p.grad
    (flambeau.autograd.grad((p**3).sum(), p, create_graph=True)[0]).sum().backward()
    optimizer.zero_grad(set_to_none=False)
    assert p.grad.tolist() == [0.0, 0.0] and not p.grad.requires_grad
    optimizer.zero_grad()
    assert p.grad is None


def test_closure():
    """The closure runs with gradients on, even within no_grad, and its loss is returned."""
    p = leaf(2)
    optimizer = flambeau.optim.SGD([p], lr=0.1)

    def closure():
        loss = (p * p).sum()
        loss.backward()
        return loss

    with flambeau.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert flambeau.allclose(p, flambeau.tensor(0.8))
    assert flambeau.is_grad_enabled()


def test_step_hooks():
    """Global hooks come first before a step and last after it; a pre-hook may change the arguments."""
    order = []
    p = leaf(2)
    p.grad = flambeau.ones(2)
    optimizer = flambeau.optim.SGD([p])
    handles = [
        optimizer.register_step_pre_hook(lambda o, a, k: order.append("pre")),
        optimizer.register_step_post_hook(lambda o, a, k: order.append("post")),
        flambeau.optim.optimizer.register_optimizer_step_pre_hook(lambda o, a, k: order.append("global pre")),
        flambeau.optim.optimizer.register_optimizer_step_post_hook(lambda o, a, k: order.append("global post")),
    ]
    optimizer.step()
    assert order == ["global pre", "pre", "post", "global post"]
    for handle in handles:
        handle.remove()
    optimizer.step()
    assert len(order) == 4
    calls = []
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((args[0], lambda: calls.append(1)), {}))
    optimizer.step()
    assert calls == [1]
    optimizer.register_step_pre_hook(lambda *a: 3)
    with pytest.raises(RuntimeError, match="must return None or a tuple"):
        optimizer.step()


def test_state_dict_hooks():
    """Hooks around state_dict and load_state_dict are called in order, and may replace the dict."""
    seen = []
    optimizer = flambeau.optim.SGD([leaf(2)], momentum=0.9)
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("pre"))
    optimizer.register_state_dict_post_hook(lambda o, d: d | {"more": 1})
    optimizer.register_state_dict_post_hook(lambda o, d: seen.append("more" in d), prepend=True)
    optimizer.register_load_state_dict_pre_hook(lambda o, d: {k: v for k, v in d.items() if k != "more"})
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    saved = optimizer.state_dict()
    assert saved["more"] == 1 and seen == ["pre", False]
    optimizer.load_state_dict(saved)
    assert seen[-1] == "loaded"


def test_load_refuses_what_does_not_fit():
    """Another number of groups or parameters is a ValueError."""
    saved = flambeau.optim.SGD([leaf(2), leaf(2)]).state_dict()
    with pytest.raises(ValueError, match="doesn't match the size"):
        flambeau.optim.SGD([leaf(2)]).load_state_dict(saved)
    with pytest.raises(ValueError, match="number of parameter groups"):
        flambeau.optim.SGD([{"params": leaf(2)}, {"params": leaf(2)}]).load_state_dict(saved)


def test_loaded_states_follow_the_parameter():
    """States take the parameter's dtype, the step stays as it was; the dict itself is left alone."""
    p = leaf(3)
    p.grad = flambeau.ones(3)
    optimizer = flambeau.optim.Adam([p])
    optimizer.step()
    saved = copy.deepcopy(optimizer.state_dict())
    q = flambeau.ones(3, dtype=flambeau.float64, requires_grad=True)
    other = flambeau.optim.Adam([q])
    other.load_state_dict(saved)
    assert other.state[q]["exp_avg"].dtype is flambeau.float64 and other.state[q]["step"].dtype is flambeau.float32
    assert saved["state"][0]["exp_avg"].dtype is flambeau.float32


def test_numbers_of_old_state_dicts():
    """Steps that were saved as plain numbers become tensors."""
    p = leaf(2)
    p.grad = flambeau.ones(2)
    optimizer = flambeau.optim.Adam([p])
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0]["step"] = 1
    del saved["param_groups"][0]["maximize"]
    optimizer.load_state_dict(saved)
    assert optimizer.state[p]["step"].item() == 1.0 and optimizer.param_groups[0]["maximize"] is False


def test_own_optimizers():
    """A class of the user's own has a step, and everything else for free: hooks, groups, repr, saving."""

    def make(f):
        class Descent(f.optim.Optimizer):
            def __init__(self, params, lr=0.1):
                super().__init__(params, {"lr": lr})

            @f.no_grad()
            def step(self, closure=None):
                for group in self.param_groups:
                    for p in group["params"]:
                        self.state[p]["seen"] = self.state[p].get("seen", 0) + 1
                        p.add_(p.grad, alpha=-group["lr"])

        p = f.ones(2, requires_grad=True)
        p.grad = f.ones(2)
        optimizer, calls = Descent([p]), []
        optimizer.register_step_post_hook(lambda o, a, k: calls.append(1))
        optimizer.step()
        return optimizer, calls

    (ours, calls), (theirs, _) = make(flambeau), make(torch)
    for optimizer, f in ((ours, flambeau), (theirs, torch)):
        optimizer.add_param_group({"params": [f.ones(1, requires_grad=True)], "lr": 0.5})
    assert calls == [1] and repr(ours) == repr(theirs)
    assert_equal(ours.state_dict(), theirs.state_dict(), 0)
    assert ours.param_groups[0]["params"][0].tolist() == theirs.param_groups[0]["params"][0].tolist()


def test_swap_in():
    """Other parameters and states work in the optimizer for a while; afterwards it has its own again."""
    p = leaf(2)
    p.grad = flambeau.ones(2)
    optimizer = flambeau.optim.SGD([p], lr=0.1, momentum=0.9)
    optimizer.step()
    other = leaf(2)
    saved = optimizer.state_dict()
    saved["param_groups"][0]["lr"] = 1.0
    with flambeau.optim.swap_in_optimizer_params_and_state(optimizer, {"w": other}, saved):
        other.grad = flambeau.zeros(2)
        optimizer.step()
    assert other.tolist() == pytest.approx([0.1, 0.1]) and p.tolist() == pytest.approx([0.9, 0.9])
    assert optimizer.param_groups[0]["lr"] == 0.1 and list(optimizer.state) == [p]


def test_module_paths():
    """Optimizers are found where PyTorch has them."""
    from flambeau.optim.adam import Adam
    from flambeau.optim.adamw import AdamW
    from flambeau.optim.lr_scheduler import LRScheduler, StepLR
    from flambeau.optim.optimizer import Optimizer
    from flambeau.optim.sgd import SGD

    assert issubclass(AdamW, Adam) and issubclass(SGD, Optimizer) and issubclass(StepLR, LRScheduler)


def test_layers_in_a_plain_list_are_noticed():
    """A model keeps layers in a list, its optimizer is built, and nobody says that they will never learn."""
    nn = flambeau.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = [nn.Linear(2, 2)]
            self.out = nn.Linear(2, 2)
            self.known = [self.out]
            self.frozen = [nn.Linear(2, 2).requires_grad_(False)]

    with pytest.warns(UserWarning, match=r"Net.layers holds a Linear in a list") as caught:
        flambeau.optim.SGD(Net().parameters(), lr=0.1)
    assert len(caught) == 1
    with pytest.warns(UserWarning, match=r"Net.layers"):
        flambeau.optim.SGD([{"params": Net().parameters()}], lr=0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flambeau.optim.SGD(nn.Sequential(nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 2)])).parameters(), lr=0.1)


def test_order_and_numbers_of_state_dicts():
    """What is printed of a state is in PyTorch's order, and a parameter given twice has PyTorch's number."""
    found = []
    for package in (flambeau, torch):
        package.manual_seed(0)
        w = package.nn.Parameter(package.randn(3))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            twice = package.optim.Adam([w, package.nn.Parameter(package.ones(1)), w]).state_dict()["param_groups"][0]["params"]
        lbfgs = package.optim.LBFGS([w], max_iter=4, line_search_fn="strong_wolfe")

        def closure(w=w, lbfgs=lbfgs):
            lbfgs.zero_grad()
            loss = (w**4 - w).sum()
            loss.backward()
            return loss

        lbfgs.step(closure)
        lbfgs.step(closure)
        schedules = package.optim.lr_scheduler
        sgd = package.optim.SGD([w], lr=0.1, momentum=0.9)
        states = [
            schedules.LambdaLR(sgd, lambda e: 0.9),
            schedules.MultiplicativeLR(sgd, lambda e: 0.9),
            schedules.CyclicLR(sgd, 0.01, 0.1),
        ]
        found.append([twice, list(lbfgs.state_dict()["state"][0]), *[list(s.state_dict()) for s in states]])
    assert found[0] == found[1]
