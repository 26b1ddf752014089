"""Layers with 8-bit weights (`quantize_dynamic`) and the same in float32, without gradients: a small batch waits for the weights' memory."""

from __future__ import annotations

import warnings

from benchmarks.case import case


def _layer(torch, device, layer, weights: str):
    net = torch.nn.Sequential(layer).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch announces that quantize_dynamic will be replaced one day
        return torch.ao.quantization.quantize_dynamic(net) if weights == "int8" else net.to(device)


def _forward(torch, net, x):
    def forward():
        with torch.no_grad():
            net(x)

    return forward


@case(wanted=1.0, weights=["int8", "float32"], features=[1024, 4096], batch=[1, 32, 256])
def linear(torch, device, weights, features, batch):
    """A linear layer to 1024 features."""
    return _forward(torch, _layer(torch, device, torch.nn.Linear(features, 1024), weights), torch.randn(batch, features))


@case(wanted=1.0, weights=["int8", "float32"], batch=[1, 32])
def lstm(torch, device, weights, batch):
    """An LSTM(256, 256), 50 steps."""
    return _forward(torch, _layer(torch, device, torch.nn.LSTM(256, 256), weights), torch.randn(50, batch, 256))
