"""Autograd as a user meets it: backward, accumulation, leaving the graph, the chain rule, mistakes and their errors."""

import torch
import torch.nn.functional as F

x = torch.tensor(3.0, requires_grad=True)
y = x**2 + 2 * x + 1
y.backward()
print("slope at 3:", x.grad, y.grad_fn.__class__.__name__)

w = torch.tensor([2.0, 3.0], requires_grad=True)
for _ in range(2):
    (w**2).sum().backward()
    print("accumulated", w.grad)
w.grad.zero_()
(w**3).sum().backward()
print("after zeroing", w.grad)

# a logistic unit, by the engine and by hand
x1, target = torch.tensor([1.1]), torch.tensor([1.0])
w1, b = torch.tensor([2.2], requires_grad=True), torch.tensor([0.0], requires_grad=True)
z = x1 * w1 + b
a = torch.sigmoid(z)
loss = F.binary_cross_entropy(a, target)
loss.backward()
print(f"loss {loss.item():.4f} w1.grad {w1.grad.item():.4f} b.grad {b.grad.item():.4f} by hand {((a - target) * x1).item():.4f}")
print(torch.autograd.grad(torch.sigmoid(x1 * w1).sum(), w1))

# leaving the graph
t = torch.randn(4, requires_grad=True)
with torch.no_grad():
    print((t * 2).requires_grad, torch.is_grad_enabled())
with torch.inference_mode():
    inner = t * 2
print(t.detach().requires_grad, inner.is_inference(), t.is_leaf, (t * 1).is_leaf)


@torch.no_grad()
def predict(value):
    return value * t


print(predict(2.0).requires_grad)

for name, mistake in {
    "backward of a vector": lambda: (t * 2).backward(),
    "backward without a graph": lambda: torch.ones(1).backward(),
    "writing to a leaf": lambda: t.add_(1.0),
    "backward twice": lambda: [s.backward() for s in [(t * t).sum()] * 2],
    "inference tensor in a graph": lambda: (inner * t).sum().backward(),
}.items():
    try:
        mistake()
        print(name, "is allowed")
    except RuntimeError as problem:
        print(name, "->", type(problem).__name__)

# gradients can be watched, changed and checked
t = torch.tensor([1.0, -2.0], requires_grad=True)
t.register_hook(lambda grad: grad.clamp(max=1.0))
(t * torch.tensor([0.5, 5.0])).sum().backward()
print("clamped by a hook", t.grad)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        ctx.save_for_backward(value)
        return value**3

    @staticmethod
    def backward(ctx, grad):
        (value,) = ctx.saved_tensors
        return 3 * value**2 * grad


v = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True)
print(torch.autograd.gradcheck(Cube.apply, (v,)), torch.autograd.functional.hessian(lambda u: (u**3).sum(), v.detach()))
with torch.autograd.set_detect_anomaly(True):
    Cube.apply(v).sum().backward()
print(v.grad)
