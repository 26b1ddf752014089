"""torch.distributed.elastic.utils: what PyTorch keeps at this path."""

from flambeau.distributed.elastic.utils.api import get_env_variable_or_raise, get_socket_with_port, macros

__all__ = ["get_env_variable_or_raise", "get_socket_with_port", "macros"]
