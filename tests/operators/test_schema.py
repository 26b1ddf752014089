"""Schemas are read and written as PyTorch's are, and those of its operators are the right ones."""

from __future__ import annotations

import pickle

import pytest

from flambeau.operators import aten_schemas, schema, tags
from flambeau.operators.schema import parse

torch = pytest.importorskip("torch")

TEXTS = [
    "foo(Tensor x) -> Tensor",
    "a::foo.b(Tensor? x=None, int[] y=[1, 2], int[2] z=1, *, str s='a b', float f=1e-5, float g=2, bool b=True) -> ()",
    "foo(Tensor(a!) self, *, Device? d=None, Scalar q=1.5, int r=-3, complex c=0.5j) -> Tensor(a!)",
    "foo(Tensor(a -> *) self, int[3] p=[1, 2, 3], SymInt[2] q=[1, 1], bool[2] m=False) -> Tensor(a)[]",
    "foo(Tensor[] xs, Tensor?[] ys, Tensor[]? zs=None, float? scale=1, Device d='cpu') -> (Tensor first, int second)",
    "foo(Tensor x, ...) -> ...",
]


def facts(read) -> list:
    """What libraries read of a schema."""
    arguments = [
        (
            a.name,
            str(a.type),
            str(a.real_type),
            a.type.kind(),
            a.N,
            a.kwarg_only,
            a.is_out,
            a.is_write,
            a.has_default_value(),
            repr(a.default_value),
        )
        for a in (*read.arguments, *read.returns)
    ]
    aliases = [
        a.alias_info and (sorted(a.alias_info.before_set), sorted(a.alias_info.after_set), a.alias_info.is_write) for a in read.arguments
    ]
    return [str(read), read.name, read.overload_name, read.is_mutable, arguments, aliases]


@pytest.mark.parametrize("text", TEXTS)
def test_a_schema_is_read_as_pytorch_reads_it(text):
    """Text, types, defaults, aliases: what a library asks a schema is answered otherwise."""
    ours, theirs = parse(text), torch._C.parse_schema(text)
    assert facts(ours) == facts(theirs)
    assert parse(str(ours)) == ours and pickle.loads(pickle.dumps(ours)) == ours


def test_every_operator_has_pytorchs_schema():
    """A schema in aten_schemas.txt, or one that follows from it, is not PyTorch's: run tools/aten_schemas.py."""
    wrong = []
    for name in aten_schemas.names():
        packet = getattr(torch.ops.aten, name)
        for ours in aten_schemas.schemas(name):
            theirs = getattr(packet, ours.overload_name or "default")._schema
            if str(theirs).replace("(b|a)", "(a|b)") != str(ours):
                wrong.append((str(ours), str(theirs)))
    assert wrong == [] and len(aten_schemas.names()) > 1000


def test_tags_are_pytorchs():
    """What a tag says of an operator; which outputs were generated is left out."""
    for name in ("add", "sin", "view", "nonzero", "bernoulli", "item", "t_", "sum", "linear", "view_copy"):
        for ours in aten_schemas.schemas(name):
            overload = getattr(getattr(torch.ops.aten, name), ours.overload_name or "default")
            assert {t.name for t in tags.of_aten(ours)} == {t.name for t in overload.tags} - {"generated"}, str(ours)
    assert {t.name: t.value for t in tags.Tag} == {n: int(t) for n, t in torch.Tag.__members__.items()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo(Tensr x) -> Tensor", "unknown type specifier"),
        ("foo(Tensor x)", "arrow"),
        ("foo(Tensor x -> Tensor", "expected"),
        ("foo", "only the operator name was given"),
        ("", "expected ident"),
        ("foo(Tensor x=1) -> Tensor", "expected None"),
        ("foo(int x=[1]) -> ()", "expected number"),
        ("foo(Tensor x, ) -> Tensor", "expected"),
        ("foo(int x=1, int y) -> ()", "Non-default positional argument"),
        ("foo(Tensor x) -> Tensor y z", "end of the schema"),
    ],
)
def test_what_is_no_schema_is_refused(text, message):
    """The message says what was expected, and shows the place."""
    with pytest.raises(RuntimeError, match=message):
        parse(text)
    if "end of the schema" not in message:
        with pytest.raises(RuntimeError):
            torch._C.parse_schema(text)


def test_types_are_compared_by_meaning():
    """Libraries compare types with ListType(TensorType.get()) and its like."""
    kinds = schema.types
    first = parse("foo(Tensor[] x, int? y) -> ()").arguments
    assert first[0].type == kinds.ListType(kinds.TensorType.get()) == kinds.ListType.ofTensors()
    assert first[1].type == kinds.OptionalType(kinds.IntType.get()) and first[1].type.getElementType().kind() == "IntType"
    assert kinds.IntType.get().isSubtypeOf(kinds.NumberType.get()) and not kinds.NumberType.get().isSubtypeOf(kinds.IntType.get())
