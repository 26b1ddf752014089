"""Names that libraries import and do not use: they can be imported, asked for and inherited from, and say so when they are used."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import get_args, get_type_hints

import pytest

import flambeau
from flambeau import import_only

HOMES = [
    "flambeau._C",
    "flambeau.ao.nn.quantized",
    "flambeau.ao.quantization.fake_quantize",
    "flambeau.ao.quantization.observer",
    "flambeau.ao.quantization.stubs",
    "flambeau._subclasses.fake_tensor",
    "flambeau.distributed",
    "flambeau.distributed.device_mesh",
    "flambeau.distributed.nn.functional",
    "flambeau.distributed.optim",
    "flambeau.distributed.rpc",
    "flambeau.distributed.tensor",
    "flambeau.fx",
    "flambeau.fx.experimental.symbolic_shapes",
    "flambeau.nn.attention.flex_attention",
    "flambeau.jit",
    "flambeau.nn.parallel.scatter_gather",
    "flambeau.onnx",
    "flambeau.utils._python_dispatch",
    "flambeau.utils.cpp_extension",
    "flambeau.vision.models",
    "flambeau.vision.ops",
]


def names() -> list:
    found = []
    for home in HOMES:
        for name, value in vars(import_module(home)).items():
            if isinstance(value, import_only.ImportOnly) or (getattr(value, "__name__", "") == name and is_refusal(value)):
                found.append(pytest.param(value, id=f"{home}.{name}"))
    return found


def is_refusal(value) -> bool:
    return inspect.isfunction(value) and value.__code__.co_filename == import_only.__file__


@pytest.mark.parametrize("name", names())
def test_a_name_that_is_only_imported_is_not_silent(name):
    """It is true like anything else, and calling it raises NotImplementedError with its name and a reason."""
    assert bool(name)
    with pytest.raises(NotImplementedError, match=f"{name.__name__} can be imported, not used: .+"):
        name(1, dim=2)


def test_there_are_such_names():
    """The list above finds classes and functions; an empty one would pass every test."""
    kinds = {isinstance(p.values[0], type) for p in names()}
    assert kinds == {True, False} and len(names()) > 30


def test_a_class_can_be_asked_for_and_inherited_from():
    """isinstance() is False, annotations and subclasses work, an object or an attribute of the class is refused."""
    Tracer = flambeau.fx.Tracer
    assert not isinstance(flambeau.ones(1), Tracer) and not isinstance(None, Tracer)

    class Mine(Tracer):
        pass

    assert get_args(Tracer | None) == (Tracer, type(None))
    assert issubclass(Mine, Tracer) and dict[str, Tracer] and Tracer["T"]
    for use in (Mine, lambda: Tracer.trace, lambda: Mine.trace):
        with pytest.raises(NotImplementedError, match=r"torch\.fx\.Tracer can be imported"):
            use()


def test_marks_of_compilers_change_nothing():
    """fx.wrap, _dynamo's marks and settings: functions come back as they are, settings are kept for as long as asked."""
    dynamo = flambeau._dynamo

    def f(x):
        return x

    assert flambeau.fx.wrap(f) is f and flambeau.fx.wrap("f") == "f"
    assert dynamo.allow_in_graph(f) is f and dynamo.disable(f) is f and dynamo.mark_static_address(flambeau.ones(1)) is None
    with dynamo.config.patch(verbose=True, cache_size_limit=3):
        assert dynamo.config.verbose and dynamo.config.cache_size_limit == 3
    assert not dynamo.config.verbose and dynamo.config.cache_size_limit == 8
    assert isinstance(flambeau.compile(flambeau.nn.Linear(1, 1), backend="eager"), dynamo.OptimizedModule)
    with pytest.raises(RuntimeError, match="global function"):
        flambeau.fx.wrap(3)


def test_type_hints_of_modules_can_be_read():
    """typing.get_type_hints works on every module and optimizer: libraries read the annotations of their models, bases included."""
    for room in (flambeau.nn, flambeau.optim):
        for name in dir(room):
            if isinstance(getattr(room, name), type):
                get_type_hints(getattr(room, name))


def test_arguments_of_to_are_taken_apart():
    """torch._C._nn._parse_to gives device, dtype, whether to wait, memory format."""
    parse = flambeau._C._nn._parse_to
    assert parse("cpu", flambeau.float16, True) == (flambeau.device("cpu"), flambeau.float16, True, None)
    assert parse(flambeau.zeros(1)) == (flambeau.device("cpu"), flambeau.float32, False, None)
    assert parse(memory_format=flambeau.channels_last) == (None, None, False, flambeau.channels_last)


