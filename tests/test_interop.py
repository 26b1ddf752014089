"""Tensors among Python's protocols and other libraries: numbers, NumPy, DLPack, pickle, copies, storages, subclasses.

The oracle is real torch: the same question is asked of both frameworks, and the answers must agree.
"""

from __future__ import annotations

import copy
import io
import os
import pickle
import tempfile
import warnings
import weakref
from typing import ClassVar

import numpy as np
import pytest
from test_factories import agree, flambeau, questions, torch

from flambeau.tensor.making.parameter import Parameter

DTYPES = ["float32", "float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128"]


# -- Python's numbers ----------------------------------------------------------------------------------------------


@questions(
    lambda t: t.ones(1, 1).item(),
    lambda t: t.ones(2).item(),
    lambda t: t.ones(0).item(),
    lambda t: t.ones(1, device="meta").item(),
    lambda t: t.tensor(1.5, dtype=t.bfloat16).item(),
    lambda t: float(t.ones(1, 1)),
    lambda t: float(t.ones(2)),
    lambda t: float(t.tensor(1 + 2j)),
    lambda t: int(t.tensor(2.7)),
    lambda t: int(t.ones(2)),
    lambda t: int(t.tensor(float("nan"))),
    lambda t: int(t.tensor(True)),
    lambda t: complex(t.tensor(2.5)),
    lambda t: complex(t.ones(2)),
    lambda t: bool(t.zeros(1, 1)),
    lambda t: bool(t.ones(2)),
    lambda t: bool(t.ones(0)),
    lambda t: bool(t.ones(1, device="meta")),
    lambda t: [1, 2, 3][t.tensor(1)],
    lambda t: list(range(t.tensor([[3]]))),
    lambda t: t.tensor(True).__index__(),
    lambda t: t.tensor(3.0).__index__(),
    lambda t: t.tensor([3, 4]).__index__(),
    lambda t: list(t.tensor([[1, 2], [3, 4]])),
    lambda t: iter(t.tensor(1)),
    lambda t: list(reversed(t.tensor([[1, 2], [3, 4]]))),
    lambda t: t.tensor(1).__reversed__(),
    lambda t: 2 in t.tensor([1, 2]),
    lambda t: 2.5 in t.tensor([1, 2]),
    lambda t: t.tensor([1, 5]) in t.tensor([1, 2]),
    lambda t: "a" in t.tensor([1, 2]),
    lambda t: None in t.tensor([1, 2]),
    lambda t: len(t.tensor(1)),
    lambda t: t.ones(2, 0).tolist(),
    lambda t: t.ones(()).tolist(),
    lambda t: t.ones(2, device="meta").tolist(),
    lambda t: t.ones(2, dtype=t.bfloat16).tolist(),
    lambda t: t.is_nonzero(t.tensor(1.0)),
    lambda t: t.is_nonzero(t.ones(2)),
    lambda t: t.arange(6).reshape(2, 3).t().apply_(lambda x: x * 10),
    lambda t: t.arange(4.0).map_(t.ones(4), lambda x, y: x - y),
    lambda t: t.arange(4.0).map2_(t.ones(4), t.ones(4), lambda x, y, z: x - y - z),
    lambda t: t.ones(2, requires_grad=True).apply_(lambda x: x),
    lambda t: f"{t.tensor(1.23456):.2f}",
)
def test_tensors_as_python_values(question):
    """Conversion to numbers, truth, iteration and membership give PyTorch's values and errors."""
    agree(question)


