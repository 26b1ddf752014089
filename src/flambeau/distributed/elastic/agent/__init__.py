"""torch.distributed.elastic.agent: what runs once on every machine and looks after the workers there."""
