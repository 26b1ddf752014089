"""What introductions to PyTorch tell their readers about optimizers, schedulers and training, taken at their word and run on Flambeau.

Each test is a passage: its code, with the values its text gives. Where a text gives no number, the passage is run with PyTorch too, from the
same seed, and must tell the same story; where a text is wrong about PyTorch, PyTorch is right.
"""

from __future__ import annotations

import copy
import math
import random
from collections import OrderedDict

import numpy as np
import pytest
from lessons import alike, build_param_groups, cnn, count, fashion_classifier, mlp, mnist_model, pictures, seeded, simple_net, tiny_gpt

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F

oracle = pytest.importorskip("torch")


# -- optimizers ------------------------------------------------------------------------------------------------------------


OPTIMIZERS = {
    "SGD": lambda o, p: o.SGD(p, lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True),
    "SGD plain": lambda o, p: o.SGD(p, lr=0.1),
    "Adam": lambda o, p: o.Adam(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8),
    "Adam coupled": lambda o, p: o.Adam(p, lr=1e-3, weight_decay=0.1),
    "AdamW": lambda o, p: o.AdamW(p, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1),
    "LBFGS": lambda o, p: o.LBFGS(p),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_walk_pytorchs_path(name):
    """Thirty steps of each recipe, from the same seed, in double precision, have the losses and end at the weights PyTorch has."""

    def program(torch):
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()
        opt = OPTIMIZERS[name](torch.optim, model.parameters())
        x, losses = torch.randn(32, 6).double(), []
        y = x[:, :1] * x[:, 1:2]

        def closure():
            opt.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            return loss

        for _ in range(5 if name == "LBFGS" else 30):
            losses.append(opt.step(closure).item())
        return losses, list(model.parameters())

    losses, _ = alike(program, rtol=1e-7)
    assert losses[-1] < losses[0]


def test_decoupled_decay():
    """AdamW moves a weight without gradient signal by -lr * wd * p; Adam folds decay into the gradient, so its step has size lr."""

    def step(make):
        p = nn.Parameter(torch.tensor([2.0]))
        opt = make([p])
        p.grad = torch.zeros(1)
        opt.step()
        return p.item()

    assert step(lambda p: torch.optim.AdamW(p, lr=0.1, weight_decay=0.1)) == pytest.approx(2 - 0.1 * 0.1 * 2)
    assert step(lambda p: torch.optim.Adam(p, lr=0.1, weight_decay=0.1)) == pytest.approx(2 - 0.1, rel=1e-5)
    assert step(lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1)) == pytest.approx(2 - 0.1 * 0.1 * 2)


def test_parameter_groups():
    """Weights decay; biases, norms and embeddings do not; each group has its options, and shares the rest."""
    model = nn.ModuleDict({"embed": nn.Embedding(9, 4), "fc": nn.Linear(4, 4), "norm": nn.LayerNorm(4), "frozen": nn.Linear(4, 4)})
    model.frozen.requires_grad_(False)
    opt = torch.optim.AdamW(build_param_groups(model), lr=3e-4, betas=(0.9, 0.95))
    assert [(g["weight_decay"], len(g["params"]), g["lr"]) for g in opt.param_groups] == [(0.1, 1, 3e-4), (0.0, 4, 3e-4)]
    assert opt.param_groups[0]["params"][0] is model.fc.weight and opt.param_groups[1]["betas"] == (0.9, 0.95)
    before = copy.deepcopy(model.state_dict())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    moved = {name for name, p in model.state_dict().items() if not torch.equal(p, before[name])}
    assert moved == {"fc.weight"}
    assert alike(lambda torch: [repr(torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))], lr=3e-4))])


def test_zero_grad():
    """zero_grad puts None in place of gradients by default, zeros if asked; forgetting it adds them up."""
    model = nn.Linear(3, 1)
    opt, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.ones(2, 3)
    model(x).sum().backward()
    once = model.weight.grad.clone()
    model(x).sum().backward()
    assert torch.equal(model.weight.grad, 2 * once)
    opt.zero_grad(set_to_none=False)
    assert model.weight.grad.abs().sum().item() == 0
    opt.zero_grad(set_to_none=True)
    assert model.weight.grad is None
    model(x).sum().backward()
    model.zero_grad()
    assert model.bias.grad is None
    before = model.weight.clone()
    opt.step()  # no gradient, no step
    assert torch.equal(model.weight, before)


