"""Public calls of every kind on 16 x 16 tensors: there is next to nothing to compute, so that each shows what it costs to be called.

A case is the line that is timed. Names in it: x, y (16 x 16), z (the same, to be written over), r (wants a gradient), w, b (16), m (a mask), k (whole
numbers below 16, 16 x 16), t (16 of them), i (three positions), and images, filters, pairs, column (to be written over) for what takes other shapes.
"""

from __future__ import annotations

from benchmarks.case import case


def small_calls(subject: str, about: str, *calls: str) -> None:
    """Declare a case for each of these lines."""

    def body(torch, device, call):
        names = inputs(torch, device)
        exec(f"def run():\n    global z\n    {call}", names)
        return names["run"]

    body.__name__, body.__doc__, body.__module__ = subject, about, __name__
    case(wanted=1.0, call=list(calls))(body)


def inputs(torch, device):
    """What the names in the lines mean."""

    def numbers(*shape):
        return torch.randn(*shape, device=device)

    x, k = numbers(16, 16), torch.randint(0, 9, (16, 16), device=device)
    return {
        "torch": torch, "F": torch.nn.functional, "x": x, "y": numbers(16, 16), "z": numbers(16, 16), "w": numbers(16), "b": numbers(16).abs(),
        "r": numbers(16, 16).requires_grad_(), "m": x > 0, "k": k, "t": k[0].clone(), "i": torch.tensor([1, 3, 5], device=device),
        "images": numbers(2, 4, 8, 8), "filters": numbers(4, 4, 3, 3), "pairs": numbers(32, 16), "column": numbers(16),
    }  # fmt: skip


small_calls(
    "pointwise", "Formulas for each element.",
    "x + y", "x * y", "x + 2.0", "x - y", "x / y", "x ** 2", "x > y", "r * y", "torch.add(x, y)", "x.exp()", "torch.sigmoid(x)", "F.relu(x)", "F.gelu(x)",
    "F.silu(x)", "x.clamp(0, 1)", "torch.where(m, x, y)", "x.masked_fill(m, 0.0)", "x.isnan()", "x.to(torch.float64)", "k.float()",
)  # fmt: skip
small_calls(
    "reductions", "What many elements come to, and running sums.",
    "x.sum()", "x.sum(1)", "x.mean()", "x.mean(-1, keepdim=True)", "x.max()", "x.max(1)", "x.argmax(1)", "x.var(1)", "x.std()", "x.norm()", "m.any()",
    "x.cumsum(0)",
)  # fmt: skip
small_calls(
    "rows", "Programs for whole rows: softmax, norms, sorting.",
    "F.softmax(x, -1)", "F.softmax(r, -1)", "F.log_softmax(x, -1)", "F.layer_norm(x, (16,))", "F.layer_norm(x, (16,), w, b)", "F.layer_norm(r, (16,))",
    "F.batch_norm(x, w, b)", "x.sort(1)", "x.topk(3, 1)",
)  # fmt: skip
small_calls(
    "products", "Products of matrices and what is made of them.",
    "x @ y", "torch.bmm(x[None], y[None])", "F.linear(x, y, b)", "F.linear(r, y, b)", "torch.einsum('ij,jk->ik', x, y)", "torch.outer(w, b)",
    "F.conv2d(images, filters, padding=1)", "F.max_pool2d(images, 2)", "F.scaled_dot_product_attention(x[None], y[None], x[None])",
)  # fmt: skip
small_calls(
    "losses", "Losses, forward.",
    "F.cross_entropy(x, t)", "F.cross_entropy(r, t)", "F.nll_loss(x, t)", "F.mse_loss(x, y)", "F.l1_loss(x, y)", "F.binary_cross_entropy_with_logits(x, y)",
)  # fmt: skip
small_calls(
    "views", "Other looks at the same memory.",
    "x.T", "x.view(8, 32)", "x.reshape(-1)", "x.permute(1, 0)", "x.transpose(0, 1)", "x.unsqueeze(0)", "w.expand(16, 16)", "x.flatten()", "x.split(4)",
    "x.chunk(2)", "x.detach()", "x[3]", "x[:, 2:5]", "r[3]",
)  # fmt: skip
small_calls(
    "moves", "Elements taken, copied and put together.",
    "x[i]", "x[m]", "x.gather(1, k)", "x.index_select(0, i)", "F.embedding(t, x)", "torch.cat([x, y])", "torch.stack([x, y])", "x.clone()",
    "x.T.contiguous()", "x.tril()", "F.one_hot(t, 16)", "w[0].item()",
)  # fmt: skip
small_calls(
    "factories", "Tensors made of nothing.",
    "torch.zeros(3, 4)", "torch.ones(16, 16)", "torch.empty(16, 16)", "torch.full((3, 4), 2.0)", "torch.arange(16)", "torch.linspace(0, 1, 10)",
    "torch.eye(4)", "torch.tensor([1.0, 2.0, 3.0])", "torch.as_tensor(1.5)", "torch.zeros_like(x)", "torch.empty_like(x)", "x.new_zeros(3, 4)",
)  # fmt: skip
small_calls(
    "random", "Random numbers, made and written.",
    "torch.rand(16, 16)", "torch.randn(16, 16)", "torch.randint(0, 9, (16,))", "torch.randperm(16)", "torch.rand_like(x)", "torch.randn(3)",
    "z.normal_()", "z.uniform_()", "z.bernoulli_(0.5)", "F.dropout(x, 0.5)",
)  # fmt: skip
small_calls(
    "writes", "Tensors written over.",
    "z.add_(y)", "z.mul_(0.99)", "z.zero_()", "z.fill_(1.0)", "z.copy_(y)", "z.clamp_(0, 1)", "z.relu_()", "z += 1", "z.addcmul_(x, y, value=0.1)",
    "z.lerp_(y, 0.1)", "z.masked_fill_(m, 0.0)", "z[3] = 1.0", "z[:, 2] = w", "z[i] = 0.0", "z[m] = 0.0",
)  # fmt: skip
small_calls(
    "recorded_writes", "Tensors with a history written over; each line makes one first.",
    "(r * 2).add_(y)", "(r * 2).mul_(y)", "(r * 2).mul_(0.5)", "(r * 2).relu_()", "(r * 2).clamp_(0, 1)", "(r * 2).zero_()", "(r * 2).copy_(x)",
    "(r * 2).masked_fill_(m, 0.0)", "h = r * 2; h += y", "h = r * 2; h[3] = 1.0", "h = r * 2; h[:, 2] = w",
)  # fmt: skip
small_calls(
    "out", "Results written where the program says.",
    "torch.add(x, y, out=z)", "torch.mul(x, 2.0, out=z)", "torch.exp(x, out=z)", "torch.matmul(x, y, out=z)", "torch.sum(x, 1, out=column)",
    "torch.cat([x, y], out=pairs)", "torch.clamp(x, 0, 1, out=z)", "torch.where(m, x, y, out=z)", "torch.cumsum(x, 0, out=z)", "torch.tril(x, out=z)",
)  # fmt: skip
small_calls(
    "backward", "Forward and back.",
    "(r * y).sum().backward()", "F.cross_entropy(F.linear(r, y, b), t).backward()", "F.layer_norm(r, (16,), w, b).sum().backward()",
    "torch.autograd.grad((r * y).sum(), r)",
)  # fmt: skip
