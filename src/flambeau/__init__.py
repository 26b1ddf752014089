"""Flambeau: a deep-learning framework with PyTorch's API, in Python down to the kernel.

    import flambeau as torch

This file is the door: every public name, and where it comes from. Operations come from the declarations in `ops/`; whatever is a room of
its own (nn, optim, linalg, ...) or not needed by every program is imported when it is first asked for, so that `import flambeau` costs
little more than `import numpy`.
"""

# ruff: noqa: E402, F401, F405, I001 - names are imported to be public, in the order of their subjects, and lists of names are easier to read as text

import math as _math
from importlib import import_module as _import_module
from io import BytesIO as _BytesIO
from typing import TYPE_CHECKING as _TYPE_CHECKING

import numpy as _numpy  # from here, not from a file imported by others: deep in a stack of imports CPython 3.11 needs 20 ms more for it

if _TYPE_CHECKING:
    from flambeau._surface import *  # what this file makes when it is asked for, written down by tools/surface.py

# Modules that only programs written for PyTorch ask for lie in a folder of their own: flambeau._C is torch_names/_C.
__path__ += [f"{folder}/torch_names" for folder in __path__]

# vocabulary
from flambeau.version import __version__
from flambeau import dtypes as _dtypes, errors as _errors
from flambeau.devices import device, get_default_device, set_default_device
from flambeau.dtypes import (
    bfloat16, can_cast, complex32, complex64, complex128, dtype, finfo, float4_e2m1fn_x2, float8_e4m3fn, float8_e4m3fnuz, float8_e5m2,
    float8_e5m2fnuz, float8_e8m0fnu, float16, float32, float64, get_default_dtype, iinfo, int8, int16, int32, int64, promote_types, qint8,
    qint32, quint8, set_default_dtype, uint8, uint16, uint32, uint64,
)  # fmt: skip
from flambeau.errors import AcceleratorError, OutOfMemoryError
from flambeau.tensor.layouts import jagged, layout, sparse_bsc, sparse_bsr, sparse_coo, sparse_csc, sparse_csr, strided
from flambeau.ops import ABOVE as _ABOVE
from flambeau.ops.formats import channels_last, channels_last_3d, contiguous_format, memory_format, preserve_format

# tensors, and what they are asked
from flambeau.tensor import Size, Tensor
from flambeau.tensor.methods.queries import (
    broadcast_shapes, detach, get_device, is_complex, is_conj, is_distributed, is_floating_point, is_inference, is_neg, is_nonzero,
    is_same_size, is_signed, is_tensor, numel, _has_compatible_shallow_copy_type,
)  # fmt: skip
from flambeau.tensor.memory.typed_storage import LEGACY_STORAGES as _LEGACY_STORAGES, TypedStorage
from flambeau.tensor.memory.untyped_storage import UntypedStorage, is_storage
from flambeau.tensor.making.legacy import REMOVED as _REMOVED, TENSOR_TYPES as _TENSOR_TYPES, set_default_tensor_type, typename
from flambeau.tensor import methods as _methods  # attaches them, as the next do
from flambeau.tensor.making import pickling as _pickling
from flambeau.tensor.memory import host_memory as _host_memory, typed_storage as _typed_storage

# making tensors
from flambeau.tensor.making.factories import (
    as_tensor, asarray, empty, empty_permuted, empty_strided, eye, from_file, frombuffer, full, full_like, scalar_tensor, tensor,
)  # fmt: skip
from flambeau.tensor.making.interop import from_dlpack, from_numpy, to_dlpack
from flambeau import random
from flambeau.random import Generator, default_generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state

# how programs run
from flambeau.modes import (
    enable_grad, inference_mode, is_grad_enabled, is_inference_mode_enabled, no_grad, set_grad_enabled,
)  # fmt: skip
from flambeau.autograd import api as _api  # attaches Tensor.backward
from flambeau.eager import bind as _bind
from flambeau.eager import overrides as _overrides
from flambeau.interpreters.by_name import DisableTorchFunctionSubclass

_bind.bind_all()
_ABOVE.update(dispatch=lambda: (_import_module("flambeau.dispatch.calls"), _import_module("flambeau.dispatch.members"))[1])
_ABOVE.update(higher_order=lambda: _import_module("flambeau._higher_order_ops.higher_order").Namespace)
_ABOVE.update(run=lambda: _import_module("flambeau.library.calls"), named=lambda name: getattr(_import_module(__name__), name))
_overrides.members_ask()

