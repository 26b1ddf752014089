"""DistributedDataParallel with two processes: what it computes is what PyTorch's computes, and what one process computes with the whole batch."""

from __future__ import annotations

import pytest
from cases import cases, names, same

PROGRAM = '''
from dataclasses import dataclass
from TORCH.utils.checkpoint import checkpoint


def train(m, steps=4, forward=None, loss_of=F.mse_loss):
    """Losses and gradients of some steps; the last entry says whether all ranks agree bit by bit."""
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        loss = loss_of((forward or m)(mine(x)), mine(y))
        loss.backward()
        found += [round(loss.item(), 6), *grads(m)]
        optimizer.step()
    return [*found, everyone(m)]


def alone(steps=4):
    """The same with the whole batch in one process."""
    m = model()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
    found = []
    for step in range(steps):
        x, y = batch(step)
        optimizer.zero_grad()
        F.mse_loss(m(x), y).backward()
        found += grads(m)
        optimizer.step()
    return found


class Branches(nn.Module):
    """Two heads, of which a call uses those it is told to."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.body, self.left, self.right = nn.Linear(6, 5), nn.Linear(5, 3), nn.Linear(5, 3)

    def forward(self, x, use="both"):
        h = torch.tanh(self.body(x))
        return sum(head(h) for name, head in (("left", self.left), ("right", self.right)) if use in (name, "both"))


class Twice(nn.Module):
    """A layer used twice, a frozen one, and a parameter that lies transposed in memory."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.a, self.frozen, self.b = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.turned = nn.Parameter(torch.randn(3, 3).t())
        for p in self.frozen.parameters():
            p.requires_grad_(False)

    def forward(self, x):
        return self.b(self.a(torch.tanh(self.frozen(self.a(x))))) @ self.turned


class Checkpointed(nn.Module):
    def __init__(self, reentrant, shared=False):
        super().__init__()
        torch.manual_seed(9)
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.head, self.reentrant, self.shared = nn.Linear(6, 3), reentrant, shared

    def forward(self, x):
        x = torch.tanh(x.requires_grad_())
        for layer in [*self.layers, *(self.layers[:1] if self.shared else [])]:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return self.head(torch.tanh(x))


@dataclass
class Output:
    value: object
    extra: object


class Structured(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.inner, self.other = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs, *, scale=1.0, swap=False):
        chosen = self.other if swap else self.inner
        return Output({"y": [chosen(inputs["x"]) * scale]}, (chosen.weight.sum(),))


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.a, self.norm, self.b = nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.norm(self.a(x)))


def case_plain(): return train(DDP(model()))
def case_small_buckets(): return train(DDP(model(), bucket_cap_mb=0.0005))
def case_bucket_list(): return train(DDP(model(), bucket_cap_mb_list=[0.0005, 0.001]))
def case_as_views(): return train(DDP(model(), gradient_as_bucket_view=True))
def case_as_views_small(): return train(DDP(model(), gradient_as_bucket_view=True, bucket_cap_mb=0.0005))
def case_static(): return train(DDP(model(), static_graph=True))
def case_static_small(): return train(DDP(model(), static_graph=True, bucket_cap_mb=0.0005))
def case_search(): return quiet(lambda: train(DDP(model(), find_unused_parameters=True)))
def case_batched_copy(): return train(DDP(model(), batched_grad_copy=True))
def case_alone(): return alone()
def case_twice_and_frozen(): return train(DDP(Twice(), bucket_cap_mb=0.0001))
def case_checkpointed(): return train(DDP(Checkpointed(False, shared=True)))
def case_checkpointed_reentrant(): return train(DDP(Checkpointed(True)))
def case_checkpointed_reentrant_static(): return train(DDP(Checkpointed(True, shared=True), static_graph=True))
def case_other_weights_at_start():
    m = model()
    if rank:
        for p in m.parameters():
            p.data.zero_()
    return train(DDP(m))


def case_no_sync():
    m = DDP(model(), bucket_cap_mb=0.0005)
    found = []
    for start in (0, 10):
        m.zero_grad()
        with m.no_sync():
            for step in range(2):
                x, y = batch(start + step)
                F.mse_loss(m(mine(x)), mine(y)).backward()
        x, y = batch(start + 2)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        found += [*grads(m), everyone(m)]
    return found


def case_no_sync_as_views():
    m = DDP(model(), gradient_as_bucket_view=True)
    found = []
    for start in (0, 10, 20):
        m.zero_grad(set_to_none=start != 20)
        with m.no_sync():
            x, y = batch(start)
            F.mse_loss(m(mine(x)), mine(y)).backward()
        x, y = batch(start + 2)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        found += [*grads(m), everyone(m)]
    return found


def case_gradients_that_add_up():
    """Averages of averages, without zero_grad."""
    m = DDP(model())
    found = []
    for step in range(3):
        x, y = batch(step)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        found += grads(m)
    return found


def case_two_forwards_one_backward():
    m = DDP(model())
    found = []
    for step in range(3):
        m.zero_grad()
        x, y = batch(step)
        (F.mse_loss(m(mine(x)), mine(y)) + m(mine(x) * 2).sum()).backward()
        found += grads(m)
    return found


def case_unused_found():
    """Which head is used differs between ranks, and in step 2 nobody uses the right one."""
    m = quiet(lambda: DDP(Branches(), find_unused_parameters=True))
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(4):
            m.zero_grad()
            x, y = batch(step)
            use = "left" if step == 2 else "both" if step == 3 else ("left", "right")[rank]
            F.mse_loss(m(mine(x), use), mine(y)).backward()
            found += [*grads(m), everyone(m)]
    return found


def case_unused_static():
    m = DDP(Branches(), static_graph=True)
    found = []
    for step in range(3):
        m.zero_grad()
        x, y = batch(step)
        F.mse_loss(m(mine(x), use="left"), mine(y)).backward()
        found += grads(m)
    return found


def case_unused_keeps_its_gradient():
    m = quiet(lambda: DDP(Branches(), find_unused_parameters=True))
    for p in m.parameters():
        p.grad = torch.full_like(p, rank + 1.0)
    x, y = batch(0)
    F.mse_loss(m(mine(x), "left"), mine(y)).backward()
    return [float(m.module.right.weight.grad.mean())]


def case_structures():
    m = DDP(Structured(), find_unused_parameters=True)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for step in range(3):
            m.zero_grad()
            x, y = batch(step)
            out = m({"x": mine(x)}, scale=2.0, swap=step == 1)
            F.mse_loss(out.value["y"][0], mine(y)).backward()
            found += grads(m)
    return found


def case_buffers_of_rank_0():
    """Each rank's batches make other running averages; before each forward pass rank 0's are everyone's."""
    m = DDP(Norm())
    found = train(m)
    with torch.no_grad():
        m(batch(99)[0])
    m(batch(99)[0])
    return found + [round(float(b.double().sum()), 5) for b in m.buffers()]


def case_buffers_stay():
    m = DDP(Norm(), forward_sync_buffers=False) if "forward_sync_buffers" in DDP.__init__.__code__.co_varnames else DDP(Norm(), broadcast_buffers=False)
    train(m)
    return [round(float(m.module.norm.running_mean.sum()), 5)]


def case_autocast():
    m = DDP(model())
    def forward(x):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m(x).float()
    return [round(x, 2) for x in train(m, forward=forward)[:1]] + [everyone(m)]


def case_scaler():
    m = DDP(model())
    optimizer, scaler = torch.optim.SGD(m.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=128.0)
    found = []
    for step in range(3):
        x, y = batch(step)
        optimizer.zero_grad()
        scaler.scale(F.mse_loss(m(mine(x)), mine(y))).backward()
        scaler.unscale_(optimizer)
        found += grads(m)
        nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
    return [*found, everyone(m)]


def case_create_graph():
    m = DDP(model())
    x, y = batch(0)
    quiet(lambda: F.mse_loss(m(mine(x)), mine(y)).backward(create_graph=True))
    return quiet(lambda: grads(m))


def case_grad_is_local():
    """torch.autograd.grad averages nothing."""
    m = DDP(model())
    x, y = batch(0)
    found = torch.autograd.grad(F.mse_loss(m(mine(x)), mine(y)), list(m.parameters()))
    return [round(float(g.sum()), 6) for g in found]


def case_hooks_of_the_user():
    """A hook sees this rank's gradient, and what it returns is averaged; one after accumulation sees the same."""
    m, seen = DDP(model()), []
    p = m.module[0].bias
    p.register_hook(lambda g: g * 2)
    p.register_post_accumulate_grad_hook(lambda t: seen.append(round(float(t.grad.sum()), 6)))
    x, y = batch(0)
    F.mse_loss(m(mine(x)), mine(y)).backward()
    return [*seen, *grads(m)]


def case_sparse(hook=None):
    torch.manual_seed(0)
    m = DDP(nn.EmbeddingBag(10, 4, mode="sum", sparse=True))
    if hook is not None:
        m.register_comm_hook(None, hook)
    found = []
    for step in range(3):
        m.zero_grad()
        m(torch.tensor([[step, 1, 1 + rank]])).pow(2).sum().backward()
        found += [m.module.weight.grad.is_sparse, *[round(float(x), 5) for x in m.module.weight.grad.to_dense().sum(1)]]
    return found


def case_sparse_with_a_hook():
    from TORCH.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
    return case_sparse(allreduce_hook)


def case_state_dict():
    m = DDP(model())
    names = list(m.state_dict())
    consumed = {k.replace("module.", ""): v for k, v in m.state_dict().items()}
    nn.modules.utils.consume_prefix_in_state_dict_if_present(again := dict(m.state_dict()), "module.")
    other = model()
    other.load_state_dict(consumed)
    m.load_state_dict({"module." + k: v for k, v in other.state_dict().items()})
    return [*names, *again]


def case_deepcopy():
    m = DDP(model())
    train(m, 1)
    m.zero_grad()
    return train(copy.deepcopy(m), 3)


def case_pickle():
    file = io.BytesIO()
    torch.save(DDP(model()), file)
    file.seek(0)
    return train(torch.load(file, weights_only=False), 3)


def case_ignored():
    m = Branches()
    DDP._set_params_and_buffers_to_ignore_for_model(m, ["right.weight", "right.bias"])
    m = DDP(m)
    x, y = batch(0)
    F.mse_loss(m(mine(x)), mine(y)).backward()
    return grads(m)


def case_delayed():
    m = Branches()
    named = [("right.weight", m.right.weight), ("right.bias", m.right.bias)]
    m = DDP(m, delay_all_reduce_named_params=named, param_to_hook_all_reduce=m.body.weight)
    found = []
    for step in range(2):
        m.zero_grad()
        x, y = batch(step)
        F.mse_loss(m(mine(x)), mine(y)).backward()
        time.sleep(0.3)  # PyTorch does not wait for this all-reduce
        found += grads(m)
    return [*found, everyone(m)]


def case_subgroup():
    groups = [dist.new_group([i]) for i in range(ranks)]
    m = DDP(model(), process_group=groups[rank])
    x, y = batch(0)
    F.mse_loss(m(mine(x)), mine(y)).backward()
    return grads(m)


def case_in_eval_and_no_grad():
    m = DDP(Norm())
    m.eval()
    with torch.no_grad():
        return [round(float(m(batch(0)[0]).sum()), 5), m.training, m.module.training]


def case_data_in_two_losses():
    """Two backward passes over parts of the graph, after one forward pass."""
    m = DDP(Branches())
    x, y = batch(0)
    for step in range(2):
        m.zero_grad()
        h = m.module
        out = m(mine(x))
        F.mse_loss(out, mine(y)).backward()
    return grads(m)


def case_attributes():
    m = DDP(model())
    data = m._get_ddp_logging_data()
    return [m.require_backward_grad_sync, m.require_forward_param_sync, m.will_sync_module_buffers(), DDP(Norm()).will_sync_module_buffers(),
            m.device_ids, m.output_device, m.dim, str(m.device), m.device_type, m.find_unused_parameters, m.gradient_as_bucket_view, m.static_graph,
            m.broadcast_bucket_size, m.bucket_bytes_cap, data["world_size"], data["rank"], data["module_name"], data["num_parameter_tensors"],
            data["total_parameter_size_bytes"], data["bucket_cap_bytes"], data["dtypes"], data["backend_name"]]


def case_refusals():
    found = []
    def bad(make):
        try:
            quiet(make)
            found.append("nothing")
        except Exception as problem:
            found.append(type(problem).__name__)
    bad(lambda: DDP(nn.Tanh()))
    bad(lambda: DDP(model(), device_ids=[0, 1]))
    bad(lambda: DDP(model(), device_ids=[0]))
    bad(lambda: DDP(nn.LazyLinear(3)))
    bad(lambda: DDP(model()).register_comm_hook(None, 3))
    m = DDP(model())
    def wrong(state: object, bucket: int): pass
    bad(lambda: m.register_comm_hook(None, wrong))
    def returns(state: object, bucket: dist.GradBucket) -> int: pass
    bad(lambda: m.register_comm_hook(None, returns))
    m._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE)
    bad(lambda: m._register_builtin_comm_hook(dist.BuiltinCommHookType.ALLREDUCE))
    bad(lambda: DDP(model(), bucket_cap_mb="25"))
    bad(lambda: m._set_ddp_runtime_logging_sample_rate(0))
    return found

'''
OURS = {"create_graph": "PyTorch's reducer cannot write to gradients that are part of a graph, and raises RuntimeError"}


