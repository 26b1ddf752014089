"""Writes src/flambeau/operators/aten_schemas.txt and aten_tags.txt: the schemas and tags of PyTorch's operators, from an installed PyTorch.

    python tools/aten_schemas.py            write the files anew
    python tools/aten_schemas.py --check    say what differs, and fail if something does

Left out: what takes no tensor and makes none (the operators of TorchScript on lists and texts), and what belongs to devices and libraries that
Flambeau does not have. Overloads that follow from another by rule are written behind it in a word, see `flambeau.operators.aten_schemas`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from flambeau.operators import aten_schemas as aten
from flambeau.operators import schema

HOME = Path(aten.__file__).parent
# Operators of libraries and devices that are not here, and those that PyTorch has for its own tests.
ELSEWHERE = re.compile(
    r"""_?(cudnn|miopen|mkldnn|mps|nnpack|fbgemm|xla|vulkan|triton|nested|jagged|padded_dense|cslt|quantized_|thnn_|wrapped_|test_|sobol|philox
    |autocast|validate|sparse_semi_structured|dyn_quant|weight_int|convert_weight|fw_primal|make_dual|unpack_dual|lstm_mps|mixed_dtypes|cufft
    |scaled_grouped|propagate|shape_as_tensor|transform_bias|transformer_encoder|native_multi|pack_|pad_packed|add_batch_dim|remove_batch_dim
    |slow_conv|conv_depthwise|rowwise_prune|saturate|choose_qparams|print|functorch|foobar|grid_sampler_2d_cpu|batch_norm_elemt|batch_norm_gather
    |batch_norm_backward_|batch_norm_stats|batch_norm_update|convolution_overrideable|convolution_backward_overrideable|thnn|tensor_to_list
    |list_to_tensor|ncf_|dim_arange|dim[IV]$|get_gradients|set_item|infer_size|copy_from|lazy_clone|resize_output|has_same_storage
    |empty_affine|empty_per_channel|empty_quantized|make_per|flash_attention_forward_no|make_dep_token|sparse_mask_proj|spsolve|to_sparse_semi
    |weight_norm_diff|neg_view_copy|conj_copy|new_zeros_with_same|fused_moving|fused_dropout|linalg_check_errors|use_miopen|use_cudnn|is_vulkan)
    |.*(mkldnn|miopen|cudnn)|.*_for_mps""",
    re.VERBOSE,
)
KEPT = {"to_mkldnn", "_nested_tensor_from_mask", "is_mkldnn", "cudnn_is_acceptable", "_cudnn_attention_forward"}


def wanted() -> list[schema.FunctionSchema]:
    """The schemas, as PyTorch orders them within a name."""
    import torch

    names = {str(s.name) for s in torch._C._jit_get_all_schemas() if s.name.startswith("aten::")}
    found = []
    for name in sorted(names):
        short = name.removeprefix("aten::")
        if ELSEWHERE.match(short) and short not in KEPT:
            continue
        packet = getattr(torch.ops.aten, short)
        for overload in packet.overloads():
            read = schema.parse(str(getattr(packet, overload)._schema))
            if any("Tensor" in str(a.type) or "Storage" in str(a.type) for a in (*read.arguments, *read.returns)) and not is_script(read):
                found.append(read)
    return found


def is_script(read: schema.FunctionSchema) -> bool:
    """Whether it is of TorchScript's world alone: types that stand for any, dictionaries, numbers for which programs write tensors."""
    kinds = " ".join([a.real_type.word for a in (*read.arguments, *read.returns)])
    return re.search(r"\bt\b|\bt\d|tVal|Dict|Any|__torch__|RRef|Future", kinds) is not None or read.overload_name.startswith("prim_")


def lines() -> list[str]:
    """The file: a schema per line, and behind it the forms that follow from it."""
    rest = {(s.name, s.overload_name): s for s in wanted()}
    found = []
    for key, base in list(rest.items()):
        if key not in rest or base.name.endswith("_") or any(a.is_out for a in base.arguments):
            continue
        words = []
        written = aten.in_place(base)
        if written is not None and rest.get((written.name, written.overload_name)) == written:
            del rest[written.name, written.overload_name]
            words.append("_")
        for (name, overload), other in list(rest.items()):
            word = out_word(base, other) if name == base.name else ""
            if word and other == aten.out_form(base, word):
                del rest[name, overload]
                words.append(f".{word}")
        found.append((key, line(base, words)))
        del rest[key]
    found += [(key, line(base, [])) for key, base in rest.items()]
    return [text for _, text in sorted(found, key=lambda pair: pair[0][0])]  # stable: overloads stay in their order


def out_word(base: schema.FunctionSchema, other: schema.FunctionSchema) -> str:
    """What would make `other` of `base`, if it is the form with out=."""
    names = [a.name for a in other.arguments if a.is_out]
    if len(names) != len(base.returns):
        return ""
    return other.overload_name if names == aten.names_of_places(base) else f"{other.overload_name}={','.join(names)}"


def line(base: schema.FunctionSchema, words: list[str]) -> str:
    text = re.sub(r"\d\.\d{15,}(e-\d+)?", lambda digits: repr(float(digits[0])), str(base).removeprefix("aten::"))
    return " ".join([text, *([";", *words] if words else [])])


COMPOSITE = "CompositeImplicitAutograd"  # said beside the tags: the operator is made of others, which know their derivatives


def is_composite(read: schema.FunctionSchema) -> bool:
    import torch

    try:
        return torch._C._dispatch_has_kernel_for_dispatch_key(read.name + (read.overload_name and f".{read.overload_name}"), COMPOSITE)
    except RuntimeError:  # an operator of TorchScript alone
        return False


def tags() -> list[str]:
    """A line for each tag: the operators that have it. Left out are those that a schema shows, and what all have."""
    import torch

    found: dict[str, list[str]] = {}
    for read in wanted():
        name = read.name.removeprefix("aten::")
        for tag in getattr(getattr(torch.ops.aten, name), read.overload_name or "default").tags:
            found.setdefault(tag.name, []).append(".".join(filter(None, (name, read.overload_name))))
        if is_composite(read):
            found.setdefault(COMPOSITE, []).append(".".join(filter(None, (name, read.overload_name))))
    return [
        f"{tag}: {' '.join(names)}"
        for tag, names in sorted(found.items())
        if tag not in ("pt2_compliant_tag", "inplace", "out", "generated")
    ]


def main() -> int:
    wrong = 0
    for file, made in ((HOME / "aten_schemas.txt", lines()), (HOME / "aten_tags.txt", tags())):
        if "--check" not in sys.argv:
            file.write_text("\n".join(made) + "\n")
            continue
        before, after = set(file.read_text().splitlines()), set(made)
        print("\n".join([f"- {gone}" for gone in sorted(before - after)] + [f"+ {new}" for new in sorted(after - before)]))
        wrong += before != after
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
