"""Saving and loading: `torch.save`, `torch.load`, and what surrounds them."""

# ruff: noqa: F401 - names are imported to be public

from __future__ import annotations

import pickle  # the default of pickle_module, which programs find here
from tempfile import mkdtemp

from flambeau.serialization.allowed import add_safe_globals, clear_safe_globals, get_safe_globals, safe_globals
from flambeau.serialization.legacy_format import MAGIC_NUMBER, PROTOCOL_VERSION, STORAGE_KEY_SEPARATOR
from flambeau.serialization.loading import get_unsafe_globals_in_checkpoint, load
from flambeau.serialization.locations import (
    MAP_LOCATION,
    default_restore_location,
    location_tag,
    normalize_storage_type,
    register_package,
    storage_to_tensor_type,
    validate_cuda_device,
    validate_hpu_device,
)
from flambeau.serialization.options import (
    MAP_PRIVATE,
    MAP_SHARED,
    LoadEndianness,
    get_crc32_options,
    get_default_load_endianness,
    get_default_mmap_options,
    set_crc32_options,
    set_default_load_endianness,
    set_default_mmap_options,
    skip_data,
)
from flambeau.serialization.saving import DEFAULT_PROTOCOL, FILE_LIKE, _get_layout, save
from flambeau.serialization.versions import check_module_version_greater_or_equal
from flambeau.tensor.memory.typed_storage import LEGACY_STORAGES

FileLike = FILE_LIKE


class StorageType:
    """The dtype of a storage by the name of its class: StorageType("FloatStorage").dtype is torch.float32."""

    def __init__(self, name: str):
        found = LEGACY_STORAGES.get(name)
        if found is None:
            raise KeyError(f'pickle storage type "{name}" is not recognized')
        self.dtype = found.dtype

    def __str__(self) -> str:
        return f"StorageType(dtype={self.dtype})"


class SourceChangeWarning(Warning):
    """For programs that filter it: PyTorch says with it that a class has changed since a module was saved whole."""