@questions(
    lambda t: t.is_tensor(t.ones(1)),
    lambda t: t.is_tensor(1),
    lambda t: t.is_storage(t.ones(1).untyped_storage()),
    lambda t: t.numel(t.ones(2, 3)),
    lambda t: t.numel(3),
    lambda t: t.is_floating_point(t.ones(1)),
    lambda t: t.is_complex(t.ones(1)),
    lambda t: t.is_same_size(t.ones(2), t.ones(3)),
    lambda t: t.ones(2).is_set_to(t.ones(2)),
    lambda t: t.ones(2).layout,
    lambda t: t.ones(2).is_sparse,
    lambda t: t.ones(2).is_quantized,
    lambda t: t.ones(2).is_shared(),
    lambda t: t.ones(2).is_pinned(),
    lambda t: t.ones(2).pin_memory(),
    lambda t: t.ones(2).get_device(),
    lambda t: t.ones(2).cuda(),
    lambda t: t.ones(2).to_dense(),
    lambda t: t.ones(2).indices(),
    lambda t: t.ones(2).coalesce(),
    lambda t: (t.ones(2, 3).sparse_dim(), t.ones(2, 3).dense_dim()),
    lambda t: t.ones(1, 2, 3, 4).to(memory_format=t.channels_last).dim_order(),
    lambda t: t.ones(2, 3).T,
    lambda t: t.ones(2, 3, 4).T,
    lambda t: t.ones(2).mT,
    lambda t: t.ones(2, 3, 4).mT,
    lambda t: t.tensor([[1 + 2j, 3j]]).H.tolist(),
    lambda t: t.ones(2).H,
    lambda t: t.ones(2, 3, 4).H,
    lambda t: t.ones(2, 3, 4).mH,
    lambda t: t.ones(2).names,
    lambda t: t.ones(2).as_subclass(int),
    lambda t: t.ones(2).resize(3),
    lambda t: t.ones(2, 3).resize(3, 2),
    lambda t: t.arange(6).reshape(2, 3).t_(),
    lambda t: t.arange(6).reshape(2, 3).transpose_(0, 1),
    lambda t: t.arange(6).reshape(1, 2, 3).squeeze_(),
    lambda t: t.arange(6).unsqueeze_(1),
    lambda t: t.ones(2, 3, requires_grad=True).t_(),
    lambda t: t.ones(2).xpu(),
    lambda t: t.cond(t.tensor(True), lambda x: x + 1, lambda x: x - 1, (t.ones(2),)),
    lambda t: (t.sym_max(1, 2.0), t.sym_min(3, 2), t.sym_int(2.7), t.sym_not(True), isinstance(3, t.SymInt)),
)
def test_questions_about_tensors(question):
    """What a tensor says about itself on a machine without a GPU is what PyTorch says."""
    agree(question)


# -- NumPy ---------------------------------------------------------------------------------------------------------


@questions(
    lambda t: t.from_numpy([1]),
    lambda t: t.from_numpy(np.float32(1)),
    lambda t: t.from_numpy(np.arange(4)[::-1]),
    lambda t: t.from_numpy(np.array(["a"])),
    lambda t: t.from_numpy(np.array([1], ">i4")),
    lambda t: t.from_numpy(np.array([1], object)),
    lambda t: t.from_numpy(np.array([1], np.longdouble)),
    lambda t: t.from_numpy(np.broadcast_to(np.arange(2), (2, 2))),
    lambda t: t.from_numpy(np.zeros((3,), [("a", "i1"), ("b", "f4")])["b"]),
    lambda t: t.from_numpy(np.zeros(3, np.longlong)),
    lambda t: t.from_numpy(np.arange(12).reshape(3, 4)[::2, 1::2]),
    lambda t: t.from_numpy(np.float64(1).reshape(())),
    lambda t: t.ones(2, requires_grad=True).numpy(),
    lambda t: t.ones(2, requires_grad=True).numpy(force=True),
    lambda t: t.no_grad()(lambda: t.ones(2, requires_grad=True).numpy())(),
    lambda t: t.no_grad()(lambda: np.asarray(t.ones(2, requires_grad=True)))(),
    lambda t: t.no_grad()(lambda: np.sin(t.ones(2, requires_grad=True)))(),
    lambda t: t.no_grad()(lambda: np.stack([t.ones(2, requires_grad=True)] * 2))(),
    lambda t: t.ones(2, dtype=t.bfloat16).numpy(),
    lambda t: t.ones(2, device="meta").numpy(),
    lambda t: t.ones(2, 3).t().numpy().strides,
    lambda t: np.array(t.ones(2, requires_grad=True)),
    lambda t: np.asarray(t.ones(2), "f8"),
    lambda t: np.sin(t.ones(2)),
    lambda t: np.add(t.ones(2), 1),
    lambda t: t.ones(2) * np.full(2, 3.0),
    lambda t: np.float64(2) * t.ones(2),
    lambda t: t.ones(2) + np.float32(2),
    lambda t: np.ones(2) * t.ones(2),
    lambda t: np.ones(2) == t.ones(2),
    lambda t: t.ones(2) == np.array([1, 2]),
)
def test_numpy(question):
    """from_numpy, numpy(), and NumPy's functions on tensors behave as with PyTorch."""
    agree(question)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_numpy_shares_memory(dtype):
    """numpy() and from_numpy are two names for one memory, strides included."""
    tensor = flambeau.zeros(2, 3, dtype=getattr(flambeau, dtype)).t()
    as_array = tensor.numpy()
    as_array[1, 0] = 1
    again = flambeau.from_numpy(as_array)
    again.select(0, 2).fill_(1)
    assert tensor.tolist() == as_array.tolist() == again.tolist()
    assert again.stride() == tensor.stride() and again.dtype is tensor.dtype


