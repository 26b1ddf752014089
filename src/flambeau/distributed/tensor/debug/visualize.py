"""visualize_sharding: a table of who has which part of a tensor."""

from __future__ import annotations

from itertools import product

from flambeau.distributed.tensor._api import DTensor
from flambeau.distributed.tensor._utils import local_shape_and_offset


def visualize_sharding(dtensor: DTensor, header: str = "", use_rich: bool = False) -> None:
    """Print which ranks have which rows (and columns) of a tensor of one or two dimensions.

              Col 0-3    Col 4-7
    Row 0-3   cpu:0      cpu:1
    Row 4-7   cpu:2      cpu:3
    """
    if use_rich:
        raise NotImplementedError("visualize_sharding(use_rich=True) is not implemented: leave it out for a plain table")
    if not dtensor.numel():
        return
    if dtensor.dim() not in (1, 2):
        raise RuntimeError(f"visualize sharding supports only 1D or 2D DTensors, found {dtensor.dim()} dimensions")
    if dtensor.device_mesh.get_coordinate() is None or any(n != 0 for n in dtensor.device_mesh.get_coordinate()):
        return
    if header:
        print(header)
    print(_table(dtensor))


def _table(dtensor: DTensor) -> str:
    mesh = dtensor.device_mesh
    held: dict[tuple, list[str]] = {}
    ranks = mesh.mesh
    for at in product(*[range(n) for n in mesh.shape]):
        shape, offset = local_shape_and_offset(dtensor.shape, mesh.shape, at, dtensor.placements)
        if 0 not in shape:
            spans = tuple(f"{first}-{first + n - 1}" for first, n in zip(offset, shape, strict=True))
            held.setdefault(spans, []).append(f"{mesh.device_type}:{ranks[at].item()}")
    first = lambda span: int(span.split("-")[0])  # noqa: E731
    columns = sorted({spans[-1] for spans in held}, key=first)
    rows = sorted({spans[0] for spans in held}, key=first) if dtensor.dim() == 2 else [""]
    cells = [["", *[f"Col {c}" for c in columns]]]
    for row in rows:
        there = [", ".join(held.get((row, c) if dtensor.dim() == 2 else (c,), [])) for c in columns]
        cells.append([f"Row {row}" if row else "", *there])
    widths = [max(len(line[i]) for line in cells) for i in range(len(cells[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells)
