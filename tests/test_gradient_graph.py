"""The recorded graph: its names and edges, its memory, chains of any length, several threads."""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import numpy as np
import pytest
from history_oracle import agree, leaf, plain, weigh

import flambeau
from flambeau import modes

torch = pytest.importorskip("torch")


# -- the graph -------------------------------------------------------------------------------------------------------------


def _structure(node, depth: int = 3):
    """A node as nested tuples of names."""
    if node is None:
        return None
    return node.name(), [(_structure(n, depth - 1), nr) for n, nr in node.next_functions] if depth else []


GRAPHS = {
    "add": lambda T, w, v: w + v,
    "add with alpha": lambda T, w, v: T.add(w, v, alpha=2),
    "add a number": lambda T, w, v: w + 1,
    "sub": lambda T, w, v: w - v,
    "mul": lambda T, w, v: w * v,
    "mul by a number": lambda T, w, v: w * 3,
    "div": lambda T, w, v: w / v,
    "pow of a number": lambda T, w, v: w**2,
    "pow of a tensor": lambda T, w, v: w**v,
    "neg": lambda T, w, v: -w,
    "matmul": lambda T, w, v: w @ v,
    "matmul of a vector": lambda T, w, v: w @ v[0],
    "dot": lambda T, w, v: w[0] @ v[0],
    "bmm": lambda T, w, v: T.bmm(w[None], v[None]),
    "linear": lambda T, w, v: w.t() @ v + v[0],
    "addmm": lambda T, w, v: T.addmm(w, w, v),
    "exp": lambda T, w, v: w.exp(),
    "log": lambda T, w, v: w.log(),
    "sqrt": lambda T, w, v: w.sqrt(),
    "sin": lambda T, w, v: w.sin(),
    "sigmoid": lambda T, w, v: w.sigmoid(),
    "tanh": lambda T, w, v: w.tanh(),
    "relu": lambda T, w, v: w.relu(),
    "abs": lambda T, w, v: w.abs(),
    "sum": lambda T, w, v: w.sum(),
    "sum over a dimension": lambda T, w, v: w.sum(0),
    "mean": lambda T, w, v: w.mean(),
    "mean over a dimension": lambda T, w, v: w.mean(1),
    "max": lambda T, w, v: w.max(),
    "max over a dimension": lambda T, w, v: w.max(1)[0],
    "var": lambda T, w, v: w.var(),
    "std": lambda T, w, v: w.std(),
    "softmax": lambda T, w, v: w.softmax(0),
    "log_softmax": lambda T, w, v: w.log_softmax(0),
    "logsumexp": lambda T, w, v: w.logsumexp(0),
    "prod": lambda T, w, v: w.prod(),
    "cumsum": lambda T, w, v: w.cumsum(0),
    "norm": lambda T, w, v: w.norm(),
    "view": lambda T, w, v: w.view(9),
    "reshape": lambda T, w, v: w.reshape(9),
    "reshape that copies": lambda T, w, v: w.t().reshape(9),
    "flatten": lambda T, w, v: w.flatten(),
    "t": lambda T, w, v: w.t(),
    "T": lambda T, w, v: w.T,
    "mT": lambda T, w, v: w.mT,
    "transpose": lambda T, w, v: w.transpose(0, 1),
    "permute": lambda T, w, v: w.permute(1, 0),
    "squeeze": lambda T, w, v: w[None].squeeze(0),
    "unsqueeze": lambda T, w, v: w.unsqueeze(0),
    "expand": lambda T, w, v: w.expand(2, 3, 3),
    "repeat": lambda T, w, v: w.repeat(2, 1),
    "row": lambda T, w, v: w[0],
    "slice": lambda T, w, v: w[:2],
    "gather by list": lambda T, w, v: w[[0, 1]],
    "mask": lambda T, w, v: w[v > 0.5],
    "index_select": lambda T, w, v: w.index_select(0, T.tensor([0])),
    "gather": lambda T, w, v: w.gather(0, T.tensor([[0, 1, 2]])),
    "cat": lambda T, w, v: T.cat([w, v]),
    "stack": lambda T, w, v: T.stack([w, v]),
    "split": lambda T, w, v: w.split(2)[0],
    "chunk": lambda T, w, v: w.chunk(2)[0],
    "unbind": lambda T, w, v: w.unbind()[0],
    "where": lambda T, w, v: T.where(w > v, w, v),
    "tril": lambda T, w, v: w.tril(),
    "diagonal": lambda T, w, v: w.diagonal(),
    "clone": lambda T, w, v: w.clone(),
    "contiguous": lambda T, w, v: w.t().contiguous(),
    "to": lambda T, w, v: w.float(),
    "maximum": lambda T, w, v: T.maximum(w, v),
    "floor": lambda T, w, v: w.floor(),
    "mul_": lambda T, w, v: (w * 1).mul_(v),
    "write to a row": lambda T, w, v: _row_written(w, v),
    "det": lambda T, w, v: T.linalg.det(w),
    "inverse": lambda T, w, v: T.linalg.inv(w),
    "topk": lambda T, w, v: w.topk(2)[0],
    "sort": lambda T, w, v: w.sort()[0],
    "flip": lambda T, w, v: w.flip(0),
    "roll": lambda T, w, v: w.roll(1),
    "detach in between": lambda T, w, v: w.detach() * v,
    "same operand twice": lambda T, w, v: w * w,
}


