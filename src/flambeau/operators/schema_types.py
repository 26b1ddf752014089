"""The types that schemas speak of: what an argument of an operation may be.

>>> ListType(OptionalType(TensorType.get()))
List[Optional[Tensor]]
>>> parse("SymInt[]?").kind(), str(parse("Scalar"))
('OptionalType', 'number')
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

# The word in a schema: (kind, how the type prints, what a value of it is where there is nothing better: PyTorch's "fake" type)
WORDS = {
    "Tensor": ("TensorType", "Tensor", ""),
    "int": ("IntType", "int", ""),
    "SymInt": ("SymIntType", "int", "int"),
    "float": ("FloatType", "float", ""),
    "SymFloat": ("SymFloatType", "float", "float"),
    "bool": ("BoolType", "bool", ""),
    "SymBool": ("SymBoolType", "bool", ""),
    "complex": ("ComplexType", "complex", ""),
    "str": ("StringType", "str", ""),
    "Scalar": ("NumberType", "number", ""),
    "ScalarType": ("ScalarTypeType", "ScalarType", "int"),
    "Layout": ("LayoutType", "Layout", "int"),
    "MemoryFormat": ("MemoryFormatType", "MemoryFormat", "int"),
    "Device": ("DeviceObjType", "Device", ""),
    "Stream": ("StreamObjType", "Stream", ""),
    "Generator": ("GeneratorType", "Generator", ""),
    "Storage": ("StorageType", "Storage", ""),
    "QScheme": ("QSchemeType", "QScheme", ""),
    "Quantizer": ("QuantizerType", "Quantizer", ""),
    "Capsule": ("CapsuleType", "Capsule", ""),
    "Any": ("AnyType", "Any", ""),
    "AnyEnumType": ("AnyEnumType", "AnyEnumType", ""),
    "None": ("NoneType", "None", ""),
    "NoneType": ("NoneType", "NoneType", ""),
}
ALSO = {"number": "Scalar", "Dimname": "str", "DeviceIndex": "int", "DispatchKeySet": "int"}
VARIABLE = re.compile(r"t\w*$")  # a type that stands for any: t, t1, tVal
CLASS = re.compile(r"__torch__[\w.]*$")
NESTED = {"Dict": "Dict", "Future": "Future", "RRef": "RRef", "Await": "Await"}


class Type:
    """A type without parts, by its word in schemas; the types with parts derive from it. Two of the same meaning are equal."""

    def __init__(self, word: str):
        self.word = word
        self._kind, self._shown, self._plain = WORDS.get(word) or (("ClassType" if CLASS.match(word) else "VarType"), word, "")

    def kind(self) -> str:
        """The name of the kind of type, such as "TensorType"."""
        return self._kind

    @property
    def annotation_str(self) -> str:
        """The type as an annotation in Python."""
        return str(self)

    def plain(self) -> Type:
        """What it is where only a few types are told apart: int, where it is SymInt or ScalarType."""
        return simple(self._plain) if self._plain else self

    @classmethod
    def get(cls) -> Type:
        """The one type of this class."""
        return simple(next(word for word, (kind, _, _) in WORDS.items() if kind == cls.__name__))

    def __str__(self) -> str:
        return self._shown

    __repr__ = __str__

    def isSubtypeOf(self, other: Type) -> bool:
        """Whether every value of this type is one of the other."""
        if self == other or other.kind() == "AnyType":
            return True
        if isinstance(other, OptionalType):
            return self.kind() == "NoneType" or (self.element if isinstance(self, OptionalType) else self).isSubtypeOf(other.element)
        return other.kind() == "NumberType" and self.kind() in ("IntType", "FloatType", "ComplexType", "SymIntType", "SymFloatType")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Type) and self.word == other.word

    def __hash__(self) -> int:
        return hash(self.word)

    def __reduce__(self) -> tuple:
        return parse, (self.word,)


class TensorType(Type):
    """A tensor."""


class IntType(Type):
    """A whole number."""


class FloatType(Type):
    """A number with a fraction."""


class BoolType(Type):
    """True or False."""


class ComplexType(Type):
    """A complex number."""


class StringType(Type):
    """A text."""


class NumberType(Type):
    """Any number."""


class DeviceObjType(Type):
    """A device."""


class AnyType(Type):
    """Anything."""


class NoneType(Type):
    """None."""


class _Wrapped(Type):
    """A type made of another."""

    form = ""

    def __init__(self, element: Type):
        self.element = element
        self._kind, self._shown = type(self).__name__, f"{type(self).__name__.removesuffix('Type')}[{element}]"
        self.word = self.form.format(element.word)

    def getElementType(self) -> Type:
        """What it is a list of, or what it is if it is not None."""
        return self.element

    def plain(self) -> Type:
        inner = self.element.plain()
        return self if inner is self.element else type(self)(inner)

    def containedTypes(self) -> list[Type]:
        """The parts."""
        return [self.element]


class ListType(_Wrapped):
    """A list; of `size` elements, where one may stand for all."""

    form = "{}[]"

    def __init__(self, element: Type, size: int | None = None):
        super().__init__(element)
        self.size = size

    @classmethod
    def ofTensors(cls) -> ListType:
        """Tensor[]"""
        return cls(simple("Tensor"))

    @classmethod
    def ofInts(cls) -> ListType:
        """int[]"""
        return cls(simple("int"))

    def plain(self) -> Type:
        inner = self.element.plain()
        return self if inner is self.element else ListType(inner, self.size)


class OptionalType(_Wrapped):
    """A value or None."""

    form = "{}?"

    @classmethod
    def ofTensor(cls) -> OptionalType:
        """Tensor?"""
        return cls(simple("Tensor"))


class TupleType(Type):
    """Several values, each of its own type."""

    def __init__(self, elements: list[Type]):
        self._elements = elements
        self._kind, self._plain = "TupleType", ""
        self._shown, self.word = f"Tuple[{', '.join(map(str, elements))}]", f"({', '.join([e.word for e in elements])})"

    def elements(self) -> list[Type]:
        """The parts."""
        return self._elements


class Nested(Type):
    """A type with parts that no operation here takes: Dict(str, Tensor), Future(t)."""

    def __init__(self, name: str, elements: list[Type]):
        self._kind, self._plain = f"{name}Type", ""
        self._shown, self.word = f"{name}[{', '.join(map(str, elements))}]", f"{name}({', '.join([e.word for e in elements])})"


CLASSES: dict[str, type[Type]] = {
    kind.__name__: kind
    for kind in (TensorType, IntType, FloatType, BoolType, ComplexType, StringType, NumberType, DeviceObjType, AnyType, NoneType)
}


@cache
def simple(word: str) -> Type:
    """The type of one word; there is one of each."""
    kind = WORDS[word][0] if word in WORDS else ""
    return CLASSES.get(kind, Type)(word)


def known(word: str) -> bool:
    """Whether this word names a type."""
    return word in WORDS or word in ALSO or VARIABLE.match(word) is not None or CLASS.match(word) is not None


def parse(text: str) -> Type:
    """The type that a schema calls so."""
    from flambeau.operators.schema import Reader

    return Reader(text).whole_type()


def of_python(value: Any) -> str:
    """How messages call the type of a value."""
    kind = type(value)
    if kind in (list, tuple):
        names = sorted({of_python(v) for v in value}) or ["Tensor"]
        either = names[0] if len(names) == 1 else f"Union[{', '.join(names)}]"
        return f"List[{either}]"
    return "Tensor" if hasattr(value, "_array") else kind.__name__
