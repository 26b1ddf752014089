"""Learning rates and momentums, step by step, are PyTorch's; so are state dicts, warnings and errors."""

from __future__ import annotations

import copy
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")


class Halving:
    """A function with a state, which is saved."""

    def __init__(self):
        self.base = 0.5

    def __call__(self, epoch):
        return self.base**epoch


# name -> options; the rates of twelve steps are compared
SCHEDULES = {
    "LambdaLR": [{"lr_lambda": lambda t: 0.9**t}, {"lr_lambda": [lambda t: t / 10, lambda t: 1 / (1 + t)]}, {"lr_lambda": Halving()}],
    "MultiplicativeLR": [{"lr_lambda": lambda t: 0.95}, {"lr_lambda": [lambda t: t / 10, Halving()]}],
    "StepLR": [{"step_size": 3}, {"step_size": 2, "gamma": 0.7}],
    "MultiStepLR": [{"milestones": [2, 5, 5, 9]}, {"milestones": (3,), "gamma": 0.5}],
    "ConstantLR": [{}, {"factor": 0.25, "total_iters": 3}],
    "LinearLR": [{}, {"start_factor": 0.1, "end_factor": 0.5, "total_iters": 7}],
    "ExponentialLR": [{"gamma": 0.8}],
    "PolynomialLR": [{}, {"total_iters": 8, "power": 2.0}],
    "CosineAnnealingLR": [{"T_max": 10}, {"T_max": 4, "eta_min": 0.01}],
    "CosineAnnealingWarmRestarts": [{"T_0": 4}, {"T_0": 2, "T_mult": 2, "eta_min": 0.001}],
    "OneCycleLR": [{"max_lr": 0.5, "total_steps": 20}, {"max_lr": [0.5, 0.2], "epochs": 4, "steps_per_epoch": 5, "anneal_strategy": "linear"},
                   {"max_lr": 0.5, "total_steps": 15, "three_phase": True, "cycle_momentum": False, "pct_start": 0.4}],
    "CyclicLR": [{"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3}, {"base_lr": 0.01, "max_lr": [0.1, 0.3], "mode": "triangular2", "step_size_up": 2},
                 {"base_lr": 0.01, "max_lr": 0.1, "mode": "exp_range", "gamma": 0.9, "step_size_up": 2, "step_size_down": 4},
                 {"base_lr": 0.01, "max_lr": 0.1, "scale_fn": lambda x: 1 / x, "step_size_up": 2, "cycle_momentum": False}],
}  # fmt: skip
CASES = [(name, i) for name, several in SCHEDULES.items() for i in range(len(several))]


def optimizer(f, tensor_lr=False, kind="SGD"):
    options = {"momentum": 0.9} if kind == "SGD" else {}
    rates = [f.tensor(0.1), f.tensor(0.05)] if tensor_lr else [0.1, 0.05]
    groups = [{"params": [f.ones(2, requires_grad=True)], "lr": lr} for lr in rates]
    return getattr(f.optim, kind)(groups, **options)


def seen(o):
    """All that a schedule changes."""
    return [float(x) for g in o.param_groups for x in (g["lr"], g.get("momentum", 0), *g.get("betas", ()))]


def rates(f, name, options, steps=12, **more):
    o = optimizer(f, **more)
    scheduler = getattr(f.optim.lr_scheduler, name)(o, **copy.deepcopy(options))
    found = [seen(o)]
    for _ in range(steps):
        o.step()
        scheduler.step()
        found.append([*seen(o), *map(float, scheduler.get_last_lr())])
    return found


def flat(found):
    return [x for row in found for x in row]


@pytest.mark.parametrize(("name", "i"), CASES)
def test_rates(name, i):
    """Twelve steps over two groups, with momentum or betas, with rates that are numbers or tensors."""
    options = SCHEDULES[name][i]
    for more in ({}, {"kind": "AdamW"}, {"tensor_lr": True}):
        assert flat(rates(flambeau, name, options, **more)) == pytest.approx(flat(rates(torch, name, options, **more)), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("name", "i"), CASES)
def test_state_dicts(name, i):
    """A schedule goes on from a state dict, which has the entries of PyTorch's."""
    options = SCHEDULES[name][i]
    made = []
    for f in (flambeau, torch):
        o = optimizer(f)
        scheduler = getattr(f.optim.lr_scheduler, name)(o, **copy.deepcopy(options))
        for _ in range(5):
            o.step()
            scheduler.step()
        made.append((o, scheduler))
    (o, ours), (_, theirs) = made
    state, wanted = ours.state_dict(), theirs.state_dict()
    assert state.keys() == wanted.keys()
    for key in ("last_epoch", "_step_count", "milestones", "_schedule_phases", "lr_lambdas", "_scale_fn_custom"):
        assert state.get(key) == wanted.get(key), key
    saved = copy.deepcopy(state), copy.deepcopy(o.state_dict())
    o2 = optimizer(flambeau)
    again = getattr(flambeau.optim.lr_scheduler, name)(o2, **copy.deepcopy(options))
    again.load_state_dict(saved[0])
    o2.load_state_dict(saved[1])
    for _ in range(4):
        for x, s in ((o, ours), (o2, again)):
            x.step()
            s.step()
    assert seen(o) == pytest.approx(seen(o2), rel=1e-12)


@pytest.mark.parametrize(
    "name", ["StepLR", "MultiStepLR", "ConstantLR", "LinearLR", "ExponentialLR", "PolynomialLR", "CosineAnnealingLR", "LambdaLR"]
)
def test_closed_forms(name):
    """step(epoch) jumps there, by the closed form if there is one, with a warning."""

    def jumps(f):
        o = optimizer(f)
        scheduler = getattr(f.optim.lr_scheduler, name)(o, **copy.deepcopy(SCHEDULES[name][0]))
        o.step()
        found = []
        for epoch in (3, 7, 2, 0, 4):
            with pytest.warns(UserWarning, match="epoch parameter"):
                scheduler.step(epoch)
            found += seen(o)
        return found

    assert jumps(flambeau) == pytest.approx(jumps(torch), rel=1e-12)


def test_warm_restarts_by_fractions():
    """CosineAnnealingWarmRestarts takes epochs with a fraction."""

    def jumps(f, t_mult):
        o = optimizer(f)
        scheduler = f.optim.lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3, T_mult=t_mult)
        found = []
        for epoch in (0.5, 2.9, 3.1, 7.5, 20.25, 1.0):
            scheduler.step(epoch)
            found += [*seen(o), scheduler.T_cur, scheduler.T_i]
        return found

    for t_mult in (1, 2):
        assert jumps(flambeau, t_mult) == pytest.approx(jumps(torch, t_mult), rel=1e-9)


