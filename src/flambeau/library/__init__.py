"""torch.library: operators of a program's own, with a name, a derivative, and rules for devices, vmap, autocast and the meta device.

    @custom_op("shop::double", mutates_args=())
    def double(x: Tensor) -> Tensor:
        return x * 2

    double.register_autograd(lambda ctx, grad: grad * 2)
    torch.ops.shop.double(x)

`Library` is the way with schemas and dispatch keys, `custom_op` the one with a function and its annotations. See README.md.
"""

from __future__ import annotations

from typing import Any

from flambeau import import_only
from flambeau.library import libraries
from flambeau.library.custom_op import CustomOpDef, custom_op
from flambeau.library.inference import infer_schema
from flambeau.library.libraries import Library, fallthrough_kernel
from flambeau.library.registering import (
    define,
    get_ctx,
    get_kernel,
    impl,
    impl_abstract,
    register_autocast,
    register_autograd,
    register_fake,
    register_kernel,
    register_torch_dispatch,
    register_vmap,
)  # fmt: skip

__all__ = [
    "CustomOpDef", "Library", "custom_op", "define", "fallthrough_kernel", "get_ctx", "get_kernel", "impl", "impl_abstract", "infer_schema", "opcheck",
    "register_autocast", "register_autograd", "register_fake", "register_kernel", "register_torch_dispatch", "register_vmap", "triton_op", "wrap_triton",
]  # fmt: skip

_impls, _defs, _scoped_library = libraries._impls, libraries._defs, libraries.scoped_library

triton_op, wrap_triton = import_only.functions(
    "torch.library",
    "triton_op wrap_triton",
    "Flambeau launches no Triton kernels. torch.library.custom_op makes an operator of any function, which may launch one itself",
)


def opcheck(op: Any, args: tuple, kwargs: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    """Whether an operator is what its schema and registrations say: see checking.py for what is looked at, and its options."""
    from flambeau.library import checking

    return checking.opcheck(op, args, kwargs, **options)
