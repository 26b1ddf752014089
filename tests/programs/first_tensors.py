"""A first hour with tensors: making them, their shapes, dtypes and devices, indexing, broadcasting, matrix products."""

import numpy as np
import torch

# -- making them
a = torch.tensor([1.0, 2.0, 3.0])
print(a, a.dtype, a.device)
print(torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.int64), torch.full((2, 2), -1.0))
print(torch.arange(0, 10, 2), torch.linspace(0, 1, steps=5))
torch.manual_seed(0)
print(torch.randn(2, 3))
print(torch.rand(4), torch.randint(low=0, high=10, size=(2, 5)), torch.randperm(6))
print(torch.zeros_like(a), torch.randn_like(a), torch.eye(3))

array = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
shared = torch.from_numpy(array)
array[0, 0] = 99.0
print(shared, torch.as_tensor(array).data_ptr() == shared.data_ptr())

# -- shape, dtype, device
x = torch.arange(12).reshape(3, 4)
print("all:\n", x)
print("row", x[0], "column", x[:, 1], "corner", x[0:2, 1:3], "last", x[..., -1])
print(x.view(-1), x.T.shape, x.unsqueeze(0).shape, x.permute(1, 0).stride(), x.t().is_contiguous())
print(torch.zeros(1, 3, 1, 5).squeeze().shape, torch.zeros(1, 3, 1, 5).squeeze(0).shape, torch.Size([2, 3]).numel())
try:
    x.T.view(12)
except RuntimeError as problem:
    print("view of a transpose:", type(problem).__name__)
print(x.T.reshape(12), x.T.contiguous().view(12).shape)
h = torch.tensor([0.1, 1e-8, 1e5])
print(h.half(), h.bfloat16(), h.double(), h.long(), h.bool())
print((torch.ones(3) + torch.ones(3, dtype=torch.bfloat16)).dtype, (x / 2).dtype, (x > 3).dtype, torch.finfo(torch.bfloat16).max)
device = torch.device("cuda" if torch.cuda.is_available() else ("mps" if torch.backends.mps.is_available() else "cpu"))
print("device", device, torch.zeros(1, device=device).to(device).cpu().device, torch.cuda.device_count())

# -- indexing and broadcasting
mask = x > 5
print(x[mask], x[:, torch.tensor([0, 2])], torch.where(mask, x, -x))
logits = torch.arange(8.0).reshape(2, 4)
targets = torch.tensor([3, 1])
print(logits.gather(1, targets.unsqueeze(1)).squeeze(1), torch.zeros(2, 4).scatter_(1, targets.unsqueeze(1), 1.0))
print(torch.ones(3, 3) + torch.tensor([10, 20, 30]))
print((torch.randn(4, 1, 16) + torch.randn(8, 16)).shape, torch.tensor([[1, 2, 3]]).expand(4, 3), torch.tensor([1, 2]).repeat(2, 2))
try:
    torch.randn(3, 4) + torch.randn(2, 4)
except RuntimeError as problem:
    print("shapes that do not fit:", type(problem).__name__)

# -- arithmetic
m = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
print(m.abs(), m.clamp(min=0), m.sigmoid(), m.add_(1.0))
print(m.sum(), m.sum(dim=0), m.mean(dim=1, keepdim=True), m.max(dim=-1), m.argmax(dim=-1), m.std(), m.var(unbiased=False))
print(m @ m, torch.matmul(m, m[0]), torch.bmm(m.expand(3, 2, 2), m.expand(3, 2, 2))[2], torch.einsum("ij,jk->ik", m, m))
print(torch.einsum("ii->", m), torch.softmax(m, dim=1), torch.cat([m, m], dim=0).shape, torch.stack([m, m]).shape, m.sum().item())
