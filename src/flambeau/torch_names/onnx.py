"""torch.onnx: writing models as ONNX files. Flambeau does not: programs that ask whether it is being done are told no."""

from __future__ import annotations

from flambeau import import_only

__all__ = ["OnnxExporterError", "export", "is_in_onnx_export", "register_custom_op_symbolic"]

export, register_custom_op_symbolic = import_only.functions(
    "torch.onnx",
    "export register_custom_op_symbolic",
    "Flambeau writes no ONNX files. Save the state_dict() with torch.save, and export it with PyTorch",
)


class OnnxExporterError(RuntimeError):
    """What a failed export raises, for `except`."""


def is_in_onnx_export() -> bool:
    """Whether a model is being written as an ONNX file: no."""
    return False
