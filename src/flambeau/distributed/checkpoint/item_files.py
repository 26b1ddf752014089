"""Items of a plan one behind the other in files: each an archive of torch.save, or the bytes of an object."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from typing import IO, Any

from flambeau import devices
from flambeau.distributed.checkpoint._extension import StreamTransformExtension
from flambeau.distributed.checkpoint.places import SerializationFormat, _StorageInfo
from flambeau.distributed.checkpoint.planner import SavePlanner, WriteItem, WriteItemType
from flambeau.distributed.checkpoint.storage import WriteResult
from flambeau.serialization import save
from flambeau.tensor import Tensor, layouts


@dataclass
class FileOfItems:
    """A file that is to be written: its name, and what goes into it."""

    name: str
    items: list[WriteItem]


def shared_out(bins: int, items: list[WriteItem]) -> list[list[WriteItem]]:
    """The items in so many groups of about the same number of bytes, objects before tensors in each. A single group keeps the order of tensors."""
    objects = [item for item in items if item.type is WriteItemType.BYTE_IO]
    tensors = [item for item in items if item.type is not WriteItemType.BYTE_IO]
    if bins == 1:
        return [objects + tensors]
    groups = [objects[start::bins] for start in range(bins)]
    loads = [0] * bins
    for item in sorted(tensors, key=size_of, reverse=True):
        lightest = loads.index(min(loads))
        groups[lightest].append(item)
        loads[lightest] += size_of(item)
    return groups


def size_of(item: WriteItem) -> int:
    """The bytes of a box."""
    assert item.tensor_data is not None
    return prod(item.tensor_data.chunk.sizes) * item.tensor_data.properties.dtype.itemsize


def write_all(
    files: list[FileOfItems],
    new_file: Callable[[str], AbstractContextManager[Any]],
    planner: SavePlanner,
    transforms: _StorageWriterTransforms,
    *,
    threads: int,
    copy_ahead: int,
    serialization_format: SerializationFormat,
) -> list[WriteResult]:
    """Write the files, by so many threads. If one fails, the others end with the item they are at, and its exception is raised."""
    stop = threading.Event()

    def write(file: FileOfItems) -> list[WriteResult]:
        if stop.is_set():
            return []
        try:
            with new_file(file.name) as stream:
                return [
                    _write_item(transforms, stream, data, item, file.name, serialization_format)
                    for item, data in resolved(file.items, planner, copy_ahead)
                    if not _raise_if(stop)
                ]
        except BaseException:
            stop.set()
            raise

    if threads == 1 or len(files) < 2:
        return [result for file in files for result in write(file)]
    with ThreadPoolExecutor(min(threads, len(files)), "flambeau.checkpoint") as pool:
        jobs = [pool.submit(write, file) for file in files]
    problems = [job.exception() for job in jobs if job.exception() is not None]
    if problems:
        raise next((problem for problem in problems if not isinstance(problem, Stopped)), problems[0])  # type: ignore[misc]
    return [result for job in jobs for result in job.result()]


class Stopped(RuntimeError):
    """Another thread has failed: this one does not go on."""


def _raise_if(stop: threading.Event) -> bool:
    if stop.is_set():
        raise Stopped("another file of this checkpoint could not be written")
    return False


# -- one item ------------------------------------------------------------------------------------------------------


class _StorageWriterTransforms:
    """The extensions that bytes go through on their way to a file."""

    def __init__(self, extensions: Sequence[StreamTransformExtension] | None = None) -> None:
        self.extensions = list(extensions or ())

    def transform_save_stream(self, write_item: WriteItem, raw_stream: io.IOBase) -> tuple[IO[bytes], list[str]]:
        """(stream to write to, what the reader needs to undo it). The last extension has the bytes first, and the first one is undone first."""
        stream: Any = _Uncloseable(raw_stream)
        for extension in self.extensions:
            stream = extension.transform_to(stream)
        return stream, [extension.get_descriptor() for extension in self.extensions]


class _Uncloseable:
    """A stream that stays open when a transformation in front of it is closed."""

    def __init__(self, stream: Any):
        self.stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)

    def close(self) -> None:
        self.stream.flush()


def _write_item(
    transforms: _StorageWriterTransforms,
    stream: Any,
    data: Tensor | io.BytesIO,
    write_item: WriteItem,
    storage_key: str,
    serialization_format: SerializationFormat,
) -> WriteResult:
    """Write one item to where the stream is."""
    if serialization_format is not SerializationFormat.TORCH_SAVE:
        raise NotImplementedError(
            f"FileSystemWriter(serialization_format={serialization_format}): files of several tensors are torch.save's here. HuggingFaceStorageWriter writes safetensors"
        )
    start = stream.tell()
    to, descriptors = transforms.transform_save_stream(write_item, stream) if transforms.extensions else (stream, [])
    if isinstance(data, Tensor):
        save(data, to)
    else:
        to.write(data.getbuffer())
    if to is not stream:
        to.close()
    length = stream.tell() - start
    place = _StorageInfo(storage_key, start, length, transform_descriptors=descriptors or None)
    return WriteResult(write_item.index, length, place)


def resolved(items: list[WriteItem], planner: SavePlanner, copy_ahead: int) -> Iterator[tuple[WriteItem, Any]]:
    """Every item with its data, tensors in main memory and without what their storage has besides. Those on a GPU are fetched while the ones before are
    written, up to `copy_ahead` bytes."""
    if copy_ahead <= 0:
        for item in items:
            yield item, _compact(planner.resolve_data(item))
        return
    fetched: list[tuple[WriteItem, Any, int]] = []
    under_way = 0
    with ThreadPoolExecutor(1, "flambeau.checkpoint.copy") as pool:  # starts its thread with the first job
        for item in items:
            data: Any = planner.resolve_data(item)
            far = isinstance(data, Tensor) and data.device.type != "cpu"
            nbytes = data.numel() * data.dtype.itemsize if far else 0
            fetched.append((item, pool.submit(_compact, data) if far else data, nbytes))
            under_way += nbytes
            while fetched and (under_way >= copy_ahead or not fetched[0][2]):
                under_way -= fetched[0][2]
                yield _arrived(*fetched.pop(0))
        for entry in fetched:
            yield _arrived(*entry)


def _arrived(item: WriteItem, data: Any, nbytes: int) -> tuple[WriteItem, Any]:
    return item, data.result() if isinstance(data, Future) else _compact(data)


def _compact(data: Any) -> Any:
    """A tensor as it is written: in main memory, alone in its storage, without history."""
    if not isinstance(data, Tensor):
        return data
    data = data.detach()
    if data.device.type != "cpu":
        data = data.to(devices.cpu)
    if data.layout is layouts.strided and data.untyped_storage().nbytes() != data.numel() * data.dtype.itemsize:
        data = data.clone()
    return data