@pytest.mark.parametrize("options", [{}, {"mode": "max", "factor": 0.5, "patience": 1}, {"patience": 2, "cooldown": 2, "threshold": 0.1},
                                     {"patience": 0, "threshold_mode": "abs", "min_lr": [0.01, 0.02]}], ids=str)  # fmt: skip
def test_plateau(options):
    """The rate falls when the metric does not improve; counters, cooldown and limits as in PyTorch."""
    metrics = [1.0, 0.9, 0.95, 0.9, 0.9, 0.89, 0.9, 0.91, 0.9, 0.9, 0.9, 0.9, 0.9, 0.9, 0.5, 0.5, 0.5, 0.5, 0.5]

    def run(f):
        o = optimizer(f)
        scheduler = f.optim.lr_scheduler.ReduceLROnPlateau(o, **options)
        found = []
        for m in metrics:
            scheduler.step(f.tensor(m, dtype=f.float64))
            found.append((*seen(o), scheduler.best, scheduler.num_bad_epochs, scheduler.cooldown_counter, scheduler.in_cooldown))
        return found, scheduler.state_dict().keys()

    (found, keys), (wanted, wanted_keys) = run(flambeau), run(torch)
    assert flat(found) == pytest.approx(flat(wanted)) and keys == wanted_keys


