"""Whole safetensors files out of those that ranks have written, one tensor at a time in memory."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

from flambeau import distributed as dist
from flambeau.distributed.checkpoint.durable_stream import sync, writing
from flambeau.distributed.checkpoint.safetensors_file import INDEX, SUFFIX, Box, boxes, file_name, write_table

__all__ = ["consolidate_safetensors_files", "consolidate_safetensors_files_on_every_rank"]


def consolidate_safetensors_files(input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1) -> None:
    """Write the tensors of all files of `input_dir` to `output_dir`, each to the file of its number, and the index."""
    names = _names(fqn_to_index_mapping)
    write_index(output_dir, names, _consolidated(input_dir, output_dir, names, num_threads))


def consolidate_safetensors_files_on_every_rank(
    input_dir: str, output_dir: str, fqn_to_index_mapping: dict[str, int], num_threads: int = 1, process_group: Any = None
) -> None:
    """The same by all ranks of a group together: file number n is that of rank n modulo their number. Rank 0 writes the index when all have written."""
    rank, ranks = (dist.get_rank(process_group), dist.get_world_size(process_group)) if dist.is_initialized() else (0, 1)
    names = _names(fqn_to_index_mapping)
    own = {name: file for name, file in names.items() if fqn_to_index_mapping[name] % ranks == rank}
    total = _consolidated(input_dir, output_dir, own, num_threads)
    if ranks > 1:
        totals: list[int] = [0] * ranks
        dist.all_gather_object(totals, total, group=process_group)
        total = sum(totals)
    if rank == 0:
        write_index(output_dir, names, total)


def write_index(folder: str, names: Mapping[str, str], total: int) -> None:
    """The file that says in which file each tensor is."""
    path = os.path.join(folder, INDEX)
    with open(f"{path}.tmp", "w", encoding="utf-8") as stream:
        json.dump({"metadata": {"total_size": total}, "weight_map": dict(names)}, stream, indent=2)
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(f"{path}.tmp", path)


def _names(numbers: dict[str, int]) -> dict[str, str]:
    """The file of every tensor."""
    highest = max(numbers.values(), default=1)
    return {name: file_name(number, highest) for name, number in numbers.items()}


def _consolidated(input_dir: str, output_dir: str, names: Mapping[str, str], threads: int) -> int:
    """Write these tensors to their files. The bytes of all of them."""
    there: dict[str, list[Box]] = {}
    for file in sorted(file for file in os.listdir(input_dir) if file.endswith(SUFFIX)):
        path = os.path.join(input_dir, file)
        with open(path, "rb") as stream:
            for box in boxes(stream, path):
                there.setdefault(box.name, []).append(box)
    lacking = sorted(set(names) - set(there))
    if lacking:
        raise KeyError(
            f"the files of {input_dir} have no {', '.join(lacking[:5])}" + (f" and {len(lacking) - 5} more" if len(lacking) > 5 else "")
        )
    os.makedirs(output_dir, exist_ok=True)
    by_file: dict[str, dict[str, list[Box]]] = {}
    for name, file in names.items():
        by_file.setdefault(file, {})[name] = there[name]
    with ThreadPoolExecutor(max(1, min(threads, len(by_file))), "flambeau.checkpoint") as pool:
        return sum(pool.map(lambda item: _write(os.path.join(output_dir, item[0]), item[1]), by_file.items()))


def _write(path: str, tensors: dict[str, list[Box]]) -> int:
    """One file of whole tensors. Their bytes."""
    shapes = {name: _whole(parts) for name, parts in tensors.items()}
    total = 0
    with writing(f"{path}.tmp") as out:
        write_table(out, [(name, parts[0].kind, shapes[name]) for name, parts in tensors.items()], {})
        for name, parts in tensors.items():
            whole = np.empty(shapes[name], dtype=f"V{parts[0].dtype.itemsize}")  # bytes are copied, whatever they mean
            for part in parts:
                box = tuple(slice(at, at + n) for at, n in zip(part.offsets, part.shape, strict=True))
                with open(part.path, "rb") as stream:
                    whole[box] = np.frombuffer(part.bytes_of(stream), dtype=whole.dtype).reshape(part.shape)
            out.write(whole.tobytes())
            total += whole.nbytes
        sync(out)
    os.replace(f"{path}.tmp", path)
    return total


def _whole(parts: list[Box]) -> tuple[int, ...]:
    """The shape of the tensor that boxes make up: ValueError where some of it is in none, or they are of different kinds."""
    first = parts[0]
    shape = tuple(max(p.offsets[d] + p.shape[d] for p in parts) for d in range(len(first.shape)))
    distinct = {(p.offsets, p.shape) for p in parts}
    if any(p.kind != first.kind or len(p.shape) != len(first.shape) for p in parts):
        raise ValueError(f"the files have boxes of {first.name!r} of different dtypes or numbers of dimensions")
    if sum(prod(size) for _, size in distinct) != prod(shape):
        raise ValueError(f"the boxes of {first.name!r} in the files do not make up a tensor of shape {shape}: is a rank's file missing?")
    return shape
