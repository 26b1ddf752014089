"""torch._tensor: where PyTorch's own code, code copied from it, and its pickles find Tensor."""

from flambeau.tensor import Tensor as Tensor
from flambeau.tensor.making.pickling import _rebuild_from_type_v2 as _rebuild_from_type_v2
