"""Operations on DTensors give what they give on plain tensors: values and gradients, for every way to place the operands."""

from __future__ import annotations

import json

import pytest
from worlds import ok, run, run_both

CHECKING = """
import itertools, json, sys
import TORCH as torch, TORCH.distributed as dist
from TORCH.distributed.device_mesh import init_device_mesh
from TORCH.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
F = torch.nn.functional

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", MESH)

def value(shape, seed):
    torch.manual_seed(seed)
    return torch.randn(shape, dtype=torch.float64)

def terms(x, placements):
    "A DTensor of x that is partial where asked: every rank has something else, and it adds up, or is x on average."
    i = next(i for i, p in enumerate(placements) if p.is_partial())
    n, at = mesh.size(i), mesh.get_local_rank(i)
    share = x * 0.25 if at else x - 0.25 * (n - 1) * x
    share = share * n if placements[i].reduce_op == "avg" else share
    return DTensor.from_local(share, mesh, placements, shape=x.shape, stride=x.stride())

def placed(x, placements):
    if any(p.is_partial() for p in placements):
        return terms(x, placements)
    return distribute_tensor(x, mesh, placements)

def leaves(found):
    return list(found) if isinstance(found, (tuple, list)) else [found]

def ways(shape):
    one = [Replicate(), Partial(), Partial("avg"), *[Shard(d) for d in range(len(shape))]]
    if len(MESH) == 1:
        return [(p,) for p in one]
    return [(a, b) for a in one for b in one if not (a.is_partial() or b.is_partial())]

def whole(x):
    return x.full_tensor() if isinstance(x, DTensor) else x

def gradients(found, given, pulls):
    return torch.autograd.grad(found, given, pulls, allow_unused=True, create_graph=True)

def gradients_again(gots, given):
    "The gradients of the sum of the squares of the gradients, where they depend on anything."
    squares = [(g * g).sum() for g in gots if g is not None and g.requires_grad]
    return torch.autograd.grad(sum(squares), given, allow_unused=True) if squares else [None] * len(given)

def compare(what, wants, gots, given):
    for w, g, x in zip(wants, gots, given):
        if w is None or g is None:
            nothing = [x is None or (what == "a second gradient" and not whole(x).any()) for x in (w, g)]
            assert all(nothing), f"{what} is missing"
            continue
        assert isinstance(g, DTensor) and g.shape == x.shape
        torch.testing.assert_close(whole(g).detach(), w.detach(), rtol=1e-8, atol=1e-8, msg=lambda text: f"{what}: {text}")

def check(name, function, shapes, grads=True, most=40):
    plain = [value(s, i) for i, s in enumerate(shapes)]
    for x in plain:
        x.requires_grad_(grads)
    wanted = [w for w in leaves(function(*plain)) if isinstance(w, torch.Tensor)]
    pull = [torch.cos(torch.arange(w.numel(), dtype=torch.float64)).reshape(w.shape) for w in wanted]
    floating = [i for i, w in enumerate(wanted) if w.is_floating_point() and w.requires_grad]
    wants = gradients([wanted[i] for i in floating], plain, [pull[i] for i in floating]) if floating else []
    twice = gradients_again(wants, plain)
    combos = list(itertools.product(*[ways(s) for s in shapes]))
    step = max(1, len(combos) // most)
    for combo in combos[::step]:
        try:
            given = [placed(x.detach(), p).requires_grad_(grads) for x, p in zip(plain, combo)]
            found = [w for w in leaves(function(*given)) if isinstance(w, torch.Tensor)]
            for w, f in zip(wanted, found):
                assert isinstance(f, DTensor), f"a plain tensor came out"
                assert f.shape == w.shape and f.dtype == w.dtype and tuple(f.stride()) == tuple(w.stride()), (f.shape, w.shape, f.stride(), w.stride())
                torch.testing.assert_close(whole(f), w.detach(), rtol=1e-9, atol=1e-9)
            if floating:
                pulls = [distribute_tensor(pull[i], mesh, [Replicate()] * mesh.ndim) for i in floating]
                gots = gradients([found[i] for i in floating], given, pulls)
                compare("a gradient", wants, gots, given)
                compare("a second gradient", twice, gradients_again(gots, given), given)
        except Exception as problem:
            if isinstance(problem, RuntimeError) and "redistribute the tensor before" in str(problem) and "view" in str(problem):
                continue  # moving elements is asked for, not done
            failures.append(f"{name} {[''.join(map(str, p)) for p in combo]}: {type(problem).__name__} {str(problem)[:400]}")
failures = []
"""

