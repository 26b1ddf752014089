"""Every operation, declared once. Importing this room fills `OPS`."""

from importlib import import_module

from flambeau.ops.declare import OPS

# In the order of their subjects; an operation may use those of any other file when it runs.
SUBJECTS = (
    "promotion", "arithmetic", "powers", "signs", "bounds", "comparison", "conditional", "bitwise", "transcendental", "rounding",
    "special", "gamma_series", "bessel", "polynomials", "activation", "complex",
    "copying", "views", "shaping", "joining", "padding", "scattering", "masking", "indexing", "rows", "selection",
    "reductions", "extrema", "statistics", "cumulative", "calculus", "softmax", "normalization", "sorting", "quantiles", "searching", "counting", "masked",
    "products", "tensor_products", "einsum", "norms", "solvers", "decompositions", "lu", "householder", "linalg", "low_rank", "lobpcg",
    "distances", "fft", "spectrogram",
    "filling", "sampling", "comparing", "triangular", "grids",
)  # fmt: skip

for _subject in SUBJECTS:
    import_module(f"flambeau.ops.{_subject}")

__all__ = ["OPS", "SUBJECTS"]
