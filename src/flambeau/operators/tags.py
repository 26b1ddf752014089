"""torch.Tag: what a compiler may want to know of an operation."""

from __future__ import annotations

from enum import Enum
from functools import cache
from importlib import resources

from flambeau.operators.schema import FunctionSchema


class Tag(Enum):
    """What is true of an operation beside its schema."""

    core = 0
    cudagraph_unsafe = 1
    data_dependent_output = 2
    dynamic_output_shape = 3
    flexible_layout = 4
    generated = 5
    inplace = 6
    inplace_view = 7
    maybe_aliasing_or_mutating = 8
    needs_contiguous_strides = 9
    needs_exact_strides = 10
    needs_fixed_stride_order = 11
    nondeterministic_bitwise = 12
    nondeterministic_seeded = 13
    out = 14
    out_variant = 15
    pointwise = 16
    pt2_compliant_tag = 17
    reduction = 18
    view_copy = 19

    def __repr__(self) -> str:
        return f"<Tag.{self.name}: {self.value}>"

    def __int__(self) -> int:
        return self.value


@cache
def _listed() -> dict[str, frozenset[str]]:
    """Tag -> the operators that have it; one line of the file each."""
    lines = resources.files("flambeau.operators").joinpath("aten_tags.txt").read_text("utf-8").splitlines()
    return {tag: frozenset(names.split()) for tag, _, names in [line.partition(": ") for line in lines]}


@cache
def _of_aten() -> dict[str, list[Tag]]:
    found: dict[str, list[Tag]] = {}
    for tag, names in _listed().items():
        for name in names if tag in Tag.__members__ else ():
            found.setdefault(name, []).append(Tag[tag])
    return found


def is_composite(schema: FunctionSchema) -> bool:
    """Whether an operator of PyTorch's is made of others, which know their derivatives."""
    return (
        schema.name.removeprefix("aten::") + (schema.overload_name and f".{schema.overload_name}") in _listed()["CompositeImplicitAutograd"]
    )


def of_aten(schema: FunctionSchema) -> list[Tag]:
    """The tags of an operator of PyTorch's."""
    name = schema.name.removeprefix("aten::") + (schema.overload_name and f".{schema.overload_name}")
    found = list(_of_aten().get(name, ()))
    if any(a.is_out for a in schema.arguments):
        found.append(Tag.out)
    elif schema.name.endswith("_") and schema.is_mutable:
        found.append(Tag.inplace)
    return sorted([*found, Tag.pt2_compliant_tag], key=int)
