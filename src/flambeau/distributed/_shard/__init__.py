"""torch.distributed._shard: tensors in pieces, as PyTorch had them before DTensor. What describes them is here; the tensors are not."""
