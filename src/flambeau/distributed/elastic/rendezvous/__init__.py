"""torch.distributed.elastic.rendezvous: how the agents of several machines find each other, and agree on who is who."""

from flambeau.distributed.elastic.rendezvous.api import *
from flambeau.distributed.elastic.rendezvous.api import __all__ as __all__
from flambeau.distributed.elastic.rendezvous.registry import register_default_handlers

register_default_handlers()
