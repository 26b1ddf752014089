"""torch.ao.pruning: weights of which a part is set to zero, by masks that a sparsifier makes."""

from flambeau.ao.pruning.fake_sparsity import FakeSparsity, fqn_to_module, get_arg_info_from_tensor_fqn, module_to_fqn
from flambeau.ao.pruning.sparsifier import BaseSparsifier
from flambeau.ao.pruning.weight_norm import WeightNormSparsifier

__all__ = ["BaseSparsifier", "FakeSparsity", "WeightNormSparsifier", "fqn_to_module", "get_arg_info_from_tensor_fqn", "module_to_fqn"]
