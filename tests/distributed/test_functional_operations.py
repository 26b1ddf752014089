"""torch.ops._c10d_functional: every form of the functional collectives gives what PyTorch's gives, under the same name."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = """
ops, group = torch.ops._c10d_functional, dist.group.WORLD.group_name


def x(n=2):
    return torch.arange(float(n)) + 10 * rank


def said(*tensors):
    return [ops.wait_tensor(t).tolist() for t in tensors]


def case_names():
    return [[str(packet), packet.default.name(), str(packet.default)] for packet in (ops.all_reduce, ops.broadcast_, ops.all_gather_into_tensor_out)]


def case_all_reduce():
    written, listed = x(), [x(), x(3)]
    ops.wait_tensor(ops.all_reduce_(written, "sum", group))
    for t in ops.all_reduce_coalesced_(listed, "max", group):
        ops.wait_tensor(t)
    return said(ops.all_reduce(x(), "sum", group), ops.all_reduce.default(x(), "avg", group), written, *listed,
                *ops.all_reduce_coalesced([x(), x(3)], "sum", group))


def case_gather_and_scatter():
    out, part = torch.zeros(4), torch.zeros(1)
    ops.wait_tensor(ops.all_gather_into_tensor_out(x(), 2, group, out=out))
    ops.wait_tensor(ops.reduce_scatter_tensor_out(x(), "sum", 2, group, out=part))
    return said(ops.all_gather_into_tensor(x(), 2, group), out, *ops.all_gather_into_tensor_coalesced([x(), x(3)], 2, group),
                ops.reduce_scatter_tensor(x(), "sum", 2, group), part, *ops.reduce_scatter_tensor_coalesced([x(), x(4)], "sum", 2, group))


def case_others():
    written = x()
    ops.wait_tensor(ops.broadcast_(written, 1, group))
    return said(ops.broadcast(x(), 0, group), written, ops.all_to_all_single(x(), [1, 1], [1, 1], group))
"""


@pytest.mark.parametrize("name", names(PROGRAM))
def test_as_pytorch(name: str) -> None:
    """A form of a collective says on each rank what it says with PyTorch."""
    same([found[name] for found in cases(PROGRAM)], [found[name] for found in cases(PROGRAM, "torch")])
