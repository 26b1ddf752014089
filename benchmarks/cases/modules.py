"""What a Module costs around its forward: calls, attributes, and a small network."""

from __future__ import annotations

from benchmarks.case import case


@case(wanted=0.6, layers=[1, 10])
def module_call(torch, device, layers):
    """Calling modules that do nothing, one after another."""
    model = torch.nn.Sequential(*[torch.nn.Identity() for _ in range(layers)])
    return lambda: model(1)


@case(wanted=0.6)
def module_attributes(torch, device):
    """self.layer, self.weight and self.bias, as every forward reads them."""
    model = torch.nn.Module()
    model.layer = torch.nn.Linear(2, 2)

    def read():
        layer = model.layer
        return layer.weight, layer.bias

    return read


@case(wanted=1.0)
def module_forward_hook(torch, device):
    """Calling a module with one forward hook."""
    model = torch.nn.Identity()
    model.register_forward_hook(lambda module, args, output: None)
    return lambda: model(1)


@case(wanted=0.6)
def state_dict(torch, device):
    """The state_dict of 20 layers."""
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2, device=device) for _ in range(20)])
    return lambda: model.state_dict()
