"""SyncBatchNorm on two ranks is what PyTorch's batch norm is in one process with the batches of both. PyTorch's own takes GPUs alone."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = '''
OURS = torch.__name__ == "flambeau"
KINDS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


def data(shape, seed=0, dtype=torch.float32):
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * 2 + 1).to(dtype)


def numbers(*tensors):
    return [round(float(x), 4) for t in tensors if t is not None and t.numel()
            for x in (t.detach().double().sum(), t.detach().double().abs().max(), (t.detach().double() ** 2).sum())]


def norm(channels, kind, **options):
    """The module, with weights that are not all the same."""
    m = nn.SyncBatchNorm(channels, **options) if OURS else kind(channels, **options)
    if m.weight is not None:
        with torch.no_grad():
            m.weight.copy_(torch.linspace(0.5, 1.5, channels))
            m.bias.copy_(torch.linspace(-1, 1, channels))
    return m


def sync(shape, sizes=None, steps=2, dtype=torch.float32, layout=None, train=True, frozen=False, **options):
    """Outputs, gradients of inputs, of weights (summed over ranks) and averages: of this rank's part."""
    kind = KINDS[len(shape)]
    m = norm(shape[1], kind, **options).to(dtype if dtype is torch.float64 else torch.float32).train(train)
    if frozen:
        m.requires_grad_(False)
    sizes = sizes or [shape[0] // ranks] * ranks
    found = []
    for step in range(steps):
        x, g = data(shape, step, dtype), data(shape, 50 + step, dtype)
        if layout is not None:
            x = x.contiguous(memory_format=layout)
        own_x, own_g = x.split(sizes)[rank], g.split(sizes)[rank]
        if OURS:
            taken = own_x.clone().requires_grad_()
            out = m(taken)
            m.zero_grad()
            (out * own_g).sum().backward()
            grad_x, grads_w = taken.grad, [p.grad for p in m.parameters()]
            for grad in grads_w:
                if grad is not None:
                    dist.all_reduce(grad)
        else:
            taken = x.clone().requires_grad_()
            whole = m(taken)
            m.zero_grad()
            (whole * g).sum().backward()
            out, grad_x, grads_w = whole.split(sizes)[rank], taken.grad.split(sizes)[rank], [p.grad for p in m.parameters()]
        found += [str(out.dtype), list(out.shape), *numbers(out, grad_x, *grads_w, *m.buffers())]
        found.append(out.is_contiguous(memory_format=layout or torch.contiguous_format))
    return found


def case_rows(): return sync((6, 3))
def case_sequences(): return sync((4, 3, 5))
def case_images(): return sync((4, 3, 5, 2))
def case_volumes(): return sync((2, 3, 2, 3, 2))
def case_channels_last(): return sync((4, 3, 5, 2), layout=torch.channels_last)
def case_double(): return sync((4, 3, 5, 2), dtype=torch.float64)
def case_uneven(): return sync((7, 3, 2, 2), sizes=[5, 2])
def case_very_uneven(): return sync((8, 3), sizes=[7, 1])
def case_one_row_each(): return sync((2, 3))
def case_nothing_on_one_rank(): return sync((6, 3), sizes=[6, 0])
def case_no_images_on_one_rank(): return sync((6, 3, 2, 2), sizes=[6, 0], layout=torch.channels_last)
def case_not_affine(): return sync((4, 3, 2, 2), affine=False)
def case_no_averages(): return sync((4, 3, 2, 2), track_running_stats=False)
def case_momentum(): return sync((4, 3, 2, 2), momentum=0.4, steps=3)
def case_average_of_all(): return sync((4, 3, 2, 2), momentum=None, steps=3)
def case_eps(): return sync((4, 3), eps=0.5)
def case_evaluation(): return sync((4, 3, 2, 2), train=False)
def case_frozen(): return sync((4, 3, 2, 2), frozen=True)


def case_large_mean():
    """The variance of numbers far from zero: no large squares are subtracted."""
    m = norm(2, nn.BatchNorm1d)
    x = data((8, 2)) * 0.01 + 1000
    return numbers((m(mine(x)) if OURS else mine(m(x))).round(decimals=1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.norm, self.b = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Linear(4 * 9, 3)
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3, affine=False))

    def forward(self, x):
        return self.inner(self.b(torch.relu(self.norm(self.a(x))).flatten(1)))


def case_in_ddp():
    """A network trained by both ranks, and by one with all data: the same parameters, averages and losses."""
    m = Net()
    if OURS:
        m = DDP(nn.SyncBatchNorm.convert_sync_batchnorm(m))
    optimizer, found = torch.optim.SGD(m.parameters(), lr=0.05), []
    for step in range(3):
        x, y = data((6, 2, 3, 3), step), data((6, 3), 30 + step)
        optimizer.zero_grad()
        if OURS:
            loss = F.mse_loss(m(mine(x)), mine(y))
        else:
            loss = F.mse_loss(m(x), y)
        loss.backward()
        optimizer.step()
    m.eval()
    return [*numbers(*m.parameters(), *m.buffers(), m(data((6, 2, 3, 3), 9))), agree([*m.parameters(), *[b.float() for b in m.buffers()]])]


def case_convert():
    m = Net()
    m.norm.momentum, m.norm.eps = 0.3, 0.1
    m.norm.running_mean.fill_(3)
    m.inner.eval()
    found = nn.SyncBatchNorm.convert_sync_batchnorm(m, dist.group.WORLD)
    alone = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3))
    return [found is m, type(m.norm).__name__, m.norm.momentum, m.norm.eps, float(m.norm.running_mean.sum()), m.norm.process_group is dist.group.WORLD,
            m.inner[1].training, m.inner[1].affine, m.inner[1].weight is None, list(m.state_dict()), repr(alone), alone.process_group is None,
            [name for name, _ in m.named_modules()], type(nn.SyncBatchNorm.convert_sync_batchnorm(nn.InstanceNorm1d(3))).__name__]


