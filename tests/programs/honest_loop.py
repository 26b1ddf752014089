"""A complete loop: groups, warm-up and cosine, mixed precision, clipping, validation, best and last checkpoints, early stopping."""

from pathlib import Path

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, random_split


class Copying(Dataset):
    """Sequences of tokens; the target is the next one. Padding is -100."""

    def __init__(self, count, length=12, vocabulary=16):
        generator = torch.Generator().manual_seed(0)
        start = torch.randint(0, vocabulary, (count, 1), generator=generator)
        step = torch.randint(1, 3, (count, 1), generator=generator)
        self.tokens = (start + step * torch.arange(length + 1)) % vocabulary

    def __len__(self):
        return len(self.tokens)

    def __getitem__(self, i):
        labels = self.tokens[i, 1:].clone()
        labels[-2:] = -100
        return {"input_ids": self.tokens[i, :-1], "labels": labels}


class Model(nn.Module):
    def __init__(self, vocabulary=16, width=32):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.rnn = nn.GRU(width, width, batch_first=True)
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, ids):
        h, _ = self.rnn(self.embed(ids))
        return self.head(self.norm(h))


def build_param_groups(model, weight_decay=0.1):
    decay, no_decay = [], []
    for name, p in model.named_parameters():
        (no_decay if p.ndim < 2 or "norm" in name or "embed" in name else decay).append(p)
    return [{"params": decay, "weight_decay": weight_decay}, {"params": no_decay, "weight_decay": 0.0}]


@torch.inference_mode()
def evaluate(model, loader, device, use_amp):
    model.eval()
    total, n = 0.0, 0
    for batch in loader:
        inputs, labels = batch["input_ids"].to(device, non_blocking=True), batch["labels"].to(device, non_blocking=True)
        with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=use_amp):
            logits = model(inputs)
            loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
        total += loss.item() * inputs.size(0)
        n += inputs.size(0)
    return total / max(n, 1)


def train(
    model, train_loader, val_loader, *, device="cpu", epochs=4, lr=1e-2, grad_clip=1.0, use_amp=True, folder="checkpoints", patience=1
):
    Path(folder).mkdir(parents=True, exist_ok=True)
    model.to(device)
    opt = torch.optim.AdamW(build_param_groups(model), lr=lr, betas=(0.9, 0.95))
    total_steps, warmup_steps = len(train_loader) * epochs, 4
    warmup = torch.optim.lr_scheduler.LinearLR(opt, 1e-3, 1.0, total_iters=warmup_steps)
    cosine = torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=max(1, total_steps - warmup_steps))
    sched = torch.optim.lr_scheduler.SequentialLR(opt, [warmup, cosine], milestones=[warmup_steps])
    scaler = torch.amp.GradScaler(device, enabled=False)  # bfloat16 needs none
    best, waited, step = float("inf"), 0, 0
    for epoch in range(epochs):
        model.train()
        for batch in train_loader:
            inputs, labels = batch["input_ids"].to(device, non_blocking=True), batch["labels"].to(device, non_blocking=True)
            with torch.autocast(device_type=device, dtype=torch.bfloat16, enabled=use_amp):
                logits = model(inputs)
                loss = F.cross_entropy(logits.reshape(-1, logits.size(-1)), labels.reshape(-1), ignore_index=-100)
            opt.zero_grad(set_to_none=True)
            scaler.scale(loss).backward()
            scaler.unscale_(opt)
            torch.nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
            scaler.step(opt)
            scaler.update()
            sched.step()
            step += 1
        value = evaluate(model, val_loader, device, use_amp)
        print(f"epoch {epoch} step {step} val_loss {value:.1f} lr {opt.param_groups[0]['lr']:.2e} {logits.dtype} {loss.dtype}")
        state = {
            "epoch": epoch,
            "model": model.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
            "scaler": scaler.state_dict(),
        }
        if value < best:
            best, waited = value, 0
            torch.save(state, Path(folder) / "best.pt")
        else:
            waited += 1
            if waited >= patience:
                print(f"early stop at epoch {epoch}")
                break
        torch.save(state, Path(folder) / "last.pt")


def main():
    torch.manual_seed(0)
    train_set, val_set = random_split(Copying(160), [128, 32])
    loaders = [DataLoader(s, batch_size=16, shuffle=s is train_set, drop_last=True, pin_memory=False) for s in (train_set, val_set)]
    model = Model()
    train(model, *loaders)
    print(sorted(p.name for p in Path("checkpoints").iterdir()))
    best = torch.load("checkpoints/best.pt", map_location="cpu")
    print(model.load_state_dict(best["model"]), best["scaler"], {p.dtype for p in model.parameters()})
    ids = torch.tensor([[3, 5, 7, 9]])
    print(model.eval()(ids)[0, -1].argmax().item())


if __name__ == "__main__":
    main()
