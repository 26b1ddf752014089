"""Schemas: what an operation takes and gives, in the little language in which PyTorch writes that down.

    my::scale_.by(Tensor(a!) self, float factor=1., *, int[2] dims=0, Generator? generator=None) -> Tensor(a!)

The name, the name of the overload, arguments with types and defaults (those after `*` by name only), results. `(a)` says that a result may share memory
with an argument, `(a!)` that the argument is written to, `(a -> *)` that it ends up inside a container. `int[2]` is a list of two, for which one number
may stand; `?` is "or None".

>>> schema = parse("my::scale.by(Tensor self, float factor=2, *, int[2] dims=0) -> Tensor")
>>> schema
my::scale.by(Tensor self, float factor=2., *, int[2] dims=0) -> Tensor
>>> [(a.name, str(a.type), a.kwarg_only) for a in schema.arguments]
[('self', 'Tensor', False), ('factor', 'float', False), ('dims', 'List[int]', True)]
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

from flambeau import devices, dtypes
from flambeau.operators import schema_types as types
from flambeau.operators.schema_types import ListType, OptionalType, Type

__all__ = ["AliasInfo", "Argument", "FunctionSchema", "parse"]


class FunctionSchema:
    """An operation's name, arguments and results."""

    def __init__(
        self, name: str, overload_name: str = "", arguments: Any = (), returns: Any = (), is_vararg: bool = False, is_varret: bool = False
    ):
        self.name: str = name
        self.overload_name: str = overload_name
        self.arguments: list[Argument] = list(arguments)
        self.returns: list[Argument] = list(returns)
        self.is_vararg, self.is_varret = is_vararg, is_varret

    @property
    def is_mutable(self) -> bool:
        """Whether an argument is written to."""
        return any(a.is_write for a in self.arguments)

    def __str__(self) -> str:
        overload = self.overload_name and f".{self.overload_name}"
        return f"{self.name}{overload}({self.arguments_text()}) -> {self.returns_text()}"

    __repr__ = __str__

    def arguments_text(self) -> str:
        """What stands between the parentheses."""
        parts = [str(a) for a in self.arguments]
        first_named = next((i for i, a in enumerate(self.arguments) if a.kwarg_only), None)
        if self.is_vararg:
            parts.append("...")
        if first_named is not None:
            parts.insert(first_named, "*")
        return ", ".join(parts)

    def returns_text(self) -> str:
        """What stands behind the arrow."""
        if self.is_varret:
            return "..."
        parts = [f"{r.text} {r.name}" if r.name else r.text for r in self.returns]
        return parts[0] if len(parts) == 1 else f"({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FunctionSchema) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __reduce__(self) -> tuple:
        return parse, (str(self),)


class AliasInfo:
    """The sets of memory that an argument may be in before and after the call, and whether it is written to."""

    def __init__(self, before_set: set[str], after_set: set[str], is_write: bool):
        self.before_set, self.after_set, self.is_write = before_set, after_set, is_write

    def __repr__(self) -> str:
        return f"({_alias_text(self)})"


class Argument:
    """One argument, or one result.

    type        as messages and comparisons want it: int for SymInt and ScalarType too
    real_type   as it was written
    N           the length of a list for which one element may stand
    default     what is used where nothing is given, as a program would write it; `default_value` is what PyTorch has there (numbers for dtypes)
    """

    def __init__(
        self, name: str, real_type: Type, text: str, alias_info: AliasInfo | None = None, *, default: Any = ..., kwarg_only: bool = False
    ):
        self.name, self.real_type, self.text, self.default = name, real_type, text, default
        self.kwarg_only, self.alias_info = kwarg_only, alias_info
        self.type: Type = real_type.plain()

    @property
    def N(self) -> int | None:
        """The length of the list, if it is said."""
        kind = self.real_type.element if isinstance(self.real_type, OptionalType) else self.real_type
        return kind.size if isinstance(kind, ListType) else None

    @property
    def is_write(self) -> bool:
        """Whether the call writes to it."""
        return self.alias_info is not None and self.alias_info.is_write

    @property
    def is_out(self) -> bool:
        """Whether it is there to receive a result: written to, and given by name only."""
        return self.kwarg_only and self.is_write

    def has_default_value(self) -> bool:
        """Whether it need not be given."""
        return self.default is not ...

    @property
    def default_value(self) -> Any:
        """The default, as PyTorch has it; None if there is none."""
        return None if self.default is ... else _coded(self.default)

    def __str__(self) -> str:
        return f"{self.text} {self.name}" + (f"={default_text(self)}" if self.has_default_value() else "")

    def __repr__(self) -> str:
        return f"<Argument {self}>"


