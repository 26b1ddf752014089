"""What torch.library says of operators: schemas from annotations, opcheck, fake implementations, and the older torch._custom_ops, as in PyTorch."""

from __future__ import annotations

# ruff: noqa: UP006, UP045 - programs write annotations in old forms, too
import collections.abc
import importlib
import itertools
import typing
import warnings

import pytest

import flambeau

torch = pytest.importorskip("torch")
BOTH = pytest.mark.parametrize("t", [flambeau, torch], ids=["flambeau", "torch"])
numbers = itertools.count()


def annotated(t, returns, **arguments):
    """A function with these annotations; a pair is (annotation, default)."""

    def function():
        raise AssertionError("schemas are inferred without calls")

    import inspect

    kinds = inspect.Parameter
    parameters = [
        kinds(
            n,
            kinds.POSITIONAL_OR_KEYWORD,
            annotation=a[0] if isinstance(a, tuple) else a,
            default=a[1] if isinstance(a, tuple) else kinds.empty,
        )
        for n, a in arguments.items()
    ]
    function.__signature__ = inspect.Signature(parameters, return_annotation=returns)
    return function


SIGNATURES = [
    lambda t: annotated(t, t.Tensor, x=t.Tensor),
    lambda t: annotated(t, None, x=t.Tensor, y=typing.Optional[t.Tensor], z=t.Tensor | None),
    lambda t: annotated(t, list[t.Tensor], x=list[t.Tensor], y=typing.List[t.Tensor], z=typing.Sequence[typing.Optional[t.Tensor]]),
    lambda t: annotated(
        t, tuple[t.Tensor, int], x=t.Tensor, n=int, ns=list[int], more=collections.abc.Sequence[int], maybe=(typing.Optional[int], None)
    ),
    lambda t: annotated(
        t, t.Tensor, a=(float, 1.5), b=(bool, True), c=(str, "foo"), d=(t.dtype, t.float32), e=(t.device, t.device("cpu")), f=(int, 3)
    ),
    lambda t: annotated(t, typing.Tuple[t.Tensor, t.Tensor], x=t.Tensor, s=t.types.Number, o=typing.Optional[typing.List[float]]),
]


@pytest.mark.parametrize("make", SIGNATURES, ids=range(len(SIGNATURES)))
def test_schemas_are_inferred_as_pytorch_infers_them(make):
    """The schema of the same annotations is another text."""
    for mutated in ((), "unknown"):
        ours, theirs = (t.library.infer_schema(make(t), mutates_args=mutated, op_name="f") for t in (flambeau, torch))
        assert ours == theirs
    with pytest.raises(ValueError, match="were not found"):
        flambeau.library.infer_schema(make(flambeau), mutates_args={"nobody"})


@BOTH
def test_annotations_that_no_schema_has(t):
    """What cannot be said in a schema is refused by the name of the parameter, with advice for tuples."""
    for make, words in (
        (lambda: annotated(t, t.Tensor, x=dict), "Parameter x has unsupported type"),
        (lambda: annotated(t, t.Tensor, x=tuple[int, int]), r"For example, list\[int\]"),
        (lambda: annotated(t, dict, x=t.Tensor), "Return has unsupported type"),
        (lambda: annotated(t, t.Tensor, x=(list[int], [1])), "unsupported default value type"),
    ):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with pytest.raises(ValueError, match=words):
                t.library.infer_schema(make(), mutates_args=())
    with pytest.raises(ValueError, match="varargs"):
        t.library.infer_schema(lambda *args: None, mutates_args=())
    with pytest.raises(ValueError, match="only Tensors"):
        t.library.infer_schema(annotated(t, None, x=t.Tensor, n=int), mutates_args={"n"})


def operator(t, kernel, schema="(Tensor x) -> Tensor", key="CompositeExplicitAutograd"):
    """An operator with this kernel."""
    lib = t.library.Library(f"checked{next(numbers)}", "DEF")
    lib.define(f"f{schema}")
    lib.impl("f", kernel, key)
    return lib, getattr(t.ops, lib.ns).f.default


@BOTH
def test_opcheck_finds_what_a_schema_does_not_say(t):
    """An operator that writes to its argument, or returns its memory; the others pass."""
    x = t.ones(3)
    lib, op = operator(t, lambda x: x.clone())
    found = t.library.opcheck(op, (x,))
    assert list(found) == ["test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic"]
    assert list(found.values())[:3] == ["SUCCESS"] * 3 and (t is torch or found["test_aot_dispatch_dynamic"].startswith("NOT COMPILED"))
    lib, op = operator(t, lambda x: x.mul_(2).clone())
    found = t.library.opcheck(op, (x,), test_utils="test_schema", raise_exception=False)
    assert "Argument x is not defined as mutable but was mutated" in str(found["test_schema"])
    lib, op = operator(t, lambda x: x[:])
    with pytest.raises(Exception, match="is not defined to alias output"):
        t.library.opcheck(op, (x,), test_utils="test_schema")
    with pytest.raises(ValueError, match="test_utils"):
        t.library.opcheck(op, (x,), test_utils="blah")
    with pytest.raises(ValueError, match="OpOverload"):
        t.library.opcheck(t.sin, (x,))
    del lib


