"""Interpreters of a program's own: what they see of a training step, what they can change, and that the stack stays in order."""

from __future__ import annotations

import re
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import flambeau as torch
from flambeau import modes, nn
from flambeau.interpreters import stack
from flambeau.interpreters.stack import Interpreter


class Counting(Interpreter):
    """Ten lines that count operations."""

    def __init__(self):
        self.seen = []

    def handle(self, function, args, kwargs, next):
        self.seen.append(function.__name__)
        return next(*args, **kwargs)


class WithParts(Counting):
    """And those that operations are made of."""

    stays = True


@pytest.fixture(autouse=True)
def nothing_left():
    """Whatever a test does, the stack is empty afterwards, and nobody has a say."""
    yield
    assert modes.state.stack == () and modes.special == 0


def a_step(optimizer_of):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    optimizer = optimizer_of(model.parameters())
    x, y = torch.randn(5, 3), torch.tensor([0, 1, 1, 0, 1])

    def forward():
        return nn.functional.cross_entropy(model(x), y)

    return model, optimizer, forward


OPTIMIZERS = {
    "SGD": (lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), {"neg", "mul", "add", "sub", "copy_"}),
    "Adam": (torch.optim.Adam, {"mul", "add", "sqrt", "div", "sub", "copy_"}),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("kind", [Counting, WithParts])
def test_a_toy_sees_every_operation_of_a_training_step(name, kind):
    """Forward as the program calls it, backward and the optimizer as operations; and all comes out as without it."""
    optimizer_of, moves = OPTIMIZERS[name]
    model, optimizer, forward = a_step(optimizer_of)
    plain, plain_optimizer, plain_forward = a_step(optimizer_of)
    with kind() as counting:
        seen = counting.seen
        for step in range(2):
            loss = forward()
            assert seen[:4] == ["linear", "relu", "linear", "cross_entropy"]
            seen.clear()
            loss.backward()
            # cross_entropy's own; relu's selection; two products for each layer, but for the gradient of the data; the sums for the biases
            assert (seen.count("softmax"), seen.count("le"), seen.count("mm"), seen.count("sum_to_size")) == (1, 1, 3, 2)
            assert seen.count("add_") == 4 * step  # gradients are added to those of the step before
            seen.clear()
        optimizer.step()
        update = Counter(seen)
        assert moves <= update.keys() and update["copy_"] >= 2 * 4  # parameters and states
    for _ in range(2):
        plain_forward().backward()
    plain_optimizer.step()
    for p, q in zip(model.parameters(), plain.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=2e-5, atol=1e-6)
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=2e-5, atol=1e-6)


x = torch.ones(2, 3)
SEEN = {
    "x + 1": (lambda: x + 1, ["add"]),
    "out=": (lambda: torch.exp(x, out=x.clone()), ["clone", "exp"]),
    "in place": (lambda: x.clone().exp_(), ["clone", "exp_"]),
    "x += 1": (lambda: x.clone().__iadd__(1), ["clone", "add_"]),
    "a write": (lambda: x.clone().zero_(), ["clone", "zero_"]),
    "a view": (lambda: x.t().view_as(x.t()), ["t", "t", "view_as"]),
    "a view in place": (lambda: x.clone().squeeze_(0), ["clone", "squeeze"]),
    "x[0]": (lambda: x[0], ["__getitem__"]),
    "x[x > 0]": (lambda: x[x > 0], ["gt", "__getitem__"]),
    "x[0] = 1": (lambda: x.clone().__setitem__(0, 1.0), ["clone", "__setitem__"]),
    "factories": (lambda: (torch.zeros(2), torch.rand(2), torch.arange(3), torch.tensor([1.0])), ["zeros", "rand", "arange", "tensor"]),
    "like": (lambda: (torch.ones_like(x), x.new_zeros(2)), ["ones_like", "new_zeros"]),
    "random numbers": (lambda: x.clone().normal_(), ["clone", "normal_"]),
    "several results": (lambda: x.max(1), ["max"]),
    "a list": (lambda: torch.cat([x, x]), ["cat"]),
    "a composite": (lambda: nn.functional.layer_norm(x, (3,)), ["layer_norm"]),
    "a conversion": (lambda: x.double(), ["double"]),
    "a number": (lambda: x.sum().item(), ["sum", "item"]),
    "truth": (lambda: bool(x.sum() > 0), ["sum", "gt", "item"]),
    "clipping": (
        lambda: nn.utils.clip_grad_norm_([parameter], 0.5),
        "linalg_vector_norm stack linalg_vector_norm add div clamp item clone mul copy_".split(),
    ),
    # What is no operation: attributes, what only looks, and the numbers as NumPy's or Python's.
    "attributes": (lambda: (x.shape, x.dtype, x.grad, x.numel(), x.is_contiguous()), []),
    "detach": (lambda: (x.detach(), x.data), []),
    "numbers out": (lambda: (x.tolist(), x.numpy()), []),
}
parameter = nn.Parameter(torch.ones(3))
parameter.grad = torch.ones(3)


@pytest.mark.parametrize("what", SEEN)
def test_what_is_seen(what):
    """Every function that makes, moves, writes or reads elements, once, as the program called it."""
    call, names = SEEN[what]
    with Counting() as counting:
        call()
    assert counting.seen == names


