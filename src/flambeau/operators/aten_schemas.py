"""The schemas of PyTorch's operators, by name: what `torch.ops.aten` consists of.

aten_schemas.txt has one per line. Behind a semicolon stand the forms that follow from it: `_` the one that writes into its first argument,
`.out` the one that writes its results into tensors given by name: the name of that overload, and those of the tensors where they are not `out`.

    abs(Tensor self) -> Tensor ; _ .out
    max.dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices) ; .dim_max=max,max_values

>>> [str(s) for s in schemas("abs_")]
['aten::abs_(Tensor(a!) self) -> Tensor(a!)']

The file is read when one of its names is first asked for, and a schema when it is wanted. tools/aten_schemas.py writes it from an installed PyTorch.
"""

from __future__ import annotations

from functools import cache
from importlib import resources

from flambeau.operators.schema import AliasInfo, Argument, FunctionSchema, parse

LETTERS = "abcdefghijklmnopqrstuvwxyz"


@cache
def _lines() -> dict[str, list[str]]:
    """The lines that have something to say about a name."""
    found: dict[str, list[str]] = {}
    for line in resources.files("flambeau.operators").joinpath("aten_schemas.txt").read_text("utf-8").splitlines():
        text, _, words = line.partition(" ; ")
        name = text[: text.index("(")].partition(".")[0]
        found.setdefault(name, []).append(line)
        if "_" in words.split():
            found.setdefault(f"{name}_", []).append(line)
    return found


def names() -> list[str]:
    """All names of operators, without "aten::"."""
    return list(_lines())


@cache
def schemas(name: str) -> tuple[FunctionSchema, ...]:
    """The schemas of all overloads of a name, in the order in which a call tries them; none, if there is no such operator."""
    found: list[FunctionSchema] = []
    derived: list[FunctionSchema] = []
    for line in _lines().get(name, ()):
        text, _, words = line.partition(" ; ")
        base = parse(f"aten::{text}")
        own = base.name == f"aten::{name}"
        if own:
            found.append(base)
        for word in words.split():
            form = in_place(base) if word == "_" else out_form(base, word[1:])
            if form is not None and own == (word != "_"):
                derived.append(form)
    return (*found, *derived)


def in_place(base: FunctionSchema) -> FunctionSchema | None:
    """The form that writes into the first argument, where there is one tensor to write, or one list of tensors."""
    if not base.arguments or len(base.returns) != 1 or base.arguments[0].text != base.returns[0].text:
        return None
    first, *rest = base.arguments
    if first.text not in ("Tensor", "Tensor[]"):
        return None
    returns = [_written(base.returns[0], "a")] if first.text == "Tensor" else []
    return FunctionSchema(f"{base.name}_", base.overload_name, [_written(first, "a"), *rest], returns)


def out_form(base: FunctionSchema, word: str) -> FunctionSchema | None:
    """The form that writes its results into tensors that are given by name. The word is the name of the overload, and how they are called:
    "out" or "out=out,indices"; if that is not said, as the results are, or `out`, or `out0`, `out1`, ..."""
    overload, _, named = word.partition("=")
    if not base.returns or any(r.text not in ("Tensor", "Tensor[]") for r in base.returns):
        return None
    places = [
        Argument(name, r.real_type, *_text_and_alias(r.text, LETTERS[i]), kwarg_only=True)
        for i, (r, name) in enumerate(zip(base.returns, named.split(",") if named else names_of_places(base), strict=True))
    ]
    makes = any(a.name == "pin_memory" for a in base.arguments)
    kept = [a for a in base.arguments if not (makes and a.name in LEFT_TO_OUT)]
    lists = any(r.text != "Tensor" for r in base.returns)
    returns = [] if lists else [_written(r, LETTERS[i]) for i, r in enumerate(base.returns)]
    return FunctionSchema(base.name, overload, [*kept, *places], returns)


LEFT_TO_OUT = ("dtype", "layout", "device", "pin_memory")  # of functions that make tensors: `out` has them


def names_of_places(base: FunctionSchema) -> list[str]:
    """How the arguments for results are called, if nothing else is said."""
    several = len(base.returns) > 1
    return [r.name or (f"out{i}" if several else "out") for i, r in enumerate(base.returns)]


def _written(argument: Argument, letter: str) -> Argument:
    text, alias = _text_and_alias(argument.text, letter)
    return Argument(argument.name, argument.real_type, text, alias, default=argument.default, kwarg_only=argument.kwarg_only)


def _text_and_alias(text: str, letter: str) -> tuple[str, AliasInfo]:
    inside = {letter} if text == "Tensor" else set()
    return text.replace("Tensor", f"Tensor({letter}!)"), AliasInfo(inside, inside, True)
