"""What introductions to PyTorch tell their readers about mixed precision, checkpoints, the profiler, hooks and reproducibility, taken at their word.

Each test is a passage: its code, with the values its text gives. Where a text gives no number, the passage is run with PyTorch too, from the
same seed, and must tell the same story; where a text is wrong about PyTorch, PyTorch is right.
"""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import numpy as np
import pytest
from lessons import alike, build_param_groups, mlp, pictures, seeded, simple_net, tiny_gpt, transformer_block

import flambeau as torch
import flambeau.nn as nn
import flambeau.nn.functional as F
from flambeau.autograd.gradcheck import GradcheckError
from flambeau.profiler import ProfilerActivity, profile
from flambeau.utils.checkpoint import checkpoint

oracle = pytest.importorskip("torch")


# -- the honest training loop, with its checkpoints ------------------------------------------------------------------------------


def honest(torch):
    """train, evaluate, save_checkpoint and load_checkpoint of the text, word for word; only the scaler may be asked for on the CPU."""
    F = torch.nn.functional

    def train(
        model: nn.Module,
        train_loader,
        val_loader,
        *,
        device: str = "cuda",
        epochs: int = 10,
        lr: float = 3e-4,
        weight_decay: float = 0.1,
        grad_clip: float = 1.0,
        warmup_steps: int = 1000,
        total_steps=None,
        use_amp: bool = True,
        amp_dtype: torch.dtype = torch.bfloat16,
        ckpt_dir: str = "./checkpoints",
        patience: int = 3,
        log_every: int = 50,
        scale_on_the_cpu: bool = False,
    ):
        Path(ckpt_dir).mkdir(parents=True, exist_ok=True)
        model.to(device)
        opt = torch.optim.AdamW(build_param_groups(model, weight_decay), lr=lr, betas=(0.9, 0.95))
        if total_steps is None:
            total_steps = len(train_loader) * epochs
        warmup = torch.optim.lr_scheduler.LinearLR(opt, 1e-6, 1.0, total_iters=warmup_steps)
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=max(1, total_steps - warmup_steps))
        sched = torch.optim.lr_scheduler.SequentialLR(opt, [warmup, cosine], milestones=[warmup_steps])

        use_scaler = use_amp and amp_dtype == torch.float16 and device.startswith("cuda")
        scaler = torch.cuda.amp.GradScaler(enabled=use_scaler)
        if scale_on_the_cpu:
            use_scaler, scaler = True, torch.amp.GradScaler("cpu", growth_interval=8)

        best_val = float("inf")
        epochs_since_best = 0
        global_step = 0
        story = []

        for epoch in range(epochs):
            model.train()
            t0 = time.time()
            for batch_idx, batch in enumerate(train_loader):
                inputs = batch["input_ids"].to(device, non_blocking=True)
                labels = batch["labels"].to(device, non_blocking=True)

                with torch.autocast(device_type=device.split(":")[0], dtype=amp_dtype, enabled=use_amp):
                    logits = model(inputs)
                    loss = F.cross_entropy(
                        logits.reshape(-1, logits.size(-1)),
                        labels.reshape(-1),
                        ignore_index=-100,
                    )

                opt.zero_grad(set_to_none=True)
                if use_scaler:
                    scaler.scale(loss).backward()
                    scaler.unscale_(opt)
                    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
                    scaler.step(opt)
                    scaler.update()
                else:
                    loss.backward()
                    torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
                    opt.step()
                sched.step()
                global_step += 1

                if batch_idx % log_every == 0:
                    lr_now = opt.param_groups[0]["lr"]
                    story.append((epoch, global_step, loss.item(), lr_now))

            val_loss = evaluate(model, val_loader, device, amp_dtype, use_amp)
            print(f"epoch {epoch} val_loss {val_loss:.4f} time {time.time() - t0:.1f}s")
            story.append((epoch, val_loss))

            if val_loss < best_val:
                best_val = val_loss
                epochs_since_best = 0
                save_checkpoint(model, opt, sched, scaler, epoch, global_step, best_val, Path(ckpt_dir) / "best.pt")
            else:
                epochs_since_best += 1
                if epochs_since_best >= patience:
                    print(f"early stop at epoch {epoch}")
                    break

            save_checkpoint(model, opt, sched, scaler, epoch, global_step, best_val, Path(ckpt_dir) / "last.pt")
        return story, (model, opt, sched, scaler)

    @torch.inference_mode()
    def evaluate(model, loader, device, amp_dtype, use_amp):
        model.eval()
        total, n = 0.0, 0
        for batch in loader:
            inputs = batch["input_ids"].to(device, non_blocking=True)
            labels = batch["labels"].to(device, non_blocking=True)
            with torch.autocast(device_type=device.split(":")[0], dtype=amp_dtype, enabled=use_amp):
                logits = model(inputs)
                loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
            total += loss.item() * inputs.size(0)
            n += inputs.size(0)
        return total / max(n, 1)

    def save_checkpoint(model, opt, sched, scaler, epoch, step, best_val, path):
        torch.save(
            {
                "epoch": epoch,
                "step": step,
                "best_val": best_val,
                "model": model.state_dict(),
                "optimizer": opt.state_dict(),
                "scheduler": sched.state_dict(),
                "scaler": scaler.state_dict() if scaler is not None else None,
                "rng_torch_cpu": torch.get_rng_state(),
                "rng_torch_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None,
                "rng_numpy": np.random.get_state(),
                "rng_python": random.getstate(),
            },
            path,
        )

    def load_checkpoint(path, model, opt, sched, scaler, device, **how):
        ck = torch.load(path, map_location="cpu", **how)
        model.load_state_dict(ck["model"])
        model.to(device)
        opt.load_state_dict(ck["optimizer"])
        sched.load_state_dict(ck["scheduler"])
        if scaler is not None and ck.get("scaler") is not None:
            scaler.load_state_dict(ck["scaler"])
        torch.set_rng_state(ck["rng_torch_cpu"])
        if torch.cuda.is_available() and ck.get("rng_torch_cuda") is not None:
            torch.cuda.set_rng_state_all(ck["rng_torch_cuda"])
        np.random.set_state(ck["rng_numpy"])
        random.setstate(ck["rng_python"])
        return ck["epoch"], ck["step"], ck["best_val"]

    return train, load_checkpoint