def _row_written(w, v):
    x = w * 1
    x[0] = v[0]
    return x


@pytest.mark.parametrize("op", GRAPHS)
def test_graph_has_pytorchs_names(op):
    """grad_fn and next_functions of common operations name what PyTorch's name."""
    agree(lambda T: _structure(GRAPHS[op](T, leaf(T, 3, 3), leaf(T, 3, 3, seed=1)).grad_fn))


LAST_STEPS = {
    "mse_loss": lambda T, F, x, y: F.mse_loss(x, y),
    "mse_loss, sum": lambda T, F, x, y: F.mse_loss(x, y, reduction="sum"),
    "smooth_l1_loss": lambda T, F, x, y: F.smooth_l1_loss(x, y),
    "huber_loss": lambda T, F, x, y: F.huber_loss(x, y),
    "binary_cross_entropy": lambda T, F, x, y: F.binary_cross_entropy(x.abs() / 9, y.abs() / 9),
    "binary_cross_entropy_with_logits": lambda T, F, x, y: F.binary_cross_entropy_with_logits(x, y),
    "multi_margin_loss": lambda T, F, x, y: F.multi_margin_loss(x, y.argmax(1)),
    "cross_entropy": lambda T, F, x, y: F.cross_entropy(x, y.argmax(1)),
    "cross_entropy of images": lambda T, F, x, y: F.cross_entropy(x.reshape(1, 4, 2, 2), y.argmax(1).reshape(1, 2, 2)),
    "cross_entropy of probabilities": lambda T, F, x, y: F.cross_entropy(x, y.softmax(1).detach()),
    "cross_entropy, smooth": lambda T, F, x, y: F.cross_entropy(x, y.argmax(1), label_smoothing=0.1),
    "layer_norm": lambda T, F, x, y: F.layer_norm(x, (4, 4)),
    "group_norm": lambda T, F, x, y: F.group_norm(x, 2),
    "interpolate": lambda T, F, x, y: F.interpolate(x.reshape(1, 1, 4, 4), (3, 3), mode="bilinear"),
    "interpolate, nearest": lambda T, F, x, y: F.interpolate(x.reshape(1, 4, 4), 3),
    "pad": lambda T, F, x, y: F.pad(x, (1, 1), mode="reflect"),
    "grid_sample": lambda T, F, x, y: F.grid_sample(x.reshape(1, 1, 4, 4), y.reshape(1, 4, 2, 2), align_corners=False),
    "glu": lambda T, F, x, y: F.glu(x),
    "trace": lambda T, F, x, y: x.trace(),
    "dist": lambda T, F, x, y: T.dist(x, y),
    "addmv": lambda T, F, x, y: T.addmv(y[0], x, y[1]),
    "embedding_bag": lambda T, F, x, y: F.embedding_bag(T.tensor([[1, 2]]), x),
    "max_pool1d": lambda T, F, x, y: F.max_pool1d(x, 2),
    "adaptive_max_pool1d": lambda T, F, x, y: F.adaptive_max_pool1d(x, 2),
    "adaptive_avg_pool1d": lambda T, F, x, y: F.adaptive_avg_pool1d(x, 2),
    "pairwise_distance": lambda T, F, x, y: F.pairwise_distance(x, y),
    "rrelu": lambda T, F, x, y: F.rrelu(x),
    "lstm_cell": lambda T, F, x, y: T.lstm_cell(x, (y, y), T.ones(16, 4), T.ones(16, 4))[0],
    "conj": lambda T, F, x, y: (x * 1j).conj(),
    "clamp from below": lambda T, F, x, y: x.clamp(0),
    "clamp from above": lambda T, F, x, y: x.clip(max=1),
    "clamp in place": lambda T, F, x, y: (x * 2).clamp_(min=0),
    "clamp_min": lambda T, F, x, y: x.clamp_min(0),
    "remainder by a number": lambda T, F, x, y: x % 2,
    "remainder by a tensor": lambda T, F, x, y: x % (y.abs() + 1),
    "fmod by a number": lambda T, F, x, y: x.fmod(2),
    "affine_grid": lambda T, F, x, y: F.affine_grid(x[:2, :3][None], (1, 1, 2, 2), align_corners=False),
    "kron": lambda T, F, x, y: T.kron(x, y),
    "linear": lambda T, F, x, y: F.linear(y, x),
    "linear with bias": lambda T, F, x, y: F.linear(y, x, y[0]),
    "linear of a batch": lambda T, F, x, y: F.linear(y[None], x),
    "linear of a batch with bias": lambda T, F, x, y: F.linear(y[None], x, y[0]),
    "linear of a vector": lambda T, F, x, y: F.linear(y[0], x),
    "linear of a vector with bias": lambda T, F, x, y: F.linear(y[0], x, y[0]),
    "vector by matrix": lambda T, F, x, y: y[0] @ x,
}


