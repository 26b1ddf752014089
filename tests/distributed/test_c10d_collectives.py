"""Every collective, dtype and layout in real processes: the numbers are those that one process computes from the tensors of all ranks.

The same programs run under PyTorch with gloo, for what gloo takes, so that what is expected is PyTorch's and not our idea of it.
"""

from __future__ import annotations

import textwrap

import pytest
from worlds import ok, run, run_both

START = """
import warnings
from datetime import timedelta
import TORCH as torch
import TORCH.distributed as dist
warnings.simplefilter("ignore")
REAL = torch.__name__ == "torch"
dist.init_process_group("gloo", timeout=timedelta(seconds=60))
RANK, SIZE = dist.get_rank(), dist.get_world_size()
checks = 0

GLOO = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool,
        torch.complex64, torch.complex128]
DTYPES = GLOO if REAL else [*GLOO, torch.int16, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn, torch.float8_e5m2]
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SHAPES = [(), (0,), (1,), (5,), (3, 4), (2, 0, 3), (9, 11)]
def shapes_of(dtype):
    return SHAPES if dtype in (torch.float32, torch.bfloat16, torch.bool) else SHAPES[3:5]

def values(rank, shape, dtype, salt=0):
    "The tensor of a rank, which every rank can compute."
    n = torch.Size(shape).numel()
    numbers = (torch.arange(n) * 7 + rank * 3 + salt) % 5
    if dtype.is_complex:
        return (numbers.to(torch.float32) + 1j * (numbers - 2 * rank).to(torch.float32)).to(dtype).reshape(shape)
    return numbers.to(dtype).reshape(shape)

def laid_out(tensor, layout):
    "The same numbers in another arrangement of memory."
    if layout == "transposed":
        return tensor.transpose(0, -1).contiguous().transpose(0, -1) if tensor.dim() > 1 else tensor.clone()
    if layout == "every other" and tensor.dim():
        wide = torch.zeros((*tensor.shape, 2), dtype=tensor.dtype)
        wide[..., 0] = tensor
        return wide[..., 0]
    return tensor.clone()

def same(label, found, expected):
    global checks
    checks += 1
    found, expected = (list(one) if isinstance(one, (list, tuple)) else [one] for one in (found, expected))
    assert len(found) == len(expected), label
    for one, other in zip(found, expected):
        assert one.dtype == other.dtype and one.shape == other.shape, (label, one.dtype, other.dtype, one.shape, other.shape)
        assert str(one.tolist()) == str(other.tolist()), (label, one.tolist(), other.tolist())

LAYOUTS = ["as it comes"] if REAL else ["as it comes", "transposed", "every other"]
"""
END = """
print("checks", checks)
dist.destroy_process_group()
"""
MOVING = """
for dtype in DTYPES:
    for shape in shapes_of(dtype):
        everyone = [values(rank, shape, dtype) for rank in range(SIZE)]
        for layout in LAYOUTS:
            label = (dtype, shape, layout)
            mine = lambda: laid_out(everyone[RANK], layout)
            empty = lambda: laid_out(torch.zeros(shape, dtype=dtype), layout)
            for root in range(SIZE):
                x = mine()
                dist.broadcast(x, root)
                same(("broadcast", root, label), x, everyone[root])
                if REAL and (dtype == torch.bool or dtype.is_complex or dtype == torch.bfloat16):
                    continue  # which gloo neither gathers nor scatters
                out = [empty() for _ in range(SIZE)] if RANK == root else None
                dist.gather(mine(), out, root)
                if RANK == root:
                    same(("gather", root, label), out, everyone)
                parts = [values(root, shape, dtype, salt) for salt in range(SIZE)]
                x = empty()
                dist.scatter(x, [laid_out(part, layout) for part in parts] if RANK == root else None, root)
                same(("scatter", root, label), x, parts[RANK])
            out = [empty() for _ in range(SIZE)]
            dist.all_gather(out, mine())
            same(("all_gather", label), out, everyone)
            sent = [[values(rank, shape, dtype, salt) for salt in range(SIZE)] for rank in range(SIZE)]
            out = [empty() for _ in range(SIZE)]
            dist.all_to_all(out, [laid_out(one, layout) for one in sent[RANK]])
            same(("all_to_all", label), out, [row[RANK] for row in sent])
            if shape:
                out = laid_out(torch.zeros((SIZE * shape[0], *shape[1:]), dtype=dtype), layout)
                dist.all_gather_into_tensor(out, mine())
                same(("all_gather_into_tensor", label), out, torch.cat(everyone))
                out = laid_out(torch.zeros((SIZE * shape[0], *shape[1:]), dtype=dtype), layout)
                dist.all_to_all_single(out, torch.cat(sent[RANK]))
                same(("all_to_all_single", label), out, torch.cat([row[RANK] for row in sent]))
            if not REAL:
                out = torch.zeros((SIZE, *shape), dtype=dtype)
                dist.all_gather_into_tensor(out, mine())
                same(("all_gather_into_tensor stacked", label), out, torch.stack(everyone))
"""
REDUCING = """
R = dist.ReduceOp
def folded(op, tensors):
    "What the ranks' tensors become, in their order; half precision in float32."
    dtype = tensors[0].dtype
    wide = [t.to(torch.float32) if dtype in (torch.float16, torch.bfloat16) else t for t in tensors]
    total = wide[0].clone()
    for other in wide[1:]:
        if op == R.MIN: total = torch.minimum(total, other)
        elif op == R.MAX: total = torch.maximum(total, other)
        elif op == R.PRODUCT: total = total * other
        elif op == R.BAND: total = total & other
        elif op == R.BOR: total = total | other
        elif op == R.BXOR: total = total ^ other
        elif dtype == torch.bool: total = total | other
        else: total = total + other
    return (total / len(tensors) if op == R.AVG else total).to(dtype)

def ops_of(dtype):
    if dtype.is_complex: return [R.SUM, R.AVG]
    if dtype == torch.bool: return [R.SUM, R.BAND, R.BOR] if REAL else [R.SUM, R.PRODUCT, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR]
    if dtype.is_floating_point: return [R.SUM, R.AVG, R.PRODUCT, R.MIN, R.MAX]
    return [R.SUM, R.PRODUCT, R.MIN, R.MAX, R.BAND, R.BOR, R.BXOR]

EXACT = [d for d in DTYPES if d not in (torch.float8_e4m3fn, torch.float8_e5m2, torch.uint16, torch.uint32, torch.uint64)]
for dtype in EXACT:
    for shape in shapes_of(dtype):
        everyone = [values(rank, shape, dtype) for rank in range(SIZE)]
        parts = [[values(rank, shape, dtype, salt) for salt in range(SIZE)] for rank in range(SIZE)]
        for op in ops_of(dtype):
            if REAL and dtype == torch.bool and op == R.SUM:
                continue  # the sum of bools is of no use there
            expected = folded(op, everyone)
            for layout in LAYOUTS:
                label = (dtype, shape, layout, op)
                x = laid_out(everyone[RANK], layout)
                dist.all_reduce(x, op)
                same(("all_reduce", label), x, expected)
                x = laid_out(everyone[RANK], layout)
                dist.all_reduce(x, R(op))
                same(("all_reduce of a ReduceOp", label), x, expected)
                for root in range(SIZE):
                    x = laid_out(everyone[RANK], layout)
                    dist.reduce(x, root, op)
                    same(("reduce", root, label), x if RANK == root else expected, expected)
                    if not REAL:
                        same(("reduce leaves the others alone", root, label), x if RANK != root else everyone[RANK], everyone[RANK])
                x = laid_out(torch.zeros(shape, dtype=dtype), layout)
                dist.reduce_scatter(x, [laid_out(one, layout) for one in parts[RANK]], op)
                same(("reduce_scatter", label), x, folded(op, [row[RANK] for row in parts]))
                if shape and (shape[0] or not REAL):
                    x = laid_out(torch.zeros(shape, dtype=dtype), layout)
                    dist.reduce_scatter_tensor(x, torch.cat(parts[RANK]), op)
                    same(("reduce_scatter_tensor", label), x, folded(op, [row[RANK] for row in parts]))
"""


