"""What a profile shows that no operation can know by itself: layers in the wrong mode, graphs that nobody uses, numbers read too often.

None of these is wrong for certain. So they are no warnings, but sentences of `prof.explain()`, which begin with what was seen.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from flambeau.tracing import names
from flambeau.tracing.kinds import BACKWARD, NODE, OPERATION
from flambeau.tracing.recorder import is_ours, line_of

UNMINDFUL = (
    "contiguous",
    "clone",
    "copy_",
    "to",
    "linear",
    "addmm",
    "mm",
    "bmm",
    "matmul",
    "conv1d",
    "conv2d",
    "conv3d",
    "reshape",
)  # of order


def notice(recorder: Any, found: Any) -> Iterator[str]:
    """A sentence for each thing that looks like a mistake. `found` is the Explanation so far."""
    walked = {_sequence(n) for n in recorder.notes if n[2] == NODE}
    yield from _wrong_modes(recorder, walked)
    yield from _unused_graphs(recorder, walked)
    yield from _numbers_read(recorder, found)
    yield from _scattered(recorder, found)


def _wrong_modes(recorder: Any, walked: set[int]) -> Iterator[str]:
    """Dropout that drops while nothing is learned, or does not while something is; batch norms alike."""
    training, evaluating = defaultdict(list), defaultdict(list)
    for name, line, in_training, recorded, sequence in recorder.modal:
        if in_training and not recorded:
            training[name].append(line)
        elif not in_training and sequence in walked:
            evaluating[name].append(line)
    for name, lines in training.items():
        does = "still updates its running statistics" if name == "batch_norm" else "still drops"
        yield (
            f"{name} ran in training mode {len(lines)} times under no_grad ({_where(lines[0])}). If that is validation, it {does}, and results are "
            "worse than the model is and differ from run to run: call model.eval() before, model.train() after."
        )
    for name, lines in evaluating.items():
        yield (
            f"{name} ran in evaluation mode {len(lines)} times in a forward pass that backward went through ({_where(lines[0])}). If that is "
            "training, model.train() is missing, perhaps after a validation."
        )


def _unused_graphs(recorder: Any, walked: set[int]) -> Iterator[str]:
    """Forward passes that are recorded, and kept in memory, for a backward that never comes."""
    inside = [n[:2] for n in recorder.notes if n[2] == BACKWARD or (isinstance(n[3], str) and n[3].startswith("Optimizer."))]
    recorded = {_sequence(n): n for n in recorder.notes if n[2] == OPERATION and _sequence(n) >= 0 and not _within(n, inside)}
    unused = [n for number, n in recorded.items() if number not in walked]
    if len(unused) > max(1, 0.15 * len(recorded)):
        slowest = max((n for n in unused if n[4] is not None), key=lambda n: n[1] - n[0], default=unused[0])
        yield (
            f"{len(unused)} of {len(recorded)} operations of forward were recorded for a backward that never came ({_where(slowest[4])}). If that is "
            "evaluation, `with torch.no_grad():` around it saves the time and the memory of recording."
        )


def _numbers_read(recorder: Any, found: Any) -> Iterator[str]:
    """.item() makes Python wait for the device; on the CPU it takes many to matter."""
    lines = defaultdict(list)
    for n in recorder.notes:
        if n[2] == OPERATION and n[3] == "item":
            lines[_where(n[4]) if n[4] is not None else ""].append(n)
    count = sum(map(len, lines.values()))
    each = count / max(found.steps, 1)
    if each >= (1 if found.gpu else 20):
        where = max((place for place in lines if place), key=lambda place: len(lines[place]), default="several lines")
        waits = "the GPU has to finish all queued work for each" if found.gpu else "each is a small operation of its own"
        yield f".item() reads a number {each:.0f} times a step ({where}), and {waits}: keep sums as tensors, and read them once in many steps."


def _scattered(recorder: Any, found: Any) -> Iterator[str]:
    """Operations that go through memory in the wrong order, as after a transpose."""
    for (what, line), times in recorder.scattered.items():
        name, us = names.of(what), sum(times) / 1e3
        if name not in UNMINDFUL and us > 0.1 * found.total:
            yield (
                f"aten::{name} at {_where(line)} takes {us / found.total * 100:.0f} % of the time and reads a tensor that does not lie in memory row by "
                "row, as after transpose or permute: call .contiguous() on it once, before it is used."
            )


def _sequence(note: tuple) -> int:
    more = note[5]
    return more if type(more) is int else more[0]


def _within(note: tuple, spans: list) -> bool:
    return any(start <= note[0] and note[1] <= end for start, end in spans)


def _where(line: Any) -> str:
    """train.py:41 in forward"""
    if line is None:
        return "a line that is not known"
    if type(line[0]) is tuple:  # a whole stack
        line = next((place for place in line if not is_ours(place[0])), line[0])
    code, offset = line
    return f"{os.path.basename(code.co_filename)}:{line_of(code, offset)} in {code.co_name}"