@pytest.mark.parametrize("op", LAST_STEPS)
def test_last_node_has_pytorchs_name(op):
    """Where PyTorch has one node and we have several steps, the last of them carries PyTorch's name: it is what print(loss) shows."""
    agree(lambda T: LAST_STEPS[op](T, T.nn.functional, leaf(T, 4, 4), leaf(T, 4, 4, seed=1).detach()).grad_fn.name())


def test_operand_keeps_its_name():
    """A function that returns its operand as it is renames nothing."""
    agree(lambda T: T.nn.functional.pad(leaf(T, 2, 3) * 2, (0, 0), mode="constant").grad_fn.name())


def test_name_is_the_same_from_every_side():
    """A name that depends on the operands is the same on the tensor, in print and from the node that comes after."""
    agree(lambda T: (y := T.nn.functional.linear(leaf(T, 2, 3, 4), leaf(T, 5, 4)), y.exp().grad_fn.next_functions[0][0].name())[1])
    agree(lambda T: repr(T.nn.functional.linear(leaf(T, 2, 3, 4), leaf(T, 5, 4)).detach_().requires_grad_()))
    agree(lambda T: repr(T.nn.functional.linear(T.ones(2, 3, 4), T.ones(5, 4, requires_grad=True))))


def test_repr_of_history():
    """A tensor shows its grad_fn, or that it requires a gradient."""
    agree(lambda T: [repr(leaf(T, 2)), repr(leaf(T, 2) * 2), repr((leaf(T, 2, 2) * 1)[0])])


def test_node_as_an_object():
    """A node can be called, carries metadata, and its accumulators know their leaf."""

    def question(T):
        w, v = leaf(T, 3), leaf(T, 2, 3, seed=1)
        y = w * v
        node = y.grad_fn
        node.metadata["mine"] = 5
        found = node(plain(T, 2, 3))
        node.next_functions[0][0](plain(T, 3))
        return [g.detach() for g in found], y.grad_fn.metadata, w.grad, node is y.grad_fn, isinstance(node, T.autograd.graph.Node)

    agree(question)


@pytest.mark.parametrize("length", [100_000])
def test_long_chains(length):
    """Forward, backward and deallocation of a hundred thousand operations need no deep stack."""
    w = leaf(flambeau, 1)
    x = w
    for _ in range(length):
        x = x + 1
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(200)
    try:
        x.backward()
        assert w.grad.tolist() == [1.0]
        reference = weakref.ref(x.grad_fn)
        del x
        gc.collect()
        assert reference() is None
    finally:
        sys.setrecursionlimit(limit)


