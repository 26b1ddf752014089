"""torch._tensor: where PyTorch's own code, and code copied from it, finds Tensor."""

from flambeau.tensor import Tensor as Tensor
