"""A checkpoint that continues exactly: model, optimizer, schedule and every random stream, saved in the middle of a run."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


def save_checkpoint(model, opt, sched, step, path):
    torch.save(
        {
            "step": step,
            "model": model.state_dict(),
            "optimizer": opt.state_dict(),
            "scheduler": sched.state_dict(),
            "rng_torch_cpu": torch.get_rng_state(),
            "rng_torch_cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else None,
            "rng_numpy": np.random.get_state(),
            "rng_python": random.getstate(),
        },
        path,
    )


def load_checkpoint(path, model, opt, sched):
    ck = torch.load(path, map_location="cpu", weights_only=False)  # it holds NumPy's and Python's states too
    model.load_state_dict(ck["model"])
    opt.load_state_dict(ck["optimizer"])
    sched.load_state_dict(ck["scheduler"])
    torch.set_rng_state(ck["rng_torch_cpu"])
    np.random.set_state(ck["rng_numpy"])
    random.setstate(ck["rng_python"])
    return ck["step"]


def make():
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 2))
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return model, opt, torch.optim.lr_scheduler.CosineAnnealingLR(opt, T_max=20)


def train(model, opt, sched, first, last, save_at=None):
    losses = []
    for step in range(first, last):
        if step == save_at:
            save_checkpoint(model, opt, sched, step, "middle.pt")
        x = torch.randn(16, 6) + np.random.rand() + random.random()
        loss = F.cross_entropy(model(x), (x.sum(1) > 6).long())
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        sched.step()
        losses.append(loss.item())
    return losses


torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
model, opt, sched = make()
losses = train(model, opt, sched, 0, 12, save_at=6)
print([f"{loss:.4f}" for loss in losses])
again, opt, sched = make()
step = load_checkpoint("middle.pt", again, opt, sched)
print(step, train(again, opt, sched, step, 12) == losses[6:], all(map(torch.equal, model.parameters(), again.parameters())))

# files hold what they are given: dtypes, views that share memory, parameters, plain values
base = torch.arange(6.0)
torch.save(
    {"base": base, "view": base[2:4], "half": base.bfloat16(), "p": nn.Parameter(base.clone()), "n": (1, "a", None, 2.5, True)}, "things.pt"
)
things = torch.load("things.pt")
things["view"].fill_(-1)
print(things, things["base"].untyped_storage().data_ptr() == things["view"].untyped_storage().data_ptr())


class Custom:
    pass


torch.save(Custom(), "custom.pt")
try:
    torch.load("custom.pt", weights_only=True)
except Exception as problem:
    print(type(problem).__name__)
print(type(torch.load("custom.pt", weights_only=False)).__name__)
