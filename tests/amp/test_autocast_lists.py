"""The rules of autocast are PyTorch's: every operation that has one gives a result of PyTorch's dtype."""

from __future__ import annotations

import logging
import warnings

import pytest
from calls import CALLS

import flambeau
from flambeau.eager import autocast as casting
from flambeau.eager import bind
from flambeau.ops import OPS, autocast

torch = pytest.importorskip("torch")


def result_dtype(framework, call: str, dtype: str, low: str, device: str = "cpu", pretend: str | None = None) -> str:
    """The dtype of what a call gives inside autocast, or its error."""

    def t(*shape, dtype=dtype):
        found = framework.linspace(0.1, 0.9, max(1, framework.Size(shape).numel()), device=device).reshape(shape)
        return found.to(getattr(framework, dtype))

    names = {
        "torch": framework, "F": framework.nn.functional, "t": t, "w": lambda *shape: t(*shape, dtype="float32"),
        "i": lambda *shape: framework.zeros(shape, dtype=framework.int64, device=device),
        "spd": lambda: (framework.eye(3, device=device) * 2).to(getattr(framework, dtype)),
    }  # fmt: skip
    kind = pretend or device
    before = framework.get_autocast_dtype(kind)
    framework.set_autocast_dtype(kind, getattr(framework, low))
    framework.set_autocast_enabled(kind, True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of deprecated functions on the lists
            return str(eval(call, names).dtype).removeprefix("torch.")
    except (RuntimeError, NotImplementedError, ValueError, AssertionError) as problem:
        return f"error: {problem}"
    finally:
        framework.set_autocast_enabled(kind, False)
        framework.set_autocast_dtype(kind, before)


@pytest.mark.parametrize("low", ["bfloat16", "float16"])
@pytest.mark.parametrize("call", CALLS)
def test_results_on_the_cpu_have_pytorchs_dtypes(call: str, low: str):
    """Inside autocast("cpu"), an operation gives a result of another dtype than PyTorch's."""
    for dtype in ("float32", "bfloat16", "float16", "float64"):
        if "LSTM(" in call and dtype not in ("float32", low):
            continue  # there PyTorch takes another kernel, whose result is float32
        theirs = result_dtype(torch, call, dtype, low)
        if not theirs.startswith("error"):  # where PyTorch has no kernel for this mixture, we may have one
            assert result_dtype(flambeau, call, dtype, low) == theirs, (dtype, low)


@pytest.fixture
def gpu_in_name_only(monkeypatch):
    """PyTorch's tensors on a GPU without data, and ours that autocast takes for ones on a GPU."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    monkeypatch.setattr(casting, "_eligible", lambda t, device: t.is_floating_point() and t.dtype is not flambeau.float64)
    monkeypatch.setattr(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)
    return FakeTensorMode()


@pytest.mark.parametrize("call", [c for c in CALLS if "torch.nn." not in c])
def test_results_on_cuda_have_pytorchs_dtypes(call: str, gpu_in_name_only):
    """Inside autocast("cuda"), an operation gives a result of another dtype than PyTorch's."""
    for dtype in ("float32", "float16", "float64"):
        with gpu_in_name_only:
            theirs = result_dtype(torch, call, dtype, "float16", "cuda")
        ours = result_dtype(flambeau, call, dtype, "float16", pretend="cuda")
        # PyTorch's tensors without data are not as strict as those with data: what we refuse only counts in float32.
        if not theirs.startswith(("complex32", "error")) and (dtype == "float32" or not ours.startswith("error")):
            assert ours == theirs, dtype


def test_every_column_can_be_read():
    """What a declaration says of autocast is a rule, or a rule for a device: no word of it is mistyped."""
    bind.everything()
    columns = [(op.name, op.autocast) for op in OPS.values() if isinstance(op.autocast, str)]
    assert len(columns) > 150
    for name, column in columns:
        for clause in column.split(", "):
            *device, rule = clause.removesuffix(" unless dtype").split(" ")
            assert rule in autocast.RULES and device in ([], ["cpu"], ["cuda"]), (name, column)


def with_rules(device):
    """The names of operations with a rule for the device, as PyTorch writes them."""
    bind.everything()
    return {
        name.removeprefix("nn.functional.").replace(".", "_") for name, op in OPS.items() if autocast.declared(op, device)[0] is not None
    }


def test_every_name_on_pytorchs_lists_is_on_ours():
    """PyTorch's dispatcher has an autocast rule for an operation that has none here."""
    inner = """
    _addmm_activation _convolution _grid_sampler_2d_cpu_fallback _lu_with_info _native_multi_head_attention mkldnn_rnn_layer nll_loss2d
    multilabel_margin_loss_forward cross_entropy_loss _scaled_dot_product_flash_attention _thnn_fused_gru_cell _thnn_fused_lstm_cell
    cudnn_convolution cudnn_convolution_transpose
    """.split()  # what PyTorch calls parts of operations that have a rule here under their public names
    for device in ("cpu", "cuda"):
        names = {
            n.removeprefix("aten::").split(".")[0]
            for n in torch._C._dispatch_get_registrations_for_dispatch_key(f"Autocast{device.upper()}")
        }
        padded = {n for n in names if "_pad" in n or "upsample" in n}  # ours are modes of one function
        assert names - padded - set(inner) <= with_rules(device)


@pytest.mark.parametrize("name", ["cat", "stack"])
def test_two_half_precisions_do_not_mix(name: str):
    """Joining float16 tensors in a bfloat16 region is an error that names both."""
    x = flambeau.ones(2, dtype=flambeau.float16)
    with (
        flambeau.autocast("cpu", flambeau.bfloat16),
        pytest.raises(RuntimeError, match=r"Unexpected floating ScalarType.*float16.*bfloat16"),
    ):
        getattr(flambeau, name)([x, x])


def test_binary_cross_entropy_on_cuda_says_what_to_use(gpu_in_name_only):
    """binary_cross_entropy in a float16 region on a GPU is refused, and the error names the safe function."""
    x = flambeau.full((3,), 0.5)
    flambeau.set_autocast_enabled("cuda", True)
    try:
        with pytest.raises(RuntimeError, match=r"unsafe to autocast.*binary_cross_entropy_with_logits"):
            flambeau.nn.functional.binary_cross_entropy(x, x)
    finally:
        flambeau.set_autocast_enabled("cuda", False)
