"""What FullyShardedDataParallel promises of itself: numbers of one process, memory that is freed, states of every kind, errors it survives."""

from __future__ import annotations

import pytest
from cases import cases
from fsdp_common import SETUP

OWN = (
    SETUP
    + """
import gc, weakref
from TORCH.distributed import checkpoint as dcp
from TORCH.distributed.checkpoint import state_dict as by_name
from TORCH.distributed.tensor import DTensor


def alone(steps=3, make=None):
    "the same on one process, with the whole batch"
    m = model()
    optimizer = (make or partial(torch.optim.Adam, lr=0.01))(m.parameters())
    for seed in range(steps):
        optimizer.zero_grad()
        x, y = batch(seed)
        F.mse_loss(m(x), y).backward()
        optimizer.step()
    return m, optimizer


def close(state, other, tolerance=1e-5):
    "whether two states have the same names and nearly the same numbers; a state may have parts of parameters"
    whole = {name: t.full_tensor() if isinstance(t, DTensor) else t for name, t in state.items()}
    return sorted(whole) == sorted(other) and all(torch.allclose(t, other[name], atol=tolerance) for name, t in whole.items())


def flat(state):
    return {f"{name}.{key}": value for name, entries in state["state"].items() for key, value in entries.items()}


def case_as_on_one_process():
    m, optimizer = alone()
    said = []
    mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=("replicate", "shard"))
    for orig in BOTH:
        for options in (
            {}, {"auto_wrap_policy": None}, {"sharding_strategy": ShardingStrategy.SHARD_GRAD_OP}, {"sharding_strategy": ShardingStrategy.NO_SHARD},
            {"sharding_strategy": ShardingStrategy.HYBRID_SHARD, "device_mesh": mesh},
            {"sharding_strategy": ShardingStrategy._HYBRID_SHARD_ZERO2, "process_group": (dist.group.WORLD, dist.new_subgroups(1)[0])},
            {"sharding_strategy": ShardingStrategy.HYBRID_SHARD}, {"cpu_offload": CPUOffload(offload_params=True)},
        ):
            divided, other, _ = trained(wrapped(use_orig_params=orig, **options))
            named = FSDP.optim_state_dict(divided, other)
            said += [close(divided.state_dict(), m.state_dict()), close(flat(named), flat(FSDP.rekey_optim_state_dict(optimizer.state_dict(), OptimStateKeyType.PARAM_NAME, m)))]
    return said


def case_memory_is_freed():
    "whole parameters of a wrapper inside live while it runs; a rank keeps half of everything"
    said = []
    for orig in BOTH:
        inner = model()
        before = [weakref.ref(p._shared_storage().array) for p in inner.parameters()]
        m = wrapped(inner, use_orig_params=orig)
        said.append([ref() is None for ref in before].count(False))
        group = m[2]._handle.group
        seen = []
        m[2].module.register_forward_pre_hook(lambda *_: seen.append(weakref.ref(group.whole._shared_storage().array)))
        loss = m(mine(batch(0)[0])).square().sum()
        said += [group.is_whole, group.whole.is_meta, seen[-1]() is None, m[4]._handle.group.is_whole]
        loss.backward()
        said += [group.whole.is_meta, sum(p.numel() for p in m.parameters()), sum(p.grad.numel() for p in m.parameters() if p.grad is not None)]
    return said


def case_states_between_kinds():
    "saved with flat parameters, loaded into own ones with other wrappers, and the other way round; training goes on alike"
    said = []
    for orig in BOTH:
        for kind in (StateDictType.FULL_STATE_DICT, StateDictType.SHARDED_STATE_DICT):
            m, optimizer, _ = trained(wrapped(use_orig_params=orig), 2)
            other = wrapped(use_orig_params=not orig, auto_wrap_policy=None)
            second = torch.optim.Adam(other.parameters(), lr=0.5)
            with FSDP.state_dict_type(m, kind), FSDP.state_dict_type(other, kind):
                other.load_state_dict(m.state_dict())
                second.load_state_dict(FSDP.optim_state_dict_to_load(other, second, FSDP.optim_state_dict(m, optimizer)))
            for one, its in ((m, optimizer), (other, second)):
                its.zero_grad()
                step(one, its, 5)
                its.step()
            said += [second.param_groups[0]["lr"], close(m.state_dict(), other.state_dict())]
    return said


def case_sharded_values():
    m, optimizer, _ = trained(wrapped(), 1)
    with FSDP.state_dict_type(m, StateDictType.SHARDED_STATE_DICT):
        state, its = m.state_dict(), flat(FSDP.optim_state_dict(m, optimizer))
    return [
        all(isinstance(t, DTensor) for t in state.values()), list(state["2.weight"].shape), list(state["2.weight"].to_local().shape),
        isinstance(its["2.weight.exp_avg"], DTensor), list(its["4.bias.exp_avg"].to_local().shape),
    ]


def case_checkpoint_by_name():
    said = []
    options = by_name.StateDictOptions
    for orig in BOTH:
        m, optimizer, _ = trained(wrapped(use_orig_params=orig), 2)
        for chosen in (options(), options(full_state_dict=True), options(full_state_dict=True, cpu_offload=True, broadcast_from_rank0=True), options(flatten_optimizer_state_dict=True)):
            state, its = by_name.get_state_dict(m, optimizer, options=chosen)
            said.append(sorted(state)[:2] + [type(t).__name__ for t in list(state.values())[:1]] + [sorted(its)[-1] if its else ""])
            other = wrapped(use_orig_params=not orig, auto_wrap_policy=None)
            second = torch.optim.Adam(other.parameters(), lr=0.5)
            by_name.set_state_dict(other, second, model_state_dict=state, optim_state_dict=its, options=chosen)
            for one, it in ((m, optimizer), (other, second)):
                it.zero_grad()
                step(one, it, 5)
                it.step()
            said += [second.param_groups[0]["lr"], close(m.state_dict(), other.state_dict())]
    return said


def case_checkpoint_files():
    import tempfile
    from TORCH.distributed.checkpoint.optimizer import load_sharded_optimizer_state_dict
    folder = [tempfile.mkdtemp()]
    dist.broadcast_object_list(folder)
    m, optimizer, _ = trained(wrapped(), 2)
    state, its = by_name.get_state_dict(m, optimizer)
    dcp.save({"model": state, "optimizer": its}, checkpoint_id=folder[0])
    other, second, _ = trained(wrapped(use_orig_params=True, auto_wrap_policy=None), 1)
    state, its = by_name.get_state_dict(other, second)
    dcp.load({"model": state, "optimizer": its}, checkpoint_id=folder[0])
    by_name.set_state_dict(other, second, model_state_dict=state, optim_state_dict=its)
    said = [close(m.state_dict(), other.state_dict()), close(flat(FSDP.optim_state_dict(m, optimizer)), flat(FSDP.optim_state_dict(other, second)))]
    fresh = torch.optim.Adam(other.parameters(), lr=0.5)
    with FSDP.state_dict_type(other, StateDictType.SHARDED_STATE_DICT):
        found = load_sharded_optimizer_state_dict(other.state_dict(), "optimizer", dcp.FileSystemReader(folder[0]))["optimizer"]
        FSDP.optim_state_dict_to_load(other, fresh, found, load_directly=True)
    said.append(close(flat(FSDP.optim_state_dict(m, optimizer)), flat(FSDP.optim_state_dict(other, fresh))))
    return [*said, isinstance(found["state"]["2.weight"]["exp_avg"], DTensor), fresh.param_groups[0]["lr"]]


class Small(nn.Module):
    "a language model: embedding shared with the head, attention, layer norm"

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.blocks = nn.ModuleList([nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True) for _ in range(2)])
        self.recurrent = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 11, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.recurrent(x)[0])


def case_language_model():
    def build():
        torch.manual_seed(3)
        return Small()

    said = []
    tokens = torch.arange(48).reshape(4, 12) * 7 % 11
    for orig in BOTH:
        single = build()
        m = wrapped(build(), auto_wrap_policy=ModuleWrapPolicy({nn.TransformerEncoderLayer, nn.LSTM}), use_orig_params=orig)
        for one, mine_ in ((single, tokens), (m, mine(tokens))):
            optimizer = torch.optim.AdamW(one.parameters(), lr=0.01, eps=1e-4)
            for _ in range(3):
                optimizer.zero_grad()
                out = one(mine_)
                F.cross_entropy(out[:, :-1].flatten(0, 1), mine_[:, 1:].flatten()).backward()
                optimizer.step()
        said += [close(m.state_dict(), single.state_dict(), 1e-4), len(FSDP.fsdp_modules(m))]
    return said


def case_meta_and_sync():
    def fill(module):
        module.to_empty(device=cpu, recurse=False)
        for t in module.parameters(recurse=False):
            t.data.fill_(rank + 1)

    with torch.device("meta"):
        empty = model()
    said = [numbers(wrapped(copy.deepcopy(empty), param_init_fn=fill, sync_module_states=True).state_dict())]
    torch.manual_seed(7)
    said.append(close(wrapped(empty).state_dict(), model().state_dict(), 10.0))
    torch.manual_seed(rank)
    different = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    different[1].running_mean.fill_(rank)
    m = wrapped(different, sync_module_states=True)
    return said + [agree(m.state_dict().values())]


def case_gradients_in_backward():
    "an optimizer for each parameter, which steps as soon as the gradient is there"
    def update(optimizer, p):
        optimizer.step()
        optimizer.zero_grad()

    m, single = wrapped(use_orig_params=True), model()
    for one in (m, single):
        for p in one.parameters():
            if p.numel():
                p.register_post_accumulate_grad_hook(partial(update, torch.optim.SGD([p], lr=0.1)))
    for seed in range(2):
        step(m, None, seed)
        x, y = batch(seed)
        F.mse_loss(single(x), y).backward()
    return [close(m.state_dict(), single.state_dict()), all(p.grad is None for p in m.parameters())]


def case_frozen_later():
    m, single = wrapped(use_orig_params=True), model()
    for one in (m, single):
        one[2].weight.requires_grad_(False)
        one[0].requires_grad_(False)
    x, y = batch(0)
    step(m, None, 0)
    F.mse_loss(single(x), y).backward()
    said = [[name for name, p in m.named_parameters() if p.grad is not None and p.numel()]]
    for one in (m, single):
        one.requires_grad_(True)
        one.zero_grad()
    step(m, None, 0)
    F.mse_loss(single(x), y).backward()
    with FSDP.summon_full_params(m, with_grads=True):
        said.append(all(torch.allclose(p.grad, q.grad, atol=1e-6) for p, q in zip(m.parameters(), single.parameters())))
    return said


def case_data_exchanged():
    "p.data = ... outside of summon_full_params, with the part that is here"
    m = wrapped(use_orig_params=True)
    for p in m.parameters():
        p.data = torch.ones_like(p)
    return numbers(m.state_dict())


def case_moved():
    m = wrapped().double()
    out = m(mine(batch(0)[0]).double())
    out.sum().backward()
    return [str(out.dtype), looks(m)[0][2], str(m.state_dict()["0.weight"].dtype), str(next(m.parameters()).grad.dtype)]


def case_low_precision_hook():
    from TORCH.distributed.algorithms._comm_hooks import default_hooks
    m, exact = wrapped(), wrapped()
    m.register_comm_hook(default_hooks.LowPrecisionState(process_group=m.process_group), default_hooks.bf16_compress_hook)
    step(m, None, 0)
    step(exact, None, 0)
    pairs = [(p.grad, q.grad) for p, q in zip(m.parameters(), exact.parameters())]
    return [all(torch.allclose(p, q, atol=1e-2) for p, q in pairs), any(bool((p != q).any()) for p, q in pairs), str(pairs[0][0].dtype)]


def case_an_error_in_forward():
    m = wrapped()
    handle = m.module[3].register_forward_pre_hook(lambda *_: 1 / 0)
    said = [error_of(lambda: m(mine(batch(0)[0])))[0]]
    handle.remove()
    step(m, None, 0)
    exact = wrapped()
    step(exact, None, 0)
    return said + [all(torch.equal(p.grad, q.grad) for p, q in zip(m.parameters(), exact.parameters()))]


def case_an_error_in_backward():
    m = wrapped()
    x, y = batch(0)
    def fail(grad):
        raise KeyError("here")
    handle = m.module[1].register_forward_hook(lambda module, args, out: out.register_hook(fail) and None)
    said = [error_of(lambda: F.mse_loss(m(mine(x)), mine(y)).backward())[0]]
    handle.remove()
    step(m, None, 0)
    exact = wrapped()
    step(exact, None, 0)
    return said + [all(torch.equal(p.grad, q.grad) for p, q in zip(m.parameters(), exact.parameters()))]


def case_generate_and_evaluate():
    m = wrapped()
    with torch.no_grad():
        a = m(mine(batch(0)[0]))
    with torch.inference_mode():
        b = m(mine(batch(0)[0]))
    step(m, None, 0)
    return [torch.equal(a, b), m.eval()(mine(batch(0)[0])).requires_grad, torch.equal(a, m(mine(batch(0)[0])))]


def case_offload_to_main_memory():
    m = wrapped()
    with FSDP.summon_full_params(m, offload_to_cpu=True, writeback=False):
        said = [close(dict(m.named_parameters()), model().state_dict())]
    with FSDP.state_dict_type(m, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        return said + [len(m.state_dict())]
"""
)


