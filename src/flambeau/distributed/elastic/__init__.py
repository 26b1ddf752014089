"""torch.distributed.elastic: agents that start workers, watch them, and start them again. `flambeau run --nproc_per_node=2` is made of them."""