def token_loaders(torch):
    """Sequences that count upwards in threes, as dictionaries of ids and labels; a tenth of the labels is padding."""
    ids = (torch.randint(0, 50, (40, 1)) + 3 * torch.arange(17)) % 50
    labels = ids[:, 1:].clone()
    labels[torch.rand(labels.shape) < 0.1] = -100
    items = [{"input_ids": i[:-1], "labels": t} for i, t in zip(ids, labels, strict=True)]
    Loader = torch.utils.data.DataLoader
    return Loader(items[:32], batch_size=4, shuffle=True, drop_last=True), Loader(items[32:], batch_size=4)


PRECISIONS = {"float32": 1e-3, "bfloat16": 0.06, "float16": 0.02}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_honest_training_loop(precision, tmp_path):
    """Whole, with checkpoints, in each precision: the losses, rates and validation losses of PyTorch, and the model learns."""

    def program(torch):
        train, _ = honest(torch)
        loaders = token_loaders(torch)
        options = {"use_amp": precision != "float32", "amp_dtype": getattr(torch, precision), "scale_on_the_cpu": precision == "float16"}
        folder = tmp_path / torch.__name__
        story, (_, _, _, scaler) = train(
            tiny_gpt(torch), *loaders, device="cpu", epochs=2, lr=3e-3, warmup_steps=4, log_every=1, ckpt_dir=folder, **options
        )
        return story, scaler.state_dict(), sorted(os.listdir(folder))

    story, state, files = alike(program, rtol=PRECISIONS[precision], atol=1e-7 if precision == "float32" else 1e-3)
    assert files == ["best.pt", "last.pt"] and story[-1][-1] < story[0][2] - 0.25
    assert (state["scale"] > 65536 / 4) if precision == "float16" else not state


