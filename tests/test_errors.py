"""Bad input: PyTorch's exception type, and words that help.

Every case runs in both frameworks. The type must be PyTorch's; the message must hold the numbers at fault and, where there is one, the way out.
"""

from __future__ import annotations

import numpy
import pytest

import flambeau

oracle = pytest.importorskip("torch")


def leaf(torch, *shape):
    return torch.ones(*shape, requires_grad=True)


def twice(torch):
    loss = (leaf(torch, 3) ** 2).sum()
    loss.backward()
    loss.backward()


def changed_after_saving(torch):
    x = leaf(torch, 3)
    y = x.exp()
    z = y * 2
    y.add_(1)
    z.sum().backward()


def changed_leaf(torch):
    leaf(torch, 3).add_(1)


def view_of_leaf(torch):
    leaf(torch, 3)[0] = 5


def written_without_history(torch):
    x = leaf(torch, 3)
    with torch.no_grad():
        y = x[:2]
    y.mul_(2)


def unused(torch):
    x, y = leaf(torch, 2), leaf(torch, 2)
    torch.autograd.grad(x.sum(), [x, y])


def put(torch, index, value):
    torch.zeros(3, 4)[index] = value


# subject: {name: (call, what the message must contain)}
CASES = {
    "shapes that do not broadcast": {
        "add": (lambda t: t.ones(2, 3) + t.ones(4), ["3", "4"]),
        "mul, middle": (lambda t: t.ones(5, 2, 3) * t.ones(5, 4, 3), ["2", "4", "1"]),
        "in place": (lambda t: t.ones(3).add_(t.ones(2, 3)), ["[3]", "[2, 3]"]),
        "where": (lambda t: t.where(t.ones(2) > 0, t.ones(3), t.ones(2)), ["2", "3"]),
        "expand": (lambda t: t.ones(2, 3).expand(2, 4), ["3", "4"]),
        "broadcast_shapes": (lambda t: t.broadcast_shapes((2, 3), (4,)), ["3", "4"]),
        "copy_": (lambda t: t.ones(3).copy_(t.ones(2)), ["3", "2"]),
        "matmul": (lambda t: t.ones(2, 3) @ t.ones(4, 5), ["2x3", "4x5"]),
        "mm, not matrices": (lambda t: t.mm(t.ones(3), t.ones(3, 3)), ["matrix"]),
        "dot": (lambda t: t.dot(t.ones(3), t.ones(4)), ["3", "4"]),
        "bmm": (lambda t: t.bmm(t.ones(2, 3, 4), t.ones(2, 5, 6)), ["4", "5"]),
        "cat": (lambda t: t.cat([t.ones(2, 3), t.ones(2, 4)], 0), ["3", "4"]),
        "stack": (lambda t: t.stack([t.ones(2), t.ones(3)]), ["[2]", "[3]"]),
        "einsum": (lambda t: t.einsum("ij,jk->ik", t.ones(2, 3), t.ones(4, 5)), ["3", "4"]),
        "setitem": (lambda t: put(t, 0, t.ones(3)), ["4", "3"]),
        "reshape": (lambda t: t.ones(6).reshape(4, 2), ["[4, 2]", "6"]),
        "reshape, two unknown": (lambda t: t.ones(6).reshape(-1, -1), ["one"]),
        "reshape, no whole number": (lambda t: t.ones(6).reshape(4, -1), ["4", "6"]),
        "split": (lambda t: t.ones(5).split([2, 2]), ["5", "[2, 2]"]),
        "tensor, ragged": (lambda t: t.tensor([[1, 2], [3]]), ["2", "1"]),
    },
    "wrong dtypes": {
        "a list": (lambda t: t.add(t.ones(2), [1, 2]), ["list"]),
        "a string": (lambda t: t.ones(2) + "1", ["str"]),
        "None": (lambda t: t.exp(None), ["NoneType"]),
        "mm of two dtypes": (lambda t: t.ones(2, 2) @ t.ones(2, 2, dtype=t.float64), ["float32", "float64"]),
        "bool minus": (lambda t: t.ones(2, dtype=t.bool) - t.ones(2, dtype=t.bool), ["bool", "logical_xor"]),
        "negative bool": (lambda t: -t.ones(2, dtype=t.bool), ["bool", "~"]),
        "bitwise float": (lambda t: t.ones(2) & t.ones(2), ["bitwise_and", "float32", "int64"]),
        "mean of integers": (lambda t: t.ones(2, dtype=t.int64).mean(), ["mean", "floating"]),
        "integer += float": (lambda t: t.ones(2, dtype=t.int64).add_(0.5), ["Float", "Long"]),
        "integer out=": (lambda t: t.exp(t.ones(2), out=t.empty(2, dtype=t.int64)), ["Float", "Long"]),
        "complex order": (lambda t: t.ones(2, dtype=t.complex64) < 1, ["lt", "complex64"]),
        "index with floats": (lambda t: t.ones(3)[t.ones(2)], ["long"]),
        "gather with floats": (lambda t: t.ones(3).gather(0, t.ones(2)), ["int64"]),
        "mask of integers": (lambda t: t.ones(3).masked_fill(t.ones(3, dtype=t.int64), 0.0), ["bool"]),
        "integer division by zero": (lambda t: t.ones(3, dtype=t.int64) // t.zeros(3, dtype=t.int64), ["ero"]),
        "integer division by the number zero": (lambda t: t.ones(3, dtype=t.int64) % 0, ["ero"]),
        "a number too large": (lambda t: t.tensor([300], dtype=t.uint8), ["300"]),
        "unknown dtype": (lambda t: t.ones(2, dtype="float32"), ["dtype"]),
        "unknown keyword": (lambda t: t.ones(2).sum(axes=0), ["axes"]),
        "too many arguments": (lambda t: t.exp(t.ones(2), 3), ["exp()", "1", "2"]),
        "missing arguments": (lambda t: t.add(), ["input", "other"]),
        "truth of many": (lambda t: bool(t.ones(2)), ["more than one"]),
        "item of many": (lambda t: t.ones(2).item(), ["2"]),
        "item of none": (lambda t: t.ones(0).item(), ["0"]),
        "int of complex": (lambda t: int(t.tensor(1j)), [".real"]),
        "len of 0-d": (lambda t: len(t.tensor(1.0)), ["0-d"]),
        "iteration over 0-d": (lambda t: list(t.tensor(1.0)), ["0-d"]),
        "hash as index": (lambda t: [1, 2, 3][t.tensor(1.5)], ["integer", "float32"]),
        "numpy of what needs a gradient": (lambda t: leaf(t, 2).numpy(), ["detach"]),
    },
    "devices mixed": {
        "cpu and meta": (lambda t: t.ones(2) + t.ones(2, device="meta"), ["cpu", "meta"]),
        "unknown device": (lambda t: t.ones(2, device="gpu"), ["gpu"]),
        "bad index": (lambda t: t.device("cpu:-2"), ["cpu:-2"]),
        "data of meta": (lambda t: t.ones(2, device="meta").tolist(), ["meta"]),
        "item of meta": (lambda t: t.ones((), device="meta").item(), ["meta"]),
    },
    "dimensions out of range": {
        "sum": (lambda t: t.ones(2, 3).sum(2), ["-2", "1", "2"]),
        "sum, negative": (lambda t: t.ones(2, 3).sum(-3), ["-2", "1", "-3"]),
        "twice": (lambda t: t.ones(2, 3).sum((0, -2)), ["dim 0", "multiple"]),
        "transpose": (lambda t: t.ones(2, 3).transpose(0, 5), ["-2", "1", "5"]),
        "permute, too few": (lambda t: t.ones(2, 3).permute(0), ["2", "1"]),
        "permute, repeated": (lambda t: t.ones(2, 3).permute(0, 0), ["duplicate dims", "[0, 0]"]),
        "unsqueeze": (lambda t: t.ones(2).unsqueeze(4), ["-2", "1", "4"]),
        "softmax": (lambda t: t.ones(2).softmax(1), ["-1", "0", "1"]),
        "select": (lambda t: t.ones(2, 3).select(5, 0), ["-2", "1", "5"]),
        "max of 0-d": (lambda t: t.tensor(1.0).max(1), ["-1", "0", "1"]),
        "negative size": (lambda t: t.ones(-2), ["-2"]),
        "chunk": (lambda t: t.ones(3).chunk(0), ["0"]),
    },
    "indices out of range": {
        "int": (lambda t: t.ones(3)[3], ["3", "0"]),
        "int, negative": (lambda t: t.ones(3, 4)[0, -5], ["-5", "4", "1"]),
        "too many": (lambda t: t.ones(3)[0, 0], ["1"]),
        "tensor": (lambda t: t.ones(3)[t.tensor([0, 7])], ["7", "3"]),
        "writing": (lambda t: put(t, t.tensor([5]), 1.0), ["5", "3"]),
        "mask of another size": (lambda t: t.ones(3)[t.ones(2, dtype=t.bool)], ["[2]", "[3]"]),
        "string": (lambda t: t.ones(3)["a"], ["str"]),
        "float": (lambda t: t.ones(3)[1.5], ["float"]),
        "step": (lambda t: t.ones(3)[::-1], ["step", "flip"]),
        "gather": (lambda t: t.ones(3).gather(0, t.tensor([4])), ["4", "3"]),
        "index_select": (lambda t: t.ones(3).index_select(0, t.tensor([3])), ["3"]),
        "select": (lambda t: t.ones(3).select(0, 3), ["3"]),
        "narrow": (lambda t: t.ones(3).narrow(0, 2, 5), ["2", "5", "3"]),
        "topk": (lambda t: t.ones(3).topk(4), ["4", "3"]),
        "kthvalue": (lambda t: t.ones(3).kthvalue(4), ["4", "3"]),
        "scatter": (lambda t: t.zeros(3).scatter(0, t.tensor([3]), 1.0), ["3"]),
        "take": (lambda t: t.ones(3).take(t.tensor([3])), ["3"]),
        "embedding": (lambda t: t.nn.functional.embedding(t.tensor([5]), t.ones(4, 2)), ["5", "4"]),
    },
    "view of what is not contiguous": {
        "view": (lambda t: t.ones(2, 3).t().view(6), ["reshape", "contiguous"]),
        "view, another number": (lambda t: t.ones(2, 3).view(7), ["7", "6"]),
        "view_as_complex": (lambda t: t.view_as_complex(t.ones(3, 2).t()), ["2", "(2, 3)"]),
        "view as another dtype": (lambda t: t.ones(3, dtype=t.uint8).view(t.int16), ["3", "2"]),
        "as_strided beyond": (lambda t: t.ones(3).as_strided((4,), (1,)), ["4", "3"]),
        "as_strided negative": (lambda t: t.ones(3).as_strided((2,), (-1,)), ["-1"]),
    },
    "backward": {
        "twice": (twice, ["retain_graph=True"]),
        "from many": (lambda t: (leaf(t, 3) * 2).backward(), ["scalar"]),
        "from a constant": (lambda t: t.ones(()).backward(), ["grad"]),
        "with another shape": (lambda t: (leaf(t, 3) * 2).backward(t.ones(2)), ["2", "3"]),
        "changed after it was saved": (changed_after_saving, ["modified by an inplace operation", "version"]),
        "grad of nothing": (unused, ["allow_unused=True"]),
        "grad of another shape": (lambda t: setattr(leaf(t, 3), "grad", t.ones(2)), ["2", "3"]),
        "retain_grad without need": (lambda t: t.ones(3).retain_grad(), ["requires_grad"]),
        "deepcopy of a result": (lambda t: __import__("copy").deepcopy(leaf(t, 3) * 2), ["leaves", "detach"]),
        "requires_grad_ off a result": (lambda t: (leaf(t, 3) * 2).requires_grad_(False), ["detach"]),
    },
    "in place on a leaf": {
        "add_": (changed_leaf, ["leaf"]),
        "a view of it": (view_of_leaf, ["leaf"]),
        "out=": (lambda t: t.exp(t.ones(3), out=leaf(t, 3)), ["out="]),
        "a view made without history": (written_without_history, ["no_grad"]),
        "detach_ of a view": (lambda t: (leaf(t, 3) * 2)[:2].detach_(), ["detach"]),
        "inference tensor": (lambda t: in_inference(t), ["inference"]),
    },
    "integers asked for gradients": {
        "requires_grad=True": (lambda t: t.tensor([1, 2], requires_grad=True), ["float"]),
        "requires_grad_": (lambda t: t.ones(3, dtype=t.int64).requires_grad_(), ["float"]),
        "attribute": (lambda t: setattr(t.ones(3, dtype=t.bool), "requires_grad", True), ["float"]),
        "ones": (lambda t: t.ones(3, dtype=t.int32, requires_grad=True), ["float"]),
    },
    "empty reductions": {
        "max": (lambda t: t.ones(0).max(), ["max()", "(0,)"]),
        "max over a dim": (lambda t: t.ones(2, 0).max(1), ["dim 1", "(2, 0)"]),
        "argmax": (lambda t: t.ones(0).argmax(), ["argmax()", "(0,)"]),
        "amin": (lambda t: t.ones(2, 0).amin(1), ["dim 1", "(2, 0)"]),
        "median over a dim": (lambda t: t.ones(2, 0).median(1), ["dim 1", "(2, 0)"]),
        "mode": (lambda t: t.ones(2, 0).mode(1), ["dim 1", "(2, 0)"]),
        "aminmax": (lambda t: t.ones(0).aminmax(), ["aminmax()", "(0,)"]),
        "kthvalue": (lambda t: t.ones(2, 0).kthvalue(1, 1), ["dim 1", "(2, 0)"]),
        "quantile": (lambda t: t.ones(0).quantile(0.5), ["quantile()", "(0,)"]),
    },
    "writing to an expanded view": {
        "add_": (lambda t: t.ones(3, 1).expand(3, 4).add_(1), ["clone()"]),
        "out=": (lambda t: t.exp(t.ones(3, 4), out=t.ones(3, 1).expand(3, 4)), ["clone()"]),
        "copy_": (lambda t: t.ones(3, 1).expand(3, 4).copy_(t.ones(3, 4)), ["clone()"]),
        "setitem": (lambda t: t.ones(3, 1).expand(3, 4).__setitem__(slice(None), t.ones(3, 4)), ["clone()"]),
        "onto a shifted view": (lambda t: (lambda x: x[1:].mul_(x[:-1]))(t.ones(5)), ["clone()"]),
        "scatter_": (lambda t: t.ones(3, 1).expand(3, 4).scatter_(0, t.zeros(1, 4, dtype=t.int64), 1.0), ["clone()"]),
    },
}


def in_inference(torch):
    with torch.inference_mode():
        x = torch.ones(3)
    x.requires_grad_()
    (x * 2).sum().backward()


ALL = [pytest.param(call, words, id=f"{subject}-{name}") for subject, cases in CASES.items() for name, (call, words) in cases.items()]


def problem_of(torch, call) -> Exception | None:
    try:
        call(torch)
    except Exception as problem:
        return problem
    return None


@pytest.mark.parametrize(("call", "words"), ALL)
@pytest.mark.filterwarnings("ignore")
def test_bad_input_is_refused_as_pytorch_refuses_it(call, words):
    """Bad input is accepted, or refused with another exception type, or with a message that lacks what one needs to know."""
    expected, found = problem_of(oracle, call), problem_of(flambeau, call)
    assert type(found).__name__ == type(expected).__name__, f"found {found!r}\nexpected {expected!r}"
    missing = [word for word in words if word not in str(found)]
    assert not missing, f"{missing} not in: {found}"


# What people look for on the web, and what programs search the message for, is PyTorch's phrase.
PHRASES = {
    "an integer that wants a gradient": lambda t: t.tensor([1, 2], requires_grad=True),
    "a layer and an input of two dtypes": lambda t: t.nn.Linear(3, 2)(t.ones(2, 3, dtype=t.float64)),
    "a dimension named twice": lambda t: t.ones(2, 3).permute(0, 0),
    "no number between the limits": lambda t: t.randint(5, 2, (3,)),
    "weights that are negative": lambda t: t.multinomial(t.tensor([-1.0, 2.0]), 1),
    "weights that are all zero": lambda t: t.multinomial(t.tensor([0.0, 0.0]), 1),
    "more draws than there are numbers": lambda t: t.multinomial(t.tensor([1.0, 2.0]), 3),
    "pieces that do not add up": lambda t: t.ones(5).split([2, 2]),
    "other channels than batch norm has": lambda t: t.nn.BatchNorm2d(3)(t.ones(2, 4, 2, 2)),
}


@pytest.mark.parametrize("case", PHRASES)
def test_messages_hold_pytorchs_phrase(case):
    """A message does not contain the beginning of PyTorch's: nobody finds it, and programs that search messages do not know it."""
    found = []
    for t in (flambeau, oracle):
        with pytest.raises(Exception) as caught:
            PHRASES[case](t)
        found.append(caught.value)
    ours, theirs = found
    assert type(ours) is type(theirs)
    assert str(theirs).splitlines()[0].rstrip(".")[:50] in str(ours)


WRONG_KINDS = {
    "an array for linear": lambda t: t.nn.Linear(2, 2)(numpy.ones((1, 2), "float32")),
    "a list for linear": lambda t: t.nn.Linear(2, 2)([1.0, 2.0]),
    "None for linear": lambda t: t.nn.Linear(2, 2)(None),
    "requires_grad_ by a word": lambda t: t.ones(1).requires_grad_("yes"),
    "requires_grad by a number": lambda t: setattr(t.ones(1), "requires_grad", 1),
    "relu of a number": lambda t: t.nn.ReLU()(3),
    "sigmoid of a list": lambda t: t.nn.Sigmoid()([1.0]),
    "a layer given a number": lambda t: t.nn.Linear(2, 2)(3),
    "a weight that is a list": lambda t: t.nn.functional.linear(t.ones(2, 2), [1.0]),
    "a target that is a number": lambda t: t.nn.functional.soft_margin_loss(t.ones(2), 3.0),
    "copy_ of a list": lambda t: t.ones(2).copy_([1.0, 2.0]),
    "a mask and is_causal": lambda t: t.nn.functional.scaled_dot_product_attention(*[t.ones(1, 2, 3)] * 3, t.ones(2, 2), is_causal=True),
}


@pytest.mark.parametrize("case", WRONG_KINDS)
def test_what_is_no_tensor_or_no_bool_is_refused(case):
    """Something else than what was asked for is taken, or fails inside with words about the inside."""
    for t in (flambeau, oracle):
        with pytest.raises((TypeError, RuntimeError), match=r"must be|should not be set"):
            WRONG_KINDS[case](t)


def test_the_last_dimension_that_does_not_fit_is_named():
    """Of several dimensions that do not broadcast, the message names the one PyTorch names, from the end."""
    torch = pytest.importorskip("torch")
    for a, b in (((2, 16, 16), (17, 15)), ((3, 4), (4, 3)), ((5, 1, 2, 7), (3, 3, 3, 7)), ((2,), (3, 4, 5))):
        told = []
        for t in (torch, flambeau):
            with pytest.raises(RuntimeError) as caught:
                t.ones(a) + t.ones(b)
            told.append(str(caught.value).splitlines()[0])
        assert told[0] == told[1]
