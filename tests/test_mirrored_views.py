"""Conjugates and negatives as views: they share memory, no operation sees what lies there instead of what is meant, and writes go through.

PyTorch is the oracle for what is a view and for what is written; for the numbers of all other operations it is the same operation on a
copy with the numbers themselves in memory.
"""

from __future__ import annotations

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
from history_oracle import agree

import flambeau
from flambeau import ops
from flambeau.eager.arguments import tensors_in
from flambeau.kernels import arrays

torch = pytest.importorskip("torch")


def numbers(T, n=3, seed=0):
    """A complex matrix without zeros."""
    values = np.random.default_rng(seed).standard_normal((n, n, 2)) @ [1, 1j]
    return T.tensor(values.tolist(), dtype=T.complex128)


# -- what is a view of what ------------------------------------------------------------------------------------------------

VIEWS = {
    "conj": lambda T, z: z.conj(),
    "twice": lambda T, z: z.conj().conj(),
    "negative": lambda T, z: z._neg_view(),
    "function": lambda T, z: T._neg_view(z),
    "both": lambda T, z: z.conj()._neg_view(),
    "of a real tensor": lambda T, z: z.real.conj(),
    "adjoint": lambda T, z: z.adjoint(),
    "mH": lambda T, z: z.mH,
    "H": lambda T, z: z.H,
    "mH of mH": lambda T, z: z.mH.mH,
    "real": lambda T, z: z.conj().real,
    "imag": lambda T, z: z.conj().imag,
    "imag of the negative": lambda T, z: z._neg_view().imag,
    "imag of both": lambda T, z: z._neg_view().conj().imag,
    "negative as pairs": lambda T, z: T.view_as_real(z._neg_view()),
    "negative of pairs": lambda T, z: T.view_as_complex(T.view_as_real(z)._neg_view()),
    "row": lambda T, z: z.conj()[0],
    "element": lambda T, z: z.conj()[1, 2],
    "steps": lambda T, z: z.conj()[::2, None],
    "transposed": lambda T, z: z.conj().t(),
    "flat": lambda T, z: z.conj().reshape(-1),
    "expanded": lambda T, z: z.conj().expand(2, 3, 3),
    "diagonal": lambda T, z: z.conj().diagonal(),
    "pieces": lambda T, z: z.conj().split(2)[1],
    "unbound": lambda T, z: z.conj().unbind()[1],
    "window": lambda T, z: z.conj().as_strided((2, 2), (1, 3), 1),
    "detached": lambda T, z: z.conj().detach(),
    "data": lambda T, z: z.conj().data,
    "contiguous": lambda T, z: z.conj().contiguous(),
    "resolved": lambda T, z: z.conj().resolve_conj(),
    "resolved other": lambda T, z: z.conj().resolve_neg(),
    "copied": lambda T, z: z.conj().clone(),
    "copied in order": lambda T, z: z.conj().t().contiguous(),
    "converted": lambda T, z: z.conj().to(T.complex64),
    "moved nowhere": lambda T, z: z.conj().cpu(),
    "like": lambda T, z: T.zeros_like(z.conj()),
    "computed": lambda T, z: z.conj() * 2,
    "physical": lambda T, z: z.conj().conj_physical(),
    "shallow": lambda T, z: copy.copy(z.conj()),
    "deep": lambda T, z: copy.deepcopy(z.conj()),
    "parameter": lambda T, z: T.nn.Parameter(z.conj()),
    "another window": lambda T, z: z.conj().set_(numbers(T, seed=1)),
    "without elements": lambda T, z: z[:0].conj(),
}


@pytest.mark.parametrize("name", VIEWS)
def test_what_is_a_view_is_pytorchs(name):
    """Which results share memory, are read conjugated or negated, and what they hold."""

    def question(T):
        z = numbers(T)
        found = VIEWS[name](T, z)
        shares = found.untyped_storage().data_ptr() == z.untyped_storage().data_ptr()
        place = shares and found.numel() and found.data_ptr() - z.data_ptr()
        facts = found.is_conj(), found.is_neg(), T.is_conj(found), found.stride(), place, type(found).__name__
        return [*facts, found.detach().resolve_conj().resolve_neg(), repr(found.detach().resolve_conj().resolve_neg())]

    agree(question)