def parse(text: str) -> FunctionSchema:
    """Read a schema. RuntimeError says where it is not one."""
    return Reader(text).whole_schema()


# -- reading -------------------------------------------------------------------------------------------------------------------------------

TOKEN = re.compile(r"""\s*(?:(?P<number>-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?j?(?![\w.]))|(?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
    |(?P<name>[A-Za-z_]\w*)|(?P<mark>->|\.\.\.|::|[][(){}!,*?=.|:+-]))""", re.VERBOSE)  # fmt: skip
DTYPES = {"long": "int64", "int": "int32", "float": "float32", "double": "float64", "half": "float16", "short": "int16", "char": "int8"}


class Reader:
    """Reads a text from left to right."""

    def __init__(self, text: str):
        self.text, self.at = text, 0
        self.kind = self.token = ""
        self.start = self.end = 0
        self.step()

    def step(self) -> str:
        """Go on to the next token; the one passed."""
        passed, self.end = self.token, self.at
        found = TOKEN.match(self.text, self.at)
        if found is None:
            rest = self.text[self.at :].strip()
            self.start = self.at + len(self.text[self.at :]) - len(self.text[self.at :].lstrip())
            self.kind, self.token = ("wrong", rest[0]) if rest else ("eof", "")
            return passed
        self.kind = found.lastgroup or ""
        self.token, self.start, self.at = found[self.kind], found.start(self.kind), found.end()
        return passed

    def take(self, mark: str) -> bool:
        """Pass this mark, if it is next."""
        if self.token != mark or self.kind == "string":
            return False
        self.step()
        return True

    def expect(self, mark: str, where: str) -> None:
        if not self.take(mark):
            self.fail(f"expected {mark!r} {where} but found {self.shown()}")

    def name(self, what: str) -> str:
        if self.kind != "name":
            self.fail(f"expected ident ({what}) but found {self.shown()}")
        return self.step()

    def shown(self) -> str:
        return "the end of the text ('eof')" if self.kind == "eof" else repr(self.token)

    def fail(self, problem: str, at: int | None = None) -> NoReturn:
        at = self.start if at is None else at
        raise RuntimeError(f"{problem} here:\n{self.text}\n{' ' * at}{'~' * max(len(self.token), 1)} <--- HERE\n{EXAMPLE}")

    def whole_schema(self) -> FunctionSchema:
        """The text as one schema."""
        name, overload = self.operator_name()
        if self.kind == "eof":
            raise RuntimeError(f"Tried to parse a function schema but only the operator name was given: {self.text!r}. {EXAMPLE}")
        arguments, vararg = self.arguments()
        self.expect("->", "(the arrow before the results)")
        returns, varret = self.returns()
        if self.kind != "eof":
            self.fail(f"expected the end of the schema but found {self.shown()}")
        schema = FunctionSchema(name, overload, arguments, returns, vararg, varret)
        _check_defaults(schema)
        return schema

    def whole_type(self) -> Type:
        """The text as one type."""
        return self.type()[0]

    def operator_name(self) -> tuple[str, str]:
        name = self.name("the name of the operation")
        while self.take("::"):
            name += f"::{self.name('the name of the operation')}"
        overload = self.name("the name of the overload") if self.take(".") else ""
        if overload == "default":
            raise RuntimeError(f"default is not a legal overload name for operators: leave it out of {self.text!r}")
        return name, overload

    def arguments(self) -> tuple[list[Argument], bool]:
        found: list[Argument] = []
        self.expect("(", "(before the arguments)")
        named = False
        if self.take(")"):
            return found, False
        while True:
            if self.take("..."):
                self.expect(")", "(after the arguments)")
                return found, True
            if self.take("*"):
                named = True
            else:
                found.append(self.argument(named))
            if not self.take(","):
                break
        self.expect(")", "(after the arguments)")
        return found, False

    def argument(self, named: bool) -> Argument:
        kind, text, alias = self.type()
        name = self.name("the name of the argument")
        default: Any = self.default(kind) if self.take("=") else ...
        return Argument(name, kind, text, alias, default=default, kwarg_only=named)

    def returns(self) -> tuple[list[Argument], bool]:
        if self.take("..."):
            return [], True
        if not self.take("("):
            return [self.result()], False
        found: list[Argument] = []
        if self.take(")"):
            return found, False
        while True:
            if self.take("..."):
                self.expect(")", "(after the results)")
                return found, True
            found.append(self.result())
            if not self.take(","):
                break
        self.expect(")", "(after the results)")
        return found, False

    def result(self) -> Argument:
        kind, text, alias = self.type()
        return Argument(self.step() if self.kind == "name" else "", kind, text, alias)

    # a type: (type, as it is written, alias)

    def type(self) -> tuple[Type, str, AliasInfo | None]:
        kind, text = self.simple_type()
        alias = None
        while True:
            if self.token == "(" and alias is None:
                alias = self.alias()
                text += repr(alias)
            elif self.take("?"):
                kind, text = OptionalType(kind), text + "?"
            elif self.take("["):
                size = int(self.step()) if self.kind == "number" and self.token.isdigit() else None
                self.expect("]", "(after the length of a list)")
                kind, text = ListType(kind, size), f"{text}[{size or ''}]"
                alias = alias and AliasInfo(set(), set(), alias.is_write)  # it was said of what is inside
            else:
                return kind, text, alias

    def simple_type(self) -> tuple[Type, str]:
        start = self.start
        if self.take("("):
            parts = self.list_of_types()
            return types.TupleType(parts), f"({', '.join([p.word for p in parts])})"
        if self.kind != "name":
            self.fail(f"expected a type but found {self.shown()}")
        word = self.step()
        if word in types.NESTED:
            self.expect("(", f"after {word}")
            nested = types.Nested(word, self.list_of_types())
            return nested, nested.word
        while word.startswith("__torch__") and self.take("."):
            word += f".{self.name('part of the name of a class')}"
        if not types.known(word):
            self.token = word
            self.fail(
                f"unknown type specifier {word!r}. Types are such as {', '.join(list(types.WORDS)[:11])}, Device, Tensor[], int[2], Tensor?",
                start,
            )
        kind = types.simple(types.ALSO.get(word, word))
        return kind, kind.word if word != "number" else "Scalar"

    def list_of_types(self) -> list[Type]:
        found = [self.type()[0]]
        while self.take(","):
            found.append(self.type()[0])
        self.expect(")", "(after a list of types)")
        return found

    def alias(self) -> AliasInfo:
        self.expect("(", "before an alias")
        before = self.alias_set()
        is_write = self.take("!")
        after = self.alias_set() if self.take("->") else before
        self.expect(")", "after an alias")
        return AliasInfo(before, after, is_write)

    def alias_set(self) -> set[str]:
        found = set()
        while True:
            found.add("*" if self.take("*") else self.name("the name of an alias"))
            if not self.take("|"):
                return found

    # a default

    def default(self, kind: Type) -> Any:
        if isinstance(kind, OptionalType):
            if self.take("None"):
                return None
            kind = kind.element
            if isinstance(kind, ListType) and self.token == "[":
                return self.default_list(kind)
            whole = kind.kind() == "FloatType" and self.token.isdigit()
            return int(self.step()) if whole else self.constant(kind)  # "float? x=1" has the default 1, and "float x=1" has 1.
        if isinstance(kind, ListType):
            if self.token == "[":
                return self.default_list(kind)
            if not kind.size:
                self.fail(f"expected '[' (the default of {kind.word} is a list) but found {self.shown()}")
            return [self.constant(kind.element)] * kind.size
        found = self.constant(kind)
        return devices.device(found) if kind.kind() == "DeviceObjType" and isinstance(found, str) else found

    def default_list(self, kind: ListType) -> list:
        self.expect("[", "before a list")
        found: list = []
        if self.take("]"):
            return found
        while True:
            found.append(self.constant(kind.element))
            if not self.take(","):
                break
        self.expect("]", "after a list")
        return found

    def constant(self, kind: Type) -> Any:
        if isinstance(kind, ListType):
            kind = kind.element
        what = kind.kind()
        if what in ("TensorType", "GeneratorType", "StorageType"):
            if not self.take("None"):
                self.fail(f"expected None (the only default that a {kind.word} has) but found {self.shown()}")
            return None
        if what == "DeviceObjType" and self.kind == "name":
            device = self.step()
            return f"{device}:{self.step()}" if self.take(":") else device
        if self.kind == "string":
            return _text_of(self.step())
        if self.kind == "number":
            first = self.number(what, self.step())
            self.take("+")
            return first + complex(self.step()) if what == "ComplexType" and self.token.endswith("j") else first
        if self.kind == "name":
            return self.word(self.token, what)
        self.fail(f"expected number, text or word (a default for {kind.word}) but found {self.shown()}")

    def word(self, word: str, what: str) -> Any:
        named = {"True": True, "true": True, "False": False, "false": False, "None": None, "none": None, "inf": float("inf")}
        if what in ("FloatType", "NumberType", "SymFloatType") and word in ("nan", "infinity"):
            named |= {"nan": float("nan"), "infinity": float("inf")}
        if word in named:
            self.step()
            return named[word]
        if word in ("Mean", "mean"):
            self.step()
            return 1
        if word in ("contiguous_format", "strided"):
            self.step()
            return Named(word, 0)
        found = getattr(dtypes, DTYPES.get(word, word), None)
        if isinstance(found, dtypes.dtype):
            self.step()
            return found
        self.fail(f"invalid numeric default value: expected a number, True, False, None or the name of a dtype, found {word!r}")

    def number(self, what: str, text: str) -> Any:
        if what == "ComplexType":
            return complex(text)
        if text.endswith("j"):
            return complex(text)
        if what in ("FloatType", "SymFloatType"):
            return float(text)
        value = float(text) if any(c in text for c in ".eE") else int(text)
        if what == "ScalarTypeType" and isinstance(value, int):
            return of_code(value)
        if what in ("MemoryFormatType", "LayoutType") and value == 0:
            return Named("contiguous_format" if what[0] == "M" else "strided", 0)
        return value


