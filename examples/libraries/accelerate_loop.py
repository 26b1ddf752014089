"""accelerate: the loop of its quick tour: prepare, accumulate gradients, clip, gather, save the state and load it."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
x = torch.randn(64, 8)
data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=24)
model, optimizer, data, schedule = accelerator.prepare(model, optimizer, data, schedule)


def epoch():
    total = 0.0
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total += accelerator.gather(loss.detach()).mean().item()
    return total / len(data)


print(accelerator.device, accelerator.num_processes, accelerator.distributed_type)
for _ in range(3):
    print("loss", epoch(), "rate", schedule.get_last_lr()[0])
with tempfile.TemporaryDirectory() as folder:
    accelerator.save_state(folder)
    once = [epoch() for _ in range(2)]
    accelerator.load_state(folder)
    print("resumed", once == [epoch() for _ in range(2)], once)
print(type(accelerator.unwrap_model(model)).__name__)
with accelerator.autocast():
    print(accelerator.gather_for_metrics(model(x[:2])).flatten().tolist())
