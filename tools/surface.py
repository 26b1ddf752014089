"""Writes down for editors and type checkers what Flambeau makes at run time.

    python tools/surface.py [folder]        default: src/flambeau/_surface

Functions and methods come from the declarations in ops/, so nothing in the sources shows their names. The stubs written here do: names,
parameters, defaults, results, first lines of the docstrings. The package imports them where a type checker looks (`if TYPE_CHECKING`).
The build writes them; they are in the wheel and not in the repository.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import keyword
import math
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "flambeau"
ROOMS = ("fft", "linalg", "masked", "nn.functional", "special")

HEADER = '''"""What Flambeau makes at run time. Written by tools/surface.py: do not edit."""

from builtins import bool as _bool, complex as _complex, float as _float, int as _int, str as _str, type as _type
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from flambeau._surface import results as _results
from flambeau.devices import device as _device
from flambeau.dtypes import dtype as _dtype
from flambeau.generators import Generator as _Generator
from flambeau.tensor import Size as _Size, Tensor as _Tensor

_Number = _int | _float | _complex
'''

# What a parameter of this name takes, in whatever operation. Those not listed are told by their default.
TENSORS = (
    "input end tensor1 tensor2 weight mat1 mat2 mat vec vec1 vec2 batch1 batch2 src source index mask A B L tau x y x1 x2 grad".split()
)
NUMBERS = "alpha beta value p fill_value lambd negative_slope eps rcond atol rtol".split()
PARAMETERS = {
    **dict.fromkeys(TENSORS, "_Tensor"),
    **dict.fromkeys(NUMBERS, "_Number | None"),
    **dict.fromkeys(("other", "min", "max"), "_Tensor | _Number"),
    **dict.fromkeys(("size", "sizes", "shape"), "_int | Sequence[_int]"),
    "tensors": "Sequence[_Tensor]",
    "dim": "_int | Sequence[_int] | None",
    "dims": "_int | Sequence[_int] | None",
    "dtype": "_dtype | None",
    "device": "_device | _str | _int | None",
    "generator": "_Generator | None",
    "out": "Any",
}
TUPLES = """unbind split split_with_sizes chunk unsafe_split unsafe_split_with_sizes unsafe_chunk tensor_split hsplit vsplit dsplit
    broadcast_tensors unbind_copy split_copy split_with_sizes_copy meshgrid unravel_index gradient var_mean std_mean""".split()
SEVERAL = """max min median nanmedian where nonzero unique unique_consecutive atleast_1d atleast_2d atleast_3d histogramdd lobpcg lu
    svd_lowrank pca_lowrank linalg.lu frexp result_type linalg.ldl_factor linalg.ldl_factor_ex""".split()
RESULTS = {
    **dict.fromkeys(TUPLES, "tuple[_Tensor, ...]"),
    **dict.fromkeys(SEVERAL, "Any"),  # a tensor or a tuple of them, as the arguments say
    **dict.fromkeys(("equal", "allclose"), "_bool"),
}
# Types that may stand in an annotation of the sources, and how they are written here.
TYPES = {
    "Tensor": "_Tensor",
    "Size": "_Size",
    "dtypes.dtype": "_dtype",
    "dtype": "_dtype",
    "devices.device": "_device",
    "Generator": "_Generator",
}
TYPES |= {name: f"_{name}" for name in ("int", "float", "bool", "str", "complex", "type")}
PLAIN = frozenset({"Any", "None", "tuple", "list", "dict", "Sequence", "Callable", "Iterator"})


def main(arguments: list[str]) -> None:
    write(Path(arguments[0]) if arguments else PACKAGE / "_surface")


def write(folder: Path) -> None:
    """Write all stubs into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in stubs().items():
        (folder / name).write_text(text)


def stubs() -> dict[str, str]:
    """The text of every file."""
    from flambeau.eager import bind

    bind.everything()
    found = {"__init__.pyi": HEADER + "\n".join([*_methods(), *_door()]) + "\n", "results.pyi": "\n".join(_named_results())}
    for room in ROOMS:
        names = [name for name in bind.functions if name.rpartition(".")[0] == room]
        lines = [_function(name.rpartition(".")[2], bind.functions[name]) for name in sorted(names)]
        found[f"{room.replace('.', '_')}.pyi"] = HEADER + "\n".join(lines) + "\n"
    return found


# -- what there is -------------------------------------------------------------------------------------------------------


def _named_results() -> Iterator[str]:
    from flambeau.ops.results import TYPES as named

    yield "from typing import NamedTuple\n\nfrom flambeau.tensor import Tensor\n"
    for name, kind in sorted(named.items()):
        yield f"class {name}(NamedTuple):" + "".join(f"\n    {field}: Tensor" for field in kind._fields) + "\n"


def _methods() -> Iterator[str]:
    """Everything that Tensor has and the class in tensor.py does not show, as the base class `Methods`."""
    from flambeau.tensor import Tensor

    yield "class Methods:"
    for name, member in sorted(vars(Tensor).items()):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        code = getattr(function, "__code__", None)
        shown = code is not None and code.co_filename.endswith("flambeau/tensor/tensor.py") and not hasattr(member, "op")
        if (
            shown
            or (name.startswith("_") and not name.startswith("__"))
            or name in ("__init_subclass__", "__torch_function__", "__torch_dispatch__")
        ):
            continue
        if isinstance(member, property):
            yield f"    @property\n    def {name}(self) -> {'_Tensor' if name in ('T', 'mT', 'H', 'mH', 'real', 'imag') else 'Any'}: ..."
        elif code is not None or hasattr(member, "plans"):
            yield _function(name, member, method=True)
        elif isinstance(member, bool):
            yield f"    {name}: _bool"
    yield ""


