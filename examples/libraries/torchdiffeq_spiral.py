"""torchdiffeq: a differential equation whose right-hand side is a network, fitted to a spiral by backpropagation and by the adjoint method."""

import torch
from torch import nn
from torchdiffeq import odeint, odeint_adjoint

torch.set_default_dtype(torch.float64)
times = torch.linspace(0.0, 2.0, 12)
truth = odeint(lambda t, y: y**3 @ torch.tensor([[-0.1, 2.0], [-2.0, -0.1]]), torch.tensor([[2.0, 0.0]]), times, method="dopri5")
print("truth", truth[-1].tolist())


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

    def forward(self, t, y):
        return self.net(y**3)


for solve, method in ((odeint, "dopri5"), (odeint, "rk4"), (odeint_adjoint, "dopri5"), (odeint_adjoint, "euler")):
    torch.manual_seed(0)
    field = Field()
    optimizer = torch.optim.RMSprop(field.parameters(), lr=1e-3)
    for _ in range(4):
        loss = (solve(field, truth[0], times, method=method) - truth).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(solve.__name__, method, loss.item())
