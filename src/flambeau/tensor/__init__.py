"""What a tensor is, how tensors are made, shown, copied and shared. The rooms around it find here what they need of every tensor."""

from flambeau.tensor.tensor import DISPATCHED, PLAIN, Size, Tensor, wrap

__all__ = ["DISPATCHED", "PLAIN", "Size", "Tensor", "wrap"]
