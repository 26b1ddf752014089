"""Indexing by our own kernels on a GPU: any dimension and layout, both kinds of integers, whole packs and single bytes, indices out of bounds."""

from __future__ import annotations

import pytest

import flambeau as torch
from flambeau.nn import functional as F

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64, torch.complex128]


def there(value):
    """Tensors moved to the GPU, within tuples too."""
    if isinstance(value, torch.Tensor):
        if 0 in value.stride():
            return value[tuple([slice(1 if step == 0 else None) for step in value.stride()])].cuda().expand(value.shape)
        moved = value.cuda()
        if moved.stride() == value.stride():
            return moved
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda").copy_(value)
    return tuple(map(there, value)) if isinstance(value, tuple) else value


def same(f, *args):
    """f gives the same on the GPU as on the CPU."""
    wanted, found = f(*args), f(*map(there, args))
    assert found.is_cuda and found.shape == wanted.shape and found.dtype is wanted.dtype and found.stride() == wanted.stride()
    assert torch.equal(found.cpu(), wanted)


def numbers(shape, dtype=torch.float32):
    torch.manual_seed(1)
    x = torch.randint(-9, 10, shape)
    return x.to(dtype) if not dtype.is_complex else torch.complex(x.float(), x.float() + 1).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_reading(gpu, dtype):
    """gather, index_select, take_along_dim, take and x[i] of every size of element."""
    x, i = numbers((6, 7, 8), dtype), torch.randint(6, (4, 7, 5))
    same(lambda x, i: x.gather(0, i), x, i)
    same(lambda x, i: x.index_select(1, i), x, torch.tensor([6, 0, 0, 3]))
    same(lambda x, i: x[i], x, torch.tensor([[5, -1], [0, -6]]))
    same(lambda x, i: x[:, :, i], x, torch.tensor([7, -1, 2], dtype=torch.int32))
    same(lambda x, i: x.take(i), x, torch.tensor([[335, -1], [0, 17]]))


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("kind", [torch.int32, torch.int64], ids=str)
def test_along_every_dimension(gpu, dim, kind):
    """The index is shorter than the array elsewhere; either may be transposed, strided or expanded."""
    x = numbers((6, 7, 8))
    i = torch.randint(6, (4, 5, 3)).to(kind)
    for y in (x, x.transpose(0, 2).contiguous().transpose(0, 2), numbers((12, 7, 16))[::2, :, 1::2]):
        for j in (i, i.permute(2, 0, 1).contiguous().permute(1, 2, 0), torch.randint(6, (4, 1, 3)).to(kind).expand(4, 5, 3)):
            same(lambda y, j: y.gather(dim, j), y, j)
            same(lambda y, j: torch.take_along_dim(y[:4, :5, :3], j.long() % 3 - 3, dim), y, j)
            k = torch.argsort(torch.rand(4, 5, 3), dim).to(kind)  # no place twice
            same(lambda y, k: y.clone().scatter_(dim, k, 7), y, k)
            same(lambda y, k: y.scatter(dim, k, y[:4, :5, :3] + 1), y, k)
            same(lambda y, j: y.scatter_add(dim, j, torch.ones_like(j, dtype=y.dtype)), y, j)
            for reduce in ("prod", "amax", "amin", "mean"):
                same(lambda y, j, r=reduce: y.scatter_reduce(dim, j, y[:4, :5, :3], r), y, j)


def test_several_indices(gpu):
    """Neighbours stay where they stood, others come first; they broadcast, masks and slices beside them."""
    x = numbers((5, 6, 7, 4))
    i, j = torch.tensor([[0], [-1]]), torch.tensor([2, -6, 5])
    for f in (
        lambda x, i, j: x[i, j], lambda x, i, j: x[:, i, j], lambda x, i, j: x[i, :, j], lambda x, i, j: x[i, :, :, j % 4],
        lambda x, i, j: x[i, j, i, j % 4], lambda x, i, j: x[1:, i, ::2][:, j % 2], lambda x, i, j: x.transpose(0, 3)[j % 4, :, i],
        lambda x, i, j: x[x[:, 0, 0, 0] > 0, :, j[0]], lambda x, i, j: x[..., None, i, j % 4],
    ):  # fmt: skip
        same(f, x, i, j)

    def written(x, i, j):
        y = x.clone()
        y[i, j] = y[:2, :3] * 2
        y[:, :, i] = 5.0
        y.index_put_((i, j), torch.ones(4, device=y.device), accumulate=True)
        y.transpose(0, 3)[j % 4, :, i] = y[0, 0, 0, 0].clone()
        return y

    same(written, x, i, j)


