"""One call, twice: PyTorch's and ours, with the same values in the same memory layout. Values, dtypes, shapes and gradients must agree."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402
import flambeau.special  # noqa: E402  # announces the names of that room

INF, NAN = float("inf"), float("nan")
TOLERANCE = {"float16": 2e-3, "bfloat16": 1.6e-2, "float32": 1e-5, "complex64": 1e-5}


def ours(value):
    """A torch value as ours: tensors keep values, dtype and strides; lists and tuples item by item."""
    if isinstance(value, torch.Tensor):
        t = value.detach()
        array = t.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if t.dtype is torch.bfloat16 else t.numpy()
        return flambeau.from_numpy(array)
    if isinstance(value, torch.dtype):
        return getattr(flambeau, str(value).removeprefix("torch."))
    if isinstance(value, (list, tuple)):
        return type(value)(ours(v) for v in value)
    return value


def array_of(t) -> np.ndarray:
    """The elements, half precision as float32."""
    if isinstance(t, torch.Tensor):
        t = t.detach().resolve_conj().resolve_neg()
        return (t.float() if t.dtype in (torch.bfloat16, torch.float16) else t).numpy(force=True)
    t = t.detach().resolve_conj().resolve_neg()
    return np.array((t.float() if t.dtype in (flambeau.bfloat16, flambeau.float16) else t).numpy())


def assert_same(found, expected, what: str, rtol: float | None = None) -> None:
    """Our result is PyTorch's: type, dtype, shape and values."""
    if isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), what
        for i, (f, e) in enumerate(zip(found, expected, strict=True)):
            assert_same(f, e, f"{what}, result {i}", rtol)
        return
    assert str(found.dtype) == str(expected.dtype), what
    assert tuple(found.shape) == tuple(expected.shape), what
    tolerance = rtol if rtol is not None else TOLERANCE.get(str(expected.dtype).removeprefix("torch."), 1e-10)
    np.testing.assert_allclose(array_of(found), array_of(expected), rtol=tolerance, atol=tolerance, err_msg=what)


def functions(name: str):
    """The two functions of one name, such as "sum" or "nn.functional.softmax"; "x.name" means the method."""
    if name.startswith("x."):
        return getattr(torch.Tensor, name[2:]), getattr(flambeau.Tensor, name[2:])
    theirs, mine = torch, None
    for part in name.split("."):
        theirs = getattr(theirs, part)
    from flambeau.eager.bind import functions as bound

    mine = bound[name]
    return theirs, mine


def check(name: str, *args, rtol: float | None = None, second: bool = False, **kwargs) -> None:
    """`name(*args, **kwargs)` gives in both what the other gives; so do the gradients of its floating tensor arguments.

    With `second`, the gradients of the (squared) gradients too.
    """
    theirs, mine = functions(name)
    call = f"{name}({', '.join(map(_shown, args))}, {kwargs})"
    leaves = [a.detach().clone(memory_format=torch.preserve_format).requires_grad_() if _floating(a) else a for a in args]
    mirror = [ours(a).requires_grad_() if _floating(a) else ours(a) for a in args]
    expected = theirs(*leaves, **kwargs)
    found = mine(*mirror, **{k: ours(v) for k, v in kwargs.items()})
    assert_same(found, expected, call, rtol)
    _check_gradients(leaves, mirror, expected, found, call, rtol, second)


def _check_gradients(leaves, mirror, expected, found, call, rtol, second: bool) -> None:
    outputs = [(e, f) for e, f in zip(_flat(expected), _flat(found), strict=True) if e.requires_grad]
    assert [f.requires_grad for f in _flat(found)] == [e.requires_grad for e in _flat(expected)], f"{call}: who requires grad"
    chosen = [i for i, a in enumerate(leaves) if _floating(a)]
    if not outputs or not chosen:
        return
    generator = torch.Generator().manual_seed(3)
    weights = [torch.randn(e.shape, generator=generator, dtype=torch.float64).to(e.dtype) for e, _ in outputs]
    theirs = torch.autograd.grad(
        [e for e, _ in outputs], [leaves[i] for i in chosen], weights, create_graph=second, allow_unused=True, materialize_grads=True
    )
    mine = flambeau.autograd.grad(
        [f for _, f in outputs], [mirror[i] for i in chosen], [ours(w) for w in weights], create_graph=second, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    assert_same(list(mine), list(theirs), f"gradients of {call}", None if rtol is None else rtol * 5)
    if second:
        squares = sum((g * g).sum() for g in theirs if g.requires_grad)
        if not isinstance(squares, torch.Tensor):
            return
        expected_again = torch.autograd.grad(squares, [leaves[i] for i in chosen], allow_unused=True, materialize_grads=True)
        total = None
        for g in mine:
            if g.requires_grad:
                total = (g * g).sum() if total is None else total + (g * g).sum()
        again = flambeau.autograd.grad(total, [mirror[i] for i in chosen], allow_unused=True, materialize_grads=True)
        assert_same(list(again), list(expected_again), f"second derivatives of {call}", None if rtol is None else rtol * 25)


def check_raises(name: str, *args, **kwargs) -> None:
    """Both raise, and ours raises PyTorch's type."""
    theirs, mine = functions(name)
    with pytest.raises(Exception) as wanted:
        theirs(*args, **kwargs)
    with pytest.raises(Exception) as got:
        mine(*[ours(a) for a in args], **{k: ours(v) for k, v in kwargs.items()})
    assert type(got.value) is wanted.type, f"{name}: PyTorch raises {wanted.type.__name__}: {wanted.value}; we raise {got.value!r}"


def _flat(value) -> list:
    if isinstance(value, (list, tuple)):
        return [x for v in value for x in _flat(v)]
    return [value]


def _floating(a) -> bool:
    return isinstance(a, torch.Tensor) and (a.is_floating_point() or a.is_complex())


def _shown(a) -> str:
    return f"{tuple(a.shape)} {a.dtype}, strides {a.stride()}" if isinstance(a, torch.Tensor) else repr(a)


def numbers(*shape, dtype=None, seed: int = 0, ties: bool = False):
    """Reproducible numbers around zero; with `ties`, few different ones."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator, dtype=torch.float64) * 2
    x = x.round() if ties else x
    dtype = dtype or torch.float64
    if dtype.is_complex:
        x = torch.complex(x, torch.randn(shape, generator=generator, dtype=torch.float64))
    if dtype is torch.bool:
        return x > 0
    if dtype is torch.uint8:
        return (x.abs() * 3).to(dtype)
    return x.to(dtype) if dtype.is_floating_point or dtype.is_complex else (x * 3).to(dtype)


# nobody's strides are contiguous for long
LAYOUTS = {
    "contiguous": lambda x: x,
    "transposed": lambda x: x.transpose(0, -1).contiguous().transpose(0, -1),
    "every other": lambda x: torch.stack([x, x], -1).flatten(-2)[..., ::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}
REALS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
INTEGERS = (torch.int64, torch.int32, torch.uint8, torch.bool)