@BOTH
def test_opcheck_looks_at_registrations(t):
    """A derivative recorded below the Autograd key, a fake implementation with other shapes."""

    class Plain(t.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return grad

    x = t.ones(3, requires_grad=True)
    lib, op = operator(t, Plain.apply, key="CPU")
    with pytest.raises(Exception, match="does not have an autograd kernel"):
        t.library.opcheck(op, (x,), test_utils="test_autograd_registration")
    t.library.register_fake(op, lambda x: x.new_empty(3, 1), lib=lib)
    if t is flambeau:  # PyTorch's test runs the operator under FakeTensorMode, which needs more of it
        with pytest.raises(Exception, match=r"Shapes .* are not equal"):
            t.library.opcheck(op, (x.detach(),), test_utils="test_faketensor")


def test_opcheck_compares_calls():
    """An operator that gives something else each time is found; what is compared is said."""
    count = itertools.count()
    lib, op = operator(flambeau, lambda x: x.clone() * next(count), key="CompositeImplicitAutograd")  # noqa: RUF059
    with pytest.raises(Exception, match="results differ between two calls"):
        flambeau.library.opcheck(op, (flambeau.ones(2),), test_utils="test_aot_dispatch_dynamic")


def test_schema_check_mode():
    """Operators called inside it are held against their schemas."""
    mode = importlib.import_module("flambeau._subclasses.schema_check_mode").SchemaCheckMode
    with mode() as active:
        assert flambeau.ops.aten.sin_.default(flambeau.zeros(1)).item() == 0.0
        lib, op = operator(flambeau, lambda x: x[:])  # noqa: RUF059
        with pytest.raises(RuntimeError, match="not defined to alias output"):
            op(flambeau.ones(2))
    assert active.ops[0] == "aten::sin_"


@BOTH
def test_sizes_that_are_in_the_data(t):
    """get_ctx() is refused outside of a fake implementation's call, and on the meta device has no size to give."""
    name = f"ours::found{next(numbers)}"

    def nonzero(x):
        return x.nonzero()

    nonzero.__annotations__ = {"x": t.Tensor, "return": t.Tensor}
    op = t.library.custom_op(name, nonzero, mutates_args=())

    @op.register_fake
    def _(x):
        return x.new_empty(t.library.get_ctx().new_dynamic_size(), x.dim(), dtype=t.int64)

    assert op(t.tensor([0, 1, 2])).tolist() == [[1], [2]]
    with pytest.raises(RuntimeError, match="data-dependent shape"):
        op(t.ones(3, device="meta"))
    assert t.library.opcheck(op, (t.tensor([0, 1, 2]),), test_utils="test_faketensor") == {"test_faketensor": "SUCCESS"}


@BOTH
def test_the_older_custom_ops(t):
    """torch._custom_ops: schema, kernels, save_for_backward and backward by name; each that is missing or wrong is named."""
    older = importlib.import_module(f"{t.__name__}._custom_ops")
    name = f"older{next(numbers)}::foo"

    def foo(x, k):
        raise NotImplementedError

    foo.__annotations__ = {"x": t.Tensor, "k": int, "return": t.Tensor}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's are deprecated
        older.custom_op(name)(foo)
        op = importlib.import_module(f"{t.__name__}._custom_op.impl").get_op(name)
        with pytest.raises(NotImplementedError, match="cpu impl registered"):
            op(t.ones(1), 2)
        older.impl(name)(lambda x, k: x * k)
        x = t.ones(1, requires_grad=True)
        with pytest.raises(RuntimeError, match="Autograd has not been implemented"):
            op(x, 2)
        older.impl_save_for_backward(name)(lambda inputs, output: inputs.k)
        with pytest.raises(RuntimeError, match="unable to find a 'backward'"):
            op(x, 2)
        older.impl_backward(name)(lambda ctx, saved, grad: {"x": grad * saved})
        op(x, 5).sum().backward()
        assert x.grad.tolist() == [5.0]
        with pytest.raises(ValueError, match="we only support device_type"):
            older.impl(name, device_types="xla")(lambda x, k: x)
        with pytest.raises(ValueError, match="reserved namespace"):
            older.custom_op("aten::foo", "(Tensor x) -> Tensor")
        older._destroy(name)


def test_profiles_are_kept_in_pytorchs_files(tmp_path):
    """A file of profiles that PyTorch wrote is read, and the other way round; an operator has its fakes by them."""
    pytest.importorskip("yaml")
    ours, theirs = (importlib.import_module(f"{t}._library.fake_profile") for t in ("flambeau", "torch"))

    def profiles(t, module):
        seen = module.TensorMetadata(rank=2, dtype=t.float32, device=t.device("cpu"), layout=t.strided)
        return {"mylib.foo.default": {module.OpProfile(args_profile=(seen, seen), out_profile=seen)}}

    path = tmp_path / "profiles.yaml"
    ours.save_op_profiles(profiles(flambeau, ours), path)
    assert ours.load_op_profiles(path) == profiles(flambeau, ours)
    assert theirs.load_op_profiles(path) == profiles(torch, theirs)
    theirs.save_op_profiles(profiles(torch, theirs), path)
    assert ours.load_op_profiles(path) == profiles(flambeau, ours)
    with pytest.raises(RuntimeError, match="outdated"):
        ours.read_profiles_from_yaml(path.read_text().replace("torch_version: ", "torch_version: 1"))


def test_names_that_are_there_to_be_imported():
    """Triton's operators can be imported and say why they cannot be made; private paths lead to the same objects."""
    for name in ("triton_op", "wrap_triton"):
        with pytest.raises(NotImplementedError, match="Triton"):
            getattr(flambeau.library, name)("a::b")
    custom_ops = importlib.import_module("flambeau._library.custom_ops")
    assert custom_ops.CustomOpDef is flambeau.library.CustomOpDef and flambeau._ops.OpOverload is type(flambeau.ops.aten.sin.default)
    assert set(torch.library.__all__) - {"impl_abstract"} <= set(dir(flambeau.library))
