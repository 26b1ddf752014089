"""Classes and modes that carry operations out themselves, below autograd: `__torch_dispatch__`."""
