"""What works on matrices or images, of which there may be a batch: the batch may be cut."""

from __future__ import annotations

from typing import Any

from flambeau.distributed.tensor.rules import rule
from flambeau.distributed.tensor.ways import Question, R, Way, cuts


@rule("tril", "triu", "linalg.inv", "linalg.inv_ex", "linalg.det", "linalg.slogdet", "linalg.qr", "linalg.eigh", "linalg_svd", "linalg_svdvals",
      "linalg_cholesky_ex", "linalg.matrix_exp", "cholesky_inverse")  # fmt: skip
def matrices(question: Question) -> list[Way]:
    """Cuts through the dimensions in front of the last two."""
    rank = len(question.shapes[0])
    ways = [question.everywhere(p) for p in cuts(question.now[:1]) if p.dim < rank - 2]
    terms = [question.everywhere(p) for p in question.now[:1] if p.is_partial("sum") and question.call.name in ("tril", "triu")]
    return [*ways, *terms, question.replicated()]


@rule("_c2c", "_r2c", "_c2r")
def transforms(question: Question) -> list[Way]:
    """Fourier transforms along `dims`, which have to be whole."""
    rank = len(question.shapes[0])
    fixed = {d % rank for d in question.argument("dims")}
    return [*[question.everywhere(p) for p in cuts(question.now) if p.dim not in fixed], question.replicated()]


PLANES = """_convolution_of _max_pool1d _max_pool2d _max_pool3d _avg_pool1d _avg_pool2d _avg_pool3d _adaptive_avg_pool1d_planes _adaptive_avg_pool2d_planes
    _adaptive_avg_pool3d_planes _adaptive_max_pool1d _adaptive_max_pool2d _adaptive_max_pool3d _resampled _im2col _col2im _by_running"""


def _sized(call: Any, pieces: list, found: Any) -> Any:
    """`sizes` of a convolution are those of the whole result: this rank's batch is smaller."""
    values = call.with_tensors(pieces)
    at = call.op.parameters.index("sizes") if "sizes" in call.op.parameters else None
    if call.name == "_convolution_of" and at is not None and len(values[at]) == len(call.tensors[0].shape):
        values[at] = (pieces[0].shape[0], *values[at][1:])
    return call.run_with(values)


@rule(*PLANES.split(), run=_sized)
def images(question: Question) -> list[Way]:
    """Batches of images: samples may be dealt out, weights are whole."""
    rest = (R,) * (len(question.now) - 1)
    ways = [Way((p, *rest), (p,) * len(question.results)) for p in cuts(question.now[:1]) if p.dim == 0 and len(question.shapes[0]) > 2]
    return [*ways, question.replicated()]
