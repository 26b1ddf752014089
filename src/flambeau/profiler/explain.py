"""A profile in plain words: where the time went, what was slowest and on which line, what to try.

3 steps took 41.2 ms, 13.7 ms each.

  forward           38 %  ███████████▍                   5.2 ms a step
  backward          41 %  ████████████▎                  5.6 ms a step
  ...
Slowest: aten::linear, 29 % of the time, train.py:41 in forward
    logits = self.head(x)
To try
  - ...
"""

from __future__ import annotations

import html
import linecache
import os
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter_ns
from typing import Any

from flambeau.profiler import mistakes
from flambeau.settings import get_num_threads
from flambeau.tensor.making.factories import ones
from flambeau.tracing.kinds import BACKWARD, NODE, OPERATION
from flambeau.tracing.recorder import Recorder, line_of

PARTS = ("data loading", "forward", "backward", "optimizer", "Python between operations")
MATRICES = ("aten::linear", "aten::addmm", "aten::mm", "aten::bmm", "aten::matmul", "aten::conv1d", "aten::conv2d", "aten::conv3d")


@dataclass
class Hot:
    """An operation on a line of the program: all its calls together, its part of backward included."""

    name: str
    file: str
    line: int
    function: str
    count: int = 0
    us: float = 0.0
    backward_us: float = 0.0

    @property
    def total(self) -> float:
        return self.us + self.backward_us

    @property
    def where(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line} in {self.function}" if self.file else "a line that is not known"

    @property
    def source(self) -> str:
        text = linecache.getline(self.file, self.line).strip()
        return text if len(text) <= 100 else text[:97] + "..."


@dataclass
class Explanation:
    """What `prof.explain()` found. `print` it, or look at its parts: `us` by PARTS, `hot` lines with the slowest first, `advice`."""

    total: float
    steps: int
    us: dict[str, float]
    operations: int
    gpu: bool = False
    hot: list[Hot] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def share(self, part: str) -> float:
        """A part of the whole, from 0 to 1."""
        return self.us[part] / self.total if self.total else 0.0

    def __str__(self) -> str:
        each = self.total / max(self.steps, 1)
        steps = (
            f"{self.steps} step{'s' if self.steps != 1 else ''} took {_time(self.total)}" if self.steps else f"It took {_time(self.total)}"
        )
        text = [steps + (f", {_time(each)} each." if self.steps > 1 else "."), ""]
        unit = " a step" if self.steps > 1 else ""
        for part in PARTS:
            share = self.share(part)
            amount = _time(self.us[part] / max(self.steps, 1))
            text.append(f"  {part:<26}{share * 100:4.0f} %  {_bar(share):<25} {amount}{unit}")
        if self.hot:
            text += ["", "Slowest operations, with their part of backward"]
            for hot in self.hot[:3]:
                shared = hot.total / self.total * 100 if self.total else 0
                calls = f"{hot.count} call{'s' if hot.count != 1 else ''}, {_time(hot.total / max(hot.count, 1))} each"
                text.append(f"  {shared:3.0f} %  {hot.name}  {hot.where}  ({calls})")
                if hot.source:
                    text.append(f"         {hot.source}")
        text += ["", "To try"]
        text += [f"  - {words}" for words in self.advice]
        return "\n".join(text)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(str(self))}</pre>"


def explain(events: Any, recorder: Any) -> Explanation:
    """Sort the time of a profile, and say what stands out."""
    notes = recorder.notes
    total = (recorder.last - recorder.first) / 1e3
    spans: dict[str, list[tuple[int, int]]] = {
        "data loading": [n[:2] for n in notes if isinstance(n[3], str) and n[3].startswith("enumerate(DataLoader)")],
        "backward": [n[:2] for n in notes if n[2] == BACKWARD],
        "optimizer": [n[:2] for n in notes if isinstance(n[3], str) and n[3].startswith("Optimizer.")],
    }
    merged = {part: _merged(found) for part, found in spans.items()}
    taken = _merged([span for found in merged.values() for span in found])
    operations = _merged([n[:2] for n in notes if n[2] == OPERATION])
    us = {part: _length(merged.get(part, [])) for part in PARTS}
    us["forward"] = _length(_merged([*operations, *taken])) - _length(taken)
    count = sum(1 for n in notes if n[2] in (OPERATION, NODE))
    total -= min(count * cost_of_noting(), 0.9 * (total - us["forward"] - _length(taken)))  # what the profiler itself took is nobody's
    us["Python between operations"] = max(total - us["forward"] - _length(taken), 0.0)
    steps = sum(1 for n in notes if isinstance(n[3], str) and n[3].startswith("Optimizer.step#"))
    steps = steps or sum(1 for n in notes if isinstance(n[3], str) and n[3].startswith("ProfilerStep#"))
    on_gpu = recorder.clock is not None and any(e.kernels for e in events)  # it was watched, and had something to do
    found = Explanation(total, steps, us, count, on_gpu, _hot(events))
    found.advice = [*mistakes.notice(recorder, found), *_advice(found)] or ["Nothing stands out: the time is where the arithmetic is."]
    return found


