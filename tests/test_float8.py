"""Floats of eight bits are stored, moved, compared and converted as PyTorch does it, bit by bit; nothing computes with them."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
import pytest
from oracle import torch

import flambeau
from flambeau.kernels import arrays

NAMES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.parametrize("name", NAMES)]


def numbers() -> np.ndarray:
    """Every upper half of a float32 with a few lower halves, which hits every tie and both sides of it, and random bits."""
    upper = np.arange(1 << 16, dtype=np.uint32) << 16
    chance = np.random.default_rng(0)
    bits = np.concatenate([upper, upper | 1, upper | 0x8000, upper | 0xFFFF, chance.integers(0, 1 << 32, 200_000, np.uint32)])
    return bits.view(np.float32)


def bits(tensor, t) -> np.ndarray:
    return tensor.view(t.uint8).numpy()


def test_float32_is_rounded_to_the_same_bits(name):
    """A float32 became another number of eight bits than in PyTorch: rounding, saturation, infinity or NaN."""
    given = numbers()
    ours = bits(flambeau.from_numpy(given).to(getattr(flambeau, name)), flambeau)
    np.testing.assert_array_equal(ours, bits(torch.from_numpy(given).to(getattr(torch, name)), torch))


@pytest.mark.parametrize("other", ["float64", "float16", "bfloat16", "int64", "int32", "uint8", "int8", "bool", "complex64", *NAMES])
def test_conversions_from_and_to_every_dtype(name, other):
    """A conversion between eight bits and another dtype gave another number than PyTorch's."""
    codes = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    theirs = codes.to(getattr(torch, other))
    ours = flambeau.arange(256).to(flambeau.uint8).view(getattr(flambeau, name)).to(getattr(flambeau, other))
    wide = ("complex128" if other == "complex64" else "float64") if theirs.is_floating_point() or theirs.is_complex() else "int64"
    known = ~codes.isnan().numpy() if wide == "int64" else np.ones(256, bool)  # what integer NaN is depends on the processor
    np.testing.assert_array_equal(ours.to(getattr(flambeau, wide)).numpy()[known], theirs.to(getattr(torch, wide)).numpy()[known])
    source = torch.from_numpy(numbers()[::7]).clamp(-1e4, 1e4).nan_to_num(3.0).to(getattr(torch, other))
    carried = flambeau.from_numpy(source.to(getattr(torch, wide)).numpy()).to(getattr(flambeau, other))
    np.testing.assert_array_equal(bits(carried.to(getattr(flambeau, name)), flambeau), bits(source.to(getattr(torch, name)), torch))


def four(t, dtype):
    return t.tensor([1.0, 2.0, 0.5, 4.0]).to(dtype)


def after(x, index, value):
    x[index] = value
    return x


def gradient(t, d):
    weight = t.ones(2, requires_grad=True)
    (weight.to(d).float() * 3).sum().backward()
    return weight.grad


