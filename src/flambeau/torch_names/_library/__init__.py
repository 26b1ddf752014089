"""torch._library: the paths by which programs import what torch.library is made of."""

from flambeau._library import autograd, custom_ops, fake_impl, infer_schema, simple_registry, utils
from flambeau.library import triton_op, wrap_triton

__all__ = ["autograd", "custom_ops", "fake_impl", "infer_schema", "simple_registry", "triton_op", "utils", "wrap_triton"]