def test_wide_and_long_chain_of_views_and_writes():
    """A thousand writes through views of one base keep their gradients, without recursion."""
    w = leaf(flambeau, 4)
    x = w * 1
    for i in range(1000):
        x[i % 4 : i % 4 + 1].mul_(1.001)
    x.sum().backward()
    np.testing.assert_allclose(w.grad.numpy(), np.full(4, 1.001**250))


def test_memory_is_released_as_backward_goes():
    """When backward reaches the beginning, what the end had saved is gone."""
    T = flambeau
    w = leaf(T, 3)
    kept, alive = [], []
    x = w.sin()
    x.register_hook(lambda g: alive.extend(r() is not None for r in kept))
    y = x.clone()
    for _ in range(3):
        z = y.clone()
        kept.append(weakref.ref(z))
        y = z.exp()
        y = y * z
        del z
    total = y.sum()
    del y
    total.backward()
    assert alive == [False, False, False]


def test_memory_is_kept_with_retain_graph():
    """With retain_graph everything stays."""
    T = flambeau
    x = leaf(T, 3).clone()
    z = x.clone()
    reference = weakref.ref(z)
    total = (z * z).sum()
    del z
    total.backward(retain_graph=True)
    assert reference() is not None
    total.backward()
    assert reference() is None


def test_no_cycles_wait_for_the_garbage_collector():
    """A graph disappears with its last reference, even where operations have saved their results."""
    gc.disable()
    try:
        w = leaf(flambeau, 3)
        y = (w.exp().tanh().sigmoid() * w).softmax(0).sum()
        reference = weakref.ref(y.grad_fn)
        del y
        assert reference() is None
    finally:
        gc.enable()


def test_backward_from_several_threads():
    """Threads that run backward into the same leaf lose no gradient."""
    w = leaf(flambeau, 64)

    def work():
        for _ in range(50):
            (w * 1).sum().backward()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.grad.tolist() == [200.0] * 64


def test_backward_inside_backward():
    """A hook may run another backward, also through the same graph."""

    def question(T):
        w = leaf(T, 3)
        seen = []

        def again(g):
            v = leaf(T, 3, seed=1)
            with T.enable_grad():
                weigh(T, v * v).backward()
            seen.append((v.grad, T.is_grad_enabled()))

        x = w * w
        x.register_hook(again)
        weigh(T, x).backward()
        return seen, w.grad, T.is_grad_enabled()

    agree(question)


