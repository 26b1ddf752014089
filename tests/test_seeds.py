"""What introductions to PyTorch tell their readers about tensors and autograd, taken at their word and run on Flambeau.

Each test is a passage: its code, with the values its text gives. Where such texts are wrong about PyTorch, the test asks PyTorch instead.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from history_oracle import agree, questions

import flambeau as torch

oracle = pytest.importorskip("torch")


# -- making tensors --------------------------------------------------------------------------------------------------------


def test_from_lists():
    """A list of floats becomes float32, of ints int64, of bools bool; nested lists become matrices; the data is copied."""
    a = torch.tensor([1.0, 2.0, 3.0])
    assert f"{a} {a.dtype}" == "tensor([1., 2., 3.]) torch.float32"
    assert torch.tensor([1, 2, 3]).dtype is torch.int64
    assert torch.tensor([True, False]).dtype is torch.bool
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert x.shape == (2, 2) and x[1, 0].item() == 3.0
    data = np.ones(2)
    copied = torch.tensor(data)
    data[0] = 5
    assert copied.tolist() == [1.0, 1.0]


def test_factories():
    """zeros, ones, full, empty, arange, linspace: shapes, float32 on the CPU, and the numbers they promise."""
    for made in (torch.zeros(2, 3), torch.ones(2, 3), torch.empty(2, 3), torch.full((2, 3), fill_value=-1.0)):
        assert made.shape == (2, 3) and made.dtype is torch.float32 and made.device.type == "cpu"
    assert torch.full((4, 8), fill_value=-1.0).unique().tolist() == [-1.0]
    assert torch.arange(0, 10, 2).tolist() == torch.arange(0, 10, step=2).tolist() == [0, 2, 4, 6, 8]
    assert torch.linspace(0.0, 1.0, steps=5).tolist() == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert torch.ones(4, 8, dtype=torch.bfloat16).dtype is torch.bfloat16
    assert torch.tril(torch.ones(3, 3, dtype=torch.bool)).tolist() == [[True, False, False], [True, True, False], [True, True, True]]
    assert torch.triu(torch.ones(3, 3), diagonal=1).bool().sum().item() == 3


def test_random_factories():
    """randn is normal, rand lies in [0, 1), randint is int64 below its bound, and a seed makes them repeat."""
    torch.manual_seed(0)
    g, u, i = torch.randn(1000), torch.rand(1000), torch.randint(low=0, high=10, size=(4, 8))
    assert abs(g.mean().item()) < 0.15 and abs(g.std().item() - 1) < 0.1
    assert u.min().item() >= 0 and u.max().item() < 1
    assert i.dtype is torch.int64 and i.shape == (4, 8) and 0 <= i.min().item() <= i.max().item() < 10
    torch.manual_seed(0)
    assert torch.equal(torch.randn(1000), g)
    assert set(torch.empty(8).uniform_().round().tolist()) <= {0.0, 1.0}


def test_like():
    """zeros_like and randn_like take shape, dtype and device from another tensor."""
    g = torch.randn(4, 8, dtype=torch.float64)
    for made in (torch.zeros_like(g), torch.randn_like(g), torch.ones_like(g)):
        assert (made.shape, made.dtype, made.device) == (g.shape, g.dtype, g.device)


def test_numpy_shares_memory():
    """from_numpy copies nothing: a write on either side is seen on the other. as_tensor copies nothing where it can."""
    arr = np.array([[1.0, 2.0], [3.0, 4.0]], dtype=np.float32)
    t = torch.from_numpy(arr)
    arr[0, 0] = 99.0
    assert t[0, 0].item() == 99.0
    t[1, 1] = -1
    assert arr[1, 1] == -1
    assert torch.as_tensor(arr).data_ptr() == t.data_ptr()
    assert str(torch.from_numpy(np.array([1, 2, 3]))) == "tensor([1, 2, 3])"
    assert np.shares_memory(t.numpy(), arr)


def test_bytes_of_an_idx_file():
    """The images of an idx file: a header of four big-endian numbers, then bytes that become floats between 0 and 1."""
    raw = struct.pack(">IIII", 2051, 2, 2, 2) + bytes([0, 255, 51, 102, 153, 204, 255, 0])
    _, number, rows, columns = struct.unpack(">IIII", raw[:16])
    images = torch.frombuffer(bytearray(raw[16:]), dtype=torch.uint8)
    images = images.reshape(number, rows * columns).float() / 255.0
    assert images.shape == (2, 4) and images[0].tolist() == pytest.approx([0, 1, 0.2, 0.4])
    labels = torch.frombuffer(bytearray([7, 2]), dtype=torch.uint8).long()
    assert labels.dtype is torch.int64 and labels.tolist() == [7, 2]


def test_ranks():
    """A scalar has no dimensions, a vector one, a matrix two, a batch of embeddings three."""
    assert torch.tensor(42).ndim == 0
    assert torch.tensor([1, 2, 3, 4]).ndim == 1
    assert torch.tensor([[1, 2], [3, 4]]).ndim == 2
    assert torch.zeros(2, 5, 16).shape == (2, 5, 16)
    assert repr(torch.zeros(2, 3).shape) == "torch.Size([2, 3])"


def test_printing():
    """What the texts show on the screen."""
    x = torch.arange(12).reshape(3, 4)
    assert str(x[0]) == "tensor([0, 1, 2, 3])"
    assert str(x[:, 1]) == "tensor([1, 5, 9])"
    assert str(x[0:2, 1:3]) == "tensor([[1, 2],\n        [5, 6]])"
    assert str(torch.tensor(8.0)) == "tensor(8.)"
    assert str(torch.tensor([4.0, 6.0])) == "tensor([4., 6.])"
    assert f"{torch.tensor([1.0, 2.0]).mean():.6f}" == "1.500000"


# -- dtype -----------------------------------------------------------------------------------------------------------------


def test_bits_and_ranges():
    """float32 has 32 bits and about 7 digits, float16 about 3.3, int8 goes from -128 to 127, bfloat16 has float32's range and 8 bits of mantissa."""
    bits = {"float64": 64, "float32": 32, "float16": 16, "bfloat16": 16, "int64": 64, "int32": 32, "int8": 8, "uint8": 8, "bool": 8}
    for name, n in bits.items():
        assert torch.zeros(1, dtype=getattr(torch, name)).element_size() * 8 == n
    assert torch.get_default_dtype() is torch.float32
    assert 6.5 < -math.log10(torch.finfo(torch.float32).eps) < 7.5
    assert 3 < -math.log10(torch.finfo(torch.float16).eps) < 3.4
    assert (torch.iinfo(torch.int8).min, torch.iinfo(torch.int8).max) == (-128, 127)
    assert torch.finfo(torch.bfloat16).max == pytest.approx(torch.finfo(torch.float32).max, rel=0.01)
    assert torch.finfo(torch.bfloat16).eps == 2**-7


