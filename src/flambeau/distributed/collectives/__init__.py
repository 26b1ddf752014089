"""The functions of torch.distributed: one file for each collective. `flambeau.distributed` and its `distributed_c10d` show them."""