QUESTIONS = {
    "zeros": lambda t, d: t.zeros(3, dtype=d),
    "full": lambda t, d: t.full((3,), 2.0, dtype=d),
    "full beyond": lambda t, d: t.full((3,), 1e39, dtype=d),
    "tensor": lambda t, d: t.tensor([1.7, -2.0, 1e30], dtype=d),
    "0-d": lambda t, d: t.tensor(1.7, dtype=d).item(),
    "of numpy": lambda t, d: t.as_tensor(np.array([1.0, 300.0]), dtype=d),
    "eye": lambda t, d: t.eye(3, dtype=d),
    "buffer": lambda t, d: t.frombuffer(bytearray(b"abc"), dtype=d),
    "arange": lambda t, d: t.arange(3, dtype=d),
    "linspace": lambda t, d: t.linspace(0, 1, 3, dtype=d),
    "rand": lambda t, d: t.rand(3, dtype=d),
    "randint": lambda t, d: t.randint(0, 3, (3,), dtype=d),
    "normal_": lambda t, d: four(t, d).normal_(),
    "like": lambda t, d: [f(four(t, d)).float().tolist() for f in (t.ones_like, t.zeros_like)],
    "bits": lambda t, d: four(t, d).view(t.int16),
    "contiguous": lambda t, d: four(t, d).reshape(2, 2).t().contiguous(),
    "channels last": lambda t, d: t.ones(2, 3, 4, 5).to(d).to(memory_format=t.channels_last).stride(),
    "flatten": lambda t, d: four(t, d).reshape(2, 2).t().flatten(),
    "cat": lambda t, d: t.cat([four(t, d), four(t, d)]),
    "stack": lambda t, d: t.stack([four(t, d), four(t, d)]),
    "index": lambda t, d: four(t, d)[t.tensor([0, 1])],
    "mask": lambda t, d: four(t, d)[t.tensor([True, False, True, True])],
    "set": lambda t, d: after(four(t, d), 0, 3.0),
    "set a slice": lambda t, d: after(four(t, d), slice(0, 2), t.tensor([0.3, 7.0])),
    "copy_": lambda t, d: four(t, d).reshape(2, 2).t().copy_(t.arange(4.0).reshape(2, 2)),
    "copied from": lambda t, d: t.ones(4).copy_(four(t, d)),
    "fill": lambda t, d: four(t, d).fill_(2),
    "expand": lambda t, d: four(t, d).reshape(4, 1).expand(4, 2).contiguous(),
    "roll": lambda t, d: four(t, d).roll(1),
    "repeat": lambda t, d: four(t, d).repeat(2),
    "eq": lambda t, d: four(t, d) == four(t, d),
    "ne a number": lambda t, d: four(t, d) != 2,
    "eq of two kinds": lambda t, d: four(t, d) == four(t, t.float8_e5m2),
    "eq with float32": lambda t, d: four(t, d) == t.ones(4),
    "equal": lambda t, d: t.equal(four(t, d), four(t, d)),
    "isnan": lambda t, d: t.tensor([1.0, float("nan")]).to(d).isnan(),
    "where": lambda t, d: t.where(t.tensor([True, False, True, False]), four(t, d), four(t, d)),
    "any": lambda t, d: four(t, d).any(),
    "truth": lambda t, d: bool(four(t, d)[0]),
    "sum in float32": lambda t, d: four(t, d).sum(dtype=t.float32),
    **{
        f"no {name}": (lambda t, d, name=name: getattr(four(t, d), name)())
        for name in "neg sum max mean sort nonzero unique sign exp relu argmax sqrt prod".split()
    },
    **{f"no {name}": (lambda t, d, name=name: getattr(four(t, d), name)(four(t, d))) for name in "add mul sub div lt maximum".split()},
    "no add of float32": lambda t, d: four(t, d) + t.ones(4),
    "no add of a number": lambda t, d: four(t, d) + 1,
    "no masked_fill": lambda t, d: four(t, d).masked_fill(t.tensor([True, False, True, False]), 1),
    "no gather": lambda t, d: four(t, d).gather(0, t.tensor([0])),
    "no numpy": lambda t, d: four(t, d).numpy(),
    "no default": lambda t, d: t.set_default_dtype(d),
    "promotion": lambda t, d: t.promote_types(d, t.float32),
    "promotion to itself": lambda t, d: repr(t.promote_types(d, d)),
    "result_type": lambda t, d: repr(t.result_type(four(t, d), 1.0)),
    "casts": lambda t, d: (t.can_cast(d, t.float32), t.can_cast(t.float32, d)),
    "type": lambda t, d: four(t, d).type(),
    "repr": lambda t, d: repr(t.tensor([1.0, 448.0, 0.01]).to(d)),
    "finfo": lambda t, d: repr(t.finfo(d)),
    "a module": lambda t, d: repr(t.nn.Linear(2, 2).to(d).weight.dtype),
    "gradients": gradient,
    "copies": lambda t, d: copy.deepcopy(four(t, d)),
    "meta": lambda t, d: repr(t.empty(3, device="meta").to(d).dtype),
    "size": lambda t, d: (four(t, d).nbytes, four(t, d).element_size(), four(t, d).is_floating_point(), d.is_signed),
}


@pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)
def test_what_can_be_done_with_them(name, ask):
    """An operation on floats of eight bits answered where PyTorch refuses, refused where it answers, or gave something else."""

    def outcome(t):
        try:
            found = ask(t, getattr(t, name))
        except Exception as problem:
            return type(problem)
        if isinstance(found, t.Tensor):
            return repr(found.dtype), (found.float() if found.is_floating_point() else found).tolist()
        return found

    assert str(outcome(flambeau)) == str(outcome(torch))


def test_files(name):
    """PyTorch reads such tensors from our files, we from its, and pickles keep them."""
    every = torch.arange(256, dtype=torch.uint8).view(getattr(torch, name))
    file = io.BytesIO()
    torch.save({"t": every, "view": every[::2]}, file)
    file.seek(0)
    ours = flambeau.load(file)
    assert ours["t"].dtype is getattr(flambeau, name) and ours["view"].untyped_storage() is ours["t"].untyped_storage()
    file = io.BytesIO()
    flambeau.save(ours, file)
    file.seek(0)
    theirs = torch.load(file)
    assert theirs["t"].dtype is every.dtype and theirs["t"].view(torch.uint8).tolist() == list(range(256))
    again = pickle.loads(pickle.dumps(ours["t"]))
    assert again.dtype is ours["t"].dtype and again.view(flambeau.uint8).tolist() == list(range(256))


def test_there_are_none_on_a_gpu(name):
    """CuPy has no arrays of them: that must be said, not discovered."""
    with pytest.raises(NotImplementedError, match="CuPy has no arrays"):
        arrays.empty((2,), getattr(flambeau, name).numpy, flambeau.device("cuda:0"))