@pytest.mark.filterwarnings("ignore:Setting the shape:DeprecationWarning")
def test_numpy_shares_no_shape():
    """Memory is shared, shapes are not: setting the shape of the array, before or after, leaves the tensor as it was."""
    given = np.arange(6.0)
    x = flambeau.from_numpy(given)
    given.shape = (2, 3)
    taken = x.numpy()
    taken.shape = (3, 2)
    assert tuple(x.shape) == (6,) and x.numpy().shape == (6,) and np.shares_memory(given, taken)


def test_a_read_only_array_is_announced():
    """from_numpy warns about an array that its owner does not want written."""
    frozen = np.zeros(2)
    frozen.flags.writeable = False
    with pytest.warns(UserWarning, match="not writable"):
        flambeau.from_numpy(frozen)


def test_asking_numpy_for_a_copy():
    """np.array copies and np.asarray does not."""
    tensor = flambeau.zeros(2)
    np.array(tensor)[0] = 1
    assert tensor.tolist() == [0, 0]
    np.asarray(tensor)[0] = 1
    assert tensor.tolist() == [1, 0]


# -- DLPack --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_dlpack_with_torch(dtype):
    """Tensors travel to PyTorch and back without a copy, in every dtype and with any strides, as objects and as capsules."""
    theirs = torch.arange(6).reshape(2, 3).to(getattr(torch, dtype)).t()
    ours = flambeau.arange(6).reshape(2, 3).to(getattr(flambeau, dtype)).t()
    for source, target in (
        (theirs, flambeau.from_dlpack(theirs)),
        (ours, torch.from_dlpack(ours)),
        (theirs, flambeau.from_dlpack(torch.utils.dlpack.to_dlpack(theirs))),
        (ours, torch.utils.dlpack.from_dlpack(flambeau.to_dlpack(ours))),
    ):
        assert target.tolist() == source.tolist() and target.stride() == source.stride() and str(target.dtype) == str(source.dtype)
        target[0].fill_(1) if source is ours else target.select(0, 0).fill_(1)
        assert target.tolist() == source.tolist()


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d != "bfloat16"])
def test_dlpack_with_numpy(dtype):
    """Tensors travel to NumPy and back without a copy."""
    ours = flambeau.zeros(2, 3, dtype=getattr(flambeau, dtype)).t()
    np.from_dlpack(ours)[0] = 1
    array = np.zeros((2, 3), dtype)
    flambeau.from_dlpack(array).fill_(1)
    assert ours.select(0, 0).tolist() == [1, 1] and (array == 1).all()


class Lender:
    """A stranger's array, of which only DLPack is known."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, **options):
        return self.tensor.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.tensor.__dlpack_device__()


def _shares(t, make):
    source = t.arange(3)
    found = make(Lender(source))
    return found, found.data_ptr() == source.data_ptr()


@questions(
    lambda t: t.from_dlpack(3),
    lambda t: t.ones(2, requires_grad=True).__dlpack__(),
    lambda t: type(t.utils.dlpack.to_dlpack(t.ones(2, requires_grad=True))).__name__,
    lambda t: t.ones(2, device="meta").__dlpack__(),
    lambda t: t.ones(2).__dlpack__(stream=object()),
    lambda t: t.ones(2).__dlpack__(stream=1),
    lambda t: t.ones(2).__dlpack__(max_version=(1, 0), dl_device=(t.utils.dlpack.DLDeviceType.kDLHexagon, 0)),
    lambda t: t.eye(2).to_sparse().__dlpack__(),
    lambda t: t.from_dlpack(t.quantize_per_tensor(t.ones(2), 0.1, 0, t.qint8)),
    lambda t: [_shares(t, make) for make in (t.tensor, t.as_tensor, t.asarray)],
    lambda t: tuple(map(int, t.ones(2).__dlpack_device__())),
    lambda t: repr(t.ones(2).__dlpack_device__()),
    lambda t: t.from_dlpack(np.arange(3), copy=True),
    lambda t: t.from_dlpack(np.arange(3), device="cpu"),
    lambda t: t.ones(2).__cuda_array_interface__,
)
def test_dlpack_errors(question):
    """What cannot be exchanged is refused with PyTorch's errors."""
    agree(question)


def test_a_capsule_is_used_once():
    """A second tensor from one capsule would free its memory twice: RuntimeError."""
    capsule = flambeau.to_dlpack(flambeau.ones(2))
    flambeau.from_dlpack(capsule)
    with pytest.raises(RuntimeError, match="only once"):
        flambeau.from_dlpack(capsule)


def test_exported_memory_outlives_the_tensor():
    """A tensor over imported memory keeps it alive, and so does the other side."""
    ours = flambeau.from_dlpack(torch.full((1000,), 7.0))
    theirs = torch.from_dlpack(flambeau.full((1000,), 7.0))
    assert ours.sum().item() == theirs.sum().item() == 7000


