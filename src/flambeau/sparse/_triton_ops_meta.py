"""torch.sparse._triton_ops_meta: measurements for kernels that are not here."""

from __future__ import annotations

from flambeau import import_only
from flambeau.sparse._triton_ops import WHY

get_meta, minimize, update = import_only.functions("torch.sparse._triton_ops_meta", "get_meta minimize update", WHY)