def test_moving_collectives():
    """broadcast, gather, scatter, all_gather and all_to_all in all their forms bring exactly the numbers that were sent, in every layout."""
    ours, theirs = run_both(START + MOVING + END)
    assert counted(ours) > counted(theirs) > 200


def test_reducing_collectives():
    """all_reduce, reduce and reduce_scatter with every reduction a dtype has give what one process computes."""
    ours, theirs = run_both(START + REDUCING + END)
    assert counted(ours) > counted(theirs) > 200


def test_three_ranks():
    """With an odd number of ranks, as with two."""
    fewer = START.replace("SHAPES = [", "SHAPES = [(2, 3), ()] or [").replace(
        "DTYPES = ", "DTYPES = [torch.float32, torch.bfloat16, torch.int64] or "
    )
    assert counted(ok(run(fewer + MOVING + REDUCING + END, 3))) > 200


def counted(outputs: list[str]) -> int:
    """How many comparisons each rank has made."""
    assert len(set(outputs)) == 1, outputs
    return int(outputs[0].removeprefix("checks "))


@pytest.mark.parametrize("kind", ["factor", "tensor"])
def test_premul_sum(kind):
    """PREMUL_SUM multiplies what each rank brings by its factor before the sum, a float or a tensor of one element."""
    program = f"""
        factor = 0.5 if {kind == "factor"} else torch.tensor(0.5)
        op = dist._make_nccl_premul_sum(factor)
        for dtype in (torch.float32, torch.float64, torch.float16):
            x = torch.arange(4).to(dtype) + RANK
            dist.all_reduce(x, op)
            same("all_reduce", x, (torch.arange(4) * 1.0 + 0.5).to(dtype))
            x = torch.zeros(2, dtype=dtype)
            dist.reduce_scatter(x, [torch.ones(2, dtype=dtype) * (RANK + 1)] * 2, dist._make_nccl_premul_sum(factor))
            same("reduce_scatter", x, torch.full((2,), 1.5, dtype=dtype))
    """
    assert counted(ok(run(START + dedented(program) + END))) == 6


