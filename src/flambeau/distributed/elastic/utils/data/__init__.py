"""torch.distributed.elastic.utils.data: reading on from where a group was when it was started again."""

from flambeau.distributed.elastic.utils.data.cycling_iterator import CyclingIterator
from flambeau.distributed.elastic.utils.data.elastic_distributed_sampler import ElasticDistributedSampler

__all__ = ["CyclingIterator", "ElasticDistributedSampler"]