ANSWERS = {
    "equal": lambda T, y: (T.equal(y, y.clone()), T.equal(y, y.conj()), T.equal(y.clone(), y)),
    "same window": lambda T, y: (y.is_set_to(y.conj()), y.conj().is_set_to(y)),
    "list": lambda T, y: y.tolist(),
    "number": lambda T, y: (y[0, 0].item(), complex(y[0, 1]), float(y[0, 1].imag), bool(y[0, 0])),
    "format": lambda T, y: f"{y[0, 0].imag:.3f}",
    "printed": lambda T, y: (repr(y), repr(y.imag)),
    "numpy, forced": lambda T, y: (y.numpy(force=True).tolist(), y.imag.numpy(force=True).tolist()),
    "of meta": lambda T, y: (
        y.to("meta").is_conj(),
        y.conj().to("meta").conj().is_conj(),
        tuple((y.to("meta").conj() @ y.to("meta")).shape),
    ),
    "offsets": lambda T, y: (y.storage_offset(), y.imag.storage_offset(), y.imag.stride()),
    "elements": lambda T, y: [row.is_conj() for row in y],
    "numpy": lambda T, y: y.numpy(),
    "numpy of a negative": lambda T, y: y.imag.numpy(),
    "array": lambda T, y: np.asarray(y),
    "pairs": lambda T, y: T.view_as_real(y),
    "another dtype": lambda T, y: y.view(T.complex64),
    "the same dtype": lambda T, y: y.view(T.complex128),
    "bits of a negative": lambda T, y: y.imag.view(T.int64),
    "negative of a mask": lambda T, y: (y.real > 0)._neg_view() + 0,
}


@pytest.mark.parametrize("name", ANSWERS)
def test_questions_to_a_conjugate_are_answered_as_by_pytorch(name):
    """Numbers, texts and refusals."""
    agree(lambda T: ANSWERS[name](T, numbers(T).conj()))


@pytest.mark.parametrize("bit", ("conjugate", "negative"))
def test_numpy_says_which_bit_is_in_the_way(bit):
    """Programs match on the phrase; what it advises works."""
    seen = numbers(flambeau).conj() if bit == "conjugate" else numbers(flambeau).conj().imag
    with pytest.raises(RuntimeError, match=f"Can't call numpy.. on Tensor that has {bit} bit set. Use tensor.resolve_"):
        seen.numpy()
    with pytest.raises(BufferError, match=f"Can't export tensors with the {bit} bit set"):
        seen.__dlpack__()
    seen.resolve_conj().resolve_neg().numpy()


MISTAKES = {
    "asarray": np.asarray, "ufunc": lambda m: np.add(m, 1), "function": np.sum, "comparison": lambda m: m == 0, "truth": bool,
    "arithmetic": lambda m: m + 1, "element": lambda m: m[0], "length": len, "loop": list, "buffer": memoryview, "array": lambda m: np.array([m]),
    "into": lambda m: np.copyto(np.zeros((3, 3), complex), m), "method": lambda m: m.sum(), "address": lambda m: m.ctypes.data,
}  # fmt: skip


@pytest.mark.parametrize("name", MISTAKES)
def test_whoever_has_not_heard_of_mirrors_fails(name):
    """Nothing that takes an array takes one in a mirror: no number that lies in the memory can get out by mistake."""
    with pytest.raises((TypeError, AttributeError)):
        MISTAKES[name](numbers(flambeau).conj()._array)


def test_a_conjugate_is_described_and_takes_no_memory():
    """describe() measures what is meant, and a profile of memory counts no bytes for a view."""
    z = flambeau.ones(64, 64) * 2j
    assert "-2" in str(z.conj().imag.describe())
    with flambeau.profiler.profile(profile_memory=True) as profile:
        z.conj()
    assert not any(event.self_cpu_memory_usage for event in profile.key_averages())


