"""The class of `grad_fn._raw_saved_self` and the like; what is saved, and how, is told in eager/saved.py."""

from flambeau.eager.saved import SavedTensor

__all__ = ["SavedTensor"]
