"""Recurrent networks in float32: a train step is forward, backward to all weights, no optimizer."""

from __future__ import annotations

from benchmarks.case import case


def _network(torch, device, kind, layers=2, features=64, hidden=128):
    return getattr(torch.nn, kind)(features, hidden, layers).to(device)


@case(wanted=0.8, kind=["LSTM", "GRU", "RNN"])
def train(torch, device, kind):
    """Two layers, 64 features, 128 states, 50 steps, batch 32."""
    net, x = _network(torch, device, kind), torch.randn(50, 32, 64, device=device)
    weights = list(net.parameters())

    def step():
        for w in weights:
            w.grad = None
        net(x)[0].sum().backward()

    return step


@case(wanted=0.8, kind=["LSTM", "GRU"])
def infer(torch, device, kind):
    """The same network forward, without gradients."""
    net, x = _network(torch, device, kind).eval(), torch.randn(50, 32, 64, device=device)

    def step():
        with torch.no_grad():
            net(x)

    return step


@case(wanted=0.8)
def one_sample(torch, device):
    """An LSTM(64, 128) of one layer on one sequence of 20 steps, without gradients: latency."""
    net, x = _network(torch, device, "LSTM", 1).eval(), torch.randn(20, 1, 64, device=device)

    def step():
        with torch.no_grad():
            net(x)

    return step