def test_casts():
    """Casts give new tensors: .to(dtype), .half(), .long(), .bool(), .float(), .bfloat16(), .double(), .int()."""
    x = torch.tensor([0.0, 1.5, 2.0])
    casts = {
        torch.bfloat16: [x.to(torch.bfloat16), x.bfloat16()],
        torch.float16: [x.half()],
        torch.int64: [x.long()],
        torch.int32: [x.int()],
        torch.bool: [x.bool()],
        torch.float64: [x.double()],
    }
    for dtype, made in casts.items():
        for y in made:
            assert y.dtype is dtype and x.dtype is torch.float32
    assert x.long().tolist() == [0, 1, 2] and x.bool().tolist() == [False, True, True]
    assert (x > 1).dtype is torch.bool


def test_promotion():
    """Mixed dtypes are computed in the wider one."""
    a, b = torch.ones(3, dtype=torch.float32), torch.ones(3, dtype=torch.bfloat16)
    assert (a + b).dtype is torch.float32
    assert (torch.ones(3, 3) + torch.tensor([10, 20, 30])).dtype is torch.float32


def test_halving_precision_halves_memory():
    """Two bytes instead of four."""
    x = torch.zeros(100)
    assert x.half().nbytes * 2 == x.bfloat16().nbytes * 2 == x.nbytes == 400


