"""A whole training run as people write it: warmup and cosine, mixed precision, clipping, validation, the best state, early stopping.

It runs in float32, bfloat16 and float16 with a scaler, and stays close to PyTorch's run from the same seed: weights, dropout masks and batches
are the same bits, so the losses are too, up to rounding.
"""

from __future__ import annotations

import math

import pytest

import flambeau

torch = pytest.importorskip("torch")
PAD = -100


def build_model(f, words: int = 17, width: int = 16):
    nn = f.nn

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.attend = nn.MultiheadAttention(width, 2, batch_first=True)
            self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            self.head = nn.Linear(width, words)

        def forward(self, x):
            x = self.embed(x)
            normed = self.norm(x)
            x = x + self.drop(self.attend(normed, normed, normed, need_weights=False)[0])
            return self.head(x + self.mlp(x))

    return Model()


def loader(f, n: int, seed: int, shuffle: bool = True):
    """Batches of sentences in which every word is followed by the next one, with padding at the end of some."""

    class Sentences(f.utils.data.Dataset):
        def __init__(self):
            self.starts = f.randint(0, 17, (n,), generator=f.Generator().manual_seed(seed))

        def __len__(self):
            return n

        def __getitem__(self, i):
            x = (self.starts[i] + f.arange(8)) % 17
            y = (x + 1) % 17
            if i % 6 == 0:
                y[5:] = PAD
            return {"input_ids": x, "labels": y}

    return f.utils.data.DataLoader(Sentences(), batch_size=6, shuffle=shuffle, drop_last=True)


def groups(model, weight_decay: float) -> list[dict]:
    """Matrices decay, biases and norms do not."""
    decays = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": decays, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]


def train(f, amp_dtype=None, epochs: int = 3, patience: int = 2, save=None, device: str = "cpu"):
    """The loop. What it returns: every training loss, every validation loss, the scaler."""
    f.manual_seed(0)
    model, train_loader, val_loader = build_model(f).to(device), loader(f, 72, 1), loader(f, 12, 2, shuffle=False)
    optimizer = f.optim.AdamW(groups(model, 0.1), lr=1e-2, betas=(0.9, 0.95))
    total, warm = len(train_loader) * epochs, 4
    warmup = f.optim.lr_scheduler.LinearLR(optimizer, 1e-6, 1.0, total_iters=warm)
    cosine = f.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, total - warm))
    schedule = f.optim.lr_scheduler.SequentialLR(optimizer, [warmup, cosine], milestones=[warm])
    scaler = f.amp.GradScaler(device, init_scale=2.0**14, growth_interval=10, enabled=amp_dtype is f.float16)
    losses, validations, best, since_best = [], [], math.inf, 0
    for epoch in range(epochs):
        model.train()
        for batch in train_loader:
            inputs = batch["input_ids"].to(device, non_blocking=True)
            labels = batch["labels"].to(device, non_blocking=True)
            with f.autocast(device_type=device, dtype=amp_dtype or f.bfloat16, enabled=amp_dtype is not None):
                logits = model(inputs)
                loss = f.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=PAD)
            optimizer.zero_grad(set_to_none=True)
            if scaler.is_enabled():
                scaler.scale(loss).backward()
                scaler.unscale_(optimizer)
                f.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
            else:
                loss.backward()
                f.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
            schedule.step()
            losses.append(loss.item())
        validations.append(evaluate(f, model, val_loader, device, amp_dtype))
        if validations[-1] < best:
            best, since_best = validations[-1], 0
            if save is not None:
                save(model, optimizer, schedule, scaler, epoch)
        else:
            since_best += 1
            if since_best >= patience:
                break
    return losses, validations, scaler, (model, optimizer, schedule)


def evaluate(f, model, loader, device: str, amp_dtype) -> float:
    @f.inference_mode()
    def run() -> float:
        model.eval()
        total, n = 0.0, 0
        for batch in loader:
            inputs, labels = batch["input_ids"].to(device), batch["labels"].to(device)
            with f.autocast(device_type=device, dtype=amp_dtype or f.bfloat16, enabled=amp_dtype is not None):
                logits = model(inputs)
                loss = f.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=PAD)
            total += loss.item() * inputs.size(0)
            n += inputs.size(0)
        return total / max(n, 1)

    return run()


@pytest.mark.parametrize(("dtype", "tolerance"), [(None, 1e-4), ("bfloat16", 0.08), ("float16", 0.02)])
def test_training_run_is_pytorchs(dtype: str | None, tolerance: float):
    """A whole training run ends elsewhere than PyTorch's from the same seed, or does not learn."""
    ours, our_validations, scaler, _ = train(flambeau, dtype and getattr(flambeau, dtype))
    theirs, their_validations, their_scaler, _ = train(torch, dtype and getattr(torch, dtype))
    assert ours == pytest.approx(theirs, abs=tolerance)
    assert our_validations == pytest.approx(their_validations, abs=tolerance)
    assert scaler.state_dict() == their_scaler.state_dict()
    assert our_validations[-1] < 0.5 * ours[0]


def test_state_saved_in_the_run_continues_it(tmp_path):
    """A run that goes on from its saved model, optimizer, schedule, scaler and random state computes another loss."""
    path = tmp_path / "best.pt"

    def save(model, optimizer, schedule, scaler, epoch):
        state = {
            "model": model.state_dict(), "optimizer": optimizer.state_dict(), "schedule": schedule.state_dict(), "scaler": scaler.state_dict(),
            "rng": flambeau.get_rng_state(), "epoch": epoch,
        }  # fmt: skip
        flambeau.save(state, path)

    _, _, _, (model, optimizer, _) = train(flambeau, flambeau.float16, epochs=1, save=save)
    state = flambeau.load(path, map_location="cpu")

    def one_more(model, optimizer, scaler):
        batch = next(iter(loader(flambeau, 6, 9, shuffle=False)))
        model.train()
        with flambeau.autocast("cpu", dtype=flambeau.float16):
            logits = model(batch["input_ids"])
            loss = flambeau.nn.functional.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=PAD)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.item(), [p.sum().item() for p in model.parameters()], scaler.state_dict()

    results = []
    for _ in range(2):
        flambeau.manual_seed(123)
        fresh = build_model(flambeau)
        moved = flambeau.optim.AdamW(groups(fresh, 0.1), lr=1e-2, betas=(0.9, 0.95))
        scaler = flambeau.amp.GradScaler("cpu")
        fresh.load_state_dict(state["model"])
        moved.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        flambeau.set_rng_state(state["rng"])
        results.append(one_more(fresh, moved, scaler))
    original = flambeau.amp.GradScaler("cpu")
    original.load_state_dict(state["scaler"])
    flambeau.set_rng_state(state["rng"])
    results.append(one_more(model, optimizer, original))
    assert results[0] == results[1] == results[2]
