"""nn.Module: parameters, buffers, containers, state dictionaries, hooks, the common layers and losses."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.modules.container import Sequential


class MLP(nn.Module):
    def __init__(self, d_in: int, d_hidden: int, d_out: int, p_drop: float = 0.1):
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.act = nn.GELU()
        self.drop = nn.Dropout(p_drop)
        self.fc2 = nn.Linear(d_hidden, d_out)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc2(self.drop(self.act(self.fc1(x)))) * self.scale


torch.manual_seed(0)
model = MLP(8, 16, 4)
print(model)
for name, p in model.named_parameters():
    print(f"{name:12s} {tuple(p.shape)} {p.requires_grad} {p.mean().item():+.5f}")
print(f"parameters: {sum(p.numel() for p in model.parameters()):,}", list(model.state_dict()), [n for n, _ in model.named_buffers()])
model.eval()
print(model(torch.ones(2, 8)))
model.train()
print(model(torch.ones(2, 8)))

# state dictionaries
other = MLP(8, 16, 4)
print(other.load_state_dict(model.state_dict()))
print(torch.equal(other.eval()(torch.ones(1, 8)), model.eval()(torch.ones(1, 8))))
state = model.state_dict()
state.pop("fc2.bias")
state["more"] = torch.zeros(1)
missing, unexpected = other.load_state_dict(state, strict=False)
print(missing, unexpected)
try:
    other.load_state_dict(state)
except RuntimeError as problem:
    print("strict:", type(problem).__name__)


class Stack(nn.Module):
    def __init__(self, layers, d):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(d, d) for _ in range(layers)])
        self.heads = nn.ModuleDict({"classifier": nn.Linear(d, 3), "regressor": nn.Linear(d, 1)})

    def forward(self, x, head):
        for layer in self.layers:
            x = F.gelu(layer(x))
        return self.heads[head](x)


stack = Stack(2, 4)
print(len(list(stack.parameters())), stack(torch.ones(1, 4), "classifier").shape, stack(torch.ones(1, 4), "regressor").shape)

# hooks
shapes = []
pipe = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 2))
handles = [m.register_forward_hook(lambda m, args, out: shapes.append((m.__class__.__name__, tuple(out.shape)))) for m in pipe.children()]
pipe(torch.randn(3, 3, 4)).sum().backward()
for handle in handles:
    handle.remove()
pipe(torch.randn(3, 3, 4))
print(shapes, isinstance(pipe, Sequential))
for name, p in pipe.named_parameters():
    print(f"{name:10s} grad mean={p.grad.mean():.4f} std={p.grad.std():.4f}")

# layers and losses
torch.manual_seed(1)
ids = torch.randint(0, 50, (2, 6))
h = nn.Embedding(50, 8)(ids)
out, weights = nn.MultiheadAttention(8, 2, batch_first=True)(h, h, h)
print(h.shape, nn.LayerNorm(8)(h).mean().abs().item() < 1e-6, out.shape, weights.shape, nn.BatchNorm1d(6)(h).std().item() > 0.9)
print(nn.Conv2d(1, 4, 3, padding=1)(torch.randn(2, 1, 8, 8)).shape, nn.MaxPool2d(2)(torch.randn(2, 4, 8, 8)).shape)
logits, labels = torch.randn(4, 5), torch.tensor([1, 0, -100, 4])
print(f"{nn.CrossEntropyLoss(ignore_index=-100)(logits, labels).item():.4f} {nn.MSELoss()(logits, logits + 1).item():.4f}")
print(f"{nn.BCEWithLogitsLoss()(logits, (logits > 0).float()).item():.4f} {nn.L1Loss()(logits, logits * 2).item():.4f}")
for bad in (labels.float(), labels.int()):
    try:
        F.cross_entropy(logits, bad)
        print(bad.dtype, "is accepted")
    except (RuntimeError, IndexError) as problem:
        print(bad.dtype, type(problem).__name__)