# -- pickle and copies -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "bool", "complex64"])
def test_pickle(dtype, protocol):
    """A tensor comes back with its values, dtype, strides and storage."""
    base = flambeau.arange(12).reshape(3, 4).to(getattr(flambeau, dtype))
    view = base.narrow(1, 1, 2).t()
    back = pickle.loads(pickle.dumps(view, protocol))
    assert back.tolist() == view.tolist() and back.dtype is view.dtype and back.stride() == view.stride()
    assert back.storage_offset() == 1 and back.untyped_storage().nbytes() == base.nbytes
    back.zero_()


def test_shared_storages_stay_shared():
    """Views of one memory are still views of one memory after pickle, out-of-band pickle and deepcopy, and no longer of the original."""
    base = flambeau.arange(6.0).reshape(2, 3)
    pair = [base, base.t()]
    buffers: list = []
    data = pickle.dumps(pair, 5, buffer_callback=buffers.append)
    copies = [pickle.loads(pickle.dumps(pair)), pickle.loads(data, buffers=[bytearray(b) for b in buffers]), copy.deepcopy(pair)]
    assert len(buffers) == 1
    for first, second in copies:
        first.fill_(9)
        assert second.tolist() == [[9, 9]] * 3
    assert base.tolist() == [[0, 1, 2], [3, 4, 5]]


def test_pickle_keeps_what_belongs_to_a_leaf():
    """requires_grad and the user's attributes are pickled, .grad and history are not: as PyTorch does."""
    for t in (torch, flambeau):
        x = t.ones(2, requires_grad=True)
        x.note = {"k": [1]}
        (x * 2).sum().backward()
        back = pickle.loads(pickle.dumps(x))
        assert back.requires_grad and back.is_leaf and back.grad is None and back.note == {"k": [1]}
        assert pickle.loads(pickle.dumps(x * 2)).is_leaf
        meta = pickle.loads(pickle.dumps(t.ones(2, 3, device="meta").t()))
        assert meta.device.type == "meta" and meta.stride() == (1, 3)


def test_deepcopy():
    """deepcopy copies values, gradient and attributes of a leaf, and refuses what has a history."""
    for t in (torch, flambeau):
        x = t.ones(2, requires_grad=True)
        x.note = [1]
        (x * 2).sum().backward()
        again = copy.deepcopy(x)
        assert again.grad.tolist() == [2, 2] and again.grad is not x.grad and again.note == [1] and again.note is not x.note
        assert again.requires_grad and again.data_ptr() != x.data_ptr()
        with pytest.raises(RuntimeError, match="graph leaves"):
            copy.deepcopy(x * 2)
        shallow = copy.copy(x)
        assert shallow is not x and shallow.data_ptr() == x.data_ptr()


def test_vocabulary_can_be_pickled():
    """dtypes, devices, sizes, formats, layouts and generators survive pickle and deepcopy."""
    for thing in (flambeau.float32, flambeau.device("cuda:1"), flambeau.Size([1, 2]), flambeau.channels_last, flambeau.strided):
        assert pickle.loads(pickle.dumps(thing)) == thing and copy.deepcopy(thing) == thing
    generator = flambeau.Generator().manual_seed(4)
    again = pickle.loads(pickle.dumps(generator))
    assert flambeau.rand(3, generator=again).tolist() == flambeau.rand(3, generator=generator).tolist()


# -- storages ------------------------------------------------------------------------------------------------------


@questions(
    lambda t: t.arange(4.0).untyped_storage().nbytes(),
    lambda t: t.tensor([1, 2], dtype=t.int16).untyped_storage().tolist(),
    lambda t: t.UntypedStorage(4).nbytes(),
    lambda t: t.UntypedStorage([1, 2, 3])[1],
    lambda t: t.UntypedStorage([1, 2, 3])[1:].tolist(),
    lambda t: t.FloatStorage([1, 2]).tolist(),
    lambda t: t.FloatStorage(2).size(),
    lambda t: repr(t.TypedStorage([1, 2], dtype=t.int32)),
    lambda t: t.ones(2).storage().dtype,
    lambda t: t.ones(2).set_(),
    lambda t: t.ones(2).set_(t.arange(3.0)),
    lambda t: t.ones(2).set_(t.ones(3, dtype=t.float64)),
    lambda t: t.ones(2).set_(t.arange(6.0).untyped_storage(), 1, (2, 2), (1, 2)),
    lambda t: t.ones(2).set_(t.arange(3.0).untyped_storage(), 2, (2,)),
    lambda t: t.ones(2).set_(t.arange(3.0).untyped_storage()),
    lambda t: t.ones(2, requires_grad=True).set_(t.ones(3)),
    lambda t: t.arange(6).resize_(2, 2),
    lambda t: t.arange(6).narrow(0, 2, 4).resize_(2, 2),
    lambda t: t.arange(6).resize_((3, 2)).stride(),
    lambda t: t.ones(1, 2, 3, 4).resize_(1, 2, 2, 2, memory_format=t.channels_last).stride(),
    lambda t: t.arange(6).resize_as_(t.ones(2, 3)),
    lambda t: t.ones(2).resize_(-1),
    lambda t: t.ones(2, requires_grad=True).resize_(3),
)
def test_storages(question):
    """Storages, set_ and resize_ show and refuse what PyTorch's do."""
    agree(question)


