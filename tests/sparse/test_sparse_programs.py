"""Programs people write with sparse tensors, run in both frameworks from the same weights: graph networks, word vectors, text in bags."""

from __future__ import annotations

import numpy as np
import pytest
from sparse_oracle import assert_same, run

import flambeau

torch = pytest.importorskip("torch")


def drawn(seed: int):
    return np.random.RandomState(seed)


def graph_network(t):
    """Kipf's network on a graph whose adjacency matrix is normalized by degree and kept as a buffer."""
    rng, nn, F = drawn(0), t.nn, t.nn.functional
    ends = t.from_numpy(rng.randint(0, 30, (2, 100)))
    graph = t.sparse.FloatTensor(ends, t.ones(100), t.Size((30, 30))) + t.eye(30).to_sparse()
    scale = t.sparse.sum(graph, dim=1).to_dense().pow(-0.5)
    graph = graph.coalesce()
    i, j = graph.indices()
    graph = t.sparse_coo_tensor(graph.indices(), scale[i] * graph.values() * scale[j], graph.size())

    class Layer(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.weight = nn.Parameter(t.from_numpy(rng.randn(inputs, outputs).astype("f4")) / 3)
            self.bias = nn.Parameter(t.zeros(outputs))

        def forward(self, x, graph):
            return t.spmm(graph, x @ self.weight) + self.bias

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(8, 16), Layer(16, 3)
            self.register_buffer("graph", graph)

        def forward(self, x):
            return F.log_softmax(self.second(F.relu(self.first(x, self.graph)), self.graph), dim=1)

    net = Net()
    optimizer = t.optim.Adam(net.parameters(), lr=0.01, weight_decay=5e-4)
    x, y = t.from_numpy(rng.randn(30, 8).astype("f4")), t.from_numpy(rng.randint(0, 3, 30))
    for _ in range(10):
        optimizer.zero_grad()
        loss = F.nll_loss(net(x), y)
        loss.backward()
        optimizer.step()
    return [loss, *net.parameters(), net.state_dict()["graph"]]


def attention_function(t):
    """A Function of its own that saves a sparse matrix, as sparse graph attention has it."""

    class Product(t.autograd.Function):
        @staticmethod
        def forward(ctx, indices, values, shape, b):
            a = t.sparse_coo_tensor(indices, values, shape)
            ctx.save_for_backward(a, b)
            return t.matmul(a, b)

        @staticmethod
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            edge = a._indices()[0, :] * a.shape[1] + a._indices()[1, :]
            return None, grad.matmul(b.t()).view(-1)[edge], None, a.t().matmul(grad)

    values, b = t.arange(1.0, 5.0).requires_grad_(), t.arange(8.0).reshape(4, 2).requires_grad_()
    found = Product.apply(t.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), values, t.Size([4, 4]), b)
    (found**2).sum().backward()
    return found, values.grad, b.grad


def recommender(t):
    """Embeddings that spread over a graph of users and items, whose edges are thinned out by hand."""
    rng = drawn(1)
    users, items = (t.from_numpy(rng.randn(n, 4).astype("f4")).requires_grad_() for n in (10, 12))
    graph = t.sparse_coo_tensor(t.from_numpy(rng.randint(0, 22, (2, 60))), t.ones(60), (22, 22)).coalesce()
    kept = t.arange(len(graph.values())) % 3 != 0
    graph = t.sparse_coo_tensor(graph.indices().t()[kept].t(), graph.values()[kept] / 0.7, graph.size())
    spread = [t.cat([users, items])]
    for _ in range(3):
        spread.append(t.sparse.mm(graph, spread[-1]))
    left, right = t.split(t.stack(spread, dim=1).mean(dim=1), [10, 12])
    (left @ right.t()).sigmoid().mean().backward()
    return users.grad, items.grad


def word_vectors(t):
    """Skip-grams with negative samples, two tables, SparseAdam and a schedule."""
    rng, F = drawn(2), t.nn.functional
    tables = [t.nn.Embedding(50, 8, sparse=True) for _ in range(2)]
    with t.no_grad():
        for table in tables:
            table.weight.copy_(t.from_numpy(rng.randn(50, 8).astype("f4")) / 5)
    centre, around = tables
    optimizer = t.optim.SparseAdam([p for table in tables for p in table.parameters()], lr=0.01)
    schedule = t.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for _ in range(8):
        c, p, n = (t.from_numpy(rng.randint(0, 50, size)) for size in (16, 16, (16, 5)))
        near = F.logsigmoid((centre(c) * around(p)).sum(1))
        far = F.logsigmoid(-t.bmm(around(n), centre(c).unsqueeze(2)).squeeze(2)).sum(1)
        optimizer.zero_grad()
        (-(near + far).mean()).backward()
        optimizer.step()
        schedule.step()
    return [table.weight for table in tables]


def text_in_bags(t):
    """A classifier of bags of words, whose table has sparse gradients beside a dense layer, with SGD and momentum."""
    rng = drawn(3)
    bags, head = t.nn.EmbeddingBag(95, 8, sparse=True), t.nn.Linear(8, 4)
    with t.no_grad():
        for p in (*bags.parameters(), *head.parameters()):
            p.copy_(t.from_numpy(rng.randn(*p.shape).astype("f4")) / 3)
    optimizer = t.optim.SGD([*bags.parameters(), *head.parameters()], lr=0.5, momentum=0.9)
    for _ in range(5):
        words, labels = t.from_numpy(rng.randint(0, 95, 40)), t.from_numpy(rng.randint(0, 4, 4))
        optimizer.zero_grad()
        t.nn.functional.cross_entropy(head(bags(words, t.tensor([0, 10, 20, 30]))), labels).backward()
        optimizer.step()
    return [bags.weight, head.weight, head.bias]


@pytest.mark.parametrize("program", [graph_network, attention_function, recommender, word_vectors, text_in_bags])
def test_programs(program):
    """A whole program ends with PyTorch's numbers."""
    assert_same(list(run(program, flambeau)), list(run(program, torch)), tolerance=2e-4)
