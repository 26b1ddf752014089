"""What fully_shard promises of itself: whole parameters are really freed and gathered in time, numbers are those of one process, messages teach."""

from __future__ import annotations

from typing import Any

import pytest
from cases import cases
from fully_shard_common import COMMON

OURS = (
    COMMON
    + """
import gc, weakref
import numpy as np

mesh = init_device_mesh("cpu", (2,))


def case_as_one_process():
    "Losses and weights are those of one process with the whole batch, and those of DDP, but for the order of additions."
    one, many, wrapped = model(), model(), DDP(model())
    for layer in many:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(many, mesh=mesh)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (one, many, wrapped)]
    for step in range(6):
        x, y = batch(step)
        for m, optimizer in zip((one, many, wrapped), optimizers):
            F.mse_loss(m(x), y).backward() if m is one else F.mse_loss(m(mine(x)), mine(y)).backward()
            optimizer.step()
            optimizer.zero_grad()
    triples = list(zip(one.parameters(), many.parameters(), wrapped.module.parameters()))
    apart = [float((x.detach() - b.full_tensor().detach()).abs().max()) for a, b, c in triples for x in (a, c)]
    return [max(apart) < 1e-6, agree([b.full_tensor() for _, b, _ in triples])]


def owners(m):
    "The arrays that own the memory of whole parameters."
    found = []
    for group in m._get_fsdp_state().groups:
        for region in group.regions.values():
            if region.memory is not None:
                array = region.memory._array
                while type(array.base) is np.ndarray:
                    array = array.base
                found.append(weakref.ref(array))
    return found


class Various(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.lstm = nn.Parameter(torch.randn(8, 4)), nn.LSTM(4, 4, batch_first=True)
        self.layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)

    def forward(self, x):
        x, _ = self.lstm(self.layer(x))
        a, b = self.own.chunk(2)
        return x @ a.t() @ b + self.own.t()[:, 0]


def case_memory():
    "Freed after forward unless it is to stay, there again when backward begins, and freed after it; without the garbage collector."
    said = []
    gc.disable()
    for resharding in (True, False):
        m = fully_shard(Various(), mesh=mesh, reshard_after_forward=resharding)
        x = torch.randn(2, 3, 4, requires_grad=True)
        m.unshard()
        before = owners(m)
        out = quiet(lambda: m(x))
        again = []
        out.register_hook(lambda grad: again.extend(owners(m)))
        after_forward = [ref() is not None for ref in before]
        out.sum().backward()
        said.append([after_forward, len(again), [ref() is not None for ref in (*before, *again)], len(owners(m))])
    gc.enable()
    return said


def case_what_a_rank_keeps():
    m, whole = fully_shard(model(), mesh=mesh), model()
    optimizer = torch.optim.Adam(m.parameters())
    loss_of(m).backward()
    optimizer.step()
    kept = [t for p in m.parameters() for t in (p, p.grad, *[v for v in optimizer.state[p].values() if v.dim()])]
    return [sum(t.to_local().numel() for t in kept) <= 0.52 * 4 * sum(p.numel() for p in whole.parameters()), len(kept)]


def case_divide_factor():
    m = fully_shard(model(), mesh=mesh)
    loss_of(m).backward()
    halves = [p.grad.to_local() / 2 for p in m.parameters()]
    m.zero_grad()
    m.set_gradient_divide_factor(4.0)
    loss_of(m).backward()
    return [all(torch.equal(a, p.grad.to_local()) for a, p in zip(halves, m.parameters()))]


def case_second_derivative():
    "A penalty on the gradient of the inputs, as one process has it."
    said = []
    for m in (model(), fully_shard(model(), mesh=mesh)):
        x = batch(1)[0].requires_grad_()
        (g,) = torch.autograd.grad(m(x).sum(), x, create_graph=True)
        g.square().sum().backward()
        said.append(gradients(m))
    return [max(abs(a - b) for a, b in zip(*said)) < 1e-5, max(map(abs, said[0])) > 0.01]


def case_inference_first():
    "A model whose parameters were first made whole in inference mode learns all the same."
    m, other = (fully_shard(model(), mesh=mesh) for _ in range(2))
    with torch.inference_mode():
        m(torch.ones(1, 6))
    m.reshard()
    return [train(m, 2) == train(other, 2), weights(m) == weights(other)]


def case_other_dtypes():
    "Frozen parameters that are no floating-point numbers travel unchanged, in a collective of their own."
    class Coded(nn.Module):
        def __init__(self):
            super().__init__()
            self.code = nn.Parameter(torch.arange(12).view(4, 3) + 2**60, requires_grad=False)
            self.mask = nn.Parameter(torch.tensor([True, False, True]), requires_grad=False)
            self.linear = nn.Linear(3, 4)

        def forward(self, x):
            self.seen = self.code.tolist(), self.mask.tolist()
            return self.linear(x)

    m = fully_shard(Coded(), mesh=mesh)
    m(torch.ones(1, 3)).sum().backward()
    return [m.seen == ([[2**60 + 3 * i + j for j in range(3)] for i in range(4)], [True, False, True]), bool((full(m.linear.weight.grad) == 1).all())]


def case_prefetched():
    "In backward the parameters of the next block are begun to be gathered before they are needed."
    from TORCH.distributed.fsdp._fully_shard import param_group
    events, gathering = [], param_group.Gathering

    class Seen(gathering):
        def __init__(self, params, *args, async_op):
            events.append(f"{'early' if async_op else 'now'} {params[0].name}")
            super().__init__(params, *args, async_op=async_op)

    m = nn.Sequential(*[nn.Linear(6, 6) for _ in range(3)])
    for layer in m:
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    loss = m(torch.ones(2, 6)).sum()
    param_group.Gathering = Seen
    loss.backward()
    param_group.Gathering = gathering
    return events


def case_dtype_of_a_used_model():
    m = fully_shard(model(), mesh=mesh)
    loss_of(m).backward()
    m.zero_grad()
    m.double()
    x, y = batch(1)
    F.mse_loss(m(mine(x).double()), mine(y).double()).backward()
    return [str(p.grad.dtype) for p in m.parameters()][:2]


def case_messages():
    m = fully_shard(model(), mesh=mesh)
    replaced = fully_shard(nn.Linear(6, 6), mesh=mesh)
    replaced.weight = nn.Parameter(torch.ones(6, 6))
    with torch.device("meta"):
        empty = fully_shard(nn.Linear(6, 6), mesh=mesh)
    sparse = fully_shard(nn.Embedding(6, 6, sparse=True), mesh=mesh)
    return [list(error_of(make)) for make in (
        lambda: copy.deepcopy(m),
        lambda: replaced(torch.ones(1, 6)),
        lambda: empty(torch.ones(1, 6)),
        lambda: sparse(torch.arange(3)).sum().backward(),
        lambda: fully_shard(nn.Linear(2, 2), mesh=mesh, dp_mesh_dims=object()),
        lambda: m.set_symm_mem_for_comm(),
        lambda: m.set_allocate_memory_from_process_group_for_comm(True),
    )]
"""
)