def test_growing_a_storage_takes_its_views_along():
    """resize_ gives a storage more memory; every tensor on it sees the same new memory."""
    for t in (torch, flambeau):
        base = t.arange(4.0)
        view = base.narrow(0, 1, 2)
        base.resize_(100)
        base.fill_(5)
        assert view.tolist() == [5, 5] and view.untyped_storage().data_ptr() == base.untyped_storage().data_ptr()
        numbers = t.tensor([1, 2], dtype=t.int16)
        numbers.untyped_storage().resize_(8)
        assert numbers.tolist() == [1, 2] and numbers.untyped_storage().nbytes() == 8


def test_a_storage_shrinks_and_grows_under_its_tensors():
    """Programs free the memory of a parameter by resizing its storage to 0, and give it back later: every view must come along."""
    for t in (flambeau, torch):
        tensor = t.arange(6.0).reshape(2, 3)
        view, storage = tensor.t(), tensor.untyped_storage()
        storage.resize_(0)
        assert storage.nbytes() == 0 and storage.data_ptr() == 0 and tuple(tensor.shape) == (2, 3) and view.stride() == (1, 3)
        storage.resize_(24)
        storage.copy_(t.arange(10.0, 16.0).untyped_storage())
        assert tensor.tolist() == [[10, 11, 12], [13, 14, 15]] and view[:, 1].tolist() == [13, 14, 15]
    tensor.untyped_storage().resize_(8)
    tensor = flambeau.arange(6.0)
    tensor.untyped_storage().resize_(8)
    assert tensor.tolist() == [0, 1, 0, 0, 0, 0], "what is beyond the end reads as zero (in PyTorch it may crash)"


def test_memory_of_numpy_cannot_be_resized():
    """NumPy holds the address: other memory behind the tensor would part the two."""
    for t in (flambeau, torch):
        lent = t.zeros(3)
        assert lent.untyped_storage().resizable()
        lent.numpy()
        for tensor in (lent, t.from_numpy(np.zeros(3)), t.frombuffer(bytearray(12), dtype=t.float32)):
            assert not tensor.untyped_storage().resizable()
            with pytest.raises(RuntimeError, match="not resizable"):
                tensor.resize_(5)


def test_one_storage_one_object():
    """The storage of a tensor and its views is one object, whose writes count as versions."""
    tensor = flambeau.ones(2, 3)
    storage = tensor.untyped_storage()
    assert tensor.t().untyped_storage() is storage and flambeau.ones(2).untyped_storage() != storage
    before = tensor._version
    storage.fill_(0)
    assert tensor._version == before + 1 and tensor.tolist() == [[0, 0, 0], [0, 0, 0]]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_shared_memory_is_seen_by_a_child():
    """After share_memory_ a forked process and its parent write to the same tensor, through views too."""
    tensor = flambeau.zeros(4)
    view = tensor.narrow(0, 1, 2)
    assert tensor.share_memory_() is tensor and view.is_shared()
    child = os.fork()
    if child == 0:
        view._array[...] = 9
        os._exit(0)
    os.waitpid(child, 0)
    assert tensor.tolist() == [0, 9, 9, 0]


# -- parameters and subclasses ---------------------------------------------------------------------------------------


def test_parameter():
    """A Parameter prints, copies and pickles as PyTorch's, shares its tensor's memory, and operations on it give plain tensors."""
    theirs, ours = torch.nn.Parameter(torch.ones(2)), Parameter(flambeau.ones(2))
    for parameter, t, kind in ((theirs, torch, torch.nn.Parameter), (ours, flambeau, Parameter)):
        assert repr(parameter) == "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
        assert parameter.requires_grad and parameter.is_leaf and isinstance(parameter, t.Tensor)
        assert type(parameter + 1) is t.Tensor and type(parameter.data) is t.Tensor and type(parameter.detach()) is t.Tensor
        parameter.tag = 5
        for again in (copy.deepcopy(parameter), pickle.loads(pickle.dumps(parameter))):
            assert type(again) is kind and again.requires_grad and again.tolist() == [1, 1]
        assert pickle.loads(pickle.dumps(parameter)).tag == 5
        source = t.zeros(2)
        shared = kind(source, requires_grad=False)
        source.add_(1)
        assert shared.tolist() == [1, 1] and not shared.requires_grad
    with pytest.raises(TypeError):
        Parameter([1, 2])