@pytest.mark.parametrize("name", [name for name in names(PROGRAM) if name not in OURS])
def test_as_pytorch(name: str) -> None:
    """Losses, gradients or attributes under DistributedDataParallel differ from those of PyTorch with the same seeds."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])


@pytest.mark.parametrize(
    "name",
    "plain small_buckets bucket_list as_views as_views_small static static_small search batched_copy other_weights_at_start".split(),
)
def test_one_process(name: str) -> None:
    """Gradients averaged over two ranks are not those of one process with the whole batch, or not the same bits on both ranks."""
    for ours in cases(PROGRAM):
        *found, agree = ours[name]
        whole = ours["alone"]
        steps = 4
        each = len(found) // steps
        same([x for step in range(steps) for x in found[step * each + 1 : (step + 1) * each]], whole)  # without the losses, which are local
        assert agree is True


@pytest.mark.parametrize("name", names(PROGRAM))
def test_ranks_agree(name: str) -> None:
    """A case ended with another number of answers on rank 1 than on rank 0."""
    first, second = (ours[name] for ours in cases(PROGRAM))
    assert len(first) == len(second)


def test_create_graph() -> None:
    """backward(create_graph=True) does not leave averages in `.grad`."""
    for ours in cases(PROGRAM):
        same(ours["create_graph"], ours["plain"][1 : 1 + len(ours["create_graph"])])
