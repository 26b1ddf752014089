"""Batched tensors and vmap: see README.md."""