def test_the_best_and_the_last_stay_and_patience_ends(tmp_path):
    """A rate of zero improves nothing: after `patience` epochs the loop stops early, and best.pt is of the first."""

    def program(torch):
        train, _ = honest(torch)
        loaders = token_loaders(torch)
        story, _ = train(tiny_gpt(torch), *loaders, device="cpu", epochs=9, lr=0.0, patience=2, ckpt_dir=tmp_path / "stop", warmup_steps=1)
        best, last = (torch.load(tmp_path / "stop" / name, weights_only=False)["epoch"] for name in ("best.pt", "last.pt"))
        return len([line for line in story if len(line) == 2]), best, last

    assert alike(program) == (3, 0, 1)


def test_resuming_from_the_checkpoint_of_the_text(tmp_path):
    """After loading, the next losses are what the original run gives, to the bit, in float16 with dropout and a scaler.

    The file holds NumPy's and Python's random states too, which are no weights: PyTorch refuses it unless told to trust it, and so do we.
    """
    torch.manual_seed(0)
    train, load_checkpoint = honest(torch)
    loaders = token_loaders(torch)
    options = {"device": "cpu", "lr": 3e-3, "warmup_steps": 4, "amp_dtype": torch.float16, "scale_on_the_cpu": True}
    with pytest.warns(FutureWarning, match="GradScaler"):
        _, parts = train(tiny_gpt(torch), *loaders, epochs=1, ckpt_dir=tmp_path, **options)

    def go_on(model, opt, sched, scaler):
        model.train()
        losses = []
        for batch in loaders[0]:
            with torch.autocast("cpu", dtype=torch.float16):
                loss = F.cross_entropy(model(batch["input_ids"]).flatten(0, 1), batch["labels"].flatten(), ignore_index=-100)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            sched.step()
            losses.append((loss.item(), np.random.rand(), random.random()))
        return losses

    expected = go_on(*parts)
    fresh, schedulers = tiny_gpt(torch), torch.optim.lr_scheduler
    opt = torch.optim.AdamW(build_param_groups(fresh, 0.1), lr=3e-3, betas=(0.9, 0.95))
    warmup, cosine = schedulers.LinearLR(opt, 1e-6, 1.0, total_iters=4), schedulers.CosineAnnealingLR(opt, T_max=4)
    restored = fresh, opt, schedulers.SequentialLR(opt, [warmup, cosine], milestones=[4]), torch.amp.GradScaler("cpu", growth_interval=8)
    outcomes = []
    for framework in (oracle, torch):
        try:
            framework.load(tmp_path / "last.pt", map_location="cpu")
            outcomes.append("loaded")
        except Exception as problem:
            outcomes.append(type(problem).__name__)
            assert "weights_only=False" in str(problem) or "weights_only" in str(problem)
    assert outcomes[0] == outcomes[1]
    assert load_checkpoint(tmp_path / "last.pt", *restored, "cpu", weights_only=False)[:2] == (0, 8)
    assert go_on(*restored) == expected


# -- mixed precision -------------------------------------------------------------------------------------------------------------