def case_convert_keeps_dtype_and_device():
    m = nn.SyncBatchNorm.convert_sync_batchnorm(nn.BatchNorm1d(3).double())
    return [str(m.weight.dtype), str(m.running_mean.dtype), str(m.num_batches_tracked.dtype), m.weight.requires_grad]


def case_one_value():
    """One value for each channel on all ranks together has no variance."""
    if not OURS:
        return ["ValueError"]
    group = [dist.new_group([r]) for r in range(ranks)][rank]
    alone = nn.SyncBatchNorm(3, process_group=group)
    return [error_of(lambda: alone(torch.ones(1, 3)))[0]]


def case_refusals():
    m = nn.SyncBatchNorm(3)
    kinds = [error_of(lambda: m(torch.ones(3)))[0]]
    return kinds


def case_subgroup():
    """Groups of one rank are ordinary batch norms."""
    if not OURS:
        m = norm(3, nn.BatchNorm1d)
        return numbers(m(mine(data((6, 3)))), m.running_mean)
    group = [dist.new_group([r]) for r in range(ranks)][rank]
    m = norm(3, None, process_group=group)
    return numbers(m(mine(data((6, 3)))), m.running_mean)


def case_half():
    """bfloat16 data, float32 parameters: as close as bfloat16 is to the float32 result."""
    x = data((8, 3, 2, 2), 1).bfloat16()
    m = norm(3, nn.BatchNorm2d)
    out = m(mine(x)) if OURS else mine(m(x.float())).bfloat16()
    return [str(out.dtype), *[round(v, 0) for v in numbers(out)], *numbers(m.running_mean)]
'''


@pytest.mark.parametrize("name", names(PROGRAM))
def test_as_one_batch(name: str) -> None:
    """A rank's part of a SyncBatchNorm is not that part of PyTorch's batch norm over everyone's batch."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])