def test_splits_of_all_to_all_single():
    """Uneven splits send each rank its rows; sizes that do not fit are told on the rank that passed them."""
    program = """
        x = torch.arange(12.0).reshape(4, 3) + 100 * RANK
        sends = [1, 3] if RANK == 0 else [2, 2]
        receives = [1, 2] if RANK == 0 else [3, 2]
        out = torch.zeros(sum(receives), 3)
        dist.all_to_all_single(out, x, receives, sends)
        print(out.tolist())
        work = dist.all_to_all_single(out.zero_(), x, receives, sends, async_op=True)
        work.wait()
        print(out.tolist())
        for wrong in ([1, 2], [4], [2, 2, 0]):
            try:
                dist.all_to_all_single(out, x, receives, wrong)
            except RuntimeError:
                print("refused", wrong)
        empty = torch.zeros(0, 3)
        got = torch.zeros(0, 3)
        dist.all_to_all_single(got, empty, [0, 0], [0, 0])
        print(got.shape == (0, 3))
    """
    ours, theirs = run_both(START + dedented(program) + END)
    assert ours == theirs


def test_async_works():
    """async_op=True gives a Work whose wait(), future and callbacks come when the result is there; works end in the order of their calls."""
    program = """
        tensors = [torch.full((100,), float(RANK + i)) for i in range(8)]
        works = [dist.all_reduce(t, async_op=True) for t in tensors]
        for work in works:
            assert work.wait() is True and work.is_completed()
        print([t[0].item() for t in tensors])
        x = torch.ones(3) * RANK
        future = dist.all_reduce(x, async_op=True).get_future()
        print([t.tolist() for t in future.wait()])
        print(future.then(lambda f: f.value()[0].sum().item()).wait())
        out = [torch.zeros(2) for _ in range(SIZE)]
        work = dist.all_gather(out, torch.ones(2) * RANK, async_op=True)
        work.wait()
        print([t.tolist() for t in out])
        print(dist.barrier(async_op=True).wait())
        for call in (
            lambda: dist.broadcast(torch.ones(2) * RANK, 1, async_op=True),
            lambda: dist.reduce(torch.ones(2) * RANK, 1, async_op=True),
            lambda: dist.gather(torch.ones(2), [torch.zeros(2) for _ in range(SIZE)] if RANK == 0 else None, 0, async_op=True),
            lambda: dist.scatter(torch.ones(2), [torch.zeros(2) for _ in range(SIZE)] if RANK == 0 else None, 0, async_op=True),
            lambda: dist.reduce_scatter(torch.ones(2), [torch.zeros(2) for _ in range(SIZE)], async_op=True),
            lambda: dist.reduce_scatter_tensor(torch.ones(2), torch.ones(4), async_op=True),
            lambda: dist.all_gather_into_tensor(torch.ones(4), torch.ones(2), async_op=True),
            lambda: dist.all_to_all([torch.ones(2), torch.ones(2)], [torch.ones(2), torch.ones(2)], async_op=True),
            lambda: dist.all_to_all_single(torch.ones(2), torch.ones(2), async_op=True),
        ):
            work = call()
            print(work.wait(), REAL or (work.is_completed() and work.is_success()), isinstance(work, dist.Work))
    """
    ours, theirs = run_both(START + dedented(program) + END)
    assert ours == theirs