def test_what_runs_in_which_precision():
    """Matrix products, convolution and attention run in bfloat16, parameters and their gradients stay float32; every dtype is PyTorch's."""

    def program(torch):
        F = torch.nn.functional
        layer, conv = torch.nn.Linear(8, 8), torch.nn.Conv2d(1, 2, 3)
        x, picture, q = torch.randn(4, 8), torch.randn(1, 1, 8, 8), torch.randn(1, 2, 4, 8)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            logits = layer(x)
            loss = F.cross_entropy(logits, torch.tensor([0, 1, 2, 3]))
            found = [
                logits, x @ x.T, conv(picture), F.scaled_dot_product_attention(q, q, q), logits.softmax(1), logits.sum(), logits.exp(),
                F.layer_norm(logits, (8,)), F.gelu(logits), loss, x + x,
            ]  # fmt: skip
        loss.backward()
        return [str(t.dtype) for t in found], str(layer.weight.dtype), str(layer.weight.grad.dtype)

    dtypes, weight, grad = alike(program)
    assert dtypes[:4] == ["torch.bfloat16"] * 4 and weight == grad == dtypes[9] == "torch.float32"


def test_float16_with_a_scaler():
    """Small gradients do not become zero; an infinity skips the step and halves the scale; after steps without one it grows again."""
    w = nn.Parameter(torch.tensor([1.0], dtype=torch.float16))
    (w * 1e-4 * 1e-4).backward()
    assert w.grad.item() == 0  # underflow, which scaling is there against
    w.grad = None
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(w * 1e-4 * 1e-4).backward()
    assert w.grad.item() > 0

    def program(torch):
        model = torch.nn.Linear(2, 1)
        opt, scaler, story = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", growth_interval=3), []
        for i in range(7):
            opt.zero_grad()
            before = model.weight.detach().clone()
            scaler.scale(model(torch.ones(1, 2)).sum() * (float("inf") if i == 2 else 1.0)).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(opt)
            scaler.update()
            story.append((scaler.get_scale(), bool((model.weight == before).all())))
        return story

    assert alike(program) == [(65536.0, False)] * 2 + [(32768.0, True)] + [(32768.0, False)] * 2 + [(65536.0, False)] * 2
    fresh = torch.amp.GradScaler("cpu")
    assert (fresh.get_scale(), fresh.get_growth_factor(), fresh.get_backoff_factor(), fresh.get_growth_interval()) == (65536, 2, 0.5, 2000)


def test_the_loop_for_gpus_on_a_machine_without():
    """`GradScaler()` and `autocast(device_type="cuda")` warn that there is no GPU, switch themselves off, and the loop trains in float32 as PyTorch's."""

    def program(torch):
        autocast, GradScaler = torch.amp.autocast, torch.amp.GradScaler
        model, criterion = mlp(torch), torch.nn.CrossEntropyLoss()
        optimizer, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        loader = [(torch.randn(8, 64), torch.randint(0, 10, (8,))) for _ in range(4)]
        scaler = GradScaler()
        for inputs, targets in loader:
            with autocast(device_type="cuda"):
                outputs = model(inputs)
                loss = criterion(outputs, targets)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            losses.append(loss.item())
        return losses, str(outputs.dtype), scaler.is_enabled()

    if torch.cuda.is_available() or oracle.cuda.is_available():
        pytest.skip("there is a GPU")
    _, dtype, enabled = alike(program)
    assert dtype == "torch.float32" and not enabled
    with pytest.warns(UserWarning, match="CUDA is not available"):
        torch.amp.GradScaler()
    with pytest.warns(UserWarning, match="CUDA is not available. Disabling autocast"), torch.autocast("cuda"):
        pass


@pytest.mark.parametrize("low", [False, True])
def test_the_exercise_of_the_two_steps(low):
    """A step in float32, and the same with autocast and clipping: both are PyTorch's."""

    def program(torch):
        model = mlp(torch, p_drop=0.0)
        opt, losses = torch.optim.SGD(model.parameters(), lr=0.1), []
        batch = {"x": torch.randn(16, 64), "y": torch.randint(0, 10, (16,))}
        for _ in range(5):
            x, y = batch["x"].to("cpu", non_blocking=True), batch["y"].to("cpu", non_blocking=True)
            opt.zero_grad(set_to_none=True)
            with torch.autocast(device_type="cpu", dtype=torch.bfloat16, enabled=low):
                loss = torch.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            opt.step()
            losses.append(loss.item())
        return losses, str(model.fc1.weight.dtype), str(opt.param_groups[0]["params"][0].dtype)

    losses, weight, master = alike(program, rtol=2e-2 if low else 1e-4)
    assert losses[-1] < losses[0] and weight == master == "torch.float32"