def test_old_and_new_names_are_one():
    """Libraries import these by older names, or from the files PyTorch has them in."""
    from flambeau.quantization import fake_quantize, observer, qconfig, stubs

    new = flambeau.ao.quantization
    assert observer.MinMaxObserver is new.MinMaxObserver and observer.HistogramObserver is new.HistogramObserver
    assert qconfig.QConfig is new.QConfig and fake_quantize.FakeQuantizeBase is new.FakeQuantizeBase and stubs.QuantStub is new.QuantStub
    assert flambeau.nn.quantized.BatchNorm2d is flambeau.ao.nn.quantized.BatchNorm2d
    assert not isinstance(flambeau.nn.Linear(1, 1), new.FakeQuantizeBase | new.ObserverBase | flambeau.nn.quantized.BatchNorm2d)
    assert flambeau.TensorType is flambeau._C.TensorType and flambeau.Future is flambeau.futures.Future
    assert flambeau.serialization.pickle.__name__ == "pickle" and issubclass(flambeau.jit.TracerWarning, Warning)
    assert flambeau.jit._overload(max) is flambeau.jit._overload_method(max) is max and flambeau._C._get_tracing_state() is None
    for name in ("alias", "_pin_memory", "_convolution", "_sparse_mm_reduce_impl"):
        assert getattr(flambeau.ops.aten, name).default.name() == f"aten::{name}"
    for name in ("index", "slice"):
        assert getattr(flambeau.ops.aten, name).Tensor.name() == f"aten::{name}.Tensor"


def test_a_running_vmap_is_seen():
    """torch._C._are_functorch_transforms_active is True inside vmap, where values cannot be read, and False outside."""
    asked = []
    flambeau.vmap(lambda x: asked.append(flambeau._C._are_functorch_transforms_active()) or x)(flambeau.ones(2))
    assert asked == [True] and not flambeau._C._are_functorch_transforms_active()


def test_dtypes_and_devices_that_can_only_be_named():
    """complex32 and devices such as mps exist for tables and comparisons; a tensor of them is refused with a sentence."""
    torch = pytest.importorskip("torch")
    assert (
        flambeau.complex32.is_complex and flambeau.complex32.itemsize == torch.complex32.itemsize and flambeau.chalf is flambeau.complex32
    )
    with pytest.raises(NotImplementedError, match="complex64"):
        flambeau.ones(2).to(flambeau.complex32)
    makers = [
        lambda d: flambeau.zeros(2, dtype=d),
        lambda d: flambeau.ones(2).to(d),
        lambda d: flambeau.tensor([1.0], dtype=d),
        lambda d: flambeau.nn.Linear(1, 1, dtype=d),
        lambda d: flambeau.ones(4).view(d),
    ]
    for make in makers:
        with pytest.raises(NotImplementedError, match="no tensors of torch"):
            make(flambeau.complex32)
    for name in ("mps", "xla", "hpu:1"):
        assert str(flambeau.device(name)) == str(torch.device(name)) and flambeau.device(name) != flambeau.device("cpu")
        for use in (lambda d: flambeau.zeros(1, device=d), lambda d: flambeau.ones(1).to(d), flambeau.set_default_device):
            with pytest.raises(NotImplementedError, match="There are no tensors on"):
                use(name)
    with pytest.raises(AssertionError, match="XPU"):
        flambeau.ones(1, device="xpu")
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        flambeau.device("toaster")


def test_tensors_made_of_tensors_are_known_by_their_methods():
    """is_traceable_wrapper_subclass is True of subclasses with __tensor_flatten__ and __tensor_unflatten__, and of nothing else."""
    from flambeau.utils._python_dispatch import is_traceable_wrapper_subclass

    class Pair(flambeau.Tensor):
        def __tensor_flatten__(self):
            return [], None

        @staticmethod
        def __tensor_unflatten__(inner, meta, size, stride):
            return None

    assert is_traceable_wrapper_subclass(flambeau.ones(1).as_subclass(Pair))
    assert not is_traceable_wrapper_subclass(flambeau.ones(1)) and not is_traceable_wrapper_subclass(3)


def test_asking_is_not_using():
    """hasattr and getattr with a default, by which libraries find out what there is, answer instead of raising."""
    Tracer = flambeau.fx.Tracer
    assert not hasattr(Tracer, "trace") and getattr(Tracer, "trace", 3) == 3
    with pytest.raises(NotImplementedError, match=r"torch\.fx\.Tracer"):
        _ = Tracer.trace
