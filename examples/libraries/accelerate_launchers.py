"""accelerate: debug_launcher and notebook_launcher, which start two processes of a function of this program."""

import socket

import torch
from accelerate import Accelerator, debug_launcher, notebook_launcher
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def train(title, steps):
    set_seed(0)
    accelerator = Accelerator(cpu=True)
    x = torch.randn(64, 8, generator=torch.Generator().manual_seed(1))
    model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=4, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, optimizer, data)
    for _, (inputs, targets) in zip(range(steps), data, strict=False):
        loss = nn.functional.mse_loss(model(inputs), targets)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses = accelerator.gather(loss.detach().reshape(1)).tolist()
        if accelerator.process_index == 0:
            print(title, accelerator.num_processes, losses, flush=True)


if __name__ == "__main__":
    debug_launcher(train, ("debug", 4), num_processes=2)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    notebook_launcher(train, ("notebook", 4), num_processes=2, use_port=port)