def test_another_operation_instead():
    """What `handle` returns is the result: another operation, which the interpreter itself is not asked about."""

    class Smooth(Interpreter):
        by_operations = False

        def handle(self, function, args, kwargs, next):
            return torch.tanh(*args) if function.__name__ == "relu" else next(*args, **kwargs)

    x = torch.tensor([-1.0, 2.0], requires_grad=True)
    with Smooth():
        y = nn.ReLU()(x)
    y.sum().backward()
    wanted = torch.tanh(x.detach())
    assert torch.equal(y, wanted) and y.grad_fn.name() == "TanhBackward0" and torch.allclose(x.grad, 1 - wanted**2)


def test_other_arguments():
    """`next` takes other arguments than those of the call."""

    class Doubled(Interpreter):
        def handle(self, function, args, kwargs, next):
            return next(*[2 * a if isinstance(a, torch.Tensor) else a for a in args], **kwargs)

    x = torch.ones(2)
    with Doubled():
        assert (x + 1).tolist() == [3.0, 3.0]
        with Doubled():  # whose own product the other one sees, and doubles
            assert (x + 1).tolist() == [9.0, 9.0]


def test_order_is_by_level():
    """Whichever came first, levels stand in their order; within one, the last that came is first."""

    class Noting(Counting):
        def __init__(self, name, level, log):
            self.name, self.level, self.log = name, level, log

        def handle(self, function, args, kwargs, next):
            self.log.append(self.name)
            return next(*args, **kwargs)

    log: list = []
    x = torch.ones(2)
    below, above = Noting("below", stack.CHECKPOINT, log), Noting("above", stack.PROFILE, log)
    with below, Noting("outer", stack.OPERATION, log), above, Noting("inner", stack.OPERATION, log), torch.autocast("cpu"):
        torch.exp(x)
        assert [type(i).__name__ for i in modes.state.stack] == ["Noting", "Casting", "Noting", "Noting", "Noting"]
    assert log == ["above", "inner", "outer", "below"]


def test_operands_are_cast_above():
    """An interpreter of a program's own stands below autocast: it sees operands as they are multiplied."""
    seen = []

    class Dtypes(Interpreter):
        def handle(self, function, args, kwargs, next):
            if function.__name__ == "mm":
                seen.extend(str(a.dtype) for a in args)
            return next(*args, **kwargs)

    x = torch.ones(2, 2)
    with Dtypes(), torch.autocast("cpu"):
        torch.mm(x, x)
    assert seen == ["torch.bfloat16"] * 2


def test_an_error_leaves_the_stack_as_it_was():
    """The operation's, or the interpreter's own."""

    class Failing(Interpreter):
        def handle(self, function, args, kwargs, next):
            raise KeyError(function.__name__)

    with Counting() as counting:
        with pytest.raises(RuntimeError):
            torch.ones(2) + torch.ones(3)
        with Failing(), pytest.raises(KeyError, match="ones"):
            torch.ones(2)
        assert modes.state.stack == (counting,) and modes.special == 1


def test_what_begins_inside_stays():
    """An interpreter that is pushed by a handler and not removed stands where it belongs; so does one that is removed."""

    class Switching(Interpreter):
        def handle(self, function, args, kwargs, next):
            stack.push(later) if function.__name__ == "ones" else stack.remove(later)
            return next(*args, **kwargs)

    later = Counting()
    with Switching() as first:
        x = torch.ones(2)
        assert modes.state.stack == (first, later) and modes.special == 2
        x.exp()
        assert modes.state.stack == (first,) and modes.special == 1
    assert later.seen == []  # it came too late for the first call, and was gone before its turn in the second


def test_threads_have_stacks_of_their_own():
    """What stands on one thread's stack is not asked by another."""
    results: list = []
    with Counting() as counting:
        thread = threading.Thread(target=lambda: results.append(torch.ones(2).exp().tolist()))
        thread.start()
        thread.join()
    assert counting.seen == [] and len(results[0]) == 2


def test_vmap_and_sparse_come_below():
    """A batched operation is seen once, as the program called it."""
    with Counting() as counting:
        torch.func.vmap(lambda row: (row * 2).sum())(torch.ones(3, 2))
    assert counting.seen.count("mul") == 1 and counting.seen.count("sum") == 1


def test_the_example_in_the_documentation_runs():
    """docs/architecture.md: how many bytes each operation touches."""
    text = (Path(__file__).parents[2] / "docs" / "architecture.md").read_text()
    example = re.search(r"```python\n(from collections import Counter\nfrom flambeau.interpreters.*?)```", text, re.DOTALL)[1]
    model = nn.Linear(3, 2)
    known = {"torch": torch, "F": nn.functional, "model": model, "x": torch.randn(4, 3), "y": torch.tensor([0, 1, 0, 1])}
    known["optimizer"] = torch.optim.SGD(model.parameters(), 0.1)
    exec(example, known)
    seen = known["traffic"].bytes
    assert seen["linear"] == 4 * (4 * 3 + 2 * 3 + 2 + 4 * 2) and {"cross_entropy", "mm", "copy_"} <= seen.keys()