EXAMPLE = "A schema is such as 'scale(Tensor x, float factor=1.0, *, int[] dims=[0]) -> Tensor'."


class Named(int):
    """A default that is a constant with a name: contiguous_format."""

    name: str

    def __new__(cls, name: str, code: int) -> Named:
        made = super().__new__(cls, code)
        made.name = name
        return made


def _text_of(literal: str) -> str:
    return literal[1:-1].encode("latin-1", "backslashreplace").decode("unicode_escape")


def _check_defaults(schema: FunctionSchema) -> None:
    seen = False
    for argument in schema.arguments:
        if argument.has_default_value():
            seen = True
        elif seen and not argument.kwarg_only:
            raise RuntimeError(f"Non-default positional argument follows default argument. Parameter {argument.name} in {schema}")


# -- numbers for dtypes --------------------------------------------------------------------------------------------------------------------

# The order in which PyTorch counts its dtypes, as far as they are here.
CODES = """uint8 int8 int16 int32 int64 float16 float32 float64 complex32 complex64 complex128 bool qint8 quint8 qint32 bfloat16 quint4x2 quint2x4
bits1x8 bits2x4 bits4x2 bits8 bits16 float8_e5m2 float8_e4m3fn float8_e5m2fnuz float8_e4m3fnuz uint16 uint32 uint64""".split()  # fmt: skip


