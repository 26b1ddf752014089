"""`join`: ranks that have run out of data take part in the collectives of those that have not, and end with the same model. As in PyTorch."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = '''
from TORCH.distributed.algorithms.join import Join, Joinable, JoinHook


def uneven(m, extra=3, optimizer=None, before=None, **options):
    """Rank 1 has `extra` batches more than rank 0."""
    optimizer = optimizer or torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    found = []
    with m.join(**options):
        for number in range(2 + extra * rank):
            x, y = batch(number + 10 * rank)
            optimizer.zero_grad()
            loss = F.mse_loss(m(x), y)
            loss.backward()
            optimizer.step()
            found += [round(loss.item(), 5), *grads(m)]
    return [*found, *params(m), agree([*m.parameters(), *[b.float() for b in m.buffers()]])]


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.norm, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


def case_join(): return uneven(DDP(model()))
def case_small_buckets(): return uneven(DDP(model(), bucket_cap_mb=0.0005))
def case_many_more(): return uneven(DDP(model(), bucket_cap_mb=0.0005), extra=8)
def case_as_views(): return uneven(DDP(model(), gradient_as_bucket_view=True))
def case_divided_by_those_who_have_data(): return uneven(DDP(model()), divide_by_initial_world_size=False)
def case_static(): return uneven(DDP(model(), static_graph=True))
def case_find_unused(): return quiet(lambda: uneven(DDP(model(), find_unused_parameters=True)))
def case_buffers(): return uneven(DDP(Norm()))
def case_buffers_of_their_own(): return uneven(DDP(Norm(), broadcast_buffers=False))
def case_even(): return uneven(DDP(model()), extra=0)
def case_disabled(): return uneven(DDP(model()), extra=0, enable=False)
def case_nothing_at_all_on_one():
    m, found = DDP(model()), []
    with m.join():
        for number in range(3 * rank):
            m.zero_grad()
            x, y = batch(number)
            F.mse_loss(m(x), y).backward()
            found += grads(m)
    return [*found, agree(list(m.parameters()))]


def case_ended_early():
    """throw_on_early_termination: an error for everybody as soon as one has no data left."""
    m, seen = DDP(model()), []
    kind, text = error_of(lambda: seen.append(uneven(m, throw_on_early_termination=True)))
    return [kind, "exhausted" in text]


def case_again():
    """Two epochs, each with a join of its own, and steps without between."""
    m = DDP(model())
    found = uneven(m, 1)
    x, y = batch(70)
    m.zero_grad()
    F.mse_loss(m(mine(x)), mine(y)).backward()
    return [*found, *grads(m), *uneven(m, 2)]


def case_with_hook():
    from TORCH.distributed.algorithms.ddp_comm_hooks import default_hooks
    m = DDP(model())
    m.register_comm_hook(None, default_hooks.allreduce_hook)
    return uneven(m)


def case_no_sync():
    """Accumulation within a join: the ranks without data hear that nothing is averaged in this pass."""
    m, found = DDP(model()), []
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    from contextlib import nullcontext
    with m.join():
        for number in range(2 + 4 * rank):
            x, y = batch(number)
            with nullcontext() if number % 2 else m.no_sync():
                F.mse_loss(m(x), y).backward()
            if number % 2:
                found += grads(m)
                optimizer.step()
                optimizer.zero_grad()
    return [*found, *params(m)]


def case_two_joinables():
    """A model and what counts the batches of everybody."""
    class Counter(Joinable):
        class Hook(JoinHook):
            def __init__(self, counter): self.counter = counter
            def main_hook(self): dist.all_reduce(torch.zeros(1))
            def post_hook(self, is_last_joiner): self.counter.last = is_last_joiner

        def __init__(self):
            super().__init__()
            self.count, self.last = torch.zeros(1), None

        def __call__(self):
            Join.notify_join_context(self)
            said = torch.ones(1)
            dist.all_reduce(said)
            self.count += said

        def join_hook(self, **kwargs): return Counter.Hook(self)
        @property
        def join_device(self): return torch.device("cpu")
        @property
        def join_process_group(self): return dist.group.WORLD
    m, counter = DDP(model()), Counter()
    with Join([m, counter]):
        for number in range(1 + 2 * rank):
            m.zero_grad()
            x, y = batch(number)
            F.mse_loss(m(x), y).backward()
            counter()
    return [float(counter.count), counter.last, *grads(m)]


def case_refusals():
    class Nobody(Joinable):
        def __init__(self): pass
        def join_hook(self, **kwargs): return JoinHook()
        @property
        def join_device(self): return torch.device("cpu")
        @property
        def join_process_group(self): return dist.group.WORLD
    other = dist.new_group([0, 1])
    a, b = DDP(model()), DDP(model(), process_group=other)
    return [error_of(lambda: Join([]))[0], error_of(lambda: Join([a, b]))[0], error_of(lambda: Join.notify_join_context(Nobody()))[0],
            error_of(lambda: Joinable())[0]]
'''


@pytest.mark.parametrize("name", names(PROGRAM))
def test_as_pytorch(name: str) -> None:
    """Losses, gradients or the final model differ from PyTorch's where ranks have different numbers of batches."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])