# The in-place forms that PyTorch has as functions too: torch.relu_(x) is x.relu_().
_IN_PLACE = frozenset("""
abs_ acos_ acosh_ addmv_ alpha_dropout_ arccos_ arccosh_ arcsin_ arcsinh_ arctan_ arctanh_ as_strided_ asin_ asinh_ atan_ atanh_ ceil_
celu_ clamp_ clamp_max_ clamp_min_ clip_ conj_physical_ cos_ cosh_ deg2rad_ detach_ dropout_ erf_ erfc_ exp_ exp2_ expm1_
feature_alpha_dropout_ feature_dropout_ fill_ fix_ floor_ frac_ gcd_ i0_ index_put_ lcm_ ldexp_ log_ log10_ log1p_ log2_ logit_
nan_to_num_ neg_ negative_ rad2deg_ reciprocal_ relu_ resize_as_ round_ rrelu_ rsqrt_ selu_ sigmoid_ sin_ sinc_ sinh_ sqrt_ square_
tan_ tanh_ threshold_ trunc_ xlogy_ zero_
""".split())  # fmt: skip

# -- constants and old names ---------------------------------------------------------------------------------------

e, pi, inf, nan, newaxis = _math.e, _math.pi, _math.inf, _math.nan, None
legacy_contiguous_format = contiguous_format
chalf = complex32
storage = _typed_storage  # torch.storage
globals().update(_TENSOR_TYPES)
globals().update(_LEGACY_STORAGES)
globals().update({name: function for name, function in _REMOVED.items() if name not in globals()})
has_lapack, has_openmp, has_mkl, has_spectral = True, False, False, True

# -- rooms that are imported when asked for ------------------------------------------------------------------------

_ROOMS = frozenset({
    "_C", "_custom_op", "_custom_ops", "_library", "_ops", "__config__", "__future__", "_dynamo", "_VF", "_higher_order_ops", "_jit_internal", "_subclasses", "_tensor", "_tensor_str", "_utils", "amp", "autograd", "backends", "compiler", "cpu", "cuda", "distributed", "distributions", "fft", "func", "futures", "fx", "hub",
    "_functorch", "_guards", "_inductor", "_prims_common",
    "jit", "library", "linalg", "masked", "memory", "multiprocessing", "nested", "nn", "onnx", "ops", "optim", "overrides", "profiler", "quasirandom", "random", "return_types", "serialization",
    "signal", "sparse", "special",
    "mps", "storage", "testing", "types", "utils", "version", "viz", "xpu",
    "accelerator", "ao", "functional", "quantization", "torch_version",
})  # fmt: skip
# Names of this room that not every program uses, or that are made at run time, by the file they are in.
_LATER = {name: home for home, names in {
    "amp.autocast_mode": """autocast_decrement_nesting autocast_increment_nesting clear_autocast_cache get_autocast_cpu_dtype get_autocast_dtype
        get_autocast_gpu_dtype get_autocast_ipu_dtype get_autocast_xla_dtype is_autocast_cache_enabled is_autocast_cpu_enabled is_autocast_enabled
        is_autocast_ipu_enabled is_autocast_xla_enabled set_autocast_cache_enabled set_autocast_cpu_dtype set_autocast_cpu_enabled
        set_autocast_dtype set_autocast_enabled set_autocast_gpu_dtype set_autocast_ipu_dtype set_autocast_ipu_enabled set_autocast_xla_dtype
        set_autocast_xla_enabled""",
    "autograd.anomaly_mode": "is_anomaly_check_nan_enabled is_anomaly_enabled set_anomaly_enabled",
    "checks": """_assert _assert_async _check _check_index _check_is_size _check_not_implemented _check_tensor_all _check_type _check_value
        _check_with""",
    "control_flow": "cond while_loop",
    "accelerator": "get_device_module",
    "dtypes": "int1 int2 int3 int4 int5 int6 int7 quint2x4 quint4x2 uint1 uint2 uint3 uint4 uint5 uint6 uint7",
    "tensor.making.factories": "empty_like ones ones_like tril_indices triu_indices zeros zeros_like",
    "numbered_losses": """binary_cross_entropy_with_logits cosine_embedding_loss ctc_loss hinge_embedding_loss kl_div margin_ranking_loss
        poisson_nll_loss triplet_margin_loss""",
    "tensor.printing": "set_printoptions",
    "tensor.quantized.qschemes": "per_channel_affine per_channel_affine_float_qparams per_channel_symmetric per_tensor_affine per_tensor_symmetric qscheme",
    "tensor.quantized.quantized_tensor": """dequantize int_repr q_per_channel_axis q_per_channel_scales q_per_channel_zero_points q_scale q_zero_point
        quantize_per_channel quantize_per_tensor quantize_per_tensor_dynamic""",
    "tensor.making.random_factories": "normal rand rand_like randint randint_like randn randn_like randperm",
    "tensor.making.ranges": "arange linspace logspace range",
    "tensor.quantized.script_object": "ScriptObject",
    "tensor.memory.untyped_storage": "StorageBase",
    "determinism": """are_deterministic_algorithms_enabled get_deterministic_debug_mode is_deterministic_algorithms_warn_only_enabled
        set_deterministic_debug_mode use_deterministic_algorithms""",
    "settings": """get_float32_matmul_precision get_num_interop_threads get_num_threads is_warn_always_enabled set_float32_matmul_precision
        set_flush_denormal set_num_interop_threads set_num_threads set_warn_always""",
    "sparse.invariants": "_validate_sparse_compressed_tensor_args _validate_sparse_coo_tensor_args",
    "sparse.making": """sparse_bsc_tensor sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor""",
    "sparse.products": "dsmm hsmm hspmm saddmm smm spmm sspaddmm",
    "symbolic": "SymBool SymFloat SymInt sym_float sym_int sym_ite sym_max sym_min sym_not sym_sqrt sym_sum",
    "tensor.making.windows": "bartlett_window blackman_window hamming_window hann_window kaiser_window",
}.items() for name in names.split()}  # fmt: skip
_ELSEWHERE = {
    "GradScaler": "amp", "autocast": "amp", "compile": "compiler", "_disable_dynamo": "compiler",
    "load": "serialization", "plan": "eager.plan_words", "save": "serialization", "summary": "viz", "vmap": "func",
    "ScriptFunction": "jit", "ScriptModule": "jit", "PyTorchFileReader": "_C", "PyTorchFileWriter": "_C", "DeviceObjType": "_C", "TensorType": "_C", "Type": "_C",
    **dict.fromkeys(("AnyType", "BoolType", "ComplexType", "DispatchKey", "FloatType", "FunctionSchema", "IntType", "ListType", "NoneType", "NumberType",
                     "OptionalType", "StringType", "Tag", "TupleType"), "_C"),
    "Future": "futures",
    "Event": "cuda", "Stream": "cuda",
}  # fmt: skip