def test_a_step_is_minus_rate_times_gradient():
    """w <- w - lr * dL/dw."""
    model = nn.Linear(3, 2)
    before = model.weight.detach().clone()
    opt = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.randn(4, 3)).square().mean().backward()
    opt.step()
    assert torch.allclose(model.weight, before - 0.5 * model.weight.grad)


def test_gradient_clipping():
    """clip_grad_norm_ returns the norm before, and caps the norm of all gradients together."""

    def program(torch):
        model = simple_net(torch)
        (1000 * torch.nn.functional.cross_entropy(model(torch.randn(8, 784)), torch.randint(0, 10, (8,)))).backward()
        clip = torch.nn.utils.clip_grad_norm_
        return clip(model.parameters(), max_norm=1.0), clip(model.parameters(), max_norm=1.0), [p.grad for p in model.parameters()]

    before, after, _ = alike(program, rtol=1e-4)
    assert before.item() > 1 and after.item() == pytest.approx(1, rel=1e-4)


# -- schedulers ------------------------------------------------------------------------------------------------------------


def rates(torch, make, steps):
    """The learning rates a scheduler gives, before each step."""
    opt = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1, momentum=0.9)
    sched, found = make(torch.optim.lr_scheduler, opt), []
    for i in range(steps):
        found.append(opt.param_groups[0]["lr"])
        opt.step()
        sched.step(*([1.0 / (1 + min(i, 5))] if isinstance(sched, torch.optim.lr_scheduler.ReduceLROnPlateau) else []))
    return found