ENDING = """
if rank == 0:
    print(json.dumps(failures))
dist.destroy_process_group()
"""

GROUPS = {
    "pointwise": """
check("add", lambda a, b: a + b, [(4, 6), (4, 6)])
check("add row", lambda a, b: a + b, [(4, 6), (6,)])
check("sub column", lambda a, b: a - b, [(4, 6), (4, 1)])
check("mul", lambda a, b: a * b, [(4, 6), (6,)])
check("div number", lambda a: a / 3 + 1, [(4, 6)])
check("rsub", lambda a: 2 - a, [(5, 3)])
check("exp", lambda a: a.exp(), [(5, 3)])
check("gelu", lambda a: F.gelu(a), [(5, 3)])
check("silu", lambda a: F.silu(a) * torch.sigmoid(a), [(5, 3)])
check("where", lambda a, b: torch.where(a > 0, a, b), [(4, 6), (6,)])
check("lerp", lambda a, b: torch.lerp(a, b, 0.25), [(4, 6), (4, 6)])
check("clamp", lambda a: a.clamp(-0.5, 0.5), [(4, 6)])
check("masked_fill", lambda a: a.masked_fill(a > 0, 2.0), [(4, 6)])
check("addcmul", lambda a, b, c: torch.addcmul(a, b, c, value=0.5), [(4, 6), (4, 6), (6,)])
check("glu", lambda a: F.glu(a, -1), [(4, 6)])
check("to", lambda a: a.to(torch.complex128) * 2, [(4, 6)], grads=False)
check("clone", lambda a: a.clone() * 2, [(5, 3)])
check("eq", lambda a, b: a == b, [(4, 6), (4, 6)], grads=False)
check("pow", lambda a: a ** 2, [(4, 6)])
check("scalar tensor", lambda a: a * torch.tensor(3.0, dtype=torch.float64), [(4, 6)])
""",
    "reductions": """
for keep in (False, True):
    check("sum 0", lambda a: a.sum(0, keepdim=keep), [(5, 6)])
    check("mean 1", lambda a: a.mean(1, keepdim=keep), [(4, 6)])
    check("amax", lambda a: a.amax(0, keepdim=keep), [(4, 6)])
    check("var", lambda a: a.var(1, keepdim=keep), [(4, 6)])
check("sum", lambda a: a.sum(), [(5, 3)])
check("mean", lambda a: a.mean(), [(4, 6)])
check("mean uneven", lambda a: a.mean(), [(5, 3)])
check("mean of means", lambda a: a.mean(0).mean(), [(4, 6)])
check("weighed mean", lambda a, b: (a.mean(0) * b).mean(), [(4, 6), (2, 6)])
check("square of a mean", lambda a: (a.mean() + a.mean()).square(), [(4, 6)])
check("mean 02", lambda a: a.mean((0, 2)), [(2, 4, 3)])
check("max", lambda a: a.max(), [(5, 3)])
check("max plain", lambda a: (a.max(), a.min(), a.prod(), a.norm(), (a > 0).any(), (a > 0).all(), a.count_nonzero()), [(5, 3)], grads=False)
check("max dim", lambda a: a.max(1), [(4, 6)])
check("norm", lambda a: torch.linalg.vector_norm(a), [(5, 3)])
check("norm 1 dim", lambda a: torch.linalg.vector_norm(a, 1, dim=0), [(4, 3)])
check("norm inf", lambda a: torch.linalg.vector_norm(a, float("inf")), [(5, 3)], grads=False)
check("norm 3", lambda a: torch.linalg.vector_norm(a, 3, dim=1), [(5, 4)], grads=False)
check("logsumexp", lambda a: a.logsumexp(0), [(4, 6)])
check("std", lambda a: a.std(), [(5, 3)])
check("var_mean", lambda a: torch.var_mean(a, 1), [(4, 6)])
check("argmax", lambda a: (a.argmax(), a.argmax(1), a.argmin(0, keepdim=True)), [(4, 6)], grads=False)
check("cumsum", lambda a: a.cumsum(0), [(4, 6)])
check("sort", lambda a: a.sort(1), [(4, 6)])
check("topk", lambda a: a.topk(2, 0), [(4, 6)])
check("mse", lambda a, b: F.mse_loss(a, b), [(4, 6), (4, 6)])
check("l1", lambda a, b: F.l1_loss(a, b, reduction="sum"), [(5, 3), (5, 3)])
""",
    "products": """
check("mm", lambda a, b: a @ b, [(4, 6), (6, 8)])
check("mm uneven", lambda a, b: a @ b, [(5, 3), (3, 7)])
check("bmm", lambda a, b: torch.bmm(a, b), [(2, 4, 6), (2, 6, 3)])
check("mv", lambda a, b: a @ b, [(4, 6), (6,)])
check("dot", lambda a, b: a.dot(b), [(6,), (6,)])
check("matmul broadcast", lambda a, b: a @ b, [(2, 4, 6), (6, 3)])
check("matmul 4d", lambda a, b: a @ b, [(2, 2, 4, 6), (2, 1, 6, 4)])
check("addmm", lambda a, b, c: torch.addmm(a, b, c, beta=0.5, alpha=2), [(8,), (4, 6), (6, 8)], most=60)
check("baddbmm", lambda a, b, c: torch.baddbmm(a, b, c), [(2, 4, 3), (2, 4, 6), (2, 6, 3)])
check("linear", lambda a, b, c: F.linear(a, b, c), [(2, 4, 6), (8, 6), (8,)], most=80)
check("linear no bias", lambda a, b: F.linear(a, b), [(4, 6), (8, 6)])
check("einsum", lambda a, b: torch.einsum("bik,bjk->bij", a, b), [(2, 4, 6), (2, 4, 6)])
check("outer", lambda a, b: torch.outer(a, b), [(4,), (6,)])
check("attention", lambda q, k, v: F.scaled_dot_product_attention(q, k, v), [(2, 4, 6, 2)] * 3, most=30)
check("attention causal", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), [(2, 4, 6, 2)] * 3, most=30)
check("attention mask", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=q[:1, :1, :, :1] < k[:1, :1, :, :1].mT), [(2, 2, 4, 2)] * 3, most=10)
check("attention grouped", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True), [(2, 4, 6, 2), (2, 2, 6, 2), (2, 2, 6, 2)], most=20)
""",
    "views": """
check("view", lambda a: a.view(4, 6), [(2, 2, 6)])
check("flatten", lambda a: a.flatten(), [(4, 6)])
check("reshape and back", lambda a: (a.reshape(8, 3) * 2).reshape(2, 4, 3), [(2, 4, 3)])
check("unflatten", lambda a: a.view(4, 2, 3), [(4, 6)])
check("heads", lambda a: a.view(2, 3, 2, 4).transpose(1, 2), [(2, 3, 8)])
check("heads back", lambda a: a.transpose(1, 2).reshape(2, 3, 8), [(2, 2, 3, 4)])
check("squeeze", lambda a: a.squeeze(1).unsqueeze(0), [(4, 1, 6)])
check("t", lambda a: a.t(), [(5, 3)])
check("permute", lambda a: a.permute(2, 0, 1), [(2, 4, 6)])
check("expand", lambda a: a.expand(3, 4, 6), [(4, 1)])
check("select", lambda a: (a[1], a[:, 2], a[-1, 0]), [(4, 6)])
check("slice", lambda a: (a[1:3], a[:, ::2], a[..., :2]), [(4, 6)])
check("none", lambda a: a[:, None, :, None], [(4, 6)])
check("index", lambda a: a[torch.tensor([2, 0, 2])], [(4, 6)])
check("index 2", lambda a: a[:, torch.tensor([2, 0, 2])], [(4, 6)])
check("index pair", lambda a: a[torch.tensor([0, 1]), torch.tensor([2, 3])], [(4, 6)])
check("index_select", lambda a: a.index_select(1, torch.tensor([0])), [(4, 6)])
check("gather", lambda a: a.gather(1, (a > 0).long()), [(4, 6)])
check("split", lambda a: a.split(2, 0), [(4, 6)])
check("split sizes", lambda a: a.split([1, 3], 0), [(4, 6)])
check("chunk", lambda a: a.chunk(3, -1), [(4, 6)])
check("unbind", lambda a: a.unbind(1), [(4, 2)])
check("cat", lambda a, b: torch.cat([a, b], 0), [(4, 6), (2, 6)])
check("stack", lambda a, b: torch.stack([a, b], 1), [(4, 6), (4, 6)])
check("repeat", lambda a: a.repeat(2, 1, 3), [(4, 2)])
check("flip", lambda a: a.flip(0), [(4, 6)])
check("roll", lambda a: a.roll(1, 0), [(4, 6)])
check("pad", lambda a: F.pad(a, (1, 2)), [(4, 6)])
check("tril", lambda a: a.tril(), [(2, 4, 4)])
check("diagonal", lambda a: a.diagonal(dim1=1, dim2=2), [(2, 4, 4)])
check("unfold", lambda a: a.unfold(1, 2, 1), [(4, 6)])
check("repeat_interleave", lambda a: a.repeat_interleave(2, dim=0), [(4, 6)])
""",
    "rows": """
check("softmax", lambda a: F.softmax(a, -1), [(4, 6)])
check("softmax 0", lambda a: a.softmax(0), [(5, 3)])
check("log_softmax", lambda a: F.log_softmax(a, 1), [(4, 6)])
check("layer_norm", lambda a, w, b: F.layer_norm(a, (6,), w, b), [(2, 4, 6), (6,), (6,)], most=60)
check("layer_norm 2", lambda a, w: F.layer_norm(a, (4, 6), w), [(2, 4, 6), (4, 6)])
check("rms_norm", lambda a, w: F.rms_norm(a, (6,), w), [(2, 4, 6), (6,)])
check("embedding", lambda w: F.embedding(distribute_or_not(torch.tensor([[0, 3, 6], [5, 1, 0]]), w), w), [(7, 4)])
check("embedding padding", lambda w: F.embedding(distribute_or_not(torch.tensor([[0, 3, 6], [5, 1, 0]]), w), w, padding_idx=3), [(7, 4)])
check("cross_entropy", lambda a: F.cross_entropy(a, distribute_or_not(torch.tensor([1, 2, -100, 0]), a)), [(4, 3)])
check("cross_entropy weight", lambda a, w: F.cross_entropy(a, distribute_or_not(torch.tensor([1, 2, -100, 0]), a), weight=w.exp().detach()), [(4, 3), (3,)])
check("cross_entropy sum", lambda a: F.cross_entropy(a, distribute_or_not(torch.tensor([1, 2, 0, 0]), a), reduction="sum"), [(4, 3)])
check("cross_entropy none", lambda a: F.cross_entropy(a, distribute_or_not(torch.tensor([1, 2, 0, 0]), a), reduction="none"), [(4, 3)])
check("nll", lambda a: F.nll_loss(a.log_softmax(1), distribute_or_not(torch.tensor([1, 2, 0, 0]), a)), [(4, 3)])
check("smoothing", lambda a: F.cross_entropy(a, distribute_or_not(torch.tensor([1, 2, 0, 0]), a), label_smoothing=0.1), [(4, 3)])
check("bce", lambda a, b: F.binary_cross_entropy_with_logits(a, b.sigmoid().detach()), [(4, 6), (4, 6)])
check("normalize", lambda a: F.normalize(a, dim=1), [(4, 6)])
check("conv", lambda a, w: F.conv1d(a, w), [(4, 2, 6), (3, 2, 3)])
check("batch_norm", lambda a: F.batch_norm(a, None, None, training=True), [(4, 2, 6)])
check("pool", lambda a: F.avg_pool1d(a, 2), [(4, 2, 6)])
""",
}