def test_subclasses():
    """Operations and factories on a subclass give the subclass; as_subclass and _make_subclass share memory, one with history."""
    for t in (torch, flambeau):

        class Own(t.Tensor):
            pass

        made = Own([1, 2])
        assert type(made) is Own and repr(made) == "Own([1., 2.])"
        for result in (made + 1, made.sum(), t.zeros_like(made), made.new_ones(2), t.add(t.ones(2), made), t.tril(made.reshape(1, 2))):
            assert type(result) is Own
        x = t.ones(2, requires_grad=True)
        (x.as_subclass(Own) * 3).sum().backward()
        assert x.grad.tolist() == [3, 3]
        leaf = t.Tensor._make_subclass(Own, x, True)
        assert type(leaf) is Own and leaf.is_leaf and leaf.requires_grad and leaf.data_ptr() == x.data_ptr()


def test_torch_function_sees_factories():
    """A subclass with its own __torch_function__ is asked about factories too, by the names PyTorch uses."""
    seen = {}
    for t in (torch, flambeau):

        class Log(t.Tensor):
            names: ClassVar[list] = []

            @classmethod
            def __torch_function__(cls, func, types, args=(), kwargs=None):
                cls.names.append(func.__name__)
                return super().__torch_function__(func, types, args, kwargs or {})

        x = t.ones(2).as_subclass(Log)
        t.zeros_like(x)
        t.rand_like(x)
        x.new_ones(3)
        x.fill_(2)
        seen[t] = Log.names
    assert seen[flambeau] == seen[torch]


def test_history_of_in_place_views():
    """t_ and unsqueeze_ change the tensor itself, and gradients find their way back."""
    for t in (torch, flambeau):
        x = t.ones(2, 3, requires_grad=True)
        y = x * 2
        y.t_()
        y.unsqueeze_(0)
        (y * t.arange(6.0).reshape(1, 3, 2)).sum().backward()
        assert y.shape == (1, 3, 2) and x.grad.tolist() == [[0, 4, 8], [2, 6, 10]]


def test_buffers_can_be_read_from_bytes():
    """A storage written to a file and read back has the same bytes."""
    file = io.BytesIO()
    pickle.dump(flambeau.arange(3, dtype=flambeau.int16).untyped_storage(), file)
    file.seek(0)
    assert pickle.load(file).tolist() == [0, 0, 1, 0, 2, 0]


@questions(
    *[lambda t, v=v: t.ones(2).fill_(v) for v in (np.float32(2), np.int64(3), np.bool_(True))],
    lambda t: t.ones(2).masked_fill(t.tensor([True, False]), np.float32(2)),
    lambda t: t.ones(2, 2).index_fill(0, t.tensor([0]), np.int64(3)),
    lambda t: t.ones(2, 2).scatter(0, t.tensor([[0]]), np.float32(3)),
    lambda t: t.ones(2) - np.bool_(True),
    lambda t: t.ones(2, dtype=t.int64) + np.bool_(True),
    lambda t: t.ones(2, 3).movedim(np.int64(0), t.tensor(1)),
    lambda t: t.trapz(t.ones(3), dx=np.float32(2)),
    lambda t: t.zeros(2).lerp(t.ones(2), t.tensor(0.25, dtype=t.float64)),
    lambda t: t.normal(0.0, t.tensor(0.0), (2,)).abs(),
    lambda t: np.array([2.0, 3.0]) / t.tensor([1.0, 2.0]),
    lambda t: np.array([2.0, 3.0]) * t.tensor([1.0, 2.0]),
)
def test_numpy_scalars_are_numbers(question):
    """Where a number is taken, one of NumPy's or a 0-d tensor may stand."""
    agree(question)


@questions(
    lambda t: ~t.ones(2),
    lambda t: t.ones(2, dtype=t.complex64).abs_(),
    lambda t: t.zeros(2, dtype=t.bool).index_fill(0, t.tensor([0]), t.tensor(1j)),
    lambda t: t.ones(2, dtype=t.bfloat16).nextafter(t.ones(3, dtype=t.bfloat16)),
    lambda t: t.zeros(2).__setitem__(True, t.tensor(2)),
    lambda t: type(t.gradient(t.arange(3.0))).__name__,
    lambda t: type(t.frexp(t.ones(2))).__name__,
)
def test_small_print(question):
    """Errors of the right type, results of the right kind."""
    agree(question)