@pytest.mark.parametrize("width", [1, 3, 4, 8, 33, 64])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8], ids=str)
def test_rows(gpu, width, dtype):
    """Rows that are whole packs of 16 bytes and rows that are not, from memory that begins anywhere."""
    x, i = numbers((9, width), dtype), torch.tensor([[3, 8, 0], [3, 3, 1]])
    same(lambda x, i: x[i], x, i)
    same(lambda x, i: x.flatten()[1:].as_strided((8, width), (width, 1))[i % 8], x, i)
    same(lambda x, i: x.index_copy(0, i[0], x[4:7]), x, i)
    same(lambda x, i: x.index_fill(0, i[0] - 9, 3), x, i)
    if dtype is not torch.uint8:
        same(lambda x, i: F.embedding(i, x), x, i)
        same(lambda x, i: x.index_add(0, i[1], x[1:4]), x, i)


def test_embedding_gradient(gpu):
    """Rows that are read twice get both gradients, the padding row gets none; half precision is added up in float32."""
    i = torch.tensor([[3, 1, 0], [3, 3, 1]])
    for dtype in (torch.float32, torch.bfloat16, torch.float64):
        for options in ({}, {"padding_idx": 1}, {"scale_grad_by_freq": True, "padding_idx": 1}):
            found = []
            for device in ("cpu", "cuda"):
                w = numbers((5, 6), dtype).to(device).requires_grad_()
                (F.embedding(i.to(device), w, **options) * torch.arange(1.0, 7, device=device).to(dtype)).sum().backward()
                found.append(w.grad.cpu())
            assert torch.allclose(*found) and found[1].dtype is dtype


def test_other_dtypes_add_up(gpu):
    """Bytes wrap around, and truth stays truth."""
    for dtype in (torch.uint8, torch.int16, torch.bool, torch.float16):
        x, i = numbers((4, 3), dtype), torch.tensor([0, 2, 2, 0, 2])
        same(lambda x, i: x.index_add(0, i, x.repeat(2, 1)[:5]), x, i)
        same(lambda x, i: x.scatter_add(1, i[None, 1:4].expand(4, 3), x), x, i)


def test_complex_numbers(gpu):
    """Complex numbers add in two parts and multiply in rounds, also where they lie apart."""
    for dtype in (torch.complex64, torch.complex128):
        x, i = numbers((4, 3), dtype), torch.tensor([[0, 2, 2, 0], [1, 1, 1, 1], [2, 0, 2, 2]])
        values = numbers((3, 4), dtype)
        for how, reduce in (("add", "sum"), ("multiply", "prod")):
            wanted = x.t().scatter_reduce(0, i, values, reduce)
            found = x.cuda()
            gpu.along(how, found.t()._array, 0, i.cuda()._array, values.cuda()._array)
            assert torch.equal(found.cpu().t(), wanted)
        found = x.cuda()
        gpu.at("add", found._array, (None, i[0, :3].cuda()._array), values[:1, :3].cuda()._array)
        assert torch.equal(found.cpu(), x.index_add(1, i[0, :3], values[:1, :3].expand(4, 3)))


def test_many_dimensions(gpu):
    """More loops than a kernel has: everything is laid out first."""
    x = numbers((2,) * 12)
    y = x.permute(*range(0, 12, 2), *range(1, 12, 2))
    i = torch.tensor([1, 0])
    same(lambda y, i: y.index_select(5, i).clone(memory_format=torch.contiguous_format), y, i)
    j = torch.randint(2, (1, 2) * 6)
    same(lambda x, j: x.permute(*range(11, -1, -1)).gather(3, j), x, j)


def test_nothing(gpu):
    """Indices without elements, and arrays without elements."""
    none = torch.zeros(0, dtype=torch.int64)
    same(lambda x, i: x[i], numbers((3, 4)), none)
    same(lambda x, i: x.index_select(1, i), numbers((3, 4)), none)
    same(lambda x, i: x.gather(0, i[None, :0].expand(0, 0)), numbers((3, 4)), none)
    same(lambda x, i: x[i], numbers((3, 0)), torch.tensor([2, 0]))
    same(lambda x, i: F.embedding(i, x), numbers((3, 4)), none)


