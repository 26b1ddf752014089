"""torch.distributed.tensor.experimental._context_parallel: the newer path of `_attention`."""
