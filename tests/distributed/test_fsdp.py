"""FullyShardedDataParallel, with real PyTorch (which runs it on the CPU, too, given device_id=cpu) beside it: pieces, gradients, states, policies, errors."""

from __future__ import annotations

import pytest
from cases import cases, names, same
from fsdp_common import SETUP
from worlds import ok, run

import flambeau

PROGRAM = (
    SETUP
    + """
def case_train():
    said = []
    for orig in BOTH:
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP, ShardingStrategy.NO_SHARD):
            m, optimizer, losses = trained(wrapped(use_orig_params=orig, sharding_strategy=strategy))
            said += [losses, looks(m), numbers(m.state_dict())]
    return said


def case_one_unit():
    m, optimizer, losses = trained(wrapped(auto_wrap_policy=None), make=partial(torch.optim.SGD, lr=0.1, momentum=0.9))
    return [losses, looks(m), numbers(m.state_dict()), str(m)]


def case_mesh():
    m, optimizer, losses = trained(wrapped(device_mesh=init_device_mesh("cpu", (2,))))
    return [losses, looks(m), numbers(m.state_dict())]


def case_gradients_accumulate():
    said = []
    for orig in BOTH:
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.SHARD_GRAD_OP):
            m = wrapped(use_orig_params=orig, sharding_strategy=strategy)
            with m.no_sync():
                step(m, None, 0)
                step(m, None, 1)
            step(m, None, 2)
            step(m, None, 3)
            with FSDP.summon_full_params(m, with_grads=orig):
                said += [grads(m)] if orig else [params(m)]
            said.append(round(float(m.clip_grad_norm_(100.0)), 5))
    return said


def case_autocast():
    said = []
    for orig in BOTH:
        m = wrapped(use_orig_params=orig)
        with torch.autocast("cpu", torch.bfloat16):
            out = m(mine(batch(0)[0]))
        out.float().square().mean().backward()
        said += [str(out.dtype), [None if p.grad is None else [str(p.grad.dtype), round(float(p.grad.abs().sum()), 1)] for p in m.parameters()]]
    return said


def case_clip():
    said = []
    for orig in BOTH:
        for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
            for norm in (2.0, 1.0, math.inf):
                m = wrapped(use_orig_params=orig, sharding_strategy=strategy)
                step(m, None, 0)
                said += [round(float(m.clip_grad_norm_(0.1, norm)), 5), round(float(m.clip_grad_norm_(0.1, norm)), 5)]
    return said


def case_summon():
    said = []
    for orig in BOTH:
        m, optimizer, _ = trained(wrapped(use_orig_params=orig), 1)
        with FSDP.summon_full_params(m):
            said += [[name, list(p.shape)] for name, p in m.named_parameters()] + [params(m)]
            m.module[2].weight.data.fill_(1.0)
        with FSDP.summon_full_params(m, writeback=False):
            said.append(params(m))
            m.module[2].weight.data.fill_(2.0)
        with FSDP.summon_full_params(m, rank0_only=True, writeback=False):
            said += [[name, list(p.shape)] for name, p in m.named_parameters()]
        with FSDP.summon_full_params(m, recurse=False):
            said += looks(m)
        with FSDP.summon_full_params(m[0]):
            said += [list(p.shape) for p in m.parameters()]
        said += [looks(m), numbers(m.state_dict())]
        if orig:
            step(m, optimizer, 5)
            with FSDP.summon_full_params(m, with_grads=True):
                said.append(grads(m))
                for p in m.parameters():
                    p.grad.mul_(2)
            with FSDP.summon_full_params(m, with_grads=True):
                said.append(grads(m))
    return said


def case_apply():
    def fill(module):
        if isinstance(module, nn.Linear):
            with torch.no_grad():
                module.weight.fill_(0.5)
                module.bias.zero_()

    return [numbers(wrapped(use_orig_params=orig).apply(fill).state_dict()) for orig in BOTH]


def case_full_state():
    said = []
    for orig in BOTH:
        m, *_ = trained(wrapped(nn.Sequential(model(), nn.BatchNorm1d(3)), use_orig_params=orig), 1, partial(torch.optim.SGD, lr=0.1))
        with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, FullStateDictConfig(rank0_only=True)):
            said.append(numbers(m.state_dict()))
        outer = nn.ModuleDict({"a": m})
        state = outer.state_dict()
        said.append(numbers(state))
        other = wrapped(nn.Sequential(model(), nn.BatchNorm1d(3)), use_orig_params=not orig, auto_wrap_policy=None)
        found = other.load_state_dict(m.state_dict())
        said += [list(found.missing_keys), list(found.unexpected_keys), numbers(other.state_dict())]
        said.append(numbers(model().state_dict()))
    return said


def case_load_plain():
    whole = {name: t + 1 for name, t in model().state_dict().items()}
    m = wrapped()
    m.load_state_dict(whole)
    return numbers(m.state_dict()) + [list(m.load_state_dict({"0.weight": whole["0.weight"], "foo": torch.zeros(1)}, strict=False).missing_keys)]


def case_sharded_state():
    said = []
    for orig in BOTH:
        m, *_ = trained(wrapped(use_orig_params=orig), 1)
        other = wrapped(use_orig_params=orig)
        with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT), FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
            state = m.state_dict()
            said += [[name, list(t.size()), numbers({name: plain(t)})] for name, t in state.items() if plain(t).numel()]
            other.load_state_dict(state)
        said.append(numbers(other.state_dict()))
    return said


def case_local_state():
    m, *_ = trained(wrapped(), 1)
    other = wrapped()
    with FSDP.state_dict_type(m, StateDictType.LOCAL_STATE_DICT), FSDP.state_dict_type(other, StateDictType.LOCAL_STATE_DICT):
        state = m.state_dict()
        other.load_state_dict(state)
    return [[name, list(t.size())] for name, t in state.items()] + [numbers(other.state_dict())]


def case_settings():
    m = wrapped()
    before = FSDP.get_state_dict_type(m)
    set_to = FSDP.set_state_dict_type(m, StateDictType.SHARDED_STATE_DICT)
    after = FSDP.get_state_dict_type(m)
    return [str(before), str(set_to), str(after).replace("_use_dtensor=True", "_use_dtensor=False")]


def optimizer_state(state):
    return [
        [name, key, round(float(plain(value).float().sum()), 4) if isinstance(value, torch.Tensor) and plain(value).numel() else str(type(value))]
        for name, entries in sorted(state["state"].items()) for key, value in sorted(entries.items())
    ] + [[sorted(group["params"]), group["lr"]] for group in state["param_groups"]]


def case_optimizer_state():
    m, optimizer, _ = trained(wrapped(), 2)
    whole = FSDP.optim_state_dict(m, optimizer)
    said = [optimizer_state(whole)]
    other, second, _ = trained(wrapped(), 1)
    other.load_state_dict(m.state_dict())
    second.load_state_dict(FSDP.optim_state_dict_to_load(other, second, whole))
    for one, its in ((m, optimizer), (other, second)):
        its.zero_grad()
        said.append(step(one, its, 7))
        its.step()
        said.append(numbers(one.state_dict()))
    return said


def case_old_optimizer_state():
    said = []
    m, optimizer, _ = trained(wrapped(), 2)
    whole = FSDP.full_optim_state_dict(m, optimizer)
    said.append(optimizer_state(whole) if whole else [])
    other, second, _ = trained(wrapped(), 1)
    second.load_state_dict(FSDP.scatter_full_optim_state_dict(whole if rank == 0 else None, other, optim=second))
    said.append(optimizer_state(FSDP.optim_state_dict(other, second)))
    whole = FSDP.full_optim_state_dict(m, optimizer, rank0_only=False)
    second.load_state_dict(FSDP.shard_full_optim_state_dict(whole, other, optim=second))
    said.append(optimizer_state(FSDP.optim_state_dict(other, second)))
    single = model()
    numbered = FSDP.rekey_optim_state_dict(whole, OptimStateKeyType.PARAM_ID, single)
    named = FSDP.rekey_optim_state_dict(numbered, OptimStateKeyType.PARAM_NAME, single)
    said += [sorted(numbered["state"]), [sorted(g["params"]) for g in numbered["param_groups"]], optimizer_state(named)]
    parts = FSDP.sharded_optim_state_dict(m, optimizer)
    second.load_state_dict(FSDP.flatten_sharded_optim_state_dict(parts, other, second))
    said.append(optimizer_state(FSDP.optim_state_dict(other, second)))
    return said


def case_mixed_precision():
    said = []
    for orig in BOTH:
        for mixed in (
            MixedPrecision(param_dtype=torch.bfloat16),
            MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, keep_low_precision_grads=True),
            MixedPrecision(param_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16, keep_low_precision_grads=True, cast_forward_inputs=True),
        ):
            m = wrapped(nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)), use_orig_params=orig, mixed_precision=mixed)
            out = m(mine(batch(0)[0]))
            out.float().square().sum().backward()
            said += [str(out.dtype).split(".")[-1], [str(p.grad.dtype).split(".")[-1] for p in m.parameters() if p.grad is not None], [list(p.shape) for p in m.parameters()]]
            said += [[str(b.dtype).split(".")[-1] for b in m.buffers()], [str(t.dtype).split(".")[-1] for t in m.state_dict().values()], str(m)]
    return said


def case_frozen_and_shared():
    said = []
    for orig in BOTH:
        tied = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6), nn.Linear(6, 3))
        tied[2].weight = tied[0].weight
        with torch.no_grad():
            for i, p in enumerate(tied.parameters()):
                p.fill_(0.1 * (i + 1))
        m, *_, losses = trained(wrapped(tied, auto_wrap_policy=None, use_orig_params=orig))
        said += [losses, looks(m), sorted(numbers(m.state_dict()))]
        frozen = model()
        frozen[0].requires_grad_(False)
        m, *_, losses = trained(wrapped(frozen, use_orig_params=orig))
        said += [losses, [name for name, p in m.named_parameters() if p.requires_grad], numbers(m.state_dict())]
    frozen = model()
    frozen[0].weight.requires_grad_(False)
    m, *_, losses = trained(wrapped(frozen, auto_wrap_policy=None, use_orig_params=True))
    return said + [losses, [[name, p.requires_grad, p.grad is None] for name, p in m.named_parameters() if p.numel()], numbers(m.state_dict())]


def case_ignored():
    inner = model()
    m = wrapped(inner, ignored_modules=[inner[2]])
    said = [looks(m), numbers(m.state_dict())]
    inner = model()
    m = wrapped(inner, ignored_states=[inner[2].weight], auto_wrap_policy=None)
    return said + [looks(m), numbers(m.state_dict())]


def case_policies():
    said = []
    for policy in (
        always_wrap_policy,
        partial(size_based_auto_wrap_policy, min_num_params=100),
        partial(lambda_auto_wrap_policy, lambda_fn=lambda module: isinstance(module, nn.Linear) and module.out_features == 20),
        partial(transformer_auto_wrap_policy, transformer_layer_cls={nn.Tanh}),
        CustomPolicy(lambda module: {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP} if isinstance(module, nn.Linear) else False),
        ModuleWrapPolicy([nn.Linear, nn.Tanh]),
    ):
        m = wrapped(nn.Sequential(model(), nn.ModuleList([nn.Linear(2, 2)])), auto_wrap_policy=policy)
        said += [str(m), [str(one.sharding_strategy) for one in FSDP.fsdp_modules(m)]]
    with enable_wrap(wrapper_cls=FSDP, device_id=cpu, use_orig_params=True):
        m = nn.Sequential(wrap(nn.Linear(2, 2)), nn.Linear(2, 2), wrap(nn.Linear(2, 2), use_orig_params=False))
    return said + [str(m), str(wrap(nn.Linear(1, 1))), [name for name, _ in m.named_parameters()], len(FSDP.fsdp_modules(m, root_only=True))]


def case_attributes():
    m = wrapped()
    said = [m.check_is_root(), m[0].check_is_root(), len(FSDP.fsdp_modules(m)), len(FSDP.fsdp_modules(m, root_only=True)), type(m.module).__name__]
    said += [m[0].in_features, len(m.module), list(m[0].weight.shape), isinstance(m._flat_param, torch.distributed.fsdp.FlatParameter) if m._has_params else None, m.sharding_strategy.name]
    return said + [m.world_size, m.rank, m._has_params, m[0]._has_params, str(m.compute_device), list(m._fsdp_wrapped_module.state_dict()) == []]


def case_comm_hook():
    def halves(state, gradient, piece=None):
        state.append(list(gradient.shape) + ([] if piece is None else list(piece.shape)))
        if piece is None:
            dist.all_reduce(gradient)
            gradient.div_(4)
        else:
            dist.reduce_scatter_tensor(piece, gradient)
            piece.div_(4)

    said = []
    for strategy in (ShardingStrategy.FULL_SHARD, ShardingStrategy.NO_SHARD):
        seen = []
        m = wrapped(sharding_strategy=strategy)
        m.register_comm_hook(seen, halves)
        step(m, None, 0)
        said += [seen, [round(float(p.grad.abs().sum()), 5) for p in m.parameters()]]
    said.append(error_of(lambda: m.register_comm_hook(None, halves))[0])
    return said


def case_grad_scaler():
    said = []
    for orig in BOTH:
        m = wrapped(use_orig_params=orig)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        scaler = ShardedGradScaler(device="cpu", init_scale=8.0, growth_interval=2)
        for turn in range(4):
            optimizer.zero_grad()
            x, y = batch(turn)
            scaler.scale(F.mse_loss(m(mine(x)), mine(y))).backward()
            if turn == 1 and rank == 1:
                next(p for p in m.parameters() if p.grad is not None).grad[0] = math.inf
            scaler.step(optimizer)
            scaler.update()
            said += [scaler.get_scale(), numbers(m.state_dict())]
    return said


def case_checkpointed():
    from TORCH.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper
    from TORCH.utils.checkpoint import checkpoint
    said = []
    for orig in BOTH:
        m = wrapped(nn.Sequential(*[nn.Sequential(nn.Linear(6, 6), nn.Tanh()) for _ in range(3)]), auto_wrap_policy=ModuleWrapPolicy({nn.Sequential}), use_orig_params=orig)
        m.apply(lambda module: torch.manual_seed(1) and module.reset_parameters() if isinstance(module, nn.Linear) else None)
        apply_activation_checkpointing(m, checkpoint_wrapper_fn=partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT),
                                       check_fn=lambda module: isinstance(module, nn.Linear))
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        for seed in range(2):
            optimizer.zero_grad()
            m(mine(batch(seed)[0])).square().sum().backward()
            optimizer.step()
        said += [numbers(m.state_dict()), [name for name, _ in m.named_parameters()]]
        m = wrapped(use_orig_params=orig)
        x, y = batch(0)
        F.mse_loss(checkpoint(m, mine(x), use_reentrant=False), mine(y)).backward()
        said.append([None if p.grad is None else round(float(p.grad.abs().sum()), 5) for p in m.parameters()])
    return said


def case_forward_twice():
    said = []
    for orig in BOTH:
        m = wrapped(use_orig_params=orig)
        x, y = batch(0)
        x = mine(x).requires_grad_()
        (m(x).square().sum() + m(x * 2).square().sum()).backward()
        said += [round(float(x.grad.abs().sum()), 4), [None if p.grad is None else round(float(p.grad.abs().sum()), 4) for p in m.parameters()]]
        with torch.no_grad():
            said.append(round(float(m(x).sum()), 4))
        said.append(looks(m))
    return said


def case_hooks_on_parameters():
    said = []
    m = wrapped(use_orig_params=True)
    optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in m.parameters()}
    x, y = batch(0)
    F.mse_loss(m(mine(x)), mine(y)).backward()
    for optimizer in optimizers.values():
        optimizer.step()
    return numbers(m.state_dict())


def case_upcast():
    m = wrapped(model().bfloat16(), mixed_precision=MixedPrecision(param_dtype=torch.bfloat16))
    for one in FSDP.fsdp_modules(m):
        if one._has_params:
            one._flat_param.data = one._flat_param.data.to(torch.float32)
            one._handle._orig_param_dtype = torch.float32
    m, optimizer, losses = trained(m, 2, partial(torch.optim.SGD, lr=0.1))
    return [looks(m), [str(t.dtype) for t in m.state_dict().values()]]


def case_prefetch():
    said = []
    for prefetch in (None, BackwardPrefetch.BACKWARD_PRE, BackwardPrefetch.BACKWARD_POST):
        m, optimizer, losses = trained(wrapped(backward_prefetch=prefetch, forward_prefetch=True, limit_all_gathers=False))
        said += [losses, numbers(m.state_dict())]
    return said


def case_offload():
    m, optimizer, losses = trained(wrapped(cpu_offload=CPUOffload(offload_params=False)))
    return [losses, numbers(m.state_dict())]


def case_errors():
    m = wrapped()
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    frozen = nn.Linear(2, 2)
    frozen.weight.requires_grad_(False)
    def summoned_twice():
        with FSDP.summon_full_params(m), FSDP.summon_full_params(m):
            pass
    def trained_inside():
        with FSDP.summon_full_params(m):
            m.no_sync().__enter__()
    return [
        error_of(make)[0] for make in (
            lambda: wrapped(mixed, auto_wrap_policy=None),
            lambda: wrapped(frozen, auto_wrap_policy=None),
            lambda: wrapped(nn.ParameterList([nn.Parameter(torch.tensor(1.0))]), auto_wrap_policy=None),
            lambda: wrapped(sharding_strategy=ShardingStrategy.HYBRID_SHARD, auto_wrap_policy=None),
            lambda: wrapped(ignored_modules=3),
            lambda: wrapped(ignored_modules=[3]),
            lambda: wrapped(ignored_states=[3, nn.Linear(1, 1)]),
            lambda: wrapped(ignored_modules=[], ignored_states=[]),
            lambda: wrapped(m),
            lambda: wrapped(process_group=dist.group.WORLD, device_mesh=init_device_mesh("cpu", (2,))),
            lambda: wrapped(auto_wrap_policy=CustomPolicy(lambda module: 3)),
            lambda: FSDP.summon_full_params(m, rank0_only=True).__enter__(),
            lambda: FSDP.summon_full_params(m, with_grads=True).__enter__(),
            summoned_twice,
            trained_inside,
            lambda: m[0].clip_grad_norm_(1.0) if m.check_is_root() else None,
            lambda: m[0].no_sync().__enter__(),
            lambda: m.load_state_dict({"0.weight": torch.zeros(2, 2)}),
            lambda: FSDP.set_state_dict_type(m, StateDictType.FULL_STATE_DICT, ShardedStateDictConfig()),
            lambda: m.register_comm_hook(None, 3),
            lambda: m.no_such_attribute,
            lambda: m.module.no_such_attribute,
        )
    ]
"""
)