READ = {
    "gather": (RuntimeError, lambda x, i: x.gather(0, i[:, None].expand(3, 4)), "index 9 is out of bounds for dimension 0 with size 5"),
    "index_select": (IndexError, lambda x, i: x.index_select(0, i), "index out of range in self: index 9 is out of bounds .* size 5"),
    "embedding": (IndexError, lambda x, i: F.embedding(i, x), "index out of range in self"),
    "getitem": (IndexError, lambda x, i: x[i], "index 9 is out of bounds for dimension 0 with size 5"),
    "second": (IndexError, lambda x, i: x.t()[i % 4, i], "index 9 is out of bounds for dimension 1 with size 5"),
    "take": (IndexError, lambda x, i: x[:, 0].take(i), "tried to access index 9 on a tensor of 5 elements"),
    "take_along_dim": (RuntimeError, lambda x, i: torch.take_along_dim(x[:, :1], i[:, None], 0), "index 9 is out of bounds"),
}
WRITE = {
    "scatter": (RuntimeError, lambda x, i: x.scatter_(0, i[:, None].expand(3, 4), 1.0)),
    "scatter_add": (RuntimeError, lambda x, i: x.scatter_add_(0, i[:, None].expand(3, 4), x[:3].clone())),
    "index_add": (RuntimeError, lambda x, i: x.index_add_(0, i, x[:3].clone())),
    "index_copy": (IndexError, lambda x, i: x.index_copy_(0, i, x[:3] + 1)),
    "index_fill": (IndexError, lambda x, i: x.index_fill_(0, i, 2.0)),
    "setitem": (IndexError, lambda x, i: x.__setitem__(i, 3.0)),
    "index_put": (IndexError, lambda x, i: x.index_put_((i,), x[:3].clone(), accumulate=True)),
}


@pytest.mark.parametrize("name", READ)
def test_bad_index_read(gpu, name, monkeypatch):
    """An index out of bounds reads nothing, and is an error when the GPU is next waited for; or at once, if asked for."""
    from flambeau.kernels.cuda import error_notes

    error, f, words = READ[name]
    x, i = numbers((5, 4)).cuda(), torch.tensor([1, 9, 2]).cuda()
    with pytest.raises(error, match=words):
        f(x.cpu(), i.cpu())
    monkeypatch.setattr(error_notes, "BLOCKING", False)
    found = f(x, i)
    with pytest.raises(error, match=f"{words}.*CUDA_LAUNCH_BLOCKING=1"):
        found.cpu()
    assert not found.reshape(3, -1)[1].count_nonzero().item()  # said once, and nothing was read
    monkeypatch.setattr(error_notes, "BLOCKING", True)
    with pytest.raises(error, match=words):
        f(x, i)
    assert f(x, i % 4) is not None


@pytest.mark.parametrize("name", WRITE)
def test_bad_index_write(gpu, name, monkeypatch):
    """An index out of bounds writes nothing; the others do, unless errors are wanted at once, and then nothing is written."""
    from flambeau.kernels.cuda import error_notes

    error, f = WRITE[name]
    x, i = numbers((5, 4)).cuda(), torch.tensor([1, -17, 2]).cuda()
    before = x.cpu()
    monkeypatch.setattr(error_notes, "BLOCKING", False)
    f(x, i)
    for wait in (torch.cuda.synchronize, torch.cuda.current_stream().synchronize, x.tolist):
        with pytest.raises(error, match="index -17 is out of bounds"):
            wait()
        f(x, i)
    with pytest.raises(error, match="index -17 is out of bounds"):
        x.cpu()
    assert torch.equal(x.cpu()[[0, 3, 4]], before[[0, 3, 4]])
    monkeypatch.setattr(error_notes, "BLOCKING", True)
    x.copy_(before)
    with pytest.raises(error, match="index -17 is out of bounds"):
        f(x, i)
    if name in ("scatter", "scatter_add", "index_add", "index_copy"):
        assert torch.equal(x.cpu(), before)