# -- device ----------------------------------------------------------------------------------------------------------------


def test_device_setup():
    """The usual line runs anywhere, and everything starts on the CPU."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    x = torch.randn(3, 3, device=device)
    y = torch.randn(3, 3).to(device)
    assert (x + y).device.type == device.type
    assert torch.tensor([1.0, 2.0, 3.0]).device.type == "cpu"
    assert x.cpu().device.type == "cpu"
    assert str(torch.device("cuda", 1)) == "cuda:1"


def test_mixing_devices_is_refused():
    """All operands of an operation must be on the same device."""
    with pytest.raises(RuntimeError, match="same device"):
        torch.randn(3) + torch.randn(3, device="meta")


# -- shape -----------------------------------------------------------------------------------------------------------------


def test_the_eight_verbs():
    """view, reshape, transpose, permute, squeeze, unsqueeze, expand, repeat."""
    x = torch.arange(24).reshape(2, 3, 4)
    assert x.view(2, 12).shape == x.reshape(2, 12).shape == (2, 12)
    t = x.transpose(1, 2)
    assert t.shape == (2, 4, 3) and not t.is_contiguous()
    assert x.permute(2, 0, 1).shape == (4, 2, 3)
    y = torch.zeros(1, 3, 1, 5)
    assert y.squeeze().shape == (3, 5) and y.squeeze(0).shape == (3, 1, 5)
    assert x.unsqueeze(0).shape == (1, 2, 3, 4) and x.unsqueeze(-1).shape == (2, 3, 4, 1)
    a = torch.tensor([[1, 2, 3]])
    assert a.expand(4, 3).stride() == (0, 1) and a.expand(4, 3).data_ptr() == a.data_ptr()
    assert a.repeat(4, 1).tolist() == [[1, 2, 3]] * 4 and a.repeat(4, 1).data_ptr() != a.data_ptr()
    assert (x.size(0), x.ndim, x.numel(), x.stride()) == (2, 3, 24, (12, 4, 1))
    row = torch.tensor([1, 2, 3])
    assert repr(row.shape) == "torch.Size([3])" and repr(row.unsqueeze(0).shape) == "torch.Size([1, 3])"


def test_views_share_memory():
    """view, transpose, permute, T and slices copy nothing: a write through one is seen through all."""
    x = torch.zeros(2, 3)
    x.view(-1)[0] = 1
    x.T[1, 0] = 2
    x.permute(1, 0)[2, 0] = 3
    x[1][0] = 4
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 0.0, 0.0]]


def test_view_and_reshape():
    """view of what memory does not hold in order raises; reshape copies, and so does contiguous."""
    x = torch.randn(2, 3, 4)
    assert x.is_contiguous() and x.view(6, 4).shape == (6, 4)
    xt = x.transpose(0, 1)
    assert xt.shape == (3, 2, 4) and not xt.is_contiguous()
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        xt.view(6, 4)
    assert xt.reshape(6, 4).data_ptr() != x.data_ptr()
    assert torch.equal(xt.contiguous().view(6, 4), xt.reshape(6, 4))
    assert x.reshape(6, 4).data_ptr() == x.data_ptr() and x.contiguous() is x


def view_of_what_is_not_contiguous(T):
    x = T.arange(12).reshape(3, 4)[:, :2]
    y = T.arange(24).reshape(2, 3, 4).transpose(0, 1)
    return x.is_contiguous(), x.view(3, 2, 1).shape, y.view(3, 2, 2, 2).shape


def reshape_of_what_is_not_contiguous_may_be_a_view(T):
    x = T.arange(12).reshape(3, 4)[:, :2]
    return x.reshape(3, 2, 1).data_ptr() == x.data_ptr()


def one_element_of_an_expanded_tensor_can_be_written(T):
    mask = T.tensor([1, 0, 1])
    mask.expand(4, 3)[0, 0] = 99
    return mask


def an_expanded_tensor_cannot_be_written_as_a_whole(T):
    T.tensor([1, 0, 1]).expand(4, 3).add_(1)


def a_slice_of_an_expanded_tensor_cannot_be_written(T):
    T.tensor([1, 0, 1]).expand(4, 3)[:, :2] = T.zeros(4, 2, dtype=T.int64)


def gather_takes_int32(T):
    return T.arange(6.0).reshape(2, 3).gather(1, T.tensor([[0], [2]], dtype=T.int32))


def gather_refuses_floats(T):
    T.arange(6.0).reshape(2, 3).gather(1, T.tensor([[0.0], [2.0]]))


@questions(
    view_of_what_is_not_contiguous, reshape_of_what_is_not_contiguous_may_be_a_view, one_element_of_an_expanded_tensor_can_be_written,
    an_expanded_tensor_cannot_be_written_as_a_whole, a_slice_of_an_expanded_tensor_cannot_be_written, gather_takes_int32,
    gather_refuses_floats,
)  # fmt: skip
def test_where_the_texts_are_wrong_about_shapes(question):
    """Stride compatibility, not contiguity, decides; one element of an expanded tensor can be written; int32 indices are accepted."""
    agree(question)


# -- indexing and broadcasting ---------------------------------------------------------------------------------------------


def test_indexing():
    """Numbers, slices, ellipsis, masks and lists of indices give the shapes the texts give."""
    x = torch.arange(24).reshape(2, 3, 4)
    assert x[0].shape == (3, 4) and x[0, 1].shape == (4,) and x[0, 1, 2].shape == () and x[0, 1, 2].item() == 6
    assert x[:, 1:, :].shape == (2, 2, 4) and x[..., -1].shape == (2, 3)
    assert x[x > 10].tolist() == list(range(11, 24))
    idx = torch.tensor([0, 2])
    picked = x[:, idx, :]
    assert picked.shape == (2, 2, 4)
    picked.zero_()
    assert x.sum().item() == sum(range(24)), "picking by a list of indices copies"
    labels, attention = torch.arange(4), torch.tensor([1, 1, 0, 0])
    labels[attention == 0] = -100
    assert labels.tolist() == [0, 1, -100, -100]


def test_gather_and_scatter():
    """gather picks one element per row, scatter_ writes one: a one-hot encoding."""
    logits = torch.randn(4, 10)
    targets = torch.tensor([3, 7, 0, 9])
    picked = logits.gather(dim=1, index=targets.unsqueeze(1)).squeeze(1)
    assert picked.shape == (4,) and all(picked[i] == logits[i, targets[i]] for i in range(4))
    one_hot = torch.zeros(4, 10).scatter_(dim=1, index=targets.unsqueeze(1), value=1.0)
    assert one_hot.sum(1).tolist() == [1.0] * 4 and one_hot.argmax(1).tolist() == [3, 7, 0, 9]


def test_broadcasting():
    """Shapes are aligned on the right; sizes must be equal, or 1, or missing."""
    matrix = torch.ones(3, 3)
    assert (matrix + torch.tensor([10, 20, 30])).tolist() == [[11.0, 21.0, 31.0]] * 3
    assert (torch.randn(4, 1, 16) + torch.randn(8, 16)).shape == (4, 8, 16)
    assert (torch.randn(4, 8, 16) + torch.randn(16)).shape == (4, 8, 16)
    assert (torch.zeros(3, 1) + torch.zeros(1, 4)).shape == (3, 4)
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        torch.randn(3, 4) + torch.randn(2, 4)


# -- mathematics -----------------------------------------------------------------------------------------------------------


def test_elementwise_and_in_place():
    """Functions give new tensors; names that end in _ change theirs."""
    x = torch.rand(4, 8) + 0.1
    before = x.clone()
    for y in (x.abs(), x.exp(), x.log(), x.sqrt(), x.sigmoid(), torch.relu(x), x**2):
        assert y.shape == (4, 8)
    assert torch.equal(x, before)
    assert x.add_(1.0) is x and torch.allclose(x, before + 1)
    assert x.mul_(2).zero_().fill_(3.0).sum().item() == 96.0


def test_reductions():
    """dim says which dimension collapses, keepdim keeps it with size 1, max gives values and indices."""
    x = torch.arange(32.0).reshape(4, 8)
    assert x.sum().shape == () and x.sum(dim=0).shape == (8,) and x.sum(dim=1).shape == (4,) and x.sum(dim=1, keepdim=True).shape == (4, 1)
    assert x.mean(dim=-1).tolist() == [3.5, 11.5, 19.5, 27.5]
    found = x.max(dim=-1)
    assert found.values.tolist() == [7.0, 15.0, 23.0, 31.0] and found.indices.tolist() == [7] * 4
    assert x.argmax(dim=-1).tolist() == [7] * 4
    _values, predicted = x.max(1)
    assert predicted.eq(torch.full((4,), 7)).sum().item() == 4


def test_layer_norm_by_hand():
    """Centred and scaled rows have mean 0 and variance 1."""

    def layer_norm(x, eps=1e-5):
        mu = x.mean(dim=-1, keepdim=True)
        var = x.var(dim=-1, keepdim=True, unbiased=False)
        return (x - mu) / torch.sqrt(var + eps)

    y = layer_norm(torch.randn(4, 64) * 3 + 5)
    assert torch.allclose(y.mean(-1), torch.zeros(4), atol=1e-5) and torch.allclose(y.var(-1, unbiased=False), torch.ones(4), atol=1e-3)


def test_matrix_products():
    """@, matmul and bmm; leading dimensions are batches."""
    A, B = torch.randn(4, 8), torch.randn(8, 16)
    assert (A @ B).shape == (4, 16) and torch.equal(A @ B, torch.matmul(A, B)) and torch.equal(A @ B, A.matmul(B))
    Ab, Bb = torch.randn(32, 4, 8), torch.randn(32, 8, 16)
    assert torch.bmm(Ab, Bb).shape == torch.matmul(Ab, Bb).shape == (32, 4, 16)
    with pytest.raises(RuntimeError):
        torch.bmm(A, B)
    Q, K = torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16)
    assert (Q @ K.transpose(-2, -1)).shape == (2, 4, 8, 8)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.randn(2, 3) @ torch.randn(4, 5)


def test_einsum():
    """Contractions in index notation agree with the products they stand for."""
    A, B, Ab, Bb = torch.randn(4, 8), torch.randn(8, 16), torch.randn(3, 4, 8), torch.randn(3, 8, 5)
    assert torch.allclose(torch.einsum("ij,jk->ik", A, B), A @ B, atol=1e-5)
    assert torch.allclose(torch.einsum("bij,bjk->bik", Ab, Bb), Ab @ Bb, atol=1e-5)
    Q, K = torch.randn(2, 4, 8, 16), torch.randn(2, 4, 8, 16)
    assert torch.allclose(torch.einsum("bhsd,bhtd->bhst", Q, K), Q @ K.transpose(-2, -1), atol=1e-4)
    u, v, M = torch.randn(4), torch.randn(5), torch.randn(8, 8)
    assert torch.allclose(torch.einsum("i,j->ij", u, v), u[:, None] * v)
    assert torch.allclose(torch.einsum("ii->", M), M.diagonal().sum(), atol=1e-5)
    assert torch.equal(torch.einsum("ii->i", M), M.diagonal())


def test_softmax_and_item():
    """Probabilities add up to one; item() is for one element."""
    probabilities = torch.softmax(torch.randn(5, 3), dim=1)
    assert torch.allclose(probabilities.sum(1), torch.ones(5)) and torch.argmax(probabilities, dim=1).shape == (5,)
    assert torch.tensor(2.5).item() == 2.5
    with pytest.raises(RuntimeError):
        torch.zeros(2).item()
    assert torch.where(torch.tensor([True, False]), torch.ones(2), torch.zeros(2)).tolist() == [1.0, 0.0]


# -- autograd --------------------------------------------------------------------------------------------------------------


def test_first_derivatives():
    """The examples every introduction has, with the numbers it gives."""
    x = torch.tensor(3.0, requires_grad=True)
    y = x**2 + 2 * x + 1
    y.backward()
    assert str(x.grad) == "tensor(8.)"
    x = torch.randn(3, requires_grad=True)
    (x**2 + 3 * x).sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach() + 3)
    x = torch.tensor([2.0, 3.0], requires_grad=True)
    (x**2).sum().backward()
    assert str(x.grad) == "tensor([4., 6.])"
    (x**3).sum().backward()
    assert x.grad.tolist() == [16.0, 33.0]
    x.grad.zero_()
    assert x.grad.tolist() == [0.0, 0.0]


def test_gradients_accumulate():
    """3, then 6, then, zeroed in between, 3 again."""
    x = torch.tensor(2.0, requires_grad=True)
    seen = []
    for _ in range(2):
        (x * 3).backward()
        seen.append(x.grad.item())
    x.grad.zero_()
    (x * 3).backward()
    assert [*seen, x.grad.item()] == [3.0, 6.0, 3.0]


def test_logistic_unit_by_the_chain_rule():
    """dL/dw of one unit is the product of three derivatives: -0.0898 for the numbers of the text."""
    x1, w1, b, y = (
        torch.tensor([1.1]),
        torch.tensor([2.2], requires_grad=True),
        torch.tensor([0.0], requires_grad=True),
        torch.tensor([1.0]),
    )
    z = x1 * w1 + b
    a = torch.sigmoid(z)
    loss = -(y * torch.log(a) + (1 - y) * torch.log(1 - a)).mean()
    loss.backward()
    assert w1.grad.item() == pytest.approx(-0.0898, abs=5e-5)
    p = 1 / (1 + math.exp(-2.42))
    assert w1.grad.item() == pytest.approx((-1 / p) * (p * (1 - p)) * 1.1, rel=1e-5)


def test_hand_trace():
    """What backward does on a small graph, node by node."""
    a, b = torch.tensor(2.0, requires_grad=True), torch.tensor(-3.0, requires_grad=True)
    c = a * b
    d = c + 10
    e = d.relu() * a
    assert (c.grad_fn.name(), d.grad_fn.name(), e.grad_fn.name()) == ("MulBackward0", "AddBackward0", "MulBackward0")
    assert a.is_leaf and not c.is_leaf and a.grad is None
    for t in (c, d):
        t.retain_grad()
    e.backward()
    assert (d.grad.item(), c.grad.item(), b.grad.item()) == (2.0, 2.0, 4.0)
    assert a.grad.item() == 4.0 + 2.0 * -3.0


def test_stepping_out_of_autograd():
    """detach shares memory without history; no_grad records nothing; both can be used in graphs again."""
    x = torch.randn(4, requires_grad=True)
    y = x.detach()
    assert not y.requires_grad and y.data_ptr() == x.data_ptr()
    with torch.no_grad():
        z = x * 2
    assert not z.requires_grad and z.requires_grad_().requires_grad

    @torch.no_grad()
    def evaluate(x):
        return x * 2

    assert not evaluate(x).requires_grad
    with torch.inference_mode():
        z = x * 2
    assert z.is_inference()
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        z * x


def inference_tensor_in_a_sum(T):
    x = T.ones(4, requires_grad=True)
    with T.inference_mode():
        z = x * 2
    return (z + x).sum()


@questions(inference_tensor_in_a_sum)
def test_where_the_texts_are_wrong_about_autograd(question):
    """An inference tensor may take part where its value need not be saved."""
    agree(question)


def test_copies_lose_requires_grad():
    """detach().clone() of a parameter is a plain tensor."""
    assert not torch.ones(2, requires_grad=True).detach().clone().requires_grad


def test_writing_to_a_leaf():
    """param.add_ raises, param.data.add_ and no_grad do not."""
    param = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        param.add_(1)
    param.data.add_(1)
    with torch.no_grad():
        param.add_(1)
    assert param.tolist() == [3.0, 3.0]


def test_backward_needs_a_graph_and_a_scalar():
    """Nothing recorded, or more than one number: both are said clearly."""
    x = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        loss = (x * 2).sum()
    with pytest.raises(RuntimeError, match="element 0 of tensors does not require grad"):
        loss.backward()
    with pytest.raises(RuntimeError, match="scalar outputs"):
        (x * 2).backward()


def test_graph_is_made_anew():
    """backward frees the graph; the next forward pass makes another, whatever Python decides in it."""
    w = torch.tensor(1.0, requires_grad=True)
    for step in range(3):
        y = w * w if step % 2 else w * w * w
        y.backward()
        with pytest.raises(RuntimeError, match="second time"):
            y.backward()
    assert w.grad.item() == 3 + 2 + 3


def test_a_loss_with_python_and_numpy_numbers_in_it():
    """Adding a number, also NumPy's, keeps the history."""
    w = torch.tensor([1.0, 2.0], requires_grad=True)
    loss = (w * w).mean() + 0.01 + np.float32(0.5) + np.float64(0.25)
    assert isinstance(loss, torch.Tensor) and loss.dtype is torch.float32
    loss.backward()
    assert w.grad.tolist() == [1.0, 2.0] and loss.item() == pytest.approx(3.26)


