"""SparseBucket: the gradient of one parameter of which most rows have none. Indices and values travel, not zeros."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from flambeau import dtypes
from flambeau.distributed.data_parallel.bucket import Bucket
from flambeau.distributed.data_parallel.grad_bucket import GradBucket
from flambeau.sparse.making import sparse_coo_tensor
from flambeau.tensor import Tensor
from flambeau.tensor.making.factories import empty


class SparseBucket(Bucket):
    """As Bucket, for one parameter. `flat` is its gradient."""

    def _make(self, dtype: Any) -> None:
        (self.parameter,) = self.parameters
        self.flat = self._nothing()

    def _nothing(self) -> Tensor:
        """A gradient of which no row has anything."""
        p = self.parameter
        indices = empty((1, 0), dtype=dtypes.int64, device=p.device)
        return sparse_coo_tensor(indices, empty((0, *p.shape[1:]), dtype=p.dtype, device=p.device), p.shape)

    def fill(self, factor: float) -> None:
        grad = self.parameter._grad
        self.grads = [grad]
        if grad is None:
            self.flat = self._nothing()
        elif grad.is_sparse:
            self.flat = grad.coalesce() * factor
        else:
            raise RuntimeError(
                f"a parameter of shape {tuple(self.parameter.shape)}, whose module was made with sparse=True, has received a dense gradient: "
                "all uses of the parameter give sparse gradients, or none does"
            )

    def keep(self) -> None:
        """A sparse gradient has no place of its own in a bucket."""

    def give(self, unused: Collection[int]) -> None:
        """Neither here."""

    def spread(self, unused: Collection[int] = ()) -> None:
        if self.indices[0] not in unused:
            self.parameter._grad = self.flat

    def replace(self, result: Tensor) -> None:
        self.flat = result

    def as_zeros(self, last: bool) -> GradBucket:
        return GradBucket(self.number, self._nothing(), self.parameters, last)