SCHEDULERS = {
    "StepLR": lambda s, o: s.StepLR(o, step_size=5, gamma=0.1),
    "ExponentialLR": lambda s, o: s.ExponentialLR(o, gamma=0.9),
    "CosineAnnealingLR": lambda s, o: s.CosineAnnealingLR(o, T_max=10),
    "OneCycleLR": lambda s, o: s.OneCycleLR(o, max_lr=3e-3, total_steps=100, pct_start=0.1),
    "ReduceLROnPlateau": lambda s, o: s.ReduceLROnPlateau(o, patience=2),
    "LinearLR": lambda s, o: s.LinearLR(o, start_factor=1e-6, end_factor=1.0, total_iters=10),
    "warmup then cosine": lambda s, o: s.SequentialLR(
        o,
        schedulers=[s.LinearLR(o, start_factor=1e-6, end_factor=1.0, total_iters=10), s.CosineAnnealingLR(o, T_max=90)],
        milestones=[10],
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers_give_pytorchs_rates(name):
    """Each scheduler of the texts gives PyTorch's learning rates, step by step."""
    alike(rates, SCHEDULERS[name], 100, rtol=1e-9, atol=0)


def test_rates_the_texts_promise():
    """StepLR: a tenth every 5 epochs. Cosine: from the peak to zero over T_max. Warmup: from about nothing to the peak, then to zero."""
    step = rates(torch, SCHEDULERS["StepLR"], 11)
    assert step[:5] == [0.1] * 5 and step[5] == pytest.approx(0.01) and step[10] == pytest.approx(0.001)
    cosine = rates(torch, SCHEDULERS["CosineAnnealingLR"], 11)
    assert cosine[0] == 0.1 and cosine[5] == pytest.approx(0.05) and cosine[10] == pytest.approx(0, abs=1e-12)
    warm = rates(torch, SCHEDULERS["warmup then cosine"], 101)
    assert warm[0] == pytest.approx(1e-7) and warm[10] == 0.1 == max(warm) and warm[100] == pytest.approx(0, abs=1e-12)
    cycle = rates(torch, SCHEDULERS["OneCycleLR"], 100)
    assert max(cycle) == cycle[9] == pytest.approx(3e-3) and cycle[-1] < cycle[0] < cycle[9]


def test_there_are_more_than_fifteen_schedulers():
    """Every scheduler PyTorch ships is there."""
    names = [n for n in oracle.optim.lr_scheduler.__all__ if n != "LRScheduler"]
    assert len(names) >= 15
    assert all(hasattr(torch.optim.lr_scheduler, n) for n in names)


def test_the_scheduler_steps_after_the_optimizer():
    """The other order is warned about."""
    opt = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1)
    sched = torch.optim.lr_scheduler.StepLR(opt, 5)
    with pytest.warns(UserWarning, match="lr_scheduler"):
        sched.step()


# -- training --------------------------------------------------------------------------------------------------------------


def train_one_epoch(model, loader, criterion, optimizer, device):
    model.train()
    total_loss, correct, total = 0.0, 0, 0
    for images, labels in loader:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.item() * labels.size(0)
        _, predicted = outputs.max(1)
        assert (predicted == outputs.argmax(1)).all()
        correct += predicted.eq(labels).sum().item()
        total += labels.size(0)
    return total_loss / total, correct / total


def evaluate(torch, model, loader, criterion, device):
    model.eval()
    total_loss, correct, total = 0.0, 0, 0
    with torch.no_grad():
        for images, labels in loader:
            images, labels = images.to(device), labels.to(device)
            outputs = model(images)
            loss = criterion(outputs, labels)
            total_loss += loss.item() * labels.size(0)
            correct += (outputs.argmax(1) == labels).sum().item()
            total += labels.size(0)
    return total_loss / total, correct / total


def laboratory(torch, make, optimize, shape=(784,), schedule=None, epochs=2, dtype="float32"):
    """A laboratory of the texts on synthetic pictures: (train loss, train accuracy, test loss, test accuracy, rate) by epoch."""
    device, dtype = torch.device("cpu"), getattr(torch, dtype)
    data, model = [(x.to(dtype), y) for x, y in pictures(torch, shape=shape)], make(torch).to(device, dtype)
    criterion, optimizer, story = torch.nn.CrossEntropyLoss(), optimize(torch.optim, model.parameters()), []
    scheduler = schedule(torch.optim.lr_scheduler, optimizer) if schedule else None
    for _ in range(epochs):
        trained = train_one_epoch(model, data[:-1], criterion, optimizer, device)
        tested = evaluate(torch, model, data[-1:], criterion, device)
        if scheduler:
            scheduler.step()
        story.append((*trained, *tested, optimizer.param_groups[0]["lr"]))
    return story


def adam(optim, params):
    return optim.Adam(params, lr=1e-3)


def momentum(optim, params):
    return optim.SGD(params, lr=0.01, momentum=0.9)


LABORATORIES = {
    "784-128-10": (simple_net, adam, (784,), None),
    "pictures flattened in the model, dropout": (fashion_classifier, adam, (1, 28, 28), None),
    "784-256-128-10, dropout": (mnist_model, adam, (784,), None),
    "step decay": (fashion_classifier, adam, (1, 28, 28), lambda s, o: s.StepLR(o, step_size=2, gamma=0.1)),
    "batch norm after each linear layer": (lambda torch: mnist_model(torch, norm=True), adam, (784,), None),
    "momentum and cosine": (mnist_model, momentum, (784,), lambda s, o: s.CosineAnnealingLR(o, T_max=3)),
    "convolutions and pooling": (cnn, adam, (1, 28, 28), None),
}


@pytest.mark.parametrize("name", LABORATORIES)
def test_laboratories(name):
    """The laboratories and their exercises, epoch by epoch: PyTorch's losses, accuracies and rates, and the model learns.

    In double precision, where paths that part can not be put down to rounding: a relu near its kink and Adam's division make much of little.
    """
    story = alike(laboratory, *LABORATORIES[name], 2, "float64", rtol=1e-9)
    assert story[-1][0] < story[0][0] and story[-1][1] > story[0][1]


@pytest.mark.parametrize("name", ["784-256-128-10, dropout", "convolutions and pooling"])
def test_laboratories_in_single_precision(name):
    """The same laboratories as a reader would run them."""
    alike(laboratory, *LABORATORIES[name], 1, rtol=1e-3)


def test_overfitting_one_batch():
    """A model that works reaches almost no loss on one batch; with a rate far too high the loss becomes nan or explodes."""

    def program(torch, lr):
        model, losses = simple_net(torch), []
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)
        ((x, y),) = pictures(torch, 1)
        for _ in range(30):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    assert alike(program, 0.05, rtol=1e-3)[-1] < 0.02
    wild = seeded(program, torch, 1e6)
    assert not math.isfinite(wild[-1]) or max(wild) > 1e6