# -- writing -----------------------------------------------------------------------------------------------------------------

ONE = [0, 2]
WRITES = {
    "mul_": lambda T, z: z.conj().mul_(2j),
    "operator": lambda T, z: z.conj().__iadd__(1j),
    "fill_": lambda T, z: z.mH.fill_(1 + 2j),
    "zero_": lambda T, z: z.conj()[0].zero_(),
    "copy_": lambda T, z: z.conj().copy_(numbers(T, seed=1).t()),
    "copy_ of a conjugate": lambda T, z: z.mH.copy_(numbers(T, seed=1).conj()),
    "copy_ converts": lambda T, z: z.conj().copy_(numbers(T, seed=1).to(T.complex64)),
    "copy_ into a plain one": lambda T, z: z.copy_(numbers(T, seed=1).mH),
    "setitem number": lambda T, z: z.conj().__setitem__(0, 5j),
    "setitem row": lambda T, z: z.conj().__setitem__((slice(None), 1), numbers(T, seed=1)[0]),
    "setitem index": lambda T, z: z.conj().__setitem__(T.tensor(ONE), 3j),
    "setitem mask": lambda T, z: z.conj().__setitem__(z.real > 0, 1j),
    "setitem of a conjugate": lambda T, z: z.__setitem__(T.tensor(ONE), numbers(T, seed=1).conj()[:2]),
    "index_put_": lambda T, z: z.conj().index_put_((T.tensor(ONE),), numbers(T, seed=1)[0]),
    "index_fill_": lambda T, z: z.conj().index_fill_(0, T.tensor(ONE), 1j),
    "index_add_": lambda T, z: z.conj().index_add_(0, T.tensor([0, 0]), numbers(T, seed=1)[:2]),
    "masked_fill_": lambda T, z: z.conj().masked_fill_(z.real > 0, 2j),
    "masked_scatter_": lambda T, z: z.conj().masked_scatter_(z.real > 0, numbers(T, seed=1)),
    "scatter_": lambda T, z: z.conj().scatter_(0, T.zeros(1, 3, dtype=T.int64), 2j),
    "tril_": lambda T, z: z.conj().tril_(),
    "cumsum_": lambda T, z: z.conj().cumsum_(0),
    "exp_": lambda T, z: z.conj().exp_(),
    "neg_": lambda T, z: z.conj().neg_(),
    "addmm_": lambda T, z: z.conj().addmm_(numbers(T, seed=1), numbers(T, seed=2)),
    "addcmul_": lambda T, z: z.conj().addcmul_(numbers(T, seed=1), numbers(T, seed=2), value=2),
    "conj_physical_": lambda T, z: z.conj().conj_physical_(),
    "fill_diagonal_": lambda T, z: z.conj().fill_diagonal_(1j),
    "own conjugate": lambda T, z: z.add_(z.conj()),
    "imag fill_": lambda T, z: z.conj().imag.fill_(7),
    "imag add_": lambda T, z: z.conj().imag.add_(1),
    "imag assigned": lambda T, z: setattr(z.conj(), "imag", T.ones(3, 3, dtype=T.float64)),
    "negative": lambda T, z: z.imag._neg_view().mul_(3),
    "both": lambda T, z: z._neg_view().conj().mul_(1 + 1j),
    "out": lambda T, z: T.add(numbers(T, seed=1), 1j, out=z.conj()),
    "out of an array operation": lambda T, z: T.mm(numbers(T, seed=1), numbers(T, seed=2), out=z.conj()),
    "out of a row": lambda T, z: T.sum(numbers(T, seed=1), 0, out=z.conj()[0]),
    "transposed in place": lambda T, z: z.conj().t_().add_(1j),
    "resized": lambda T, z: z.conj().resize_(9).mul_(1j),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_write_in_the_mirror_is_a_write_to_the_memory(name):
    """x.conj().mul_(2) changes x as in PyTorch, and counts as a write."""

    def question(T):
        z = numbers(T)
        before, version = z.conj(), z._version
        WRITES[name](T, z)
        return z, before.resolve_conj(), z._version > version

    agree(question)


def test_more_memory_behind_a_conjugate_leaves_it_one():
    """A storage that is exchanged stays behind the same views."""

    def question(T):
        z = numbers(T)
        y, imag = z.conj(), z.conj().imag
        z.untyped_storage().resize_(400)
        return y.is_conj(), y.resolve_conj(), imag.is_neg(), imag.resolve_neg()

    agree(question)


def test_a_storage_survives_its_way_to_a_file():
    """A conjugate in a file of either framework is one in the other, and still shares memory with what it is a view of."""
    ours, theirs = numbers(flambeau), numbers(torch)
    for save, load, z, T in ((flambeau.save, torch.load, ours, torch), (torch.save, flambeau.load, theirs, flambeau)):
        file = io.BytesIO()
        save({"z": z, "conj": z.conj(), "both": z.mH._neg_view()}, file)
        file.seek(0)
        found = load(file)
        assert found["conj"].is_conj() and not found["conj"].is_neg() and found["both"].is_conj() and found["both"].is_neg()
        assert found["conj"].data_ptr() == found["z"].data_ptr()
        assert T.equal(found["conj"], found["z"].conj_physical()) and T.equal(found["both"], -found["z"].mH)
    again = pickle.loads(pickle.dumps(ours.conj().imag))
    assert again.is_neg() and flambeau.equal(again, ours.conj().imag)


# -- history -------------------------------------------------------------------------------------------------------------------

HISTORIES = {
    "conj": lambda T, z: z.conj(),
    "imag": lambda T, z: z.conj().imag,
    "product": lambda T, z: z.mH @ z,
    "negative": lambda T, z: z._neg_view() * z.conj(),
    "resolved": lambda T, z: z.conj().resolve_conj(),
    "pairs": lambda T, z: T.view_as_complex(T.view_as_real(z)).conj() * z,
    "write": lambda T, z: (c := z.clone(), c.conj().mul_(z))[0],
    "the view that was written to": lambda T, z: z.clone().conj().mul_(z),
    "write to a part": lambda T, z: (c := z.clone(), c.conj()[0].copy_(z[1]))[0],
    "write to the imaginary part": lambda T, z: (c := z.clone(), c.conj().imag.mul_(3))[0],
    "write seen elsewhere": lambda T, z: (c := z.clone(), c.mH, c.mul_(z))[1] * 2,
    "write seen in a part": lambda T, z: (c := z.clone(), c.conj().imag, c.mul_(z))[1] * 2,
    "assignment": lambda T, z: (c := z.clone(), c.conj().__setitem__(0, z[1] * 2))[0],
    "index_put_": lambda T, z: (c := z.clone(), c.conj().index_put_((T.tensor([0]),), z[1]))[0],
    "masked_fill_": lambda T, z: (c := z.clone(), c.conj().masked_fill_(z.real > 0, 1j))[0],
    "cumsum_": lambda T, z: (c := z.clone(), c.mH.cumsum_(0))[0],
    "a base in the mirror": lambda T, z: (c := z.detach().conj(), c.mul_(z), c.imag.mul_(z.real))[0],
}


@pytest.mark.parametrize("name", HISTORIES)
def test_gradients_through_the_mirror_are_pytorchs(name):
    """Reading, writing, and views that are written to: values, nodes and gradients."""

    def question(T):
        z = numbers(T).requires_grad_()
        found = HISTORIES[name](T, z)
        (found * found.detach().conj() * (1 + 2j)).sum().abs().backward()
        return type(found.grad_fn).__name__, found.resolve_conj().resolve_neg().detach(), z.grad.resolve_conj().resolve_neg()

    agree(question)


def test_differences_agree_with_gradients_of_views():
    """gradcheck and gradgradcheck."""
    z = numbers(flambeau, 2).requires_grad_()
    assert flambeau.autograd.gradcheck(lambda z: z.conj() * z.mH, (z,))
    assert flambeau.autograd.gradgradcheck(lambda z: z.conj().imag.exp() * z._neg_view(), (z,))


TRANSFORMED = {
    "vmap": lambda T, z: T.func.vmap(lambda row: row.conj() * 2)(z),
    "vmap of a view": lambda T, z: T.func.vmap(lambda row: row.conj()[1:])(z).resolve_conj(),
    "write in vmap": lambda T, z: T.func.vmap(lambda row: (c := row.clone(), c.conj().mul_(2j))[0])(z),
    "grad": lambda T, z: T.func.grad(lambda z: (z.conj() * z * z).sum().real)(z).resolve_conj(),
    "vmap of grad": lambda T, z: T.func.vmap(T.func.grad(lambda z: (z.conj() * z * z).sum().real))(z).resolve_conj(),
    "jvp": lambda T, z: T.func.jvp(lambda z: z.conj() * z, (z,), (z.t(),))[1].resolve_conj(),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transformed_functions_see_what_is_meant(name):
    """vmap, grad and jvp, inside and outside of each other."""
    agree(lambda T: TRANSFORMED[name](T, numbers(T)))


# -- every operation -----------------------------------------------------------------------------------------------------------

INDEX, MASK = [[0, 2, 1], [1, 1, 0], [2, 0, 0]], [[True, False, True], [False, False, True], [True, True, False]]
X, Y, Z, V, W, B, K, J, M, L = "x", "y", "z", "v", "w", "b", "k", "j", "m", "l"
CALLS = [
    (X,), (X, Y), (X, Y, Z), (V,), (V, W), (X, V), (X, V, W), (B, B), (X, B, B), (B,), ([X, Y],), ([V, W],), (L,), (K,), (K, K), (J,), (J, V),
    (X, 0), (X, 1), (X, 2), (X, 0, 1), (X, 2.5), (X, 0.5, 2.0), (X, Y, 0.5), (X, (3, 3)), (X, 9), (X, (0, 1)), (X, (1, 0)), (X, 1, 0, 1), (X, 0, 2),
    (X, K), (X, M), (X, M, 2.0), (X, M, Y), (M, X, Y), (X, 0, K), (X, 0, K, Y), (X, 0, J, Y), (X, 0, J, 2.0), (X, 0, J), (X, Y, K),
    (X, 0, K, Y, "prod"), (X, (1, 1)), (J, X), (B, W), (B, B, V), (X, "fro"), (X, [2, 1]), ("ij,jk->ik", X, Y), (X, 0, 0, 1), (X, V, 0),
]  # fmt: skip
OPTIONS = [{}, {"dim": 0}, {"dims": (0,)}, {"dim": 0, "keepdim": True}]
SKIPPED = {
    "view_as_real",
    "view_as_real_copy",
    "_neg_view",
    "view",
    "lobpcg",
}  # what refuses a mirror, is about nothing else, or takes long


def operands(kind: str) -> dict:
    """The tensors that stand for the letters."""
    T, dtype = flambeau, flambeau.complex128 if kind == "conj" else flambeau.float64
    x, y, z = [(numbers(T, seed=s) if dtype.is_complex else numbers(T, seed=s).real.abs()).to(dtype) for s in (1, 2, 3)]
    index = T.tensor(INDEX)
    found = {X: x, Y: y, Z: z, V: x[0].clone(), W: y[1].clone(), B: T.stack([x, y, z]), L: x @ x.mH + 3 * T.eye(3), K: index, J: index[0]}
    return found | {M: T.tensor(MASK)}


def mirrored(t, kind: str):
    """The same numbers, in memory of their own, where others stand: they are seen in a mirror."""
    if kind == "neg" or not t.is_complex():
        return t.clone() if kind == "conj" or t.dtype is flambeau.bool else (-t)._neg_view()
    return t.conj_physical().conj()


def filled(template, tensors: dict, change):
    """Arguments with tensors in the places of letters, changed so that a call may do with them what it likes."""
    if isinstance(template, (tuple, list)):
        return type(template)([filled(t, tensors, change) for t in template])
    found = tensors.get(template, template) if isinstance(template, str) else template
    return change(found) if found is not template else found


def asked(call, args: tuple, options: dict):
    """The result, with random numbers from their start; None where the call means nothing."""
    flambeau.manual_seed(0)
    try:
        return call(*args, **options)
    except Exception:
        return None


def same(found, expected) -> bool:
    """Equal to the last few digits, in everything that holds tensors."""
    mine, theirs = list(tensors_in(found)), list(tensors_in(expected))
    if not theirs:
        return found == expected or found != found
    pairs = list(zip(mine, theirs, strict=False))
    return len(mine) == len(theirs) and all(
        a.dtype is b.dtype and a.shape == b.shape and np.allclose(_read(a), _read(b), 1e-8, 1e-10, equal_nan=True) for a, b in pairs
    )


def _read(t):
    return np.asarray(arrays.plain(t.detach().cpu()._array))


def everything_that_computes():
    """(name, function, arguments that may fit, whether it writes over the first of them), for all that users find in the table of operations."""
    for op in ops.everything():
        short = op.name.rpartition(".")[2]
        if (op.public or op.method) and short not in SKIPPED and "empty" not in short:
            op.bind()
            templates = [t for t in CALLS if op.variadic or len(op.parameters) - len(op.defaults) <= len(t) <= op.n_positional]
            yield op.name, op.call, templates, short.endswith("_")
            if op.inplace and hasattr(op, "call_inplace"):
                yield op.name + "_", op.call_inplace, templates, True


@pytest.mark.parametrize("kind", ("conj", "neg"))
def test_every_operation_computes_with_what_is_meant(kind):
    """f(x.conj()) is f of the conjugates, for all operations that take such arguments at all; so are its gradients and its in-place form."""
    plain, tried, wrong = operands(kind), set(), []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, call, templates, writes in everything_that_computes():
            for template in templates:
                for options in OPTIONS[: 1 if len(template) > 1 or writes else None]:
                    problem = _problem(call, plain, kind, template, options, writes)
                    if problem is not None:
                        tried.add(name)
                    if problem:
                        wrong.append(f"{name}{template}{options}: {problem}")
    assert not wrong, "\n".join(wrong[:20])
    assert len(tried) > (250 if kind == "conj" else 300), "the table of calls no longer fits the operations"


def _problem(call, plain: dict, kind: str, template: tuple, options: dict, writes: bool) -> str | None:
    """What is wrong with a call, "" if nothing is; None where the call means nothing."""
    expected = asked(call, filled(template, plain, lambda t: t.clone()), options)
    if expected is None:
        return None
    in_mirror = filled(template, plain, lambda t: mirrored(t, kind))
    array = getattr(in_mirror[0], "_array", None)
    flambeau.manual_seed(0)
    try:
        found = call(*in_mirror, **options)
        if not same(found, expected):
            return f"found {found}, expected {expected}"
        if writes and (found is not in_mirror[0] or type(found._array) is not type(array)):
            return "the result is another tensor, or has left the mirror"
        return "" if writes else _gradients_differ(call, plain, kind, template, options)
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"


def _gradients_differ(call, plain: dict, kind: str, template: tuple, options: dict) -> str:
    leaf = lambda t: t.detach().requires_grad_(t.is_floating_point() or t.is_complex())  # noqa: E731
    given, in_mirror = filled(template, plain, leaf), filled(template, plain, lambda t: leaf(mirrored(t, kind)))
    expected = asked(lambda: gradients(call(*given, **options), given), (), {})
    flambeau.manual_seed(0)
    return "" if expected is None or same(gradients(call(*in_mirror, **options), in_mirror), expected) else "other gradients"


def gradients(result, arguments: tuple):
    """The gradients of all arguments that can have one, where all elements of the results have the gradient one."""
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    leaves = [t for t in tensors_in(arguments) if t.requires_grad]
    return flambeau.autograd.grad(outputs, leaves, [flambeau.ones_like(t) for t in outputs], allow_unused=True) if outputs else ()