@cache
def cost_of_noting() -> float:
    """How many microseconds it takes to note an operation, beyond running it."""
    x, times = ones(1), []
    for recorder in (None, Recorder()):
        if recorder is not None:
            recorder.start()
        start = perf_counter_ns()
        for _ in range(200):
            x.neg()
        times.append((perf_counter_ns() - start) / 200e3)
        if recorder is not None:
            recorder.stop()
    return max(times[1] - times[0], 0.0)


def _merged(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same time without overlaps."""
    found: list[list[int]] = []
    for start, end in sorted(spans):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], end)
        else:
            found.append([start, end])
    return [(a, b) for a, b in found]


def _length(spans: list[tuple[int, int]]) -> float:
    return sum(end - start for start, end in spans) / 1e3


def _hot(events: Any) -> list[Hot]:
    """Operations by name and line, slowest first. An operation counts as a whole, with its parts; those in backward count for the line that
    recorded them. A quick one whose line was not looked up counts for the line where one of its name was last seen."""
    found: dict[tuple, Hot] = {}
    maker: dict[int, Hot] = {}
    seen: dict[str, Any] = {}
    for event in events:
        if event.category != "cpu_op" or not event.name.startswith("aten::"):
            continue
        top = event
        while top.cpu_parent is not None and top.cpu_parent.name.startswith("aten::"):
            top = top.cpu_parent
        if _inside_others(top):
            continue
        place = seen[top.name] = top.line or seen.get(top.name)
        if place is None:
            continue
        line = line_of(*place)
        key = top.name, place[0].co_filename, line
        hot = found.setdefault(key, Hot(top.name, place[0].co_filename, line, place[0].co_name))
        if event.sequence_nr >= 0:
            maker[event.sequence_nr] = hot
        if event is top:
            hot.count += 1
            hot.us += event.cpu_time_total
    for event in events:
        if event.scope == 1 and event.sequence_nr in maker and event.name.startswith("autograd::"):
            maker[event.sequence_nr].backward_us += event.cpu_time_total
    return sorted((h for h in found.values() if h.total), key=lambda h: -h.total)


def _inside_others(event: Any) -> bool:
    """Whether an operation is part of backward, of the optimizer or of data loading."""
    outer = event.cpu_parent
    while outer is not None:
        if outer.scope == 1 or outer.name.startswith(("Optimizer.", "enumerate(DataLoader)")):
            return True
        outer = outer.cpu_parent
    return False


def _advice(found: Explanation):
    steps = max(found.steps, 1)
    if found.share("data loading") > 0.2:
        yield "Data loading keeps the rest waiting: DataLoader(num_workers=2 or more, persistent_workers=True) prepares batches meanwhile."
        yield "Do once what is the same every epoch (decoding, resizing, tokenizing), and keep the result on disk or in one tensor."
    per_step = found.operations / steps
    if found.share("Python between operations") > 0.4:
        yield f"Python itself is the largest part, between {per_step:.0f} operations a step: larger batches give each of them more to do."
        yield "Look for work in the loop that is not training: printing, .item() of every loss, metrics on single samples."
    yield from _about_lines(found, steps)
    if found.share("optimizer") > 0.3:
        yield "The optimizer is a large part: its cost does not grow with the batch, so a larger batch (or accumulated gradients) spreads it."
    if found.us["backward"] > 4 * found.us["forward"] > 0:
        yield "Backward takes over four times as long as forward, where two is usual: is retain_graph or create_graph on, a graph kept too long?"


def _about_lines(found: Explanation, steps: int):
    for hot in found.hot[:3]:
        share = hot.total / found.total if found.total else 0
        often = hot.count / steps
        many = often >= 50 and hot.total / hot.count < 200
        if share < 0.15 and not (many and found.share("Python between operations") > 0.4):
            continue
        if many:
            yield f"{hot.where} runs {hot.name} {often:.0f} times a step: one operation on the stacked tensors does the same at once."
        elif hot.name in MATRICES:
            here = "torch.autocast('cuda')" if found.gpu else f"more threads (torch.set_num_threads; there are {get_num_threads()} now)"
            yield f"{hot.name} at {hot.where} is where the arithmetic is. Cheaper: a smaller layer, larger batches, {here}."
        elif hot.name in ("aten::softmax", "aten::bmm", "aten::baddbmm"):
            yield f"If {hot.where} is attention, F.scaled_dot_product_attention does it in one pass without storing the weights."
        elif hot.name in ("aten::to", "aten::copy_", "aten::contiguous", "aten::clone"):
            yield f"{hot.where} copies: move the data to its place and dtype once, before the loop."
        elif hot.name in ("aten::cat", "aten::stack"):
            yield f"{hot.where} puts tensors together: writing into one that was made beforehand saves the copy."
        elif hot.name in ("aten::index", "aten::select", "aten::slice"):
            yield f"{hot.where} takes pieces of tensors: index once with a tensor of positions instead of once per piece."


def _time(us: float) -> str:
    return f"{us / 1e6:.2f} s" if us >= 1e6 else f"{us / 1e3:.1f} ms" if us >= 1e3 else f"{us:.0f} us"


def _bar(share: float, width: int = 25) -> str:
    """A bar of eighths of blocks."""
    eighths = round(share * width * 8)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