DISTRIBUTED_INDICES = """
def distribute_or_not(x, like):
    "Indices on the mesh if `like` is: cut by samples, or whole."
    if not isinstance(like, DTensor):
        return x
    return distribute_tensor(x, mesh, [Shard(0) if like.placements[0].is_shard(0) and like.shape[0] == x.shape[0] else Replicate()] + [Replicate()] * (mesh.ndim - 1))
"""


@pytest.mark.parametrize("group", GROUPS)
def test_two_ranks_compute_what_one_does(group: str) -> None:
    """However the operands are placed on two ranks, results and gradients are those of the undistributed operation."""
    program = CHECKING.replace("MESH", "(2,)") + DISTRIBUTED_INDICES + GROUPS[group] + ENDING
    failures = json.loads(ok(run(program))[0])
    assert not failures, "\n".join(failures)


LEAVING = """
import json, warnings
import TORCH as torch, TORCH.distributed as dist
from TORCH.distributed.device_mesh import init_device_mesh
from TORCH.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from TORCH.distributed.tensor.debug import CommDebugMode

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
mesh = init_device_mesh("cpu", (2,))
said = {}

x = distribute_tensor(torch.arange(1.0, 5.0, requires_grad=True), mesh, [Shard(0)])
total = x.sum()
DTensor.from_local(total.to_local(), mesh, total.placements).full_tensor().backward()
said["there and back"] = x.grad.full_tensor().tolist()

for name, given in (("default", None), ("in terms", [Partial()])):
    local = torch.full((2, 3), float(rank), requires_grad=True)
    whole = DTensor.from_local(local, mesh, [Replicate()], grad_placements=given)
    (whole * 2).backward(DTensor.from_local(torch.ones(2, 3), mesh, [Partial()]))
    said["from_local " + name] = local.grad.tolist()

w = distribute_tensor(torch.ones(4, 3, requires_grad=True), mesh, [Shard(0)])
with CommDebugMode() as comm:
    out = w.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
    out.backward(torch.ones_like(out))
said["to_local in terms"] = w.grad.full_tensor().tolist()
ops = torch.ops.c10d_functional
said["calls"] = [comm.get_comm_counts()[op] for op in (ops.all_gather_into_tensor, ops.reduce_scatter_tensor, ops.all_reduce)]

r = distribute_tensor(torch.ones(3, requires_grad=True), mesh, [Replicate()])
out = r.redistribute(placements=[Replicate()]).to_local(grad_placements=[Partial()])
out.backward(torch.full_like(out, float(rank + 1)))
said["no change is recorded"] = [str(r.grad.placements), r.grad.full_tensor().tolist()]

with torch.no_grad():
    said["the piece itself"] = w.to_local() is w._local_tensor
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    DTensor(torch.ones(2, requires_grad=True), distribute_tensor(torch.ones(4), mesh, [Shard(0)])._spec, requires_grad=False)
said["warned"] = [str(one.message)[:40] for one in seen if "To construct" in str(one.message)]
print(json.dumps(said))
dist.destroy_process_group()
"""


def test_gradients_leave_as_pytorchs_do() -> None:
    """Through to_local, from_local and redistribute: values, placements and the number of collectives are PyTorch's."""
    ours, theirs = run_both(LEAVING)
    assert [json.loads(one) for one in ours] == [json.loads(one) for one in theirs]