@pytest.mark.filterwarnings("ignore:Detected call of")  # a chain inside a sequence takes its first step twice
def test_sequential_and_chained():
    """Schedules one after the other, several at once, and both."""

    def sequential(f):
        s, o = f.optim.lr_scheduler, optimizer(f)
        parts = [s.ConstantLR(o, factor=0.1, total_iters=2), s.ExponentialLR(o, gamma=0.9), s.CosineAnnealingLR(o, T_max=5)]
        return o, s.SequentialLR(o, parts, milestones=[3, 7])

    def chained(f):
        s, o = f.optim.lr_scheduler, optimizer(f)
        return o, s.ChainedScheduler([s.LinearLR(o), s.StepLR(o, 3, 0.5), s.ExponentialLR(o, 0.99)], optimizer=o)

    def nested(f):
        s, o = f.optim.lr_scheduler, optimizer(f)
        both = s.ChainedScheduler([s.ConstantLR(o), s.ExponentialLR(o, 0.9)])
        return o, s.SequentialLR(o, [both, s.StepLR(o, 2)], milestones=[4])

    for build in (sequential, chained, nested):
        runs, states = [], []
        for f in (flambeau, torch):
            o, scheduler = build(f)
            found = [seen(o)]
            for _ in range(12):
                o.step()
                scheduler.step()
                found.append([*seen(o), *scheduler.get_last_lr()])
            runs.append(flat(found))
            states.append(scheduler.state_dict())
            _, again = build(f)
            again.load_state_dict(copy.deepcopy(scheduler.state_dict()))
            assert [s.last_epoch for s in again._schedulers if hasattr(s, "last_epoch")] == [
                s.last_epoch for s in scheduler._schedulers if hasattr(s, "last_epoch")
            ]
        assert runs[0] == pytest.approx(runs[1], rel=1e-9)
        assert list(states[0]) == list(states[1]) and [s.keys() for s in states[0]["_schedulers"]] == [
            s.keys() for s in states[1]["_schedulers"]
        ]


def test_resuming():
    """last_epoch goes on from there; without the initial rates it is a KeyError."""
    for f in (flambeau, torch):
        with pytest.raises(KeyError):
            f.optim.lr_scheduler.StepLR(optimizer(f), 3, last_epoch=4)

    def resumed(f, name):
        o = optimizer(f)
        for group in o.param_groups:
            group["initial_lr"] = 0.2
        scheduler = getattr(f.optim.lr_scheduler, name)(o, **copy.deepcopy(SCHEDULES[name][0]), last_epoch=3)
        found = [seen(o)]
        for _ in range(4):
            o.step()
            scheduler.step()
            found.append(seen(o))
        return flat(found)

    for name in (
        "StepLR",
        "MultiStepLR",
        "ExponentialLR",
        "LinearLR",
        "PolynomialLR",
        "CosineAnnealingLR",
        "ConstantLR",
        "LambdaLR",
        "MultiplicativeLR",
    ):
        assert resumed(flambeau, name) == pytest.approx(resumed(torch, name), rel=1e-9), name


def test_order_of_steps():
    """The schedule before the optimizer is worth a warning, once; so is get_lr outside of a step."""
    o = optimizer(flambeau)
    scheduler = flambeau.optim.lr_scheduler.ExponentialLR(o, 0.9)
    with pytest.warns(UserWarning, match="(?s)before `optimizer.step.*how-to-adjust-learning-rate"):
        scheduler.step()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler.step()
        o.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        scheduler.get_lr()
    o = optimizer(flambeau)
    scheduler = flambeau.optim.lr_scheduler.ExponentialLR(o, 0.9)
    o.step = lambda: None
    with pytest.warns(UserWarning, match="overridden.*how-to-adjust-learning-rate"):
        scheduler.step()


