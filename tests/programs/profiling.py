"""Where does the time go? The profiler around a few steps of training."""

import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, record_function

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 10))
with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as prof:
    for _ in range(5):
        with record_function("step"):
            nn.functional.cross_entropy(model(torch.randn(8, 32)), torch.randint(0, 10, (8,))).backward()
events = {event.key: event.count for event in prof.key_averages()}
print(events["step"], events["aten::linear"], events["aten::relu"])
print("Self CPU" in prof.key_averages().table(sort_by="cpu_time_total", row_limit=5))