def _door() -> Iterator[str]:
    """The names behind `flambeau.` that its file does not show."""
    import flambeau

    shown = _shown(PACKAGE / "__init__.py")
    for name in dir(flambeau):
        if name in shown or name.startswith("_") or keyword.iskeyword(name):
            continue
        if name in flambeau._ROOMS or name in flambeau._ELSEWHERE:
            if name in flambeau._ROOMS and importlib.util.find_spec(f"flambeau.{name}"):
                yield f"from flambeau import {name} as {name}"
        else:
            yield from _value(name, getattr(flambeau, name))


def _value(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, ModuleType):
        return
    if inspect.isfunction(value) or hasattr(value, "plans"):
        yield _function(name, value)
    elif isinstance(value, type) and value.__module__.startswith("flambeau."):
        yield f"from {value.__module__} import {value.__name__} as {name}"
    else:
        yield f"{name}: {'_dtype' if type(value).__name__ == 'dtype' else '_type' if isinstance(value, type) else 'Any'}"


def _shown(file: Path) -> set[str]:
    """The names that a file imports or assigns at its top level, which is what type checkers see."""
    found: set[str] = set()
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.Assign):
            found |= {n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
    return found


# -- one function --------------------------------------------------------------------------------------------------------


def _function(name: str, function: Callable, method: bool = False) -> str:
    """The stub of a function, or of a method."""
    op = getattr(function, "op", None)
    source = op.forward if op is not None and not name.startswith("__") else function
    parameters = list(inspect.signature(source).parameters.values())
    texts = _parameters(parameters[1:] if method else parameters, op)
    if (
        op is not None
        and not method
        and not name.endswith("_")
        and (op.kind in ("pointwise", "array", "choice") or getattr(op, "takes_out", False))
    ):
        texts += [] if any(t.startswith(("*, ", "*")) for t in texts) else ["*"]
        texts += ["out: Any = None"] if not any(t.startswith(("out:", "**")) for t in texts) else []
    indent = "    " if method else ""
    head = f"{indent}def {name}({', '.join((['self'] if method else []) + texts)}) -> {_result(name, function)}:"
    ignore = "  # type: ignore[override]" if name in ("__eq__", "__ne__", "__reduce_ex__") else ""
    first = (function.__doc__ or "").strip().partition("\n")[0].replace("\\", "\\\\").replace('"', "'")
    return f'{head}\n{indent}    """{first}"""' if first else f"{head} ...{ignore}"


def _parameters(parameters: list[inspect.Parameter], op: Any) -> list[str]:
    texts, star = [], False
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL:
            star = True
            texts.append(f"*{p.name}: {_given(p) or PARAMETERS.get(p.name, 'Any')}")
            continue
        if p.kind is p.VAR_KEYWORD:
            texts.append(f"**{p.name}: Any")
            continue
        if p.kind is p.KEYWORD_ONLY and not star:
            star = True
            texts.append("*")
        name = p.name + ("_" if keyword.iskeyword(p.name) else "")
        texts.append(f"{name}: {_type(p, op)}{_default(p)}")
    return texts


def _type(p: inspect.Parameter, op: Any) -> str:
    if _given(p):
        return _given(p)
    if op is not None and op.kind == "pointwise" and p.name in op.operands[1:]:
        return "_Tensor | _Number" if op.takes_numbers else "_Tensor"
    if p.name in PARAMETERS and not isinstance(p.default, str):
        listed = PARAMETERS[p.name]
        return f"{listed} | None" if p.default is None and not listed.endswith("None") and listed != "Any" else listed
    kind = type(p.default)
    return f"_{kind.__name__}" if kind in (bool, int, float, str) else "Any"


def _given(p: inspect.Parameter) -> str:
    """The annotation in the sources, if it can be said here."""
    return "" if p.annotation is p.empty else _said(str(p.annotation))


def _said(annotation: str) -> str:
    words = re.findall(r"[\w.]+", annotation)
    if not all(word in TYPES or word in PLAIN for word in words):
        return "Any"
    return re.sub(r"[\w.]+", lambda found: TYPES.get(found[0], found[0]), annotation)


def _default(p: inspect.Parameter) -> str:
    value = p.default
    if value is p.empty:
        return ""
    plain = value is None or isinstance(value, (bool, int, str)) or (isinstance(value, float) and math.isfinite(value))
    return f" = {value!r}" if plain else " = ..."


def _result(name: str, function: Callable) -> str:
    from flambeau.ops.results import TYPES as named

    op = getattr(function, "op", None)
    if op is None:
        annotation = inspect.signature(function).return_annotation
        home = inspect.unwrap(function).__globals__["__name__"]
        makes = home in (
            "flambeau.tensor.making.factories",
            "flambeau.tensor.making.random_factories",
            "flambeau.tensor.making.ranges",
            "flambeau.tensor.making.windows",
        )
        return ("_Tensor" if makes else "Any") if annotation is inspect.Signature.empty else _said(str(annotation))
    for key in (op.name, op.short):
        if key in RESULTS:
            return RESULTS[key]
    if op.name.replace(".", "_") in named:
        return f"_results.{op.name.replace('.', '_')}"
    return "_Tensor"


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT / "src"))
    main(sys.argv[1:])