# -- storages ------------------------------------------------------------------------------------------------------------

STORAGES = {
    "from_buffer": lambda t: t.ShortStorage.from_buffer(bytearray([1, 2, 3, 4]), "big").tolist(),
    "from_buffer part": lambda t: t.UntypedStorage.from_buffer(b"abcdefgh", "little", 1, 2, dtype=t.int16).tolist(),
    "from_buffer bool": lambda t: t.BoolStorage.from_buffer(b"\0x4A", "big").tolist(),
    "from_buffer order": lambda t: t.FloatStorage.from_buffer(b"abcd"),
    "from_buffer wrong order": lambda t: t.FloatStorage.from_buffer(b"abcd", "middle"),
    "from_buffer odd": lambda t: t.FloatStorage.from_buffer(b"abc", "big"),
    "from_buffer without dtype": lambda t: t.UntypedStorage.from_buffer(b"abc"),
    "casts": lambda t: [getattr(t.IntStorage([-1, 0, 3]), word)().tolist() for word in ("double", "byte", "bool", "half", "complex_double")],
    "casts of bytes": lambda t: (t.UntypedStorage([1, 2]).float().tolist(), t.UntypedStorage([1, 2]).type()),
    "types": lambda t: [t.FloatStorage(2).type(), t.ones(2, dtype=t.uint16)._typed_storage().type(), t.QInt8Storage([3]).tolist()],
    "complex": lambda t: t.ComplexFloatStorage([1, 2j]).tolist(),
    "copy of bytes": lambda t: _filled(t.FloatStorage(2), t.IntStorage([1065353216, 0])),
    "copy of another size": lambda t: t.FloatStorage(2).copy_(t.FloatStorage(3)),
    "index": lambda t: t.FloatStorage([1, 2])[-1],
    "index beyond": lambda t: t.FloatStorage([1, 2])[2],
    "index of text": lambda t: t.FloatStorage([1, 2])["a"],
    "bytes by text": lambda t: t.UntypedStorage([1, 2])["a"],
    "slice of bytes": lambda t: t.UntypedStorage([1, 2, 3])[1:].tolist(),
    "step": lambda t: t.UntypedStorage([1, 2, 3])[::2],
    "slice of numbers": lambda t: t.FloatStorage([1, 2])[:1],
    "set": lambda t: _set(t.FloatStorage([1, 2, 3]), slice(1, 3), 7),
    "set a tensor": lambda t: _set(t.FloatStorage([1, 2, 3]), slice(0, 2), t.tensor([5.0, 6.0])),
    "set a storage": lambda t: t.FloatStorage(2).fill_(t.FloatStorage(2)),
    "bytes of text": lambda t: t.UntypedStorage("ab"),
    "bytes of a float": lambda t: t.UntypedStorage(1.5),
    "bytes of floats": lambda t: t.UntypedStorage([1.5]),
    "large bytes": lambda t: t.UntypedStorage([300, -1]).tolist(),
    "fill with text": lambda t: t.UntypedStorage(2).fill_("a"),
    "device": lambda t: t.FloatStorage(device="cpu"),
    "unknown": lambda t: t.FloatStorage(strange=1),
    "too many": lambda t: t.FloatStorage(1, 2),
    "a tensor": lambda t: t.FloatStorage(t.ones(2)),
    "text": lambda t: t.FloatStorage("ab"),
    "wrapped without dtype": lambda t: t.TypedStorage(wrap_storage=t.UntypedStorage(4)),
    "wrapped typed": lambda t: t.TypedStorage(wrap_storage=t.FloatStorage(1), dtype=t.float32),
    "wrapped with number": lambda t: t.TypedStorage(0, wrap_storage=t.UntypedStorage(4), dtype=t.float32),
    "another device": lambda t: t.TypedStorage(dtype=t.float32, device="xla"),
    "nowhere": lambda t: t.UntypedStorage([1, 2], device="meta")[0],
    "nowhere list": lambda t: t.TypedStorage([1, 2], dtype=t.float64, device="meta").tolist(),
    "shared nowhere": lambda t: t.UntypedStorage([1, 2], device="meta").share_memory_(),
    "legacy class": lambda t: t.storage._LegacyStorage(),
    "resize by text": lambda t: t.UntypedStorage(3).resize_("a"),
    "is a FloatStorage": lambda t: (isinstance(t.FloatStorage(1), t.FloatStorage), isinstance(t.IntStorage(1), t.FloatStorage), t.Storage is t.FloatStorage),
    "a tensor of bytes": lambda t: t.tensor(t.ones(2)._typed_storage().untyped(), dtype=t.int32).tolist(),
    "a tensor of numbers": lambda t: t.tensor(t.IntStorage([1, 2]), dtype=t.int32).tolist(),
    "a tensor of another dtype": lambda t: t.tensor(t.IntStorage([1, 2]), dtype=t.float32),
    "an old tensor of another dtype": lambda t: t.FloatTensor(t.IntStorage([1, 2])),
    "set_ to another dtype": lambda t: t.empty(0).set_(t.IntStorage([1, 2])),
    "set_ makes room": lambda t: t.ones(1).set_(t.ones(1).untyped_storage(), 3, (2, 3)).untyped_storage().nbytes(),
    "set_ beyond": lambda t: t.ones(1).set_(t.ones(1).untyped_storage(), 3, (1,)),
    "swapped bytes": lambda t: [_swapped(t.UntypedStorage(list(range(16))), getattr(t, d)) for d in ("int16", "float32", "complex64", "bool")],
    "not on CUDA": lambda t: t.cuda.FloatStorage.from_buffer(b""),
    "attributes": lambda t: [(s.filename, s.is_hpu, s.get_device(), s.is_pinned()) for s in (t.UntypedStorage(3), t.FloatStorage(3))],
    "remembers": lambda t: _remembered(t),
    "by the default dtype": lambda t: list(_storages_of_defaults(t)),
    "name of its file": lambda t: list(_names_of_files(t)),
    "pickled": lambda t: pickle.loads(pickle.dumps(t.FloatStorage([1, 2]))).tolist() if t is flambeau else [1.0, 2.0],
}  # fmt: skip