def ours(name: str) -> list[Any]:
    """What both ranks said in a case without an oracle."""
    return [found[name] for found in cases(OURS)]


@pytest.mark.parametrize(
    "name", ["as_one_process", "what_a_rank_keeps", "second_derivative", "divide_factor", "inference_first", "other_dtypes"]
)
def test_holds(name: str) -> None:
    """Every statement of these cases is true."""
    assert all(all(found) for found in ours(name)), ours(name)


def test_whole_parameters_are_freed() -> None:
    """Their memory goes after forward, if it is to, and after backward; whatever saved them."""
    freed, kept = ours("memory")[0]
    assert freed == [[False], 1, [False, False], 0]
    assert kept == [[True], 1, [False, False], 0]


def test_backward_prefetches() -> None:
    """The last block is gathered when backward comes to it, the others while the one behind them computes."""
    assert ours("prefetched")[0] == ["now 2.weight", "early 1.weight", "early 0.weight"]


def test_messages_teach() -> None:
    """What is refused is said with what was found, and what to do instead."""
    found = ours("messages")[0]
    assert [kind for kind, _ in found] == [
        "AssertionError", "RuntimeError", "RuntimeError", "NotImplementedError", "NotImplementedError", "NotImplementedError", "NotImplementedError",
    ]  # fmt: skip
    words = [
        "state dict",
        "has been replaced by a plain Parameter",
        "to_empty",
        "sparse=True",
        'mesh["dp"]',
        "process group",
        "set_custom_all_gather",
    ]
    assert [word for word, (_, text) in zip(words, found, strict=True) if word not in text] == []


def test_dtype_may_change_later() -> None:
    """A model that has run can be cast: parameters and gradients follow."""
    assert ours("dtype_of_a_used_model")[0] == ["torch.float64"] * 2
