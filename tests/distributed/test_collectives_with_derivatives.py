"""torch.distributed.nn.functional with two processes: values and gradients of collectives are PyTorch's."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = '''
import TORCH.distributed.nn.functional as C


def leaf(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + 7 * rank)).requires_grad_()


def answers_of(out, *leaves):
    """Values, and gradients of a weighted sum."""
    outs = list(out) if isinstance(out, (tuple, list)) else [out]
    weights = [torch.arange(1.0, o.numel() + 1).view_as(o) * (rank + 1 + k) for k, o in enumerate(outs)]
    sum((o * w).sum() for o, w in zip(outs, weights)).backward()
    return [[round(float(v), 4) for v in t.detach().reshape(-1)] if t is not None else None for t in (*outs, *[one.grad for one in leaves])]


def case_broadcast(): return answers_of(C.broadcast(x := leaf(3), 0), x)
def case_broadcast_from_1(): return answers_of(C.broadcast(x := leaf(2, 2), 1), x)
def case_all_reduce(): return answers_of(C.all_reduce(x := leaf(3)), x)
def case_all_reduce_scaled(): return answers_of(C.all_reduce((x := leaf(3)) * 2) ** 2, x)
def case_all_reduce_max(): return answers_of(C.all_reduce(x := leaf(3), op=dist.ReduceOp.MAX), x)
def case_reduce(): return answers_of(C.reduce(x := leaf(3), 0), x)[rank:]  # what else than rank 0 has is nobody's promise
def case_reduce_to_1(): return answers_of(C.reduce(x := leaf(3), 1), x)[1 - rank:]
def case_all_gather(): return answers_of(C.all_gather(x := leaf(2, 3)), x)
def case_all_gather_once(): return answers_of(C.all_gather(x := leaf(2))[0], x)
def case_gather(): return answers_of(C.gather(x := leaf(2), 0), x)
def case_gather_to_1(): return answers_of(C.gather(x := leaf(2), 1), x)
def case_scatter(): return answers_of(C.scatter([x := leaf(2), y := leaf(2, seed=1)], 0), x, y)
def case_all_to_all():
    x, y = leaf(2), leaf(2, seed=1)
    return answers_of(C.all_to_all([torch.empty(2), torch.empty(2)], [x, y]), x, y)
def case_all_to_all_single(): return answers_of(C.all_to_all_single(torch.empty(4, 2), x := leaf(4, 2)), x)
def case_all_to_all_single_splits():
    x = leaf(3)
    sizes = [2, 1] if rank == 0 else [1, 2]
    out = [2, 1] if rank == 0 else [1, 2]
    return answers_of(C.all_to_all_single(torch.empty(3), x, out, sizes), x)
def case_reduce_scatter():
    x, y = leaf(2), leaf(2, seed=1)
    return answers_of(C.reduce_scatter(torch.empty(2), [x, y]), x, y)
def case_group():
    group = dist.new_group([0, 1])
    return answers_of(C.all_reduce(x := leaf(2), group=group), x)
def case_not_contiguous(): return answers_of(C.all_reduce((x := leaf(2, 3)).t()), x)
def case_double(): return answers_of(C.all_reduce((x := leaf(2)).double()), x)
def case_old_names():
    """Those that PyTorch calls deprecated."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        C.all_reduce(torch.ones(1)), C.broadcast(torch.ones(1), 0), C.all_gather(torch.ones(1)), C.gather(torch.ones(1)), C.reduce(torch.ones(1), 0)
    return [w.category.__name__ for w in seen]
def case_without_gradients():
    with torch.no_grad():
        return [[round(float(v), 4) for v in C.all_reduce(leaf(2))], C.all_reduce(torch.ones(2)).requires_grad]
def case_through_a_layer():
    torch.manual_seed(1)
    layer = nn.Linear(3, 2)
    whole = torch.cat(C.all_gather(layer(leaf(2, 3))))
    whole.pow(2).sum().backward()
    return [round(float(whole.sum()), 4), round(float(layer.weight.grad.sum()), 4), round(float(layer.bias.grad.sum()), 4)]
'''


@pytest.mark.parametrize("name", names(PROGRAM))
def test_as_pytorch(name: str) -> None:
    """A collective's value or the gradient through it is not PyTorch's."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])