def test_learning_rate_finder():
    """Rates that grow exponentially from 1e-7 to 1: the loss first stays, then falls, as in PyTorch."""

    def program(torch):
        model, data, losses = mnist_model(torch), pictures(torch, 20), []
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-7)
        finder = torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma=(1.0 / 1e-7) ** (1 / 19))
        for x, y in data:
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            losses.append((optimizer.param_groups[0]["lr"], loss.item()))
            finder.step()
        return losses[:16], losses[-1][0]

    assert alike(program, rtol=1e-3)[1] == pytest.approx(1.0)


def test_inference():
    """eval and no_grad, softmax and argmax: no graph, the same answer each time; in train mode dropout changes it."""
    model, x = mnist_model(torch), torch.randn(5, 784)
    model.eval()
    with torch.no_grad():
        probs = torch.softmax(model(x), dim=1)
        preds = torch.argmax(probs, dim=1)
        assert torch.equal(probs, torch.softmax(model(x), dim=1))
    assert not probs.requires_grad and probs.grad_fn is None and preds.dtype is torch.int64
    assert torch.allclose(probs.sum(1), torch.ones(5))
    with torch.inference_mode():
        pred = model(x)
    assert pred.is_inference() and not pred.requires_grad
    model.train()
    assert not torch.equal(model(x), model(x))


def test_state_dicts_restore_a_model():
    """state_dict is an OrderedDict by dotted path; a fresh model that loads it answers alike; strict=False tells what did not fit."""
    model, fresh, x = mlp(torch).eval(), mlp(torch).eval(), torch.randn(8, 64)
    sd = model.state_dict()
    assert isinstance(sd, OrderedDict) and list(sd) == ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    assert not sd["fc1.weight"].requires_grad and sd["fc1.weight"].data_ptr() == model.fc1.weight.data_ptr()
    assert str(fresh.load_state_dict(sd)) == "<All keys matched successfully>"
    assert torch.equal(model(x), fresh(x))
    missing, unexpected = fresh.load_state_dict({"fc1.weight": sd["fc1.weight"], "head": torch.ones(1)}, strict=False)
    assert missing == ["fc1.bias", "fc2.weight", "fc2.bias"] and unexpected == ["head"]
    with pytest.raises(RuntimeError, match="Missing key"):
        fresh.load_state_dict({})
    with pytest.raises(RuntimeError, match="size mismatch"):
        mlp(torch, d_hidden=128).load_state_dict(sd)


def test_resuming_from_a_checkpoint_in_memory():
    """Model, optimizer, scheduler and random states restored, the losses go on to the bit; without them there is a jolt."""

    def build():
        model = mlp(torch, p_drop=0.3)
        opt = torch.optim.AdamW(build_param_groups(model), lr=1e-2, betas=(0.9, 0.95))
        warmup = torch.optim.lr_scheduler.LinearLR(opt, 1e-6, 1.0, total_iters=4)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)
        return model, opt, torch.optim.lr_scheduler.SequentialLR(opt, [warmup, cosine], milestones=[4])

    def steps(model, opt, sched, n):
        losses = []
        for _ in range(n):
            x = torch.randn(8, 64) * random.random() + float(np.random.rand())
            loss = F.cross_entropy(model(x), torch.randint(0, 10, (8,)))
            opt.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            sched.step()
            losses.append(loss.item())
        return losses

    first = build()
    steps(*first, 6)
    saved = copy.deepcopy([part.state_dict() for part in first])
    generators = torch.get_rng_state(), np.random.get_state(), random.getstate()
    expected = steps(*first, 6)

    def resume(skip=None):
        parts = build()
        for part, state in zip(parts, copy.deepcopy(saved), strict=True):
            if part is not parts[skip] if skip is not None else True:
                part.load_state_dict(state)
        torch.set_rng_state(generators[0])
        np.random.set_state(generators[1])
        random.setstate(generators[2])
        return steps(*parts, 6)

    assert resume() == expected
    assert all(resume(skip=part) != expected for part in range(3))