@pytest.fixture(scope="module")
def own() -> list[dict]:
    return cases(OWN)


@pytest.mark.parametrize(
    ("name", "expected"),
    {
        "as_on_one_process": [True] * 32,
        "memory_is_freed": [0, False, True, True, False, True, 312, 312, 0, False, True, True, False, True, None, None],
        "states_between_kinds": [0.01, True] * 4,
        "sharded_values": [True, [20, 20], [10, 20], True, None],
        "checkpoint_files": [True, True, True, True, 0.01],
        "language_model": [True, 4] * 2,
        "gradients_in_backward": [True, True],
        "frozen_later": [None, True],
        "checkpoint_by_name": [None, 0.01, True] * 8,
        "data_exchanged": [
            ["0.weight", [20, 6], 120.0, 1.0],
            None,
            ["2.weight", [20, 20], 400.0, 1.0],
            None,
            None,
            ["4.bias", [3], 3.0, 1.0],
        ],
        "meta_and_sync": [None, True, True],
        "offload_to_main_memory": [True, None],
        "moved": ["torch.float64", "float64", "torch.float64", "torch.float64"],
        "low_precision_hook": [True, True, "torch.float32"],
        "an_error_in_forward": ["ZeroDivisionError", True],
        "an_error_in_backward": ["KeyError", True],
        "generate_and_evaluate": [True, True, True],
    }.items(),
)
def test_what_a_wrapper_does(own: list[dict], name: str, expected: list):
    """The same on every rank; None stands for what is not."""
    for said in own:
        assert [a if b is not None else None for a, b in zip(said[name], expected, strict=True)] == expected