def _filled(storage, source):
    return storage.copy_(source).tolist()


def _remembered(t):
    """What a user writes on a storage stays while a tensor looks at it, and goes with the last one."""

    class Told(t.UntypedStorage):
        __slots__ = ("kept",)

    storage = Told(8)
    storage.note, storage.kept, seen = "mine", type(storage.clone()) is Told, weakref.ref(storage)
    tensor = t.tensor(storage, dtype=t.uint8)
    del storage
    found = (
        type(tensor.untyped_storage()) is Told,
        tensor.untyped_storage().note,
        tensor.untyped_storage().kept,
        tensor[1:].untyped_storage() is tensor.untyped_storage(),
    )
    del tensor
    return found, seen() is None


def _storages_of_defaults(t):
    try:
        for dtype in (t.float64, t.bfloat16, t.float32):
            t.set_default_dtype(dtype)
            yield str(t.Storage), t.Storage().dtype is dtype
    finally:
        t.set_default_dtype(t.float32)


def _names_of_files(t):
    with tempfile.NamedTemporaryFile() as file:
        file.write(bytes(8))
        file.flush()
        for shared in (True, False):
            yield t.from_file(file.name, shared=shared, size=2)[1:].untyped_storage().filename == (file.name if shared else None)


def _set(storage, index, value):
    storage[index] = value
    return storage.tolist()


def _swapped(storage, dtype):
    storage.byteswap(dtype)
    return storage.tolist()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ask", STORAGES.values(), ids=STORAGES)
def test_storages_are_pytorchs(ask):
    """A storage, typed or not, answered or failed in another way than PyTorch's."""
    expected, problem = None, None
    try:
        expected = ask(torch)
    except Exception as found:
        problem = found
    if problem is None:
        assert ask(flambeau) == expected
        return
    with pytest.raises(type(problem)):
        ask(flambeau)


def test_typed_storages_warn_once(tmp_path):
    """Every public use of a typed storage may be the one that warns, at the user's line; a second does not, nor do files."""
    uses = [
        "s.size()",
        "len(s)",
        "s[0]",
        "s.dtype and s.untyped()",
        "s.is_cuda",
        "torch.FloatStorage()",
        "torch.FloatStorage.dtype",
        "torch.ones(1).storage()",
        "str(s)",
    ]
    for use in uses:
        for t in (flambeau, torch):
            storage = t.ones(2)._typed_storage()
            t.storage._reset_warn_typed_storage_removal()
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                for _ in range(2):
                    eval(use, {"s": storage, "torch": t})
            assert [str(w.message)[:26] for w in found] == ["TypedStorage is deprecated"], (use, t)
            assert found[0].filename == "<string>", use
    flambeau.storage._reset_warn_typed_storage_removal()
    for new in (True, False):
        flambeau.save([flambeau.ones(2), flambeau.ones(3).untyped_storage()], tmp_path / "f", _use_new_zipfile_serialization=new)
        flambeau.load(tmp_path / "f")
    copy.deepcopy(flambeau.ones(2))
    flambeau.storage._reset_warn_typed_storage_removal()
