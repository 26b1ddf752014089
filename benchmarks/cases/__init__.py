"""All cases. Importing a file declares what stands in it; the order here is the order of the table."""

from importlib import import_module

SUBJECTS = (
    "small_ops",
    "small_calls",
    "changing_shapes",
    "pointwise",
    "reductions",
    "matmul",
    "indexing",
    "convolution",
    "layers",
    "losses",
    "attention",
    "recurrent",
    "quantization",
    "modules",
    "optim",
    "training",
    "mixed_precision",
    "profiling",
    "memory",
    "files",
    "data",
    "startup",
)

for subject in SUBJECTS:
    import_module(f"benchmarks.cases.{subject}")
