"""torch.types: names for annotations."""

from __future__ import annotations

import builtins
import os
from collections.abc import Sequence
from typing import IO, Any, TypeAlias

from flambeau import devices, dtypes
from flambeau.tensor import Size, Tensor, layouts
from flambeau.tensor.memory.typed_storage import TypedStorage
from flambeau.tensor.memory.untyped_storage import UntypedStorage

__all__ = ["Device", "FileLike", "Number", "Storage"]

_int, _float, _bool, _complex = builtins.int, builtins.float, builtins.bool, builtins.complex
_dtype, _device, _layout, _size = dtypes.dtype, devices.device, layouts.layout, Size | list[int] | tuple[int, ...]

Number: TypeAlias = int | float | bool
Device: TypeAlias = devices.device | str | int | None
FileLike: TypeAlias = str | os.PathLike[str] | IO[bytes]
Storage: TypeAlias = UntypedStorage | TypedStorage
_TensorOrTensors: TypeAlias = Tensor | Sequence[Tensor]
_Number = (int, float, bool)
_symtype: tuple[Any, ...] = ()