# -- recomputed activations ------------------------------------------------------------------------------------------------------


class GCStack(nn.Module):
    def __init__(self, blocks: list[nn.Module], use_checkpoint: bool = True):
        super().__init__()
        self.blocks = nn.ModuleList(blocks)
        self.use_checkpoint = use_checkpoint

    def forward(self, x):
        for block in self.blocks:
            if self.use_checkpoint and self.training:
                x = checkpoint(block, x, use_reentrant=False)
            else:
                x = block(x)
        return x


def test_gradient_checkpointing():
    """The stack of the text: the same losses and gradients, dropout included; each block runs once more, in backward; in eval nothing is recomputed;
    and over 30 % less is kept."""
    torch.manual_seed(0)
    blocks = [transformer_block(torch, 32, 4, 128) for _ in range(4)]
    x, gradients, kept, calls = torch.randn(2, 16, 32), [], [], []
    blocks[0].register_forward_pre_hook(lambda *_: calls.append(1))
    for use in (False, True):
        stack, held = GCStack(blocks, use), {}
        stack.zero_grad()
        torch.manual_seed(1)
        calls.clear()

        def pack(t, held=held):
            held[t.data_ptr()] = t.numel() * t.element_size()
            return t

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            loss = stack(x).square().mean()
        kept.append(sum(held.values()))
        loss.backward()
        gradients.append([loss.detach(), *[p.grad for p in stack.parameters()]])
        assert len(calls) == (2 if use else 1)
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))
    assert kept[1] < 0.7 * kept[0]
    calls.clear()
    stack.eval()(x)
    assert len(calls) == 1


# -- looking inside --------------------------------------------------------------------------------------------------------------


def test_profiling_a_few_batches():
    """The passage: five batches under the profiler, then a table of five rows, the most expensive first, with the names people look for."""
    torch.manual_seed(0)
    model, criterion = simple_net(torch), nn.CrossEntropyLoss()
    train_loader = [(x.view(16, 1, 28, 28), y) for x, y in pictures(torch, 8)]
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
        for i, (images, labels) in enumerate(train_loader):
            images = images.view(images.size(0), -1)
            outputs = model(images)
            loss = criterion(outputs, labels)
            loss.backward()
            if i >= 4:
                break
    table = prof.key_averages().table(sort_by="cpu_time_total", row_limit=5)
    rows = [line for line in table.splitlines() if line.strip() and not line.startswith(("-", "Self CPU time"))]
    assert len(rows) == 6 and "CPU total %" in rows[0] and "# of Calls" in rows[0]
    averages = {event.key: event for event in prof.key_averages()}
    assert averages["aten::addmm"].count == 10 and averages["aten::linear"].count == 10
    ranked = [event.cpu_time_total for event in sorted(averages.values(), key=lambda e: -e.cpu_time_total)][:5]
    assert all(name.strip().split("  ")[0] for name in rows[1:]) and ranked[0] >= ranked[-1]
    assert "Slowest operations" in str(prof.explain())  # "identify the slowest operation"


def test_activation_patching():
    """What a forward hook returns takes the place of the output: activations of one run put into another, as in PyTorch."""

    def program(torch):
        model = simple_net(torch)
        clean, corrupt, kept = torch.randn(2, 784), torch.randn(2, 784), {}
        handle = model.relu.register_forward_hook(lambda module, inputs, output: kept.update(act=output.detach()))
        wanted = model(clean)
        handle.remove()
        handle = model.relu.register_forward_hook(lambda module, inputs, output: kept["act"])
        patched = model(corrupt)
        handle.remove()
        half = model.relu.register_forward_hook(lambda m, i, output: torch.cat([kept["act"][:, :64], output[:, 64:]], 1))
        mixed = model(corrupt)
        half.remove()
        return wanted, patched, mixed, model(corrupt)

    wanted, patched, mixed, plain = alike(program)
    assert torch.equal(wanted, patched) and not torch.equal(mixed, plain) and not torch.equal(mixed, patched)


