"""`snapshot()`: who has the memory, as an object with fields that prints as a table. Errors about memory end with the short form of it."""

from __future__ import annotations

import gc
import html
import linecache
import os
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from typing import Any

from flambeau import devices
from flambeau.errors import size
from flambeau.kernels import arrays
from flambeau.kernels.native import limits, memory_guard
from flambeau.memory.live import KINDS, Block, Live
from flambeau.memory.remedies import Remedy, remedies
from flambeau.nn.modules.module import Module
from flambeau.tables import html_table, table

TITLES = {"weights": "weights", "buffers": "buffers", "gradients": "gradients", "optimizer": "optimizer state",
          "activations": "activations, for backward", "other": "other tensors"}  # fmt: skip
SHORT = {"weights": "Weights", "buffers": "Buffers", "gradients": "Gradients", "optimizer": "Optimizer", "activations": "Activations"}


class Snapshot:
    """What was alive at one moment.

    blocks      the pieces of memory, the largest first: nbytes, kind, device, module, line, name, shape, dtype
    total       bytes of all of them
    kinds       {"weights": bytes, "buffers": ..., "gradients": ..., "optimizer": ..., "activations": ..., "other": ...}
    modules     {path: {kind: bytes}}, every module by itself, without its parts
    lines       {"file:line": bytes}, as far as lines are known: see `record`
    peak        the most bytes that arrays had at a time, since the start or `reset_peak()`
    cached      bytes that are kept for the next tensors
    resident    bytes of the process in main memory;  resident_peak: the most there were
    limit       bytes that may be used: of the container, the machine or the GPU
    collected   bytes that were in cycles nobody could reach, and were freed before looking
    graphs      results whose history still keeps something for backward
    remedies    what would free memory: action, nbytes, cost; the cheapest first
    """

    def __init__(self, device: str | None, wanted: int, collected: int = 0) -> None:
        live = Live()
        found = [block for block in live.blocks.values() if device is None or _same(block.device, device)]
        self.device, self.collected = device, collected
        self.blocks = sorted(found, key=lambda block: -block.nbytes)
        self.total = sum(block.nbytes for block in found)
        self.kinds = {kind: sum(block.nbytes for block in found if block.kind == kind) for kind in KINDS}
        self.devices = _sums((block.device, block.nbytes) for block in found)
        self.lines = _sums((block.line, block.nbytes) for block in found if block.line)
        self.modules: dict[str, dict[str, int]] = {}
        for block in found:
            if block.module:
                row = self.modules.setdefault(block.module, {})
                row[block.kind] = row.get(block.kind, 0) + block.nbytes
        self.graphs = len(live.graphs())
        self.peak, self.cached, self.limit = _allocator(device)
        self.resident, self.resident_peak = limits.resident()
        self.remedies: list[Remedy] = remedies(live, self.blocks, wanted)
        self._repeated = _repeated(live)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain numbers and strings, for JSON."""
        names = (
            "device",
            "total",
            "kinds",
            "devices",
            "modules",
            "lines",
            "peak",
            "cached",
            "resident",
            "resident_peak",
            "collected",
            "graphs",
        )
        found: dict[str, Any] = {name: getattr(self, name) for name in names}
        found["limit"] = None if self.limit == inf else int(self.limit)
        found["blocks"] = [{**vars(block), "shape": list(block.shape)} for block in self.blocks]
        found["remedies"] = [remedy._asdict() for remedy in self.remedies]
        return found

    # -- the table

    def _by_kind(self) -> tuple[list[str], list[list[str]], str]:
        rows = []
        for kind, nbytes in sorted(self.kinds.items(), key=lambda pair: -pair[1]):
            if nbytes:
                pieces = [block for block in self.blocks if block.kind == kind]
                rows.append([TITLES[kind], size(nbytes), f"{100 * nbytes / self.total:.0f} %", str(len(pieces)), _described(pieces[0])])
        return ["Kind", "Memory", "Share", "Pieces", "Largest"], rows, "<>>><"

    def _by_module(self, most: int) -> tuple[list[str], list[list[str]], str]:
        grouped = self._grouped(most)
        shown = [kind for kind in SHORT if any(row.get(kind) for _, row in grouped)]
        dash = lambda n: size(n) if n else "-"  # noqa: E731
        rows = [[name, *[dash(row.get(kind, 0)) for kind in shown], size(sum(row.values()))] for name, row in grouped]
        return ["Module", *[SHORT[kind] for kind in shown], "All"], rows, "<" + ">" * (len(shown) + 1)

    def _grouped(self, most: int) -> list[tuple[str, dict[str, int]]]:
        """Modules as deep as fit into so many rows, repeated ones as one: the largest first."""
        for depth in (4, 3, 2, 1):
            rows: dict[str, dict[str, int]] = {}
            for path, kinds in self.modules.items():
                row = rows.setdefault(self._shortened(path, depth), {})
                for kind, nbytes in kinds.items():
                    row[kind] = row.get(kind, 0) + nbytes
            if len(rows) <= most:
                break
        ordered = sorted(rows.items(), key=lambda pair: -sum(pair[1].values()))
        return ordered[:most]

    def _shortened(self, path: str, depth: int) -> str:
        names = path.split(".")
        for i in range(len(names) - 1, 0, -1):
            number = self._repeated.get(".".join(names[: i + 1]))
            if number is not None:
                names[i] = f"* ({number})"
        return ".".join(names[:depth])

    def _by_line(self, most: int) -> tuple[list[str], list[list[str]], str]:
        largest = sorted(self.lines.items(), key=lambda pair: -pair[1])[:most]
        rows = []
        for line, nbytes in largest:
            file, _, number = line.rpartition(":")
            rows.append([f"{os.path.basename(file)}:{number}", size(nbytes), linecache.getline(file, int(number)).strip()[:60]])
        return ["Line", "Memory", ""], rows, "<><"

    def _notes(self) -> list[str]:
        where = "the GPU" if (self.device or "cpu").startswith("cuda") else "this process"
        lines = [f"Peak       {size(self.peak)} in tensors and workspace, {size(self.cached)} kept for reuse now"]
        if where == "this process":
            lines.append(f"Process    {size(self.resident)} resident, {size(self.resident_peak)} at most")
        if self.limit < inf:
            lines[-1] += f", of {size(self.limit)} that {where} {'has' if where == 'the GPU' else 'may use'}"
        if self.collected:
            lines.append(f"Cycles     {size(self.collected)} were in objects nobody could reach, and are free now")
        if self.graphs > 1:
            lines.append(f"Graphs     {self.graphs} results keep their history")
        return lines

    def _help(self, most: int) -> list[list[str]]:
        return [[f"-{size(r.nbytes)}", r.action + (f" ({r.cost})" if r.cost else "")] for r in self.remedies[:most]]

    def _heading(self) -> str:
        where = f" on {self.device}" if self.device else ""
        others = "" if len(self.devices) < 2 else f": {', '.join(f'{size(n)} on {name}' for name, n in self.devices.items())}"
        return f"{size(self.total)} in tensors{where}{others}"

    def _text(self, modules: int, lines: int, help: int) -> str:
        parts = [self._heading()]
        if self.blocks:
            parts.append(table(*self._by_kind()))
        if self.modules and modules:
            parts.append(table(*self._by_module(modules)))
        if self.lines:
            parts.append(table(*self._by_line(lines)))
        parts += self._notes()
        if self.remedies:
            width = max(len(first) for first, _ in self._help(help))
            parts.append("What would help")
            parts += [f"  {first:>{width}}  {action}" for first, action in self._help(help)]
        return "\n".join(parts)

    def __str__(self) -> str:
        return self._text(modules=14, lines=10, help=8)

    __repr__ = __str__

    def short(self) -> str:
        """The table as errors end with it."""
        return self._text(modules=8, lines=5, help=3)

    def _repr_html_(self) -> str:
        parts = [f"<div><b>{html.escape(self._heading())}</b></div>"]
        if self.blocks:
            parts.append(html_table(*self._by_kind()))
        if self.modules:
            parts.append(html_table(*self._by_module(14)))
        if self.lines:
            parts.append(html_table(*self._by_line(10)))
        parts += [f"<div>{html.escape(note)}</div>" for note in self._notes()]
        if self.remedies:
            parts.append(html_table(["Frees", "What would help"], self._help(8), "><"))
        return "".join(parts)


def snapshot(device: Any = None) -> Snapshot:
    """Who has the memory now: of one device, or of all."""
    name = None if device is None else str(devices.device(device))
    before = memory_guard.pool()["live"]
    gc.collect()  # what only waits for the collector is nobody's
    return Snapshot(name, 0, max(0, before - memory_guard.pool()["live"]))


def explanation(device: str, nbytes: int) -> str:
    """The end of an error about memory: who has it, and what would free the bytes that were wanted."""
    return Snapshot(device, nbytes).short()


def reset_peak() -> None:
    """Count the peak of tensors in main memory anew, from what they have now."""
    if memory_guard.native is not None:
        memory_guard.native.pool_stats(True)


def trim() -> None:
    """Give main memory that is kept for the next tensors back to the system."""
    memory_guard.make_room()


def _sums(pairs: Iterable[tuple[str, int]]) -> dict[str, int]:
    found: dict[str, int] = defaultdict(int)
    for name, nbytes in pairs:
        found[name] += nbytes
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))


def _same(device: str, wanted: str) -> bool:
    return device == wanted or device.partition(":")[0] == wanted


def _described(block: Block) -> str:
    where = block.module or block.name.partition(",")[0]
    return f"{block.dtype} {block.shape}" + (f", {where}" if where else "")


def _allocator(device: str | None) -> tuple[int, int, float]:
    """(peak of what tensors had, what is kept for reuse, what there is) of a device."""
    if device is None or not device.startswith("cuda"):
        pool = memory_guard.pool()
        return pool["peak"], pool["cached"], min(limits.memory(), limits.address_space())
    room = arrays.cuda()
    index = devices.device(device).index
    index = room.current_device() if index is None else index
    counters = room.memory.stats(index)
    kept = counters["reserved_bytes.all.current"] - counters["allocated_bytes.all.current"]
    with room.Device(index):
        return counters["allocated_bytes.all.peak"], kept, room.runtime.memGetInfo()[1]


def _repeated(live: Live) -> dict[str, str]:
    """The paths of modules that stand in a row of their like: "12 Block"."""
    found: dict[str, str] = {}
    for module in live.modules:
        path, parts = live.paths.get(id(module)), list(getattr(module, "_modules", {}).items())
        if path is None or len(parts) < 2:
            continue
        alike: dict[type, list[str]] = defaultdict(list)
        for name, part in parts:
            if isinstance(part, Module) and name.isdigit() and part._modules:
                alike[type(part)].append(name)
        for kind, names in alike.items():
            if len(names) > 1:
                found |= {f"{path}.{name}": f"{len(names)} {kind.__name__}" for name in names}
    return found
