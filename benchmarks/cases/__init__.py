"""All cases. Importing a file declares what stands in it; the order here is the order of the table."""

from benchmarks.cases import small_ops, pointwise, reductions, matmul, convolution, indexing, startup  # isort: skip

__all__ = ["convolution", "indexing", "matmul", "pointwise", "reductions", "small_ops", "startup"]