def code_of(dtype: dtypes.dtype) -> int:
    """The number by which PyTorch's compiled part knows a dtype."""
    return CODES.index(dtype.name)


def of_code(number: int) -> dtypes.dtype:
    """The dtype of such a number."""
    return getattr(dtypes, CODES[number])


def _coded(value: Any) -> Any:
    return code_of(value) if isinstance(value, dtypes.dtype) else int(value) if isinstance(value, Named) else value


# -- writing -------------------------------------------------------------------------------------------------------------------------------


ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "'": r"\'", "\n": r"\n", "\t": r"\t"})


def default_text(argument: Argument) -> str:
    """A default as a schema writes it."""
    value = argument.default_value
    if isinstance(value, list):
        kind = argument.real_type
        if isinstance(kind, ListType) and kind.size and kind.element.word == "int" and len(value) > 1 and len(set(value)) == 1:
            return str(value[0])
        return f"[{', '.join([_value_text(v, argument) for v in value])}]"
    return _value_text(value, argument)


def _value_text(value: Any, argument: Argument) -> str:
    if isinstance(value, str):
        return value if "Device" in argument.text else f'"{value.translate(ESCAPES)}"'
    if isinstance(value, complex):
        return f"{_float_text(value.real)}{'+' if value.imag >= 0 else ''}{_float_text(value.imag)}j"
    return _float_text(value) if isinstance(value, float) else str(value)


def _float_text(value: float) -> str:
    """With all digits, and a point if it is whole: 60. and 0.10000000000000001."""
    if value == value and abs(value) < 1e10 and value == int(value):
        return f"{int(value)}."
    return f"{value:.17g}"


def _alias_text(alias: AliasInfo) -> str:
    before, after = "|".join(sorted(alias.before_set)), "|".join(sorted(alias.after_set))
    return before + ("!" if alias.is_write else "") + ("" if alias.after_set == alias.before_set else f" -> {after}")