def test_checking_and_debugging_gradients():
    """gradcheck compares with differences; detect_anomaly finds the NaN."""
    x = torch.rand(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: (x.sin() * x).sum(), (x,))
    with pytest.warns(UserWarning), torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="nan"):
        (x - 2).sqrt().sum().backward()


def test_a_linear_model_learns():
    """w <- w - lr * gradient, from scratch, finds the line it was drawn from."""
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 64).unsqueeze(1)
    y = 3 * x - 0.5
    w, b = torch.zeros(1, 1, requires_grad=True), torch.zeros(1, requires_grad=True)
    for _ in range(200):
        loss = ((x @ w + b - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for p in (w, b):
                p -= 0.3 * p.grad
                p.grad = None
    assert w.item() == pytest.approx(3, abs=1e-3) and b.item() == pytest.approx(-0.5, abs=1e-3)


def test_gradient_accumulation_equals_a_large_batch():
    """Halves of a batch, each loss halved, give the gradient of the whole."""
    torch.manual_seed(0)
    x, y, w = torch.randn(8, 3), torch.randn(8, 1), torch.randn(3, 1, requires_grad=True)
    ((x @ w - y) ** 2).mean().backward()
    whole = w.grad.clone()
    w.grad = None
    for half in (slice(0, 4), slice(4, 8)):
        (((x[half] @ w - y[half]) ** 2).mean() / 2).backward()
    assert torch.allclose(w.grad, whole, atol=1e-6)


def test_attention_from_scratch():
    """Causal multi-head attention from tensor operations: rows are probabilities, and no token sees the future."""
    torch.manual_seed(0)
    B, T, C, H = 2, 5, 8, 2
    x = torch.randn(B, T, C)
    qkv = torch.randn(C, 3 * C) / C**0.5
    q, k, v = (x @ qkv).view(B, T, 3, H, C // H).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-2, -1) / math.sqrt(C // H)
    mask = torch.tril(torch.ones(T, T, dtype=torch.bool))
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1)
    out = (weights @ v).transpose(1, 2).reshape(B, T, C)
    assert out.shape == (B, T, C) and torch.allclose(weights.sum(-1), torch.ones(B, H, T))
    assert weights[..., 0, 1:].abs().max().item() == 0 and weights.triu(1).abs().max().item() == 0
