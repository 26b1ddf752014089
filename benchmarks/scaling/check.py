"""Predicted against measured: the model of this folder with the figures of two processes on one machine, beside what they took.

    from 4 B and 64 MB   latency and bandwidth of the link between the two
    from no_sync         how fast a rank computes
    predicted            everything else that `python -m benchmarks.distributed` has measured

On two cores there is no card that sends while a core computes: the cores copy and sum as well. So a step is predicted twice, with a link
beside the cores, as a GPU has it, and with all of the sending done by them. What is measured should lie between.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.report import amount
from benchmarks.scaling import ddp, fsdp
from benchmarks.scaling.buckets import assign
from benchmarks.scaling.collectives import alike, ring
from benchmarks.scaling.figures import Link
from benchmarks.scaling.models import MLP, MODELS, Model
from benchmarks.scaling.step import Pace

RANKS = 2
SIZES = {"4 B": 4, "4 KB": 4 << 10, "4 MB": 4 << 20, "64 MB": 64 << 20}
JOBS = {"mlp": MLP, "gpt": MODELS["gpt"]}


@dataclass(frozen=True)
class Line:
    """One number, both ways. A prediction is a range where it depends on who does the sending."""

    about: str
    low: float
    high: float
    measured: float
    unit: str = "s"

    def __str__(self) -> str:
        low, high = amount(self.low, self.unit), amount(self.high, self.unit)
        predicted = low if low == high else f"{low} to {high}"
        return f"  {self.about:<44}{predicted:>22}{amount(self.measured, self.unit):>12}{self.verdict:>22}"

    @property
    def verdict(self) -> str:
        """Where the measured number lies; a number within 5 hundredths of the prediction is as predicted."""
        nearest = min(max(self.low, self.measured), self.high)
        if self.unit == "%":
            away = round(self.measured - nearest)
            return "as predicted" if abs(away) <= 5 else f"{away:+} points"
        ratio = self.measured / nearest
        return "as predicted" if abs(ratio - 1) <= 0.05 else f"{ratio:.2f}x predicted"


def check(path: Path) -> Iterator[str]:
    """The comparison for each framework in a file of `python -m benchmarks.distributed --write`, as text."""
    record = json.loads(path.read_text())
    yield f"{path.name}: {record['machine']['processor']}, {record['options']['statistic']} of {record['options']['rounds']} rounds"
    for label in record["frameworks"]:
        found = readings(record, label)
        yield ""
        try:
            link = fitted(found)
        except KeyError as missing:
            yield f"{label}: nothing to predict from, as {missing.args[0]} was not measured"
            continue
        yield f"{label}: a message takes {amount(link.latency, 's')} + its bytes / {link.bandwidth / 1e9:.2f} GB/s"
        yield f"  {'':<44}{'predicted':>22}{'measured':>12}"
        yield from map(str, lines(found, link))


def readings(record: Mapping[str, Any], label: str) -> dict[str, float]:
    """What was measured of one framework, by case."""
    statistic = record["options"]["statistic"]
    settings = {entry["case"]: entry["readings"].get(label, {}).get("settings") for entry in record["results"]}
    return {case: found[0][statistic] for case, found in settings.items() if found}


def fitted(found: Mapping[str, float]) -> Link:
    """The link on which an all-reduce between two takes 2a + n / B: a from the smallest one, B from the largest."""
    small, large = (found[f"collectives.all_reduce(size={size})"] for size in ("4 B", "64 MB"))
    return Link("between two processes", small / 2, SIZES["64 MB"] / (large - small))


def lines(found: Mapping[str, float], link: Link) -> Iterator[Line]:
    """All that can be predicted and was measured."""
    cluster = alike(link, RANKS)

    def all_reduce(size: float) -> float:
        return ring(size, RANKS, cluster)

    for size in ("4 KB", "4 MB"):
        case = f"collectives.all_reduce(size={size})"
        if case in found:
            yield Line(f"all_reduce of {size}", *[all_reduce(SIZES[size])] * 2, found[case])
    for name, model in JOBS.items():
        yield from of_step(name, model, found, all_reduce)
    for case, predicted in (
        ("memory.ddp", ddp.memory(MODELS["gpt"].parameters)),
        ("memory.fsdp", fsdp.kept(MODELS["gpt"].parameters, RANKS)),
    ):
        if case in found:
            yield Line(f"bytes on a rank, {case.partition('.')[2]} of the gpt", predicted, predicted, found[case], "B")


def of_step(name: str, model: Model, found: Mapping[str, float], all_reduce: Any) -> Iterator[Line]:
    """A step under DistributedDataParallel, from one inside of no_sync()."""
    alone, together, sending = (found.get(f"steps.{case}(model={name})") for case in ("no_sync", "ddp", "allreduce_only"))
    sizes = [ddp.NUMBER * numbers for layer in model.layers for numbers in layer.parameters]
    buckets = [sum(sizes[index] for index in bucket) for bucket in assign(sizes)]
    predicted = sum(map(all_reduce, buckets))
    if sending is not None:
        yield Line(f"all_reduce of the {name}'s {len(buckets)} bucket{'s' * (len(buckets) > 1)}", predicted, predicted, sending)
    if alone is not None and together is not None:
        step = ddp.step(model.layers, as_measured(model, alone), all_reduce)
        yield Line(f"step of the {name} under DDP", step.total, alone + predicted, together)
        hidden = 100 * step.hidden
        if sending is not None:
            yield Line(f"hidden of the {name}'s sending", 0.0, hidden, 100 * (1 - (together - alone) / sending), "%")


def as_measured(model: Model, seconds: float) -> Pace:
    """The pace at which the operations of forward and backward take these seconds in all; the update counts among them."""
    flops = 3 * sum(layer.flops for layer in model.layers) * model.batch * model.tokens
    return Pace(model.batch * model.tokens, flops / seconds, float("inf"))
