"""What autocast does with which operation, on which device: the column `autocast=` of its declaration, which says what PyTorch does.

    half     floating operands become the region's dtype: the product is what half precision is for
    float32  they become float32: half precision would overflow, or lose what matters
    widest   they become float32 if one of them is, else the region's dtype
    state    the dtype of the recurrent state, or float32 where that is wider: weights follow it
    given    nothing, nor for what it is made of here: in PyTorch it is not made of other operations
    refused  an error: no dtype is safe

    @composite(autocast="half")                      on every device
    @composite(autocast="cpu given, cuda float32")   on each its own; nothing on those that are not named
    @composite(autocast="float32 unless dtype")      where the call does not choose the dtype by itself
    @composite(autocast=f)                           f(device, arguments by name) -> one of the above, or None

float64, integers and complex numbers are never touched. An operation without the column runs in the dtypes it is given; if it is made of others
(`einsum` of `bmm`), those are looked up in their turn. In-place and out= forms run as they are: the user has chosen their dtype.
The two devices differ much: the CPU's column follows what its half precision kernels lack, CUDA's what is safe to sum in float16.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from flambeau.ops import contents
from flambeau.ops.declare import OPS, Op

GIVEN = "given"
RULES = frozenset(("half", "float32", "widest", "state", GIVEN, "refused"))
_known: dict[tuple, tuple] = {}  # (operation, device) -> (the function that tells its rule from the arguments, if there is one, its rule)


def rule(op, device: str, args: tuple, kwargs: dict) -> str | None:
    """What autocast on this device does with a call of `op`. None: look at what it is made of."""
    found = _known.get((op, device))
    if found is None:
        found = _known[op, device] = _rule(op, device)
    special, usual = found
    if special is None:
        return usual
    return special(device, dict(zip(op.parameters, args, strict=False)) | kwargs) or usual


def _rule(op, device: str) -> tuple[Callable | None, str | None]:
    column, unless = declared(op, device)
    if isinstance(column, str) and not unless:
        return None, column
    special = (
        None if column is None else column if callable(column) else lambda _, given: None if given.get("dtype") is not None else column
    )
    made_of_others = op.kind in ("composite", "choice") and reaches(op.forward, device)
    return special, None if made_of_others else GIVEN


def declared(op: Op, device: str) -> tuple[Any, bool]:
    """(the rule of the column for this device, or the function that tells it, or None; whether the call may choose the dtype by itself)."""
    if not isinstance(op.autocast, str):
        return op.autocast, False
    for clause in op.autocast.split(", "):
        named, _, rest = clause.partition(" ")
        if named in RULES:
            named, rest = device, clause
        if named == device:
            found, _, condition = rest.partition(" unless ")
            return found, condition == "dtype"
    return None, False


def reaches(function: Callable, device: str) -> bool:
    """Whether a function may come to an operation with a rule: its code, or that of a function it calls, has the name of one.

    Of a method, the name is all there is to see, so the answer may be a yes too many; that costs time, no cast.
    """
    seen, waiting = set(), [function]
    while waiting:
        f = waiting.pop()
        f = f.func if isinstance(f, functools.partial) else f
        if not isinstance(f, types.FunctionType) or f in seen:
            continue
        seen.add(f)
        words, operators = _vocabulary(f.__code__)
        words |= {method for sign, method in (("@", "matmul"), ("**", "pow")) if sign in operators}
        for word in words:
            found = f.__globals__.get(word)
            if found is None:  # a method, or a key of OPS
                found = dict.get(OPS, word)
                if found is None and (word in contents.METHODS or word in contents.FUNCTIONS):
                    return True  # its file was not read yet, nobody knows what it is made of
            if isinstance(found, Op):
                if declared(found, device)[0] is not None:
                    return True
                found = found.forward if found.kind in ("composite", "choice") else None
            waiting.append(found)
        waiting += [cell.cell_contents for cell in f.__closure__ or ()]
    return False


def _vocabulary(code: types.CodeType) -> tuple[set[str], set[str]]:
    """(names and short texts, binary operators) in a function's code, and in the functions inside it."""
    import dis  # 10 ms that only programs with autocast spend

    words = {*code.co_names, *(c for c in code.co_consts if isinstance(c, str) and c.replace(".", "_").isidentifier())}
    operators = {i.argrepr.rstrip("=") for i in dis.get_instructions(code) if i.opname == "BINARY_OP"}
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            more = _vocabulary(inner)
            words, operators = words | more[0], operators | more[1]
    return words, operators