@pytest.mark.parametrize("name", names(PROGRAM))
def test_a_wrapper_does_what_pytorchs_does(name: str):
    """What both frameworks say on every rank."""
    for ours, theirs in zip(cases(PROGRAM), cases(PROGRAM, "torch"), strict=True):
        same(ours[name], theirs[name])


# What PyTorch's does otherwise, or not on a CPU, and what both do but only ours is asked.


ON_GPU = """
    import warnings
    import flambeau as torch, flambeau.distributed as dist
    from flambeau import nn
    from flambeau.distributed.fsdp import *
    from flambeau.distributed.fsdp import FullyShardedDataParallel as FSDP
    from flambeau.distributed.fsdp.wrap import ModuleWrapPolicy

    warnings.simplefilter("ignore")
    torch.cuda.set_device(0)
    dist.init_process_group(BACKEND)
    rank, ranks = dist.get_rank(), dist.get_world_size()
    x, y = torch.randn(8, 20, generator=torch.Generator().manual_seed(1)).cuda(), torch.zeros(8, 3).cuda()

    def train(wrap, part):
        torch.manual_seed(0)
        model = wrap(nn.Sequential(nn.Linear(20, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, 3)))
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        for _ in range(3):
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x[part]).float(), y[part]).backward()
            if isinstance(model, FSDP):
                model.clip_grad_norm_(100.0)
            optimizer.step()
        return model, optimizer

    one, _ = train(lambda model: model.cuda(), slice(None))
    part = slice(8 * rank // ranks, 8 * (rank + 1) // ranks)
    for orig in (False, True):
        for options in ({}, {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, {"cpu_offload": CPUOffload(offload_params=True)},
                        {"sharding_strategy": ShardingStrategy.NO_SHARD}, {"mixed_precision": MixedPrecision(param_dtype=torch.bfloat16)}):
            if ranks == 1 and "cpu_offload" in options:
                continue
            both, optimizer = train(lambda model: FSDP(model, auto_wrap_policy=ModuleWrapPolicy({nn.Linear}), device_id=0, sync_module_states=True,
                                                       use_orig_params=orig, **options), part)
            near = {"atol": 0.05, "rtol": 0.05} if "mixed_precision" in options else {"atol": 1e-5, "rtol": 1e-4}
            for name, t in both.state_dict().items():
                torch.testing.assert_close(t, one.state_dict()[name], **near)
            with FSDP.state_dict_type(both, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
                assert all(t.device.type == "cpu" for t in both.state_dict().values())
            states = FSDP.optim_state_dict(both, optimizer)["state"]
            assert states["2.weight"]["exp_avg"].shape == (50, 50)
            assert all(p.device.type == ("cpu" if "cpu_offload" in options else "cuda") for p in both.parameters())
    dist.destroy_process_group()
    print("right")
"""


@pytest.mark.skipif(not flambeau.cuda.is_available(), reason="there is no GPU here")
@pytest.mark.parametrize(("backend", "ranks"), [("nccl", 1), ("gloo", 2)])
def test_on_a_gpu_it_gives_the_parameters_of_one_process(backend: str, ranks: int):
    """One rank over NCCL, or two that share the GPU over MPI, do not end with the parameters of one process that sees the whole batch."""
    assert ok(run(ON_GPU.replace("BACKEND", repr(backend)), ranks)) == ["right\n"] * ranks