BAD = {
    "no optimizer": lambda f, s: s.StepLR(3, 4),
    "wrong count of lambdas": lambda f, s: s.LambdaLR(optimizer(f), [lambda t: 1]),
    "a lambda that is none": lambda f, s: s.MultiplicativeLR(optimizer(f), [1, 2]),
    "factor": lambda f, s: s.ConstantLR(optimizer(f), factor=1.5),
    "start_factor": lambda f, s: s.LinearLR(optimizer(f), start_factor=0),
    "end_factor": lambda f, s: s.LinearLR(optimizer(f), end_factor=2),
    "plateau factor": lambda f, s: s.ReduceLROnPlateau(optimizer(f), factor=1.0),
    "plateau mode": lambda f, s: s.ReduceLROnPlateau(optimizer(f), mode="up"),
    "plateau min_lr": lambda f, s: s.ReduceLROnPlateau(optimizer(f), min_lr=[0.1]),
    "one cycle without a length": lambda f, s: s.OneCycleLR(optimizer(f), 0.1),
    "one cycle of 0 steps": lambda f, s: s.OneCycleLR(optimizer(f), 0.1, total_steps=0),
    "one cycle pct_start": lambda f, s: s.OneCycleLR(optimizer(f), 0.1, total_steps=5, pct_start=2.0),
    "one cycle strategy": lambda f, s: s.OneCycleLR(optimizer(f), 0.1, total_steps=5, anneal_strategy="no"),
    "cyclic mode": lambda f, s: s.CyclicLR(optimizer(f), 0.1, 0.2, mode="no"),
    "cyclic without momentum": lambda f, s: s.CyclicLR(optimizer(f, kind="Adagrad"), 0.1, 0.2),
    "restarts T_0": lambda f, s: s.CosineAnnealingWarmRestarts(optimizer(f), 0),
    "restarts T_mult": lambda f, s: s.CosineAnnealingWarmRestarts(optimizer(f), 1, 0),
    "sequential of none": lambda f, s: s.SequentialLR(optimizer(f), [], []),
    "sequential of others": lambda f, s: s.SequentialLR(optimizer(f), [s.StepLR(optimizer(f), 1)], []),
    "chained of none": lambda f, s: s.ChainedScheduler([]),
    "chained plateau": lambda f, s: s.ChainedScheduler([s.ReduceLROnPlateau(optimizer(f))]),
    "too many steps": lambda f, s: rates(f, "OneCycleLR", {"max_lr": 0.1, "total_steps": 3}),
}


@pytest.mark.parametrize("case", BAD)
def test_errors(case):
    """What PyTorch refuses is refused with the same exception."""
    found = []
    for f in (flambeau, torch):
        with pytest.raises(Exception) as problem:
            BAD[case](f, f.optim.lr_scheduler)
        found.append(problem.type)
    assert found[0] is found[1]


def test_phrases_that_programs_match():
    """Both errors say in PyTorch's words that there are more groups than values."""
    o = optimizer(flambeau)
    scheduler = flambeau.optim.lr_scheduler.ReduceLROnPlateau(o, patience=0, min_lr=[0.0] * len(o.param_groups))
    with pytest.raises(ValueError, match="swa_lr must have the same length"):
        flambeau.optim.swa_utils.SWALR(o, swa_lr=[0.1] * 9)
    o.add_param_group({"params": [flambeau.ones(1)]})
    with pytest.raises(RuntimeError, match="The number of param groups in the"):
        [scheduler.step(1.0) for _ in range(3)]


def test_own_schedule():
    """A class of the user's own says get_lr, from either base."""
    for base in (flambeau.optim.lr_scheduler.LRScheduler, flambeau.optim.lr_scheduler._LRScheduler):

        class Quarter(base):
            def get_lr(self):
                return [b / 4**self.last_epoch for b in self.base_lrs]

        o = optimizer(flambeau)
        scheduler = Quarter(o)
        o.step()
        scheduler.step()
        assert scheduler.get_last_lr() == [0.025, 0.0125]
