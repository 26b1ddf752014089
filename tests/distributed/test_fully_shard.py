"""fully_shard does what PyTorch's does: placements, numbers over several steps, what modules hold when, what is refused."""

from __future__ import annotations

from typing import Any

import pytest
from cases import cases, names, same
from fully_shard_common import COMMON

TWO_RANKS = (
    COMMON
    + """
mesh = init_device_mesh("cpu", (2,))


def sharded(m=None, **how):
    m = model() if m is None else m
    for layer in m:
        if list(layer.parameters()):
            fully_shard(layer, mesh=mesh, **how)
    return fully_shard(m, mesh=mesh, **how)


def case_steps():
    m = sharded()
    return [train(m), weights(m), held(m), [list(p.to_local().shape) for p in m.parameters()], [str(p.placements) for p in m.parameters()], repr(m)]


def case_root_alone():
    m = fully_shard(model(), mesh=mesh)
    return [train(m), weights(m), held(m)]


def case_optimizers():
    said = []
    for make in (
        lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.01),
        lambda ps: torch.optim.AdamW(ps, lr=0.05, foreach=True),
        lambda ps: torch.optim.AdamW(ps, lr=0.05, fused=True),
        lambda ps: torch.optim.RMSprop(ps, lr=0.01, foreach=False),
    ):
        m = sharded()
        said += [train(m, make=make), weights(m)]
    return said


def case_uneven():
    torch.manual_seed(3)
    m = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1), nn.Tanh(), nn.Linear(1, 3))
    m = sharded(m)
    said = [[list(p.shape), list(p.to_local().shape), list(p.stride())] for p in m.parameters()]
    loss_of(m).backward()
    return [said, [list(p.grad.to_local().shape) for p in m.parameters()], gradients(m), train(m), weights(m)]


def case_other_dimension():
    m = sharded(shard_placement_fn=lambda p: Shard(1) if p.dim() == 2 and p.shape[1] % 2 == 0 else None)
    return [train(m), weights(m), [[str(p.placements), list(p.to_local().shape)] for p in m.parameters()]]


def case_what_is_held():
    said = []
    for how in ({}, {"reshard_after_forward": True}, {"reshard_after_forward": False}, {"reshard_after_forward": 1}, {"reshard_after_forward": 2}):
        m = quiet(lambda: sharded(**how))
        said.append(held(m))
        loss = loss_of(m)
        said.append(held(m))
        loss.backward()
        said.append(held(m))
        with torch.no_grad():
            loss_of(m)
        said.append(held(m))
        m.reshard()
        said.append(held(m))
        said.append(gradients(m))
    return said


def case_accumulation():
    m = sharded()
    said = []
    for resharding in (True, False):
        m.set_requires_gradient_sync(False)
        m.set_reshard_after_backward(resharding)
        for seed in (1, 2):
            loss_of(m, seed).backward()
            said.append([p.grad is None for p in m.parameters()])
        m.set_requires_gradient_sync(True)
        m.set_reshard_after_backward(True)
        loss_of(m, 3).backward()
        loss_of(m, 4).backward()
        said.append(gradients(m))
    m.zero_grad()
    return said + [train(m), weights(m)]


def case_last_backward():
    m = sharded()
    m.set_is_last_backward(False)
    loss_of(m, 1).backward()
    m.set_is_last_backward(True)
    loss_of(m, 2).backward()
    return gradients(m)


def case_several_forwards():
    m = sharded()
    (loss_of(m, 1) + 2 * loss_of(m, 2) + m(torch.ones(2, 6)).sum()).backward()
    one = gradients(m)
    first, second = loss_of(m, 3), loss_of(m, 4)
    first.backward()
    second.backward()
    return [one, gradients(m)]


def case_kept_graph():
    m = sharded()
    loss = loss_of(m)
    loss.backward(retain_graph=True)
    loss.backward()
    return gradients(m)


def case_grad_of_inputs():
    m = sharded()
    x = torch.ones(2, 6, requires_grad=True)
    (found,) = torch.autograd.grad(m(x).square().sum(), x)
    m(x).sum().backward()
    return numbers([found, x.grad]) + gradients(m)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.middle, self.head = nn.Embedding(11, 6), nn.Linear(6, 6), nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(torch.tanh(self.middle(self.embed(x))))


def case_shared():
    torch.manual_seed(5)
    m = Tied()
    fully_shard(m.middle, mesh=mesh)
    fully_shard(m, mesh=mesh)
    losses = train(m, loss=lambda m, seed: m(torch.arange(4) + rank + seed).square().mean())
    return [losses, weights(m), held(m), m.head.weight is m.embed.weight]


def case_shared_between_groups():
    m = Tied()
    fully_shard(m.embed, mesh=mesh)
    fully_shard(m.head, mesh=mesh)
    fully_shard(m, mesh=mesh)
    return [error_of(lambda: m(torch.arange(4)))[0]]


def case_list():
    torch.manual_seed(5)
    m = Tied()
    fully_shard([m.embed, m.head], mesh=mesh)
    fully_shard(m, mesh=mesh)
    losses = train(m, loss=lambda m, seed: m(torch.arange(4) + rank + seed).square().mean())
    return [losses, weights(m), held(m), repr(m), error_of(lambda: fully_shard([nn.Linear(2, 2), nn.Linear(2, 2)], mesh=mesh)[0](torch.ones(1, 2)))[0]]


def case_frozen():
    m = model()
    m[0].weight.requires_grad_(False)
    for p in m[2].parameters():
        p.requires_grad_(False)
    m = sharded(m)
    said = [p.requires_grad for p in m.parameters()]
    return [said, train(m), weights(m), gradients(m)]


def case_thawed():
    m = model()
    m[0].weight.requires_grad_(False)
    m = sharded(m)
    loss_of(m).backward()
    before = gradients(m)
    m[0].weight.requires_grad_(True)
    m[2].bias.requires_grad_(False)
    m.zero_grad()
    loss_of(m).backward()
    return [before, gradients(m)]


class Choosing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x, which=(0,)):
        for i in which:
            x = torch.tanh((self.first, self.second)[i](x))
        return self.third(x)


def case_unused():
    torch.manual_seed(5)
    m = Choosing()
    for layer in (m.first, m.second):
        fully_shard(layer, mesh=mesh)
    fully_shard(m, mesh=mesh)
    said = []
    for which in ((0,), (1, 0), (0, 0, 1)):
        m(mine(batch(1)[0]), which).square().mean().backward()
        said.append(gradients(m))
        m.zero_grad()
    m.set_reduce_scatter_unused_params(True)
    whole = fully_shard(Choosing(), mesh=mesh)
    with torch.no_grad():
        for p in whole.parameters():
            p.fill_(0.25)
    whole.set_reduce_scatter_unused_params(True)
    whole(mine(batch(1)[0]), (rank,)).square().mean().backward()
    return [said, gradients(whole)]


def case_evaluation():
    m = sharded()
    x = batch(1)[0]
    with torch.no_grad():
        a = m(x)
    m.eval()
    with torch.no_grad():
        b = m(x)
    m.train()
    losses = train(m, 2)
    m.reshard()
    with torch.no_grad():
        c = m(x)
    with torch.inference_mode():
        d = m(x)
    return [numbers([a, b, c, d]), losses, weights(m), a.requires_grad, train(m, 2)]


class Nested(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(6, 6)

    def forward(self, given, *, scale=1.0, more=None):
        a, (b, n) = given["a"], given["rest"]
        found = self.inner(a * scale + b)
        return {"out": [found, found.detach()], "n": n + 1, "nothing": None, "name": "x", "more": more}


def case_structures():
    torch.manual_seed(5)
    m = nn.Module()
    m.one, m.two = Nested(), Nested()
    m.forward = lambda a, b: m.two({"a": m.one({"a": a, "rest": (b, 3)}, scale=2.0)["out"][0], "rest": (b, 4)}, more=[b])
    fully_shard(m.one, mesh=mesh)
    fully_shard(m.two, mesh=mesh)
    a, b = torch.ones(2, 6, requires_grad=True), torch.full((2, 6), 0.5, requires_grad=True)
    found = m.two({"a": m.one({"a": a, "rest": (b, 3)}, scale=2.0)["out"][0], "rest": (b, 4)}, more=[b])
    found["out"][0].square().sum().backward()
    return [sorted(found), found["n"], found["nothing"], found["name"], gradients(m), numbers([a.grad, b.grad])]


class Seen(nn.Module):
    def __init__(self, inside):
        super().__init__()
        self.inside, self.seen = inside, []

    def forward(self, x, y=None):
        self.seen.append([str(p.dtype).split(".")[-1] for p in (x, *self.inside.parameters())])
        out = self.inside(x)
        self.seen.append(str(out.dtype).split(".")[-1])
        return out


def case_mixed_precision():
    said = []
    for policy in (
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        MixedPrecisionPolicy(param_dtype=torch.bfloat16),
        MixedPrecisionPolicy(param_dtype=torch.bfloat16, output_dtype=torch.float32),
        MixedPrecisionPolicy(param_dtype=torch.float64, reduce_dtype=torch.float32, output_dtype=torch.float32),
        MixedPrecisionPolicy(reduce_dtype=torch.float64),
        MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float16, output_dtype=torch.float32),
    ):
        torch.manual_seed(5)
        m = Seen(nn.Linear(6, 3))
        fully_shard(m, mesh=mesh, mp_policy=policy)
        out = m(mine(batch(1)[0]))
        out.float().square().mean().backward()
        m.set_requires_gradient_sync(False)
        m(mine(batch(2)[0])).float().square().mean().backward()
        m.set_requires_gradient_sync(True)
        m(mine(batch(3)[0])).float().square().mean().backward()
        said.append([m.seen, str(out.dtype).split(".")[-1], [str(p.grad.dtype).split(".")[-1] for p in m.parameters()], [round(g, 1) for g in gradients(m)]])
    no_cast = fully_shard(Seen(nn.Linear(6, 3)), mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, cast_forward_inputs=False))
    return said + [error_of(lambda: no_cast(torch.ones(2, 6)))[0]]


def case_dtype_before_and_after():
    m = sharded(model().to(torch.float64))
    first = str(next(m.parameters()).dtype).split(".")[-1]
    m.to(torch.float32)
    return [first, str(next(m.parameters()).dtype).split(".")[-1], train(m), weights(m)]


def case_offload():
    m = sharded(offload_policy=CPUOffloadPolicy(pin_memory=False))
    return [train(m), weights(m), error_of(lambda: CPUOffloadPolicy().pin_memory)[0]]


def case_meta():
    with torch.device("meta"):
        m = model()
    early = error_of(lambda: fully_shard(m[0], mesh=mesh)(torch.ones(2, 6)))[0]
    with torch.device("meta"):
        m = model()
    m = sharded(m)
    m.to_empty(device="cpu")
    torch.manual_seed(0)
    for layer in m:
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.fill_(0.1 * (i + 1))
    return [early, held(m), train(m), weights(m)]


def case_state_dict():
    m, other = sharded(), sharded(nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)))
    train(m, 2)
    loss_of(m)
    state = m.state_dict()
    kinds = [[name, type(t).__name__, list(t.to_local().shape)] for name, t in state.items()]
    report = other.load_state_dict(state)
    same = [bool((full(a) == full(b)).all()) for a, b in zip(m.parameters(), other.parameters())]
    wholes = {name: full(t) for name, t in state.items()}
    plain = model()
    plain.load_state_dict(wholes)
    fresh = sharded()
    fresh.load_state_dict({name: distribute_tensor(t, mesh, [Shard(0)]) for name, t in wholes.items()}, assign=True)
    return [kinds, str(report), same, train(other, 2), train(fresh, 2), error_of(lambda: other.load_state_dict(wholes))[0]]


def case_clipping():
    m = sharded()
    loss_of(m).backward()
    norm = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
    other = torch.nn.utils.clip_grad_norm_(m.parameters(), 10.0, norm_type=float("inf"))
    again = torch.nn.utils.clip_grad_norm_(m.parameters(), 0.01, foreach=True)
    return [*numbers([norm, other, again]), gradients(m)]


def case_grad_scaler():
    m = sharded()
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0, growth_interval=2)
    said = []
    for step in range(4):
        loss = loss_of(m, step)
        scaler.scale(loss * (float("inf") if step == 1 else 1.0)).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        said.append(scaler.get_scale())
    return said + weights(m)


class Block(nn.Module):
    def __init__(self, how="no"):
        super().__init__()
        self.norm, self.up, self.down, self.how = nn.LayerNorm(6), nn.Linear(6, 12), nn.Linear(12, 6), how

    def inner(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))

    def forward(self, x):
        if self.how == "inside":
            return checkpoint(self.inner, x, use_reentrant=False)
        if self.how == "inside, reentrant":
            return checkpoint(self.inner, x, use_reentrant=True)
        return self.inner(x)


class Stack(nn.Module):
    def __init__(self, how="no"):
        super().__init__()
        self.first, self.blocks, self.head, self.how = nn.Linear(6, 6), nn.ModuleList([Block(how) for _ in range(3)]), nn.Linear(6, 3), how

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant="reentrant" in self.how) if self.how.startswith("around") else block(x)
        return self.head(x)


def stack(how="no", **options):
    torch.manual_seed(11)
    m = Stack(how)
    for block in m.blocks:
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(m, mesh=mesh, **options)


def case_checkpointing():
    said = []
    for how in ("no", "inside", "inside, reentrant", "around", "around, reentrant"):
        m = stack(how)
        said += [train(m), weights(m)]
    return said


def case_prefetch_lists():
    m = stack()
    m.set_modules_to_forward_prefetch([m.blocks[0], m.blocks[1]])
    m.blocks[0].set_modules_to_forward_prefetch([m.blocks[1], m.blocks[2]])
    m.set_modules_to_backward_prefetch([m.blocks[2], m.blocks[1]])
    m.blocks[2].set_modules_to_backward_prefetch([m.blocks[1], m.blocks[0]])
    m.set_reshard_after_forward(True)
    losses = train(m)
    m.set_reshard_after_forward(False, recurse=False)
    return [losses, train(m), weights(m), error_of(lambda: m.set_modules_to_forward_prefetch([nn.Linear(2, 2)]))[0]]


def case_unshard():
    m = sharded()
    said = [m.unshard(), held(m)]
    handle = m[0].unshard(async_op=True)
    said += [isinstance(handle, UnshardHandle), held(m)]
    handle.wait()
    handle.wait()
    said.append(held(m))
    m[0].reshard()
    said.append(held(m))
    m[2].unshard(async_op=True)
    return said + [train(m), weights(m)]


def case_forward_method():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(6, 3)

        def forward(self, x):
            return self.linear(x)

        def other(self, x, *, scale):
            return self.linear(x) * scale

    torch.manual_seed(5)
    m = fully_shard(Two(), mesh=mesh, reshard_after_forward=True)
    register_fsdp_forward_method(m, "other")
    register_fsdp_forward_method(nn.Linear(2, 2), "nothing")
    m.other(mine(batch(1)[0]), scale=2.0).square().mean().backward()
    return [gradients(m), held(m), error_of(lambda: register_fsdp_forward_method(m, "nothing"))[0]]


def case_factors_and_hooks():
    m = fully_shard(model(), mesh=mesh)
    m.set_gradient_divide_factor(2.0)
    seen = []
    m.set_all_reduce_hook(lambda grads: seen.append([list(grads.shape), round(float(grads.sum()), 5)]))
    loss_of(m).backward()
    m.zero_grad()
    m.set_force_sum_reduction_for_comms(True)
    after = []
    for p in m.parameters():
        p.register_post_accumulate_grad_hook(lambda p: after.append([list(p.grad.shape)]))
    loss_of(m).backward()
    return [seen, after, gradients(m)]


def case_custom_collectives():
    from TORCH.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter
    said = []

    class Gather(AllGather):
        def allocate(self, size, *, dtype, device):
            return torch.empty(*size, dtype=dtype, device=device)

        def __call__(self, output_tensor, input_tensor, group, async_op=False):
            said.append([list(output_tensor.shape), list(input_tensor.shape)])
            return quiet(lambda: dist.all_gather_into_tensor(output_tensor, input_tensor, group=group, async_op=async_op))

    class Scatter(ReduceScatter):
        allocate = Gather.allocate

        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            said.append([list(output_tensor.shape), list(input_tensor.shape)])
            return quiet(lambda: dist.reduce_scatter_tensor(output_tensor, input_tensor, group=group, op=op, async_op=async_op))

    m = fully_shard(model(), mesh=mesh)
    m.set_custom_all_gather(Gather())
    m.set_custom_reduce_scatter(Scatter())
    loss_of(m).backward()
    return [said, gradients(m)]


def case_ignored():
    m = model()
    ignored = set(m[2].parameters())
    m = fully_shard(m, mesh=mesh, ignored_params=ignored)
    return [train(m, 1), held(m)]


def case_slices():
    m = sharded()
    return [type(m[:2]).__name__, type(m[0]).__name__, isinstance(m, FSDPModule), isinstance(m[0], nn.Linear), isinstance(m[1], FSDPModule)]


def case_refused():
    class Scalar(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(1.0))

    m = sharded()
    loss_of(m)
    strided = nn.Linear(4, 4)
    strided.weight = nn.Parameter(torch.randn(4, 4).t())
    mixed = nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6).double())
    fully_shard(mixed, mesh=mesh)
    other = sharded()
    loss_of(other[0:1], 1) if False else other[0](torch.ones(1, 6))
    return [error_of(make)[0] for make in (
        lambda: fully_shard(nn.ModuleList([nn.Linear(2, 2)]), mesh=mesh),
        lambda: fully_shard(nn.ModuleDict({"a": nn.Linear(2, 2)}), mesh=mesh),
        lambda: fully_shard(Scalar(), mesh=mesh),
        lambda: fully_shard(m, mesh=mesh),
        lambda: copy.deepcopy(m),
        lambda: fully_shard(strided, mesh=mesh),
        lambda: fully_shard(nn.Linear(3, 3), mesh=mesh, shard_placement_fn=lambda p: Shard(1) if p.dim() == 2 else None),
        lambda: fully_shard(nn.Linear(3, 3), mesh=mesh, shard_placement_fn=lambda p: Shard(3)),
        lambda: fully_shard(nn.Linear(3, 3), mesh=mesh, shard_placement_fn=lambda p: Replicate()),
        lambda: fully_shard(nn.Linear(3, 3), mesh=mesh, reshard_after_forward=3),
        lambda: fully_shard(nn.Linear(3, 3), mesh=mesh, reshard_after_forward="yes"),
        lambda: fully_shard(nn.Linear(3, 3), mesh=init_device_mesh("cpu", (1, 1, 2), mesh_dim_names=("a", "b", "c"))),
        lambda: fully_shard(nn.Linear(3, 3), mesh=init_device_mesh("cpu", (1, 2))),
        lambda: mixed(torch.ones(2, 6)),
        lambda: loss_of(other),
        lambda: m.set_reshard_after_forward(1),
        lambda: m.set_reduce_scatter_max_input_buffers(0),
        lambda: m.set_reduce_scatter_max_input_buffers(True),
        lambda: m[0].reset_iter_state(),
        lambda: share_comm_ctx([nn.Linear(2, 2)]),
        lambda: MixedPrecisionPolicy(1, 2, 3, 4, 5),
    )]


def case_recovery():
    m = sharded()
    train(m, 1)
    loss = loss_of(m, 2)
    error = error_of(lambda: m(torch.ones(2, 5)))[0]
    m.reset_iter_state()
    m.zero_grad()
    return [error, held(m), train(m), weights(m)]


def case_settings():
    m = stack()
    m.set_reduce_scatter_max_input_buffers(3)
    m.set_separate_reduce_scatter_group()
    said = [train(m), weights(m)]
    m.set_separate_reduce_scatter_group(False)
    m._set_unshard_async_op(True)
    share_comm_ctx([m])
    quiet(lambda: m.set_reduce_scatter_divide_factor(2.0))
    return said + [train(m), weights(m)]


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(9, 6)
        self.linear = nn.Linear(6, 9)

    def forward(self, x):
        return self.linear(self.embedding(x))


def case_no_unshard_in_backward():
    torch.manual_seed(5)
    m = Embeds()
    fully_shard(m.embedding, mesh=mesh)
    m.embedding.set_unshard_in_backward(False)
    fully_shard(m, mesh=mesh)
    return [train(m, loss=lambda m, seed: m(torch.arange(4) + rank).square().mean()), weights(m)]


class Various(nn.Module):
    "Layers that keep parameters in ways of their own."

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(3, 4, 3, padding=1), nn.BatchNorm1d(4)
        self.lstm, self.attention = nn.LSTM(4, 5, batch_first=True), nn.MultiheadAttention(5, 1, batch_first=True)
        self.own, self.sparse_free = nn.Parameter(torch.randn(7, 5)), nn.Bilinear(5, 5, 2)

    def forward(self, x):
        x = self.norm(self.conv(x)).transpose(1, 2)
        x, _ = self.lstm(x)
        x, _ = self.attention(x, x, x, need_weights=False)
        a, b = self.own.chunk(2)
        x = x @ a.t() @ self.own[:4] + b.sum(0) * self.own.t()[:, 0]
        return self.sparse_free(x, x)


def case_layers():
    torch.manual_seed(13)
    m = Various()
    for layer in (m.conv, m.norm, m.lstm, m.attention):
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    fully_shard(m, mesh=mesh, reshard_after_forward=True)
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 3, 8, generator=generator)
    return [train(m, loss=lambda m, seed: m(mine(x)).square().mean(), make=lambda ps: torch.optim.SGD(ps, lr=0.001)), weights(m)]


def case_nested_deeply():
    torch.manual_seed(11)
    m = Stack()
    for block in m.blocks:
        for layer in (block.up, block.down):
            fully_shard(layer, mesh=mesh, reshard_after_forward=True)
        fully_shard(block, mesh=mesh)
    fully_shard(m, mesh=mesh, reshard_after_forward=True)
    return [train(m), weights(m)]


def case_autocast():
    m = stack()
    def loss(m, seed):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return m(mine(batch(seed)[0])).float().square().mean()
    return [[round(x, 1) for x in train(m, loss=loss)]]


def case_full_state_dict():
    from TORCH.distributed.checkpoint.state_dict import (
        StateDictOptions, get_model_state_dict, get_optimizer_state_dict, set_model_state_dict, set_optimizer_state_dict,
    )
    m = sharded()
    optimizer = torch.optim.Adam(m.parameters(), lr=0.05)
    for seed in (1, 2):
        loss_of(m, seed).backward()
        optimizer.step()
        optimizer.zero_grad()
    whole = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True))
    on_rank_0 = get_model_state_dict(m, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
    moments = get_optimizer_state_dict(m, optimizer, options=StateDictOptions(full_state_dict=True))
    other = sharded(nn.Sequential(nn.Linear(6, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)))
    other_optimizer = torch.optim.Adam(other.parameters(), lr=0.05)
    set_model_state_dict(other, dict(whole), options=StateDictOptions(full_state_dict=True))
    set_optimizer_state_dict(other, other_optimizer, moments, options=StateDictOptions(full_state_dict=True))
    said = []
    for one, opt in ((m, optimizer), (other, other_optimizer)):
        loss_of(one, 3).backward()
        opt.step()
        said.append(weights(one))
    third = sharded()
    given = dict(whole) if rank == 0 else {}
    set_model_state_dict(third, given, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    return [[[name, list(t.shape)] for name, t in whole.items()], sorted(on_rank_0), numbers(whole.values()), said, weights(third)]
"""
)


def said(name: str, framework: str = "flambeau") -> list[Any]:
    """What both ranks said in a case."""
    return [found[name] for found in cases(TWO_RANKS, framework)]


@pytest.mark.parametrize("name", names(TWO_RANKS))
def test_as_pytorch(name: str) -> None:
    """Every case says on each rank what it says with PyTorch."""
    same(said(name), said(name, "torch"))
