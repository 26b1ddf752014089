"""What tensors answer that is no operation: Python's protocols, questions, transposes, views in place. Importing it attaches the methods."""

from flambeau.tensor.methods import dense_only, inplace_views, matrix_views, protocols, subclass

__all__ = ["dense_only", "inplace_views", "matrix_views", "protocols", "subclass"]