def test_gradient_accumulation_equals_a_large_batch():
    """Four backwards of a quarter of the loss, then one step, move the weights as one batch of four times the size."""
    torch.manual_seed(0)
    x, y = torch.randn(32, 64), torch.randint(0, 10, (32,))
    model = mlp(torch, p_drop=0.0)
    twin = copy.deepcopy(model)
    opt, other = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(twin.parameters(), lr=0.1)
    F.cross_entropy(model(x), y).backward()
    opt.step()
    for xs, ys in zip(x.chunk(4), y.chunk(4), strict=True):
        (F.cross_entropy(twin(xs), ys) / 4).backward()
    other.step()
    assert all(torch.allclose(p, q, atol=1e-6) for p, q in zip(model.parameters(), twin.parameters(), strict=True))


def test_the_honest_training_loop():
    """AdamW groups, warmup then cosine, clipping, ignored labels, validation, early stopping: a small GPT learns along PyTorch's curve."""

    def program(torch):
        F, schedulers = torch.nn.functional, torch.optim.lr_scheduler
        model, story = tiny_gpt(torch), []
        opt = torch.optim.AdamW(build_param_groups(model, 0.1), lr=3e-3, betas=(0.9, 0.95))
        warmup = schedulers.LinearLR(opt, 1e-6, 1.0, total_iters=5)
        cosine = schedulers.CosineAnnealingLR(opt, T_max=max(1, 30 - 5))
        sched = schedulers.SequentialLR(opt, [warmup, cosine], milestones=[5])
        ids = (torch.randint(0, 50, (32, 1)) + 3 * torch.arange(17)) % 50
        labels = ids[:, 1:].clone()
        labels[torch.rand(labels.shape) < 0.1] = -100
        train, val = [(ids[i : i + 4, :-1], labels[i : i + 4]) for i in range(0, 24, 4)], [(ids[24:, :-1], labels[24:])]

        @torch.inference_mode()
        def validate():
            model.eval()
            total, n = 0.0, 0
            for inputs, targets in val:
                logits = model(inputs)
                loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-100)
                total += loss.item() * inputs.size(0)
                n += inputs.size(0)
            return total / max(n, 1)

        best, since = float("inf"), 0
        for _ in range(5):
            model.train()
            for inputs, targets in train:
                logits = model(inputs)
                loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1), ignore_index=-100)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                opt.step()
                sched.step()
                story.append((loss.item(), norm.item(), opt.param_groups[0]["lr"]))
            val_loss = validate()
            story.append((val_loss,))
            since = 0 if val_loss < best else since + 1
            best = min(best, val_loss)
            if since >= 3:
                break
        return story, best

    story, best = alike(program, rtol=2e-3, atol=1e-4)
    assert best < story[0][0] - 0.5


def test_tied_weights():
    """One Parameter under two names is listed, counted and stepped once, saved twice, and gets the gradients of both uses."""
    model = tiny_gpt(torch)
    assert model.head.weight is model.embed.weight
    names = [name for name, _ in model.named_parameters()]
    assert "embed.weight" in names and "head.weight" not in names
    assert {"embed.weight", "head.weight"} <= set(model.state_dict())
    assert count(model) == count(tiny_gpt(oracle))
    twin = copy.deepcopy(model)
    assert twin.head.weight is twin.embed.weight and twin.embed.weight is not model.embed.weight


# -- pitfalls --------------------------------------------------------------------------------------------------------------


def test_shapes_that_do_not_multiply():
    """The symptom on the screen: mat1 and mat2 shapes cannot be multiplied."""
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(1x28 and 784x128\)"):
        simple_net(torch)(torch.randn(1, 28))