def __getattr__(name: str):
    """Make an operation, or import a room or a name that lives in one, when it is first asked for."""
    if name == "__all__":
        return [n for n in __dir__() if not n.startswith("_") and n not in _ROOMS and n not in _ELSEWHERE]
    if name == "Storage":  # of the numbers that a tensor has by default
        return _LEGACY_STORAGES[_typed_storage.storage_name(get_default_dtype())]
    globals()[name] = found = _find(name)
    return found


_import_module("flambeau.version").found_out["cuda"] = lambda: _import_module("flambeau.cuda.choosing").runtime_version()


def _find(name: str):
    if name == "torch":  # PyTorch's package imports itself, and programs have been seen to say torch.torch
        return _import_module(__name__)
    if name in _IN_PLACE and hasattr(Tensor, name):
        method = getattr(Tensor, name)
        return _bind.under(name, method.op, in_place=True) if hasattr(method, "op") else method
    if name in _bind.functions:
        return _bind.functions[name]
    home = name if name in _ROOMS else _LATER.get(name) or _ELSEWHERE.get(name) or ("foreach" if name.startswith("_foreach_") else None)
    if home is None:
        raise AttributeError(f"module 'flambeau' has no attribute {name!r}")
    try:
        room = _import_module(f"flambeau.{home}")
    except ModuleNotFoundError as problem:
        if problem.name != f"flambeau.{home}":
            raise
        raise AttributeError(f"module 'flambeau' has no attribute {name!r}: the room flambeau.{home} is not built yet") from None
    return room if home == name else getattr(room, name)


_errors.explain_memory = lambda *asked: _find("memory").explanation(*asked)
# A plain pickle of PyTorch's (pickle.dump of a tensor) has each storage as a file of its own, and calls this to read it.
_typed_storage._load_from_bytes = lambda raw: _find("load")(_BytesIO(raw), weights_only=False)


def __dir__() -> list[str]:
    operations = {name for name in _bind.functions if "." not in name} | (_IN_PLACE & vars(Tensor).keys())
    return sorted({*globals(), *operations, *_LATER, *_ROOMS, *_ELSEWHERE, "Storage"})


# PyTorch's short names of dtypes. Last, because they hide Python's own float, int and bool in this file.
globals().update({alias: d for alias, d in _dtypes.BY_NAME.items() if alias not in ("float", "int", "bool")})
float, int, bool = _dtypes.float32, _dtypes.int32, _dtypes.bool
