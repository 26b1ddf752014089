"""Operators of PyTorch's that are pieces of unique, attention, linear algebra, Fourier transforms and histograms. As in parts.py."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from flambeau.library.parts import enter, named, op, part
from flambeau.tensor import Tensor


@part("_unique")
def _unique(self, sorted, return_inverse):
    values, inverse = named("unique")(self, sorted=sorted, return_inverse=True)
    return values, inverse if return_inverse else inverse.new_empty(0)


@part("_unique2")
def _unique2(self, sorted, return_inverse, return_counts):
    values, inverse, counts = named("unique")(self, sorted=sorted, return_inverse=True, return_counts=True)
    return values, inverse if return_inverse else inverse.new_empty(0), counts if return_counts else counts.new_empty(0)


@part("unique_consecutive")
def unique_consecutive(self, return_inverse, return_counts, dim):
    values, inverse, counts = named("unique_consecutive")(self, return_inverse=True, return_counts=True, dim=dim)
    return values, inverse if return_inverse else inverse.new_empty(0), counts if return_counts else counts.new_empty(0)


@part("_linalg_det")
def _linalg_det(A):
    factors, pivots = op("linalg.lu_factor")(A)
    return op("linalg.det")(A), factors, pivots


@part("_linalg_slogdet")
def _linalg_slogdet(A):
    sign, logabsdet = op("linalg.slogdet")(A)
    return sign, logabsdet, *op("linalg.lu_factor")(A)


@part("_linalg_eigh")
def _linalg_eigh(A, UPLO, compute_v):
    if compute_v:
        return tuple(op("linalg.eigh")(A, UPLO))
    return op("linalg.eigvalsh")(A, UPLO), A.new_empty(0)


@part("_linalg_svd")
def _linalg_svd(A, full_matrices, compute_uv, driver):
    if compute_uv:
        return tuple(op("linalg.svd")(A, full_matrices, driver=driver))
    return A.new_empty(0), op("linalg.svdvals")(A, driver=driver), A.new_empty(0)


@part("_linalg_solve_ex")
def _linalg_solve_ex(A, B, left, check_errors):
    result, info = op("linalg.solve_ex")(A, B, left=left, check_errors=check_errors)
    return result, *op("linalg.lu_factor")(A), info


def _scaled(found: Tensor, sizes: list[int], normalization: int) -> Any:
    n = prod(sizes)
    return found if normalization == 0 else found / n**0.5 if normalization == 1 else found / n


@part("_fft_c2c")
def _fft_c2c(self, dim, normalization, forward):
    transform = op("fft.fftn" if forward else "fft.ifftn")
    found = transform(self, dim=tuple(dim), norm="backward" if forward else "forward")
    return _scaled(found, [self.shape[d] for d in dim], normalization)


@part("_fft_r2c")
def _fft_r2c(self, dim, normalization, onesided):
    found = op("fft.rfftn" if onesided else "fft.fftn")(self, dim=tuple(dim))
    return _scaled(found, [self.shape[d] for d in dim], normalization)


@part("_fft_c2r")
def _fft_c2r(self, dim, normalization, last_dim_size):
    sizes = [*[self.shape[d] for d in dim[:-1]], last_dim_size]
    return _scaled(op("fft.irfftn")(self, s=sizes, dim=tuple(dim), norm="forward"), sizes, normalization)


SHORT: dict[str, Callable] = {
    "unique_dim": lambda self, dim, sorted, return_inverse, return_counts: tuple(
        named("unique")(self, sorted=sorted, return_inverse=True, return_counts=True, dim=dim)
    ),
    "scaled_dot_product_attention _scaled_dot_product_attention_math": lambda dropout_mask=None, **given: op(
        "nn.functional.scaled_dot_product_attention"
    )(**given),
    "_histogramdd_bin_edges": lambda self, **given: list(op("histogramdd")(self, **given)[1]),
    "_histogramdd_from_bin_cts": lambda self, **given: op("histogramdd")(self, **given)[0],
    "_histogramdd_from_bin_tensors": lambda self, bins, weight, density: op("histogramdd")(
        self, tuple(bins), weight=weight, density=density
    )[0],
}
enter(SHORT)
