"""inline_asm_elementwise: instructions of a GPU for every element. They would need a compiler."""

from __future__ import annotations

from flambeau import import_only

(inline_asm_elementwise,) = import_only.functions(
    "torch._higher_order_ops.inline_asm_elementwise",
    "inline_asm_elementwise",
    "assembler for GPUs is inserted by a compiler, which is not here. flambeau.utils.cpp_extension and CuPy run kernels written in CUDA",
)