def test_coalesced_forms():
    """Calls inside a coalescing manager, and the older coalesced functions, give what they give one by one."""
    program = """
        from TORCH.distributed.distributed_c10d import _coalescing_manager
        xs = [torch.full((n,), float(RANK + n)) for n in (1, 3, 700)]
        with _coalescing_manager() as manager:
            for x in xs:
                dist.all_reduce(x)
        print([x[0].item() for x in xs])
        with _coalescing_manager(async_ops=True) as manager:
            for x in xs:
                dist.all_reduce(x, dist.ReduceOp.MAX)
        manager.wait()
        print([x[0].item() for x in xs])
        outs = [torch.zeros(SIZE * 2), torch.zeros(SIZE * 3)]
        with _coalescing_manager(async_ops=True) as manager:
            for out in outs:
                dist.all_gather_into_tensor(out, torch.arange(len(out) // SIZE) + 10.0 * RANK)
        manager.wait()
        print([out.tolist() for out in outs])
        outs = [torch.zeros(2), torch.zeros(3)]
        with _coalescing_manager(async_ops=True) as manager:
            for out in outs:
                dist.reduce_scatter_tensor(out, torch.arange(len(out) * SIZE) + 10.0 * RANK)
        manager.wait()
        print([out.tolist() for out in outs])
        xs = [torch.ones(2) * RANK, torch.ones(3) * RANK]
        dist.all_reduce_coalesced(xs)
        print([x.tolist() for x in xs])
        print([x.tolist() for x in dist.all_reduce_coalesced(xs, async_op=True).wait()])
        lists = [[torch.zeros(2), torch.zeros(1)] for _ in range(SIZE)]
        dist.all_gather_coalesced(lists, [torch.ones(2) * RANK, torch.ones(1) + RANK])
        print([[t.tolist() for t in row] for row in lists])
    """
    ours, theirs = run_both(START + dedented(program) + END)
    assert ours == theirs


def test_two_kinds_in_one_manager():
    """Different collectives in one coalescing manager are all made, in the order of the program."""
    program = """
        from TORCH.distributed.distributed_c10d import _coalescing_manager
        x, y, out = torch.ones(2) * (RANK + 1), torch.ones(3) * RANK, torch.zeros(4)
        with _coalescing_manager():
            dist.all_reduce(x)
            dist.all_reduce(y, dist.ReduceOp.MAX)
            dist.all_gather_into_tensor(out, torch.ones(2) * RANK)
        print(x.tolist(), y.tolist(), out.tolist())
    """
    assert ok(run(START + dedented(program))) == ["[3.0, 3.0] [1.0, 1.0, 1.0] [0.0, 0.0, 1.0, 1.0]\n"] * 2


