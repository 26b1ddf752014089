"""accelerate: `accelerate launch --cpu --num_processes 2`: uneven batches, accumulation, gathering for metrics, states saved and loaded."""

import tempfile

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object, set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
rank = accelerator.process_index


def loader(size, seed, shuffle):
    x = torch.randn(size, 8, generator=torch.Generator().manual_seed(seed))
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True).sin()), batch_size=4, shuffle=shuffle)


data, held_out = loader(63, 1, True), loader(21, 2, False)
model = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Dropout(0.1), nn.Linear(32, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=200)
model, optimizer, data, held_out, schedule = accelerator.prepare(model, optimizer, data, held_out, schedule)


def epoch():
    total = 0.0
    model.train()
    for inputs, targets in data:
        with accelerator.accumulate(model):
            loss = nn.functional.mse_loss(model(inputs), targets)
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        total += accelerator.reduce(loss.detach(), "mean").item()
    return total / len(data)


def evaluate():
    model.eval()
    with torch.no_grad():
        found = [accelerator.gather_for_metrics((model(inputs), targets)) for inputs, targets in held_out]
    outputs, targets = (torch.cat(column) for column in zip(*found, strict=True))
    return len(outputs), nn.functional.l1_loss(outputs, targets).item()


accelerator.print(accelerator.device, accelerator.num_processes, accelerator.distributed_type, type(model).__name__, len(data))
for _ in range(3):
    loss = epoch()
    accelerator.print("loss", loss, "held out", evaluate(), "rate", schedule.get_last_lr()[0])

# What ranks tell each other.
rows = torch.arange(2 + rank, dtype=torch.float32)
accelerator.print("gathered", accelerator.gather(torch.tensor([rank, rank + 1.5])).tolist())
accelerator.print("padded", accelerator.gather(accelerator.pad_across_processes(rows, pad_index=-1)).tolist())
with accelerator.split_between_processes(list("abcde")) as mine:
    accelerator.print("objects", gather_object([f"{rank}: {letter}" for letter in mine]))
words = broadcast_object_list([f"from {rank}", {"rank": rank}])
accelerator.print("broadcast", words, accelerator.reduce(torch.tensor([1.0 + rank])).tolist())
with accelerator.main_process_first():
    pass
if rank == 1:
    accelerator.set_trigger()
accelerator.print("trigger", accelerator.check_trigger())

# The state of all ranks in one folder, generators of random numbers included.
with tempfile.TemporaryDirectory() as mine:
    folder = broadcast_object_list([mine])[0]
    accelerator.save_state(folder)
    saved = evaluate()
    accelerator.print("further", epoch(), evaluate())
    accelerator.load_state(folder)
    accelerator.print("back", saved == evaluate(), saved, "and on", epoch(), epoch())
    accelerator.wait_for_everyone()
    accelerator.save_model(model, folder)
    state = accelerator.get_state_dict(model)
    accelerator.print({name: value.norm().item() for name, value in accelerator.unwrap_model(model).state_dict().items()}, list(state))
    accelerator.wait_for_everyone()
accelerator.end_training()
