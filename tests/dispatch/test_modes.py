"""TorchDispatchMode sees operations under the names and with the arguments that PyTorch's kernels have, forward and backward."""

from __future__ import annotations

from importlib import import_module

import pytest
from history_oracle import agree

torch = pytest.importorskip("torch")


def home(T):
    return import_module(f"{T.__name__}.utils._python_dispatch")


def logging_mode(T):
    """A mode that notes what it carries out, and the list it notes it in."""
    log: list = []

    class Logged(home(T).TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            log.append((str(func), *(shown(T, a) for a in args), *((k, shown(T, v)) for k, v in (kwargs or {}).items())))
            return func(*args, **(kwargs or {}))

    return Logged(), log


def shown(T, value):
    """An argument without its values."""
    if isinstance(value, T.Tensor):
        return "tensor", tuple(value.shape), str(value.dtype).removeprefix("torch.")
    if isinstance(value, (list, tuple)):
        return [shown(T, v) for v in value]
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(value)


def seen(question):
    """What a mode sees of a question, and its answer."""

    def asked(T):
        x = T.arange(6.0).reshape(2, 3) + 1
        y = T.ones(2, 3) * 2
        m = T.arange(12.0).reshape(3, 4)
        mode, log = logging_mode(T)
        with mode:
            result = question(T, x, y, m)
        return log, result

    return asked


FORWARD = {
    "add": lambda T, x, y, m: x + y,
    "add number": lambda T, x, y, m: x + 1,
    "add alpha": lambda T, x, y, m: T.add(x, y, alpha=2),
    "radd": lambda T, x, y, m: 1 + x,
    "sub": lambda T, x, y, m: x - y,
    "mul": lambda T, x, y, m: x * y,
    "mul number": lambda T, x, y, m: x * 2,
    "div": lambda T, x, y, m: x / y,
    "div number": lambda T, x, y, m: x / 2,
    "div floor": lambda T, x, y, m: T.div(x, y, rounding_mode="floor"),
    "pow": lambda T, x, y, m: x**2,
    "pow tensors": lambda T, x, y, m: x**y,
    "neg": lambda T, x, y, m: -x,
    "compare": lambda T, x, y, m: (x > y, x == 2, x <= y),
    "exp": lambda T, x, y, m: x.exp().log(),
    "relu": lambda T, x, y, m: T.nn.functional.relu(x),
    "gelu": lambda T, x, y, m: T.nn.functional.gelu(x),
    "silu": lambda T, x, y, m: T.nn.functional.silu(x),
    "clamp": lambda T, x, y, m: (x.clamp(0, 1), x.clamp(min=0)),
    "where": lambda T, x, y, m: T.where(x > y, x, y),
    "sum": lambda T, x, y, m: (x.sum(), x.sum(0), x.sum(1, keepdim=True)),
    "mean": lambda T, x, y, m: (x.mean(), x.mean(1)),
    "max": lambda T, x, y, m: (x.max(), x.amax(1)),
    "argmax": lambda T, x, y, m: x.argmax(1),
    "mm": lambda T, x, y, m: x @ m,
    "mv": lambda T, x, y, m: x @ m[:, 0],
    "bmm": lambda T, x, y, m: x.expand(5, 2, 3).contiguous() @ m.expand(5, 3, 4),
    "linear": lambda T, x, y, m: T.nn.functional.linear(x, m.t(), T.ones(4)),
    "linear without bias": lambda T, x, y, m: T.nn.functional.linear(x, m.t()),
    "softmax": lambda T, x, y, m: (T.softmax(x, 1), T.log_softmax(x, 0)),
    "views": lambda T, x, y, m: (x.view(6), x.t(), x.transpose(0, 1), x.permute(1, 0), x.unsqueeze(0), x.unsqueeze(0).squeeze(0)),
    "expand": lambda T, x, y, m: x.unsqueeze(0).expand(4, 2, 3),
    "select": lambda T, x, y, m: (x[0], x[:, 1], x[0, 1]),
    "slice": lambda T, x, y, m: (x[1:], x[:, :2], x[:, ::2]),
    "none": lambda T, x, y, m: x[:, None],
    "index": lambda T, x, y, m: x[T.tensor([0, 1])],
    "chunk": lambda T, x, y, m: x.chunk(3, 1),
    "split": lambda T, x, y, m: x.split(2, 1),
    "unbind": lambda T, x, y, m: x.unbind(0),
    "cat": lambda T, x, y, m: T.cat([x, y], 1),
    "stack": lambda T, x, y, m: T.stack([x, y]),
    "clone": lambda T, x, y, m: (x.clone(), x.t().contiguous()),
    "to": lambda T, x, y, m: (x.to(T.float64), x.double(), x.float()),
    "detach": lambda T, x, y, m: x.detach(),
    "item": lambda T, x, y, m: x.sum().item(),
    "gather": lambda T, x, y, m: x.gather(1, T.zeros(2, 1, dtype=T.int64)),
    "in place": lambda T, x, y, m: (x.add_(1), x.mul_(y), x.zero_(), x.fill_(2)),
    "copy_": lambda T, x, y, m: x.copy_(y),
    "reshape": lambda T, x, y, m: (x.reshape(3, 2), x.t().reshape(6), x.flatten()),
    "mse_loss": lambda T, x, y, m: T.nn.functional.mse_loss(x, y),
    "embedding": lambda T, x, y, m: T.nn.functional.embedding(T.tensor([0, 2]), m),
    "layer_norm": lambda T, x, y, m: T.nn.functional.layer_norm(x, (3,))[0, 0].isnan(),
    "zeros": lambda T, x, y, m: T.zeros(2, 3),
    "ones with dtype": lambda T, x, y, m: T.ones(2, dtype=T.float64),
    "full": lambda T, x, y, m: T.full((2,), 3.0),
    "arange": lambda T, x, y, m: (T.arange(3), T.arange(1, 7, 2)),
    "zeros_like": lambda T, x, y, m: T.zeros_like(x),
    "out": lambda T, x, y, m: T.add(x, x, out=y),
}
DIFFERENT = {  # what is seen there and here, besides
    "add": (),
}


@pytest.mark.parametrize("question", FORWARD.values(), ids=FORWARD)
def test_forward_is_seen_as_in_pytorch(question) -> None:
    """An operation reaches the mode under another name, with other arguments, not at all, or too often."""
    agree(seen(question))


def counted(question):
    """Which kernels a mode sees, in which order, in forward and backward; without their arguments."""

    def asked(T):
        mode, log = logging_mode(T)
        leaves = [(T.arange(6.0).reshape(2, 3) / 7 + 0.3).requires_grad_(), (T.arange(12.0).reshape(3, 4) / 9).requires_grad_()]
        with mode:
            question(T, *leaves).backward()
        used = [
            name
            for name, *_ in log
            if name not in ("aten.detach.default", "aten.ones_like.default", "aten.t.default", "aten.expand.default")
        ]
        return sorted(set(used)), [leaf.grad for leaf in leaves]

    return asked


BACKWARD = {
    "products": lambda T, x, m: (x @ m).sum(),
    "linear": lambda T, x, m: T.nn.functional.linear(x, m.t(), m[0]).sum(),
    "pointwise": lambda T, x, m: (x.exp() * x).sum() + m.sum(),
    "tanh": lambda T, x, m: x.tanh().sum() + m.sum(),
    "relu": lambda T, x, m: T.relu(x).sum() + m.mean(),
}


@pytest.mark.parametrize("question", BACKWARD.values(), ids=BACKWARD)
def test_gradients_come_out_the_same(question) -> None:
    """Backward under a mode gives other gradients than PyTorch's."""
    agree(lambda T: counted(question)(T)[1])


def test_a_toy_interpreter_sees_a_training_step() -> None:
    """Ten lines that count operations see forward, backward and the optimizer."""

    def question(T):
        mode, log = logging_mode(T)
        T.manual_seed(0)
        model = T.nn.Sequential(T.nn.Linear(4, 8), T.nn.ReLU(), T.nn.Linear(8, 2))
        optimizer = T.optim.SGD(model.parameters(), lr=0.1, foreach=False)
        x, y = T.randn(5, 4), T.tensor([0, 1, 0, 1, 1])
        with mode:
            loss = T.nn.functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        names = {name for name, *_ in log}
        wanted = {"aten.addmm.default", "aten.mm.default", "aten.relu.default", "aten._log_softmax.default"}
        moved = names & {"aten.add_.Tensor", "aten.copy_.default"}  # what an optimizer writes its result with
        return sorted(wanted - names), bool(moved), list(model.parameters()), float(loss)

    agree(question)


def test_modes_are_asked_from_the_inside() -> None:
    """The inner mode is not asked first, or the outer one not about what the inner one calls."""

    def question(T):
        asked = []

        class Named(home(T).TorchDispatchMode):
            def __init__(self, name):
                super().__init__()
                self.name = name

            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                asked.append((self.name, str(func)))
                return func(*args, **(kwargs or {}))

        with Named("outer"), Named("inner"):
            T.ones(2) + 1
            stack = [mode.name for mode in home(T)._get_current_dispatch_mode_stack()]
        return asked, stack, home(T)._get_current_dispatch_mode()

    agree(question)


def test_what_a_mode_returns_is_the_result() -> None:
    """A mode cannot change results, or its results have no gradient."""

    def question(T):
        class Doubling(home(T).TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                result = func(*args, **(kwargs or {}))
                return result * 2 if func is T.ops.aten.mul.Tensor else result

        x = T.ones(3, requires_grad=True)
        with Doubling():
            y = x * 3
        y.sum().backward()
        return y, x.grad, y.grad_fn is None

    agree(question)


def test_errors_of_modes() -> None:
    """Nobody is told that a mode declined, or that its method must not be a classmethod."""

    def declines(T):
        class Declines(home(T).TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                return NotImplemented

        with Declines():
            T.ones(2)

    def classmethod_(T):
        class Wrong(home(T).TorchDispatchMode):
            @classmethod
            def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
                return func(*args, **kwargs)

        with Wrong():
            T.ones(2) + 1

    agree(declines)
    agree(classmethod_)


def test_views_made_under_a_mode_may_be_written_to() -> None:
    """A view made under a mode refuses writes, or its base does not see them, or gradients get lost."""

    def question(T):
        mode, _ = logging_mode(T)
        x = T.ones(2, 3, requires_grad=True)
        with mode:
            y = x * 2
            y[0].mul_(3)
            y.view(6)[1:3] += 1
        (y * y).sum().backward()
        return y, x.grad

    agree(question)


def test_dtypes_in_a_few_letters() -> None:
    """torch.utils._dtype_abbrs, which logs of operations are written with, calls a dtype otherwise than PyTorch."""
    from torch.utils._dtype_abbrs import dtype_abbrs as theirs

    from flambeau.utils._dtype_abbrs import dtype_abbrs as ours

    named = {str(dtype): letters for dtype, letters in theirs.items()}
    assert ours and all(named[f"torch.{dtype.name}"] == letters for dtype, letters in ours.items())