def test_forgetting_zero_grad():
    """Without zero_grad the gradients of all steps add up, and the loss takes another path."""

    def program(torch, forget):
        model, losses = simple_net(torch), []
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in pictures(torch, 10):
            loss = torch.nn.functional.cross_entropy(model(x), y)
            if not forget:
                optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses

    right, wrong = alike(program, False, rtol=1e-3), alike(program, True, rtol=1e-3)
    assert right[:2] == wrong[:2] and right[2] != wrong[2]


def test_constants_are_buffers():
    """A tensor that is a plain attribute stays where it is when the model moves; a registered buffer moves along."""

    class Net(nn.Module):
        def __init__(self, registered):
            super().__init__()
            self.fc = nn.Linear(6, 6)
            if registered:
                self.register_buffer("scale", torch.tensor(0.1))
            else:
                self.scale = torch.tensor(0.1)

        def forward(self, x):
            return self.fc(x) * self.scale

    buggy, fixed = Net(False).to("meta"), Net(True).to("meta")
    assert buggy.scale.device.type == "cpu" and fixed.scale.device.type == "meta"
    assert fixed(torch.randn(2, 6, device="meta")).shape == (2, 6)
    assert {n: p.device.type for n, p in fixed.named_parameters() if p.device.type != "meta"} == {}
    assert [(n, str(b.device)) for n, b in fixed.named_buffers()] == [("scale", "meta")]
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        Net(True)(torch.randn(2, 6, device="meta"))


def test_copies_are_not_learnable():
    """detach().clone() of a parameter has requires_grad False and is no parameter until it is wrapped."""
    layer = nn.Linear(2, 2)
    t = layer.weight.detach().clone()
    assert not t.requires_grad and not isinstance(t, nn.Parameter)
    with pytest.raises(TypeError, match="cannot assign"):
        layer.weight = t
    layer.weight = nn.Parameter(t)
    assert layer.weight.requires_grad and len(list(layer.parameters())) == 2


def test_parameters_change_only_without_gradients():
    """param.add_ outside no_grad is refused; param.data.add_ and no_grad are fine."""
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        layer.weight.add_(1.0)
    layer.weight.data.add_(1.0)
    with torch.no_grad():
        layer.weight.add_(1.0).mul_(0.5)


def test_indices_may_be_int32_but_not_floats():
    """Embeddings and gather take int64 and, unlike what the text says, int32; floats are refused."""

    def program(torch, dtype):
        ids, found = torch.tensor([[0], [2]]).to(dtype), []
        for call in (torch.nn.Embedding(3, 4), lambda i: torch.randn(2, 3).gather(1, i)):
            try:
                found.append(call(ids))
            except RuntimeError as problem:
                found.append(type(problem).__name__)
        return found

    for dtype in ("int64", "int32", "float32"):
        alike(lambda torch, dtype=dtype: program(torch, getattr(torch, dtype)))


def test_no_grad_around_a_backward():
    """Without a graph there is nothing to walk: element 0 of tensors does not require grad."""
    model = nn.Linear(2, 1)
    with torch.no_grad():
        loss = model(torch.ones(1, 2)).sum()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        loss.backward()


def test_numbers_in_a_loss():
    """A Python float, or a NumPy one, added to a loss keeps its gradient."""
    model, x, y = mlp(torch, p_drop=0.0), torch.randn(4, 64), torch.randint(0, 10, (4,))
    gradients = []
    for extra in (0.01, np.float64(0.01), np.float32(0.01)):
        model.zero_grad()
        loss = F.cross_entropy(model(x), y) + extra
        assert isinstance(loss, torch.Tensor) and loss.requires_grad
        loss.backward()
        gradients.append(model.fc1.weight.grad.clone())
    assert torch.equal(gradients[0], gradients[1]) and torch.equal(gradients[0], gradients[2])


def test_reproducibility():
    """set_seed makes a run repeat to the bit."""

    def set_seed(seed=42):
        random.seed(seed)
        np.random.seed(seed)
        torch.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)
        torch.use_deterministic_algorithms(True, warn_only=True)

    def run():
        set_seed()
        return laboratory(torch, mnist_model, adam, epochs=1)

    try:
        assert run() == run()
        assert torch.are_deterministic_algorithms_enabled() and torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
