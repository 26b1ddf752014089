"""functorch.einops: the first place of `torch.func.rearrange`."""

from flambeau.func.rearranging import rearrange as rearrange

__all__ = ["rearrange"]
