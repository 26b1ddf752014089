"""All cases. Importing a file declares what stands in it; the order here is the order of the table."""

from benchmarks.cases import small_ops, pointwise, reductions, matmul, attention, recurrent, indexing, layers, startup  # isort: skip

__all__ = ["attention", "indexing", "layers", "matmul", "pointwise", "recurrent", "reductions", "small_ops", "startup"]
