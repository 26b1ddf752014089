"""A small training run that saves a checkpoint after every step, and kills itself after one: killed_training.py FOLDER WORKERS STEP."""

import os
import pickle
import random
import signal
import sys
from pathlib import Path

import numpy as np

import flambeau as torch
from flambeau.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    """Points with noise from every kind of generator."""

    def __init__(self):
        self.rng = np.random.default_rng(0)

    def __len__(self):
        return 20

    def __getitem__(self, i):
        noise = random.random() + np.random.rand() + self.rng.normal()
        return torch.full((4,), float(i)) + torch.randn(4) * noise, i % 2


def main(folder, workers, kill_at):
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    loader = DataLoader(Augmented(), 4, shuffle=True, num_workers=workers)
    start, step, checkpoint = 0, 0, folder / "checkpoint"
    if checkpoint.exists():
        saved = pickle.loads(checkpoint.read_bytes())
        start, step = saved["epoch"], saved["step"]
        for part, state in zip((model, optimizer, schedule, loader), saved["states"], strict=True):
            part.load_state_dict(state)
        torch.set_rng_state(saved["rng"][0]), random.setstate(saved["rng"][1]), np.random.set_state(saved["rng"][2])
    for epoch in range(start, 3):
        for x, y in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            schedule.step()
            step += 1
            states = [part.state_dict() for part in (model, optimizer, schedule, loader)]
            rng = torch.get_rng_state(), random.getstate(), np.random.get_state()
            temporary = folder / "temporary"
            temporary.write_bytes(pickle.dumps({"epoch": epoch, "step": step, "states": states, "rng": rng}))
            os.replace(temporary, checkpoint)
            if step == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
    weights = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    (folder / "weights").write_bytes(weights)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