def test_messages():
    """send, recv and their forms that do not wait; tags, unknown senders, batches; every dtype and layout."""
    program = """
        other = 1 - RANK
        for dtype in DTYPES:
            for shape in shapes_of(dtype):
                for layout in LAYOUTS:
                    mine, theirs = (laid_out(values(rank, shape, dtype), layout) for rank in (RANK, other))
                    got = laid_out(torch.zeros(shape, dtype=dtype), layout)
                    if RANK == 0:
                        dist.send(mine, 1)
                        assert dist.recv(got, 1) == 1
                    else:
                        assert dist.recv(got, 0) == 0
                        dist.send(mine, 0)
                    same(("send", dtype, shape, layout), got, theirs.contiguous())
                    got = laid_out(torch.zeros(shape, dtype=dtype), layout)
                    works = [dist.irecv(got, other), dist.isend(mine, other)]
                    [work.wait() for work in works]
                    same(("isend", dtype, shape, layout), got, theirs.contiguous())
        if RANK == 0:
            works = [dist.isend(torch.ones(2), 1, tag=7), dist.isend(torch.ones(2) * 2, 1, tag=8)]
            [work.wait() for work in works]
            dist.send(torch.ones(2) * 3, 1)
        else:
            a, b, c = torch.zeros(2), torch.zeros(2), torch.zeros(2)
            dist.recv(b, 0, tag=8)
            dist.recv(a, 0, tag=7)
            same("tags", [a, b], [torch.ones(2), torch.ones(2) * 2])
            print("from", dist.recv(c))
            same("anyone", c, torch.ones(2) * 3)
        a, b = torch.zeros(3), torch.zeros(50_000)
        batch = [
            dist.P2POp(dist.isend, torch.ones(3) * RANK, other), dist.P2POp(dist.isend, torch.ones(50_000) * RANK, other),
            dist.P2POp(dist.irecv, a, other), dist.P2POp(dist.irecv, b, other),
        ]
        [work.wait() for work in dist.batch_isend_irecv(batch)]
        same("batch", [a, b], [torch.ones(3) * other, torch.ones(50_000) * other])
        try:
            dist.P2POp(dist.isend, a, 5)
        except ValueError:
            print("no rank 5")
    """
    ours, theirs = run_both(START + dedented(program) + "dist.barrier()\nimport sys, os\nsys.stdout.flush()\nprint('done')\n" + END)
    assert [one.splitlines()[:-1] for one in ours] == [one.splitlines()[:-1] for one in theirs]


SPARSE = """
def rows(dtype=torch.float32):
    "Rank 0 has rows 0, 1 and 2, rank 1 has rows 0 and 2, and row 2 twice."
    values = torch.tensor([[1, 2], [3, 4], [5, 6]]) * (RANK + 1)
    return torch.sparse_coo_tensor(torch.tensor([[0, 2 if RANK else 1, 2]]), values.to(dtype), (4, 2))

def shown(tensor):
    whole = tensor.coalesce()
    print(tensor.layout, whole.dtype, whole.indices().tolist(), whole.values().tolist())

for dtype in (torch.float32, torch.bfloat16, torch.int64):
    x = rows(dtype)
    dist.all_reduce(x)
    shown(x)
x = rows()
shown(dist.all_reduce(x, async_op=True).get_future().wait()[0])
shown(x)
for x in (torch.zeros(3, 2).to_sparse(), torch.diag(torch.arange(3.0) * RANK).to_sparse()):
    dist.all_reduce(x)
    shown(x)
try:
    dist.all_reduce(rows(), op=dist.ReduceOp.MAX)
except RuntimeError as problem:
    print("only works with ReduceOp.SUM" in str(problem))
try:
    dist.all_reduce(torch.eye(3 + RANK).to_sparse())
except RuntimeError:
    print("shapes that do not fit")
"""


def test_sparse_tensors():
    """Tensors most of whose elements are zero are not added up, or not as PyTorch does."""
    ours, theirs = run_both(START + SPARSE)
    assert ours == theirs


def test_conjugated_and_negated_views():
    """Complex numbers that are a conjugate view arrive conjugated."""
    program = """
        x = torch.tensor([1 + 2j, 3 - 1j]) * (RANK + 1)
        out = [torch.zeros(2, dtype=torch.complex64) for _ in range(SIZE)]
        dist.all_gather(out, x.conj())
        print([t.tolist() for t in out])
        y = x.conj().imag.clone()
        dist.all_reduce(y)
        print(y.tolist())
        parts = torch.zeros(2 * SIZE)
        dist.all_gather_into_tensor(parts, x.conj().imag)
        print(parts.tolist())
    """
    found = ok(run(START + dedented(program)))
    assert found[0] == found[1] == "[[(1-2j), (3+1j)], [(2-4j), (6+2j)]]\n[-6.0, 3.0]\n[-2.0, 1.0, -4.0, 2.0]\n"


def test_leaves_and_graphs():
    """A collective writes into tensors that require grad, and leaves no trace in their history."""
    program = """
        w = torch.ones(2, requires_grad=True)
        y = (w * 2)
        dist.all_reduce(y)
        dist.broadcast(w, 1)
        print(y.tolist(), y.grad_fn is not None, w.is_leaf, w._version)
        y.sum().backward()
        print(w.grad.tolist())
    """
    ours, theirs = run_both(START + dedented(program) + END)
    assert ours == theirs


def dedented(program: str) -> str:
    return textwrap.dedent(program)
