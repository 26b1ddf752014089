"""Sequences of different lengths: padded to one tensor, or packed without padding.

Packing sorts sequences by length, longest first, and lays the batch out step by step: all first elements, then all second elements of those
that have one, and so on. `batch_sizes` says how many sequences are still there at each step:

    a b c        data         a d f | b e | c
    d e          batch_sizes  3 2 1
    f
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from flambeau import dtypes
from flambeau.eager import bind
from flambeau.ops.formats import contiguous_format
from flambeau.tensor import Tensor
from flambeau.tensor.making import factories, ranges

__all__ = [
    "PackedSequence", "invert_permutation", "pack_padded_sequence", "pack_sequence", "pad_packed_sequence", "pad_sequence",
    "unpack_sequence", "unpad_sequence",
]  # fmt: skip


class PackedSequence_(NamedTuple):
    """The four tensors of a PackedSequence."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None
    unsorted_indices: Tensor | None


class PackedSequence(PackedSequence_):
    """Sequences without padding, as recurrent layers take them. Made by `pack_padded_sequence` and `pack_sequence`.

    data            (all elements, *)          batch_sizes       (longest length,), int64, in main memory
    sorted_indices  the order of the batch     unsorted_indices  the way back; both None if it was sorted already
    """

    def __new__(cls, data, batch_sizes=None, sorted_indices=None, unsorted_indices=None):
        if batch_sizes is None:
            if not isinstance(data, (list, tuple)) or len(data) != 2:
                raise AssertionError("batch_sizes must be given (or data be the pair of both)")
            data, batch_sizes = data
        elif batch_sizes.device.type != "cpu":
            wanted = "batch_sizes should always be on CPU. Leave it to pack_sequence to make a PackedSequence"
            raise ValueError(f"{wanted}: use pack_sequence or pack_padded_sequence.")
        if unsorted_indices is None:
            unsorted_indices = invert_permutation(sorted_indices)
        return super().__new__(cls, data, batch_sizes, sorted_indices, unsorted_indices)

    def _map(self, convert: Any, indices: Any = None) -> PackedSequence:
        indices = convert if indices is None else indices
        order = [None if t is None else indices(t) for t in (self.sorted_indices, self.unsorted_indices)]
        return type(self)(convert(self.data), self.batch_sizes, *order)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same with the data on another device or of another dtype; itself, if it is there already."""
        data = self.data.to(*args, **kwargs)
        if data is self.data:
            return self
        options = {k: v for k, v in kwargs.items() if k not in ("device", "dtype")}
        return self._map(lambda _: data, lambda t: t.to(data.device, **options))

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same on a GPU."""
        return self.to("cuda", **kwargs) if not args and "device" not in kwargs else self.to(*args, **kwargs)

    def cpu(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The same in main memory."""
        return self.to("cpu", **kwargs) if not args and "device" not in kwargs else self.to(*args, **kwargs)

    def pin_memory(self) -> PackedSequence:
        """The same in memory that a GPU can read directly."""
        return self._map(lambda t: t.pin_memory())

    @property
    def is_cuda(self) -> bool:
        """Whether the data is on a GPU."""
        return self.data.is_cuda

    def is_pinned(self) -> bool:
        """Whether the data is in memory that a GPU can read directly."""
        return self.data.is_pinned()


def _conversion(name: str, dtype: dtypes.dtype) -> None:
    def convert(self: PackedSequence) -> PackedSequence:
        return self.to(dtype=dtype)

    convert.__name__, convert.__doc__ = name, f"The data as {dtype.name}."
    setattr(PackedSequence, name, convert)


for _name in ("double", "float", "half", "long", "int", "short"):
    _conversion(_name, dtypes.BY_NAME[_name])
_conversion("char", dtypes.int8)
_conversion("byte", dtypes.uint8)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The permutation that undoes another."""
    if permutation is None:
        return None
    if permutation.dim() != 1:
        raise ValueError(f"`permutation` must be a 1D tensor, found {permutation.dim()}D")
    output = factories.empty_like(permutation, memory_format=contiguous_format)
    output.scatter_(0, permutation, ranges.arange(0, permutation.numel(), device=permutation.device, dtype=permutation.dtype))
    return output


def pack_padded_sequence(input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True) -> PackedSequence:
    """Pack a padded batch. input (T, B, *), or (B, T, *) if `batch_first`; lengths (B,), decreasing unless `enforce_sorted` is off."""
    if not isinstance(lengths, Tensor):
        lengths = factories.as_tensor(lengths, dtype=dtypes.int64, device="cpu")
    elif lengths.device.type != "cpu":
        raise RuntimeError(
            f"'lengths' argument should be a 1D CPU tensor of int64, found {lengths.dim()}D {lengths.device} {lengths.dtype}"
        )
    sorted_indices = None
    if not enforce_sorted:
        lengths, sorted_indices = lengths.sort(descending=True)
        sorted_indices = sorted_indices.to(input.device)
        input = input.index_select(0 if batch_first else 1, sorted_indices)
    sizes = _check_lengths(lengths, input.size(0 if batch_first else 1), enforce_sorted)
    steps = input.transpose(0, 1) if batch_first else input  # (T, B, *)
    if sizes[0] > steps.size(0):
        raise RuntimeError(
            f"Expected `len(lengths)` to fit the input: the longest length is {sizes[0]}, but there are {steps.size(0)} steps"
        )
    batch_sizes = _counts(sizes)
    data = bind.functions["cat"]([steps[t, :n] for t, n in enumerate(batch_sizes)])
    return PackedSequence(data, factories.tensor(batch_sizes, dtype=dtypes.int64), sorted_indices, None)


def _counts(sizes: list[int]) -> list[int]:
    """How many of the sequences, longest first, are longer than 0, 1, 2, ... steps."""
    counts, alive = [], len(sizes)
    for step in range(sizes[0]):
        while sizes[alive - 1] <= step:
            alive -= 1
        counts.append(alive)
    return counts


def _check_lengths(lengths: Tensor, batch: int, enforce_sorted: bool) -> list[int]:
    sizes = lengths.tolist()
    if not batch:
        raise RuntimeError("Cannot pack an empty tensor: there is no sequence in it")
    if lengths.dim() != 1 or len(sizes) != batch:
        raise RuntimeError(f"Expected `len(lengths)` to be that of the batch, found {lengths.numel()} lengths for {batch} sequences")
    if any(a < b for a, b in pairwise(sizes)):
        cure = "You can pass `enforce_sorted=False`, and they are sorted here"
        raise RuntimeError(f"`lengths` must be sorted in decreasing order. {cure}.")
    if sizes[-1] <= 0:
        raise RuntimeError(f"Length of all samples has to be positive, found {lengths.min().item()}")
    return sizes


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """(padded batch, lengths): the inverse of pack_padded_sequence. The batch is (T, B, *), or (B, T, *) if `batch_first`."""
    counts = sequence.batch_sizes.tolist()
    if not counts:
        raise RuntimeError("pad_packed_sequence: there is no step in this PackedSequence, its batch_sizes are empty")
    longest, batch = len(counts), counts[0]
    if total_length is not None:
        if total_length < longest:
            found = f"found {total_length} and a sequence of {longest}"
            raise ValueError(f"Expected total_length to be at least the length of the longest sequence in input, {found}")
        longest = total_length
    data = sequence.data
    if batch == 0:
        padded = data.new_full((longest, batch, *data.shape[1:]), padding_value)
    else:
        pad = bind.functions["constant_pad_nd"]
        tail = [0, 0] * (data.dim() - 1)
        steps = [pad(rows, [*tail, 0, batch - rows.size(0)], padding_value) for rows in data.split(counts)]
        steps += [data.new_full((batch, *data.shape[1:]), padding_value)] * (longest - len(counts))
        padded = bind.functions["stack"](steps)
    lengths = factories.tensor([sum(n > i for n in counts) for i in range(batch)], dtype=dtypes.int64)
    padded = padded.transpose(0, 1) if batch_first else padded
    if sequence.unsorted_indices is not None:
        padded = padded.index_select(0 if batch_first else 1, sequence.unsorted_indices)
        lengths = lengths[sequence.unsorted_indices.cpu()]
    return padded, lengths


def pad_sequence(
    sequences: Tensor | list[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Tensors (L_i, *) as one: (longest, B, *), or (B, longest, *) if `batch_first`, with `padding_value` where they end."""
    if isinstance(sequences, Tensor):
        sequences = list(sequences.unbind(0))
    elif not isinstance(sequences, Iterable):
        wanted = "pad_sequence: Expected iterable for input sequences"
        raise RuntimeError(f"{wanted}, but got arg of type: {type(sequences)}")
    sequences = list(sequences)
    if not sequences:
        raise RuntimeError("received an empty list of sequences")
    if padding_side not in ("left", "right"):
        raise RuntimeError(f'Expected padding_side to be left or right, found "{padding_side}"')
    longest = max(s.size(0) for s in sequences)
    trailing = sequences[0].shape[1:]
    for s in sequences:
        if s.shape[1:] != trailing:
            raise RuntimeError(
                f"pad_sequence: all dimensions but the first must be equal: found {tuple(s.shape)} beside {tuple(sequences[0].shape)}"
            )
    shape = (len(sequences), longest) if batch_first else (longest, len(sequences))
    padded = sequences[0].new_full((*shape, *trailing), padding_value)
    for i, s in enumerate(sequences):
        row = padded.select(0 if batch_first else 1, i)
        row.narrow(0, longest - s.size(0) if padding_side == "left" else 0, s.size(0)).copy_(s)
    return padded


def unpad_sequence(padded_sequences: Tensor, lengths: Tensor, batch_first: bool = False) -> list[Tensor]:
    """The tensors that pad_sequence padded, given their lengths."""
    rows = padded_sequences if batch_first else padded_sequences.transpose(0, 1)
    return [row[:length] for row, length in zip(rows, lengths.tolist(), strict=True)]


def pack_sequence(sequences: list[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Pack a list of tensors (L_i, *), in decreasing order of length unless `enforce_sorted` is off."""
    lengths = factories.as_tensor([s.size(0) for s in sequences])
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The list of tensors in a PackedSequence."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def _packed_sequence_init(data, batch_sizes=None, sorted_indices=None, unsorted_indices=None) -> PackedSequence:
    return PackedSequence(data, batch_sizes, sorted_indices, unsorted_indices)
