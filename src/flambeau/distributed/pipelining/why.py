"""What is said of every name of torch.distributed.pipelining."""

WHY = "there is no pipeline of processes here. DistributedDataParallel, fully_shard and parallelize_module divide a model's work among them"
