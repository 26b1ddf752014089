"""Groups of ranks, and the calls they make together."""

from flambeau.distributed.groups.process_group import BackendKind as BackendKind
from flambeau.distributed.groups.process_group import ProcessGroup as ProcessGroup
from flambeau.distributed.groups.start import start as start
from flambeau.distributed.groups.work import Work as Work
