"""Where a storage was when it was saved ("cpu", "cuda:0"), and where it goes when it is loaded: `map_location` in all its forms.

Devices are a list of pairs (tagger, deserializer), which `register_package` extends: the first tagger that knows a storage names its
place, the first deserializer that knows a name puts the bytes there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from flambeau import devices
from flambeau.kernels import arrays
from flambeau.tensor.memory import host_memory
from flambeau.tensor.memory.typed_storage import LEGACY_STORAGES
from flambeau.tensor.memory.untyped_storage import UntypedStorage

MAP_LOCATION: TypeAlias = Callable[[Any, str], Any] | devices.device | str | dict[str, str] | None
_registry: list[tuple[int, Callable, Callable]] = []


def register_package(priority: int, tagger: Callable[[Any], str | None], deserializer: Callable[[Any, str], Any]) -> None:
    """Teach `save` and `load` another place for storages: `tagger(storage)` names it, `deserializer(storage, name)` moves bytes there; both
    answer None for places they do not know. Lower priorities are asked first; 10 is the CPU, 20 CUDA, 22 meta."""
    _registry.append((priority, tagger, deserializer))
    _registry.sort(key=lambda entry: entry[0])


def location_tag(storage: Any) -> str:
    """The name of the place a storage is at."""
    for _, tagger, _ in _registry:
        location = tagger(storage)
        if location:
            return location
    raise RuntimeError(f"don't know the data location of {type(storage).__name__}: register_package teaches it")


def default_restore_location(storage: Any, location: str) -> Any:
    """A storage in main memory brought to the place of that name."""
    for _, _, deserializer in _registry:
        result = deserializer(storage, location)
        if result is not None:
            return result
    raise RuntimeError(f"don't know the data location {location} of torch.storage.{type(storage).__name__}. Try map_location='cpu'")


def restorer(map_location: MAP_LOCATION) -> Callable[[Any, str], Any]:
    """(storage in main memory, place it was saved from) -> storage where `map_location` wants it."""
    if map_location is None:
        return default_restore_location
    if isinstance(map_location, dict):
        mapped = map_location
        return lambda storage, location: default_restore_location(storage, mapped.get(location, location))
    if isinstance(map_location, (str, bytes, devices.device)):
        place = map_location.decode() if isinstance(map_location, bytes) else str(map_location)
        return lambda storage, location: default_restore_location(storage, place)
    if not callable(map_location):
        expected = "None, a string, a torch.device, a dict of strings or a function (storage, location) -> storage"
        raise TypeError(f"map_location is a {type(map_location).__name__}, which is not callable: expected {expected}")
    chosen: Callable = map_location

    def ask(storage: Any, location: str) -> Any:
        result = chosen(storage, location)
        return default_restore_location(storage, location) if result is None else result

    return ask


def destination(map_location: MAP_LOCATION, location: str) -> str | None:
    """The name of the place a storage saved from `location` will be at; None if only a call can tell."""
    if map_location is None:
        return location
    if isinstance(map_location, dict):
        return map_location.get(location, location)
    return None if callable(map_location) else str(map_location)


# -- the places known here -----------------------------------------------------------------------------------------


def _on(kind: str) -> Callable[[Any], str | None]:
    return lambda storage: str(storage.device) if storage.device.type == kind else None


def _to_cpu(storage: Any, location: str) -> Any:
    return storage if location == "cpu" else None


def _to_cuda(storage: Any, location: str) -> Any:
    if not isinstance(location, str) or location.partition(":")[0] != "cuda":
        return None
    return storage.to(device=devices.device("cuda", validate_cuda_device(location)))


def _to_meta(storage: Any, location: str) -> Any:
    return UntypedStorage(storage.nbytes(), device="meta") if location == "meta" else None


register_package(10, lambda storage: "cpu" if storage.device.type == "cpu" else None, _to_cpu)
register_package(20, _on("cuda"), _to_cuda)
register_package(22, _on("meta"), _to_meta)


def validate_cuda_device(location: str) -> int:
    """The index in "cuda:1", or of the current device; RuntimeError if there is no such GPU here."""
    if not host_memory.cuda_is_available():
        raise RuntimeError(
            "Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. On a CPU-only "
            "machine, torch.load(..., map_location=torch.device('cpu')) brings the tensors to the CPU."
        )
    wanted = devices.device(location).index
    count = arrays.cuda().device_count()
    if wanted is not None and wanted >= count:
        raise RuntimeError(
            f"Attempting to deserialize object on CUDA device {wanted} but torch.cuda.device_count() is {count}. Pass a "
            "map_location that says which of them shall have its tensors."
        )
    return arrays.cuda().current_device() if wanted is None else wanted


def validate_hpu_device(location: str) -> int:
    """RuntimeError: there are no HPU devices here."""
    raise RuntimeError(f"{location!r} names an HPU device, of which there are none here: use map_location=torch.device('cpu')")


def normalize_storage_type(storage_type: type) -> type:
    """The class of the same name without its device: torch.FloatStorage for torch.cuda.FloatStorage."""
    return LEGACY_STORAGES.get(storage_type.__name__, storage_type)


def storage_to_tensor_type(storage: Any) -> type:
    """The old class of tensors over such a storage: torch.FloatTensor for a storage of float32."""
    from flambeau.tensor.making.legacy import TENSOR_TYPES

    return TENSOR_TYPES[storage._pickle_storage_type().replace("Storage", "Tensor")]