def test_deep_backward_inside_backward():
    """A Function whose backward runs backward through another, a thousand times, ends in RecursionError; or loses the modes it was called in."""
    T = flambeau
    seen, failing, before = [], [False], modes.paused

    class Inner(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.count = x.item()
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            seen.append((T.is_grad_enabled(), T.is_anomaly_enabled()))
            if ctx.count:
                with T.enable_grad():
                    Inner.apply(T.tensor(ctx.count - 1, requires_grad=True)).backward()
            elif failing[0]:
                raise KeyError("mine")
            return grad * 2

    x = T.tensor(1000.0, requires_grad=True)
    Inner.apply(x).backward()
    assert x.grad.item() == 2 and seen == [(False, False)] * 1001
    failing[0] = True
    with pytest.raises(KeyError, match="mine"):
        Inner.apply(x).backward()
    assert T.is_grad_enabled() and modes.state.nested == 0 and modes.paused == before


def test_deep_backward_inside_backward_keeps_the_modes():
    """What goes on in another thread knows of no autocast region, and of no default device."""
    seen = []

    class Nested(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x, left):
            ctx.left = left
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            if ctx.left:
                with flambeau.enable_grad():
                    y = flambeau.ones(2, 2, device="cpu", requires_grad=True)
                    seen.append((flambeau.nn.functional.linear(y, y).dtype, flambeau.empty(1).device.type))
                    Nested.apply(y.sum(), ctx.left - 1).backward()
            return grad, None

    x = flambeau.ones((), requires_grad=True)
    with flambeau.autocast("cpu"), flambeau.device("meta"):
        Nested.apply(x, 130).backward()
    assert len(seen) == 130 and set(seen) == {(flambeau.bfloat16, "meta")}


# -- the words of refusals, which programs match ---------------------------------------------------------------------------


def _used_twice(T):
    loss = leaf(T, 2).exp().sum()
    loss.backward()
    loss.backward()


def _edge_without_zeros(T):
    x, y = leaf(T, 2), leaf(T, 2)
    edge = T.autograd.graph.get_gradient_edge(y * 2)
    T.autograd.grad((x * 2).sum(), (x, edge), allow_unused=True, materialize_grads=True)


REFUSALS = {
    "too many gradients for a node": (
        lambda T: leaf(T, 2).exp().grad_fn(plain(T, 2), plain(T, 2)),
        TypeError,
        "expected 1 arguments, got 2 instead",
    ),
    "too few gradients for a node": (lambda T: leaf(T, 2).exp().grad_fn(), TypeError, "expected 1 arguments, got 0 instead"),
    "backward twice": (_used_twice, RuntimeError, "a second time.*Specify retain_graph=True"),
    "shape of a gradient": (
        lambda T: T.autograd.grad(leaf(T, 2) * 1, leaf(T, 2), plain(T, 3)),
        RuntimeError,
        r"grad_output\[0\] has a shape of torch.Size\(\[3\]\) and output\[0\] has a shape of torch.Size\(\[2\]\)",
    ),
    "dtype of a gradient": (
        lambda T: T.autograd.grad(leaf(T, 2) * 1, leaf(T, 2), plain(T, 2) * 1j),
        RuntimeError,
        "required to have the same dtype",
    ),
    "shape of batched gradients": (
        lambda T: T.autograd.grad(leaf(T, 2) * 1, leaf(T, 2), plain(T, 2, 3), is_grads_batched=True),
        RuntimeError,
        "If `is_grads_batched=True`, we interpret the first",
    ),
    "zeros for an edge": (_edge_without_zeros, RuntimeError, "materialize_grads cannot be used when the given input is a GradientEdge"),
    "differentiated out=": (
        lambda T: T.mul(leaf(T, 2), 2, out=plain(T, 2)),
        RuntimeError,
        "out=... arguments don't support automatic differentiation, but one of the arguments requires grad",
    ),
}


@pytest.mark.parametrize("T", (torch, flambeau), ids=("torch", "flambeau"))
@pytest.mark.parametrize("case", REFUSALS)
def test_words_of_refusals(T, case):
    """A misuse of the graph is refused with other words than those programs know from PyTorch, or not at all."""
    question, kind, words = REFUSALS[case]
    with pytest.raises(kind, match=words):
        question(T)


def test_gradients_that_are_zeros_go_on():
    """Zeros that stand for a missing gradient cannot be differentiated again where a graph was asked for."""

    def question(T):
        x, a = leaf(T, 2), leaf(T, 2)
        first = T.autograd.grad((x * a).sum(), x, create_graph=True)
        second = T.autograd.grad(first[0].sum(), x, create_graph=True, materialize_grads=True)
        return second, T.autograd.grad(second[0].sum(), x, materialize_grads=True)

    agree(question)


# -- the dtype of a gradient ------------------------------------------------------------------------------------------------


def _in_double(T):
    class InDouble(T.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad.to(T.float64) * 2

    return InDouble.apply


@pytest.mark.parametrize("hooked", [False, True])
@pytest.mark.parametrize("wanted", ["unset", "float16", "float64", None])
def test_dtype_of_a_gradient(wanted, hooked):
    """The gradient of a leaf has another dtype than Tensor.grad_dtype says, by backward or set by hand; or one that depends on whether any
    leaf of the program ever had a hook."""

    def question(T):
        x = T.tensor([1.0, 2.0], requires_grad=True)
        if hooked:
            x.register_hook(lambda grad: None)
        seen = [x.grad_dtype]
        if wanted != "unset":
            x.grad_dtype = None if wanted is None else getattr(T, wanted)
        (_in_double(T)(x).sum() + (x * x).sum()).backward()
        seen += [x.grad_dtype, x.grad, x.grad.dtype]
        _in_double(T)(x).sum().backward()
        seen.append(x.grad)
        for give in (T.float16, T.float32):
            x.grad = None
            try:
                x.grad = T.ones(2, dtype=give)
            except RuntimeError as problem:
                seen.append("assign" in str(problem))
        return seen

    agree(question, rtol=1e-3)


def test_whose_dtype_of_a_gradient():
    """grad_dtype is told to a tensor that is no leaf, or to one that has a gradient of another dtype."""
    x = flambeau.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="grad_dtype can only be accessed on leaf tensors"):
        (x * 2).grad_dtype  # noqa: B018
    with pytest.raises(RuntimeError, match="grad_dtype can only be set on leaf tensors"):
        (x * 2).grad_dtype = flambeau.float16
    x.grad = flambeau.ones(2)
    with pytest.raises(RuntimeError, match=r"Cannot set grad_dtype.*because there is already a gradient"):
        x.grad_dtype = flambeau.float16


# -- what is saved -------------------------------------------------------------------------------------------------------------


def test_saved_tensors_as_objects():
    """A saved tensor does not show what is kept of it, or can be made by hand."""
    unpack = lambda packed: packed  # noqa: E731
    a = flambeau.tensor(2.0, requires_grad=True)
    with flambeau.autograd.graph.saved_tensors_hooks(lambda tensor: tensor, unpack):
        b = a**2
    c = b.exp()
    hooked, result, operand = b.grad_fn._raw_saved_self, c.grad_fn._raw_saved_result, (c**2).grad_fn._raw_saved_self
    assert hooked.data is a and hooked.unpack_hook is unpack
    assert result.data is not c and result.data.item() == c.item() and result.unpack_hook is None
    assert operand.data is c
    assert isinstance(operand, flambeau.autograd.SavedTensor)
    with pytest.raises(RuntimeError, match="from Python is forbidden"):
        flambeau.autograd.SavedTensor()


MUTATIONS = {
    "itself": lambda T, b: b.sin_(),
    "a view": lambda T, b: b[:1].mul_(10),
    "an element": lambda T, b: b.__setitem__(0, 3.0),
    "out=": lambda T, b: T.sin(T.ones(2, 3), out=b.detach()),
    "a copy": lambda T, b: b.copy_(T.ones(2, 3)),
    "zeros": lambda T, b: b.zero_(),
    "random numbers": lambda T, b: b.uniform_(),
}


@pytest.mark.parametrize("case", MUTATIONS)
def test_saved_tensors_may_be_changed(case):
    """Within allow_mutation_on_saved_tensors backward sees what was written after a tensor was saved, or copies more than it must."""
    a = flambeau.rand(2, 3, requires_grad=True)
    with flambeau.autograd.graph.allow_mutation_on_saved_tensors() as context:
        b = a.clone()
        first, second = b**2, b**2
        assert len(context.cloned) == 0
        MUTATIONS[case](flambeau, b)
        assert len(context.cloned) == 1
        (first + second).sum().backward()
        del first, second
        assert len(context.cloned) == 0
        loss = (b**2).sum()
        with pytest.raises(RuntimeError, match="cannot be nested"), flambeau.autograd.graph.allow_mutation_on_saved_tensors():
            pass
    flambeau.testing.assert_close(a.grad, 4 * a.detach())
    with pytest.raises(AssertionError, match="outside of the 'allow_mutation_on_saved_tensors' context"):
        loss.backward()


def test_attributes_that_cannot_go():
    """A tensor loses its data or its requires_grad, or takes those of a sparse one."""
    x = flambeau.rand(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="without data"):
        del x.data
    with pytest.raises(RuntimeError, match="cannot be deleted"):
        del x.requires_grad
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = flambeau.eye(2).to_sparse()


@pytest.mark.parametrize("shape, index", [((), ()), ((2,), ()), ((), (2,)), ((10, 10), (5, 10))])
def test_sparse_gradients_of_gather(shape, index):
    """The sparse gradient of gather differs from the dense one, for numbers without dimensions too."""

    def question(T):
        found = []
        for sparse in (False, True):
            x = leaf(T, *shape)
            T.gather(x, 0, T.zeros(index, dtype=T.int64), sparse_grad=sparse).mul(3).sum().backward()
            found.append(x.grad.to_dense() if sparse else x.grad)
        return found

    agree(question)