def test_backward_hooks_see_gradients():
    """register_full_backward_hook sees the gradients of a module's inputs and outputs, and may replace the former; a tensor's hook those of a tensor."""

    def program(torch):
        model, seen, x = simple_net(torch), [], torch.randn(2, 784, requires_grad=True)
        model.fc2.register_full_backward_hook(lambda module, grad_in, grad_out: seen.extend([*grad_in, *grad_out]))
        model.relu.register_full_backward_hook(lambda module, grad_in, grad_out: (grad_in[0] * 2,))
        x.register_hook(lambda grad: grad * 10)
        model(x).sum().backward()
        return seen, x.grad, model.fc1.weight.grad

    alike(program, rtol=1e-4)


def test_anomaly_mode_points_at_the_forward_line():
    """detect_anomaly: the error names the function whose gradient is nan and the line of forward that called it."""
    x = torch.zeros(2, requires_grad=True)

    def forward():
        return x.sqrt() * 0  # the line in question

    with (
        pytest.warns(UserWarning, match="the line in question"),
        torch.autograd.set_detect_anomaly(True),
        pytest.raises(RuntimeError) as found,
    ):
        forward().sum().backward()
    assert "Function 'SqrtBackward0' returned nan values in its 0th output" in str(found.value) and "the line in question" in str(
        found.value
    )


# -- reproducibility -------------------------------------------------------------------------------------------------------------


def set_seed(torch, seed: int = 42):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


@pytest.fixture
def as_before(monkeypatch):
    """Puts back what `set_seed` switches."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    kept = [(f, f.backends.cudnn.deterministic, f.backends.cudnn.benchmark) for f in (torch, oracle)]
    yield
    for framework, deterministic, benchmark in kept:
        framework.use_deterministic_algorithms(False)
        framework.backends.cudnn.deterministic, framework.backends.cudnn.benchmark = deterministic, benchmark


def test_set_seed(as_before):
    """The passage, in both frameworks: switches are on afterwards, and two runs are one, to the bit, and close to PyTorch's."""

    def program(torch):
        runs = []
        for _ in range(2):
            set_seed(torch)
            model = mlp(torch, p_drop=0.3)
            opt, losses = torch.optim.AdamW(model.parameters(), lr=1e-2), []
            for _ in range(4):
                x = torch.randn(8, 64) * random.random() + float(np.random.rand())
                loss = torch.nn.functional.cross_entropy(model(x), torch.randint(0, 10, (8,)))
                opt.zero_grad()
                loss.backward()
                opt.step()
                losses.append(loss.item())
            runs.append(losses)
        flags = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
        return runs, flags, (torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark)

    runs, flags, cudnn = alike(program, rtol=1e-3)
    assert runs[0] == runs[1] and flags == (True, True) and cudnn == (True, False)


def test_worker_counts_do_not_change_the_data():
    """The text says that the number of workers changes the order of the data. It does not, in either framework: only random numbers drawn in workers."""

    def program(torch, workers):
        loader = torch.utils.data.DataLoader(torch.arange(20), batch_size=4, shuffle=True, num_workers=workers)
        return torch.cat(list(loader))

    assert torch.equal(seeded(program, torch, 0), seeded(program, torch, 2))
    assert seeded(program, torch, 2).tolist() == seeded(program, oracle, 0).tolist()


def test_gradients_are_checked():
    """gradcheck agrees with differences, and finds a backward that is wrong."""
    x = torch.randn(3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: (t.sin() * t).sum(), (x,))

    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    with pytest.raises(GradcheckError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(Wrong.apply, (x,))
